"""What authors may import from ``engine`` is what it lists: no more, no less, in order."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

import pytest

import engine
from tests.tidy.sources import refuse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def surface_faults(listed: Sequence[str], namespace: Mapping[str, object]) -> Iterator[str]:
    """Differences between what a package lists in ``__all__`` and what it holds, and a list out of order.

    The order is that of ruff: constants, classes, functions, each by name.
    """
    held = {
        name
        for name, value in namespace.items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and type(value).__name__ != "_Feature"  # from __future__ import annotations
    }
    for name in sorted(held - set(listed)):
        yield f"engine.{name} can be imported but is not in __all__; list it or do not import it there"
    for name in sorted(set(listed) - held):
        yield f"engine.__all__ lists {name}, which is not there; import it or take it off the list"
    if list(listed) != sorted(set(listed), key=_rank):
        yield "engine.__all__ is out of order; run ruff check --fix"


def _rank(name: str) -> tuple[int, str]:
    if name.isupper():
        return 0, name
    return (1, name) if name[0].isupper() else (2, name)


def test_the_engine_lists_what_it_holds() -> None:
    refuse(surface_faults(getattr(engine, "__all__", []), vars(engine)))


@pytest.mark.parametrize(
    ("listed", "namespace", "expected"),
    [
        ([], {"run": 1}, "engine.run can be imported"),
        (["run"], {}, "which is not there"),
        (["run", "Context"], {"run": 1, "Context": 1}, "out of order"),
        (["run", "run"], {"run": 1}, "out of order"),
    ],
)
def test_a_wrong_list_is_found(listed: list[str], namespace: dict[str, object], expected: str) -> None:
    [fault] = surface_faults(listed, namespace)
    assert expected in fault


def test_a_right_list_is_left_alone() -> None:
    namespace = {"LIMIT": 1, "Context": 1, "run": 1, "errors": types.ModuleType("errors"), "_hidden": 1}
    assert not list(surface_faults(["LIMIT", "Context", "run"], namespace))
