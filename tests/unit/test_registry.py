"""What ``@workflow`` says to an author who uses it wrongly: at import, and what to write instead."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

from engine import Context, Registry, workflow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ANYTHING: Any = workflow


def test_a_workflow_without_a_name_is_told_how_to_give_one() -> None:
    async def greet(_ctx: Context, _given: Any) -> None:
        """Greet."""

    with pytest.raises(TypeError, match=r'write @workflow\("greet"\)'):
        ANYTHING(greet)


def test_a_workflow_is_an_async_function() -> None:
    def greet(_ctx: Context, _given: Any) -> None:
        """Greet."""

    async def numbers(_ctx: Context, _given: Any) -> Any:
        yield 1

    with pytest.raises(TypeError, match="greet must be an async function to be a workflow"):
        ANYTHING("greet", registry=Registry())(greet)
    with pytest.raises(TypeError, match="numbers must be an async function"):
        ANYTHING("numbers", registry=Registry())(numbers)


def test_what_stands_for_an_async_function_is_a_workflow() -> None:
    class Greeter:
        async def __call__(self, _ctx: Context, _given: Any) -> str:
            return "hello"

    async def greet(prefix: str, _ctx: Context, _given: Any) -> str:
        return prefix

    async def plain(_ctx: Context, _given: Any) -> str:
        return "hello"

    @functools.wraps(plain)
    def wrapped(ctx: Context, given: Any) -> Awaitable[str]:
        return plain(ctx, given)

    functions: list[Callable[..., Awaitable[Any]]] = [Greeter(), functools.partial(greet, "hello"), wrapped]
    registry = Registry()
    for number, fn in enumerate(functions):
        made = workflow(f"greet-{number}", registry=Registry())(fn)
        assert made.fn is fn
    assert registry.names() == []
