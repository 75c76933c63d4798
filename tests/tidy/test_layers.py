"""Imports point one way; each checker is also shown a source that it must refuse."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.tidy.layers import (
    ENGINE_ORDER,
    cycle_faults,
    dependency_faults,
    engine_order_faults,
    purity_faults,
    room_faults,
)
from tests.tidy.sources import PRODUCT, Source, project_sources, refuse, sources_of


def made(texts: dict[str, str]) -> list[Source]:
    return [Source.parse(f"{path}.py", text) for path, text in texts.items()]


def test_rooms_depend_in_one_direction() -> None:
    refuse(room_faults(project_sources()))


def test_engine_modules_keep_their_order() -> None:
    refuse(engine_order_faults(sources_of("engine")))


def test_engine_depends_on_nothing_outside() -> None:
    refuse(dependency_faults(sources_of("engine")))


def test_the_data_model_does_no_io() -> None:
    refuse(purity_faults(sources_of("adapters")))


@pytest.mark.parametrize("text", ["import asyncio", "from adapters.dynamodb.table import T", "import aiobotocore"])
def test_io_in_the_data_model_is_found(text: str) -> None:
    [fault] = purity_faults(made({"adapters/dynamodb/model/plan": text}))
    assert "does no I/O" in fault


def test_no_module_is_part_of_a_ring() -> None:
    refuse(cycle_faults(sources_of(*PRODUCT)))


def test_order_names_each_module_once() -> None:
    counts = Counter(module for line in ENGINE_ORDER for module in line)
    assert [module for module, count in counts.items() if count > 1] == []


def test_order_names_only_what_exists() -> None:
    there = {source.module.removeprefix("engine.") for source in sources_of("engine")}
    gone = {module for line in ENGINE_ORDER for module in line} - there
    assert not gone, f"take {sorted(gone)} off ENGINE_ORDER in tests/tidy/layers.py"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("engine/run", "from adapters.dynamodb import store"),
        ("adapters/sqs", "import handlers.api"),
        ("handlers/api", "def late():\n    from infra import cli"),
        ("engine/scope", "from tests.unit import support"),
        ("examples/shop", "from adapters import sqs"),
    ],
)
def test_a_wrong_direction_is_found(path: str, text: str) -> None:
    [fault] = room_faults(made({path: text}))
    assert "one way" in fault


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({"engine/history/storage": "from engine.scope import Scope", "engine/scope": ""}, "stands above it"),
        ({"engine/ops/step": "from engine.ops.sleep import x", "engine/ops/sleep": ""}, "no operation imports"),
        ({"engine/ops/branch": "from engine.ops import loop", "engine/ops/loop": ""}, "stands above it"),
        ({"engine/ids": "import engine.entry", "engine/entry": ""}, "driver's ports only"),
        ({"engine/run": "from engine import Context", "engine/__init__": ""}, "__init__"),
        ({"engine/gadget": ""}, "add 'gadget' to ENGINE_ORDER"),
        (
            {
                "engine/entry": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from engine.run import R",
                "engine/run": "",
            },
            "stands above it",
        ),
        (
            {"engine/scope": "def late():\n    from .author.context import Context", "engine/author/context": ""},
            "stands above it",
        ),
    ],
)
def test_an_import_against_the_order_is_found(texts: dict[str, str], expected: str) -> None:
    [fault] = engine_order_faults(made(texts))
    assert expected in fault


def test_an_import_along_the_order_is_no_fault() -> None:
    texts = {
        "engine/ops/step": "from engine.scope import Scope\nfrom engine.ops.branch import run",
        "engine/ops/branch": "from engine.errors import TorporError",
        "engine/scope": "",
        "engine/errors": "",
        "engine/ids": "from engine.driver import Clock",
        "engine/driver": "",
    }
    assert not list(engine_order_faults(made(texts)))


def test_a_vendor_in_the_engine_is_found() -> None:
    [fault] = dependency_faults(made({"engine/run": "import asyncio\nimport cbor2\nimport botocore.session"}))
    assert "botocore.session" in fault


def test_a_ring_is_found_even_under_type_checking() -> None:
    late = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from adapters.b import B"
    [fault] = cycle_faults(made({"adapters/a": late, "adapters/b": "def f():\n    import adapters.a"}))
    assert "adapters.a" in fault
    assert "adapters.b" in fault
