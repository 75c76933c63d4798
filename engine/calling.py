"""Calling an author's function: one that is async in the event loop, any other in a thread, so that it may block."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from engine.errors import RecordedError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from engine.turn import Turn


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether a call of ``fn`` makes a coroutine: of a function, of a partial of one, of an object that is called."""
    if inspect.iscoroutinefunction(fn):
        return True
    inner = getattr(fn, "func", fn)
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004


def begin(turn: Turn, fn: Callable[..., Any], args: tuple[Any, ...]) -> Coroutine[Any, Any, Any]:
    """The call ``fn(*args)``, to be awaited; cancelling it stops an async function, and leaves a thread to itself.

    While it runs in a thread it counts in ``turn.threads``.
    """
    if inspect.iscoroutinefunction(fn):
        made: Coroutine[Any, Any, Any] = fn(*args)
        return made
    return _awaited(fn(*args)) if is_async(fn) else _in_thread(turn, fn, args)


def gave_up(error: asyncio.CancelledError) -> Exception | None:
    """The failure of a function that awaited what somebody else cancelled; None where its own task is cancelled."""
    task = asyncio.current_task()
    if task is not None and task.cancelling() > 0:
        return None
    failure = RecordedError("CancelledError", str(error) or "the function awaited something that was cancelled")
    failure.__cause__ = error
    return failure


async def _awaited(answer: Any) -> Any:
    return await answer


async def _in_thread(turn: Turn, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    turn.threads += 1
    try:
        answer = await asyncio.to_thread(_called, fn, args)
    finally:
        turn.threads -= 1
    return await answer if inspect.isawaitable(answer) else answer


def _called(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        return fn(*args)
    except StopIteration as error:
        # No future can carry it, so its caller would wait for ever; a coroutine turns it into the same.
        raise RuntimeError("the function raised StopIteration") from error
