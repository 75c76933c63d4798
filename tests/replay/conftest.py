"""How much the replay proof runs: ``--proof-examples`` from ``--proof-first`` on, ``--proof-crashes`` of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

EXAMPLES = 5
"""Few enough that the whole suite stays quick; a nightly run asks for thousands."""


CRASHES = 8
"""Per program; as many as it has writes is every one."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--proof-examples", type=int, default=EXAMPLES, help="programs that the replay proof runs")
    parser.addoption(
        "--proof-crashes", type=int, default=CRASHES, help="crashes of each program, spread over its writes"
    )
    parser.addoption("--proof-first", type=int, default=0, help="the seed of the first program")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "proof_seed" in metafunc.fixturenames:
        first = metafunc.config.getoption("--proof-first")
        metafunc.parametrize("proof_seed", range(first, first + metafunc.config.getoption("--proof-examples")))
    if "proof_crashes" in metafunc.fixturenames:
        metafunc.parametrize("proof_crashes", [metafunc.config.getoption("--proof-crashes")], ids=["crashes"])
