from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Coroutine, Iterator  # noqa: TC003 - annotations are resolved here
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from engine import values
from engine.values import PLAIN
from tests.unit.value_models import Color, Level, Order, Point, Shade, order

if TYPE_CHECKING:
    import nowhere  # type: ignore[import-not-found]


def plain_function(order: Order, count: int = 1, *rest: str, key: str = "") -> Point: ...  # type: ignore[empty-body]


def coroutine_maker() -> Coroutine[Any, Any, Point]: ...  # type: ignore[empty-body]


def awaitable_maker() -> Awaitable[list[Point]]: ...  # type: ignore[empty-body]


async def awaited() -> list[Order]: ...  # type: ignore[empty-body]


def unresolvable(first: nowhere.Thing, second: Point) -> nowhere.Thing: ...


def half_resolvable(first: nowhere.Thing) -> Point: ...  # type: ignore[empty-body]


def anything() -> Any: ...


def nothing() -> None: ...


@contextmanager
def _around() -> Iterator[None]:
    yield


@_around()
def decorated(first: Here, second: Point) -> Here: ...  # type: ignore[empty-body]


@cache
def kept(first: Here) -> Here: ...  # type: ignore[empty-body]


@dataclass(frozen=True)
class Here:
    """Unknown to the module of the decorator."""


class Service:
    def method(self, point: Point) -> Color: ...  # type: ignore[empty-body]

    async def __call__(self, level: Level) -> Shade: ...  # type: ignore[empty-body]


def test_return_types() -> None:
    assert values.return_type(plain_function) is Point
    assert values.return_type(coroutine_maker) is Point
    assert values.return_type(awaitable_maker) == list[Point]
    assert values.return_type(awaited) == list[Order]
    assert values.return_type(half_resolvable) is Point
    assert values.return_type(nothing) is type(None)
    assert values.return_type(Service().method) is Color
    assert values.return_type(Service()) is Shade
    assert values.return_type(partial(partial(plain_function), count=1)) is Point
    assert values.return_type(Point) is Point
    assert values.return_type(plain_function) is Point


def test_no_type_where_none_is_declared() -> None:
    for fn in (unresolvable, anything, lambda: 0, len, print, partial(len), "not a function"):
        assert values.return_type(fn) is PLAIN  # type: ignore[arg-type]


def test_input_types() -> None:
    assert values.input_type(plain_function, 0) is Order
    assert values.input_type(plain_function, 1) is int
    assert values.input_type(plain_function, 7) is str
    assert values.input_type(unresolvable, 0) is PLAIN
    assert values.input_type(unresolvable, 1) is Point
    assert values.input_type(unresolvable, 2) is PLAIN
    assert values.input_type(Service().method, 0) is Point
    assert values.input_type(Service.method, 1) is Point
    assert values.input_type(Service(), 0) is Level
    assert values.input_type(partial(plain_function, order()), 0) is int
    assert values.input_type(lambda order: order, 0) is PLAIN
    assert values.input_type(print, 0) is PLAIN


def test_types_of_an_enclosing_function_are_found_where_they_are_used() -> None:
    @dataclass
    class Local:
        x: int

    def maker() -> Local:
        return Local(1)

    assert values.return_type(maker) is Local


def test_a_decorator_from_elsewhere_does_not_hide_the_types() -> None:
    assert values.return_type(decorated) is Here
    assert values.input_type(decorated, 0) is Here
    assert values.input_type(decorated, 1) is Point
    assert values.return_type(kept) is Here
    assert values.input_type(kept, 0) is Here

    @dataclass
    class Local:
        x: int

    @_around()
    def maker(local: Local) -> Local:
        return Local(local.x)

    assert values.return_type(maker) is Local
    assert values.input_type(maker, 0) is Local


def test_functions_are_not_kept_alive() -> None:
    import gc  # noqa: PLC0415
    import weakref  # noqa: PLC0415

    def passing() -> int:
        return 1

    assert values.return_type(passing) is int
    reference = weakref.ref(passing)
    del passing
    gc.collect()
    assert reference() is None


def test_pydantic_is_not_imported_for_it() -> None:
    program = (
        "import sys, dataclasses\nfrom engine import values\n"
        "@dataclasses.dataclass\nclass A:\n x: int\n"
        "values.round_trip(A(1), A); values.round_trip({'a': {1}})\n"
        "print('pydantic' in sys.modules)"
    )
    environment = {"PYTHONPATH": ":".join(sys.path)}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True, text=True)
    assert run.stdout == "False\n"
