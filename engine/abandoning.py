"""Going on without code that holds on to every signal: it is left where it stands, and never gets control back."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from engine import limits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

T = TypeVar("T")

_log = logging.getLogger("torpor")

_LEFT: deque[Any] = deque(maxlen=limits.ABANDONED_MAX)
"""Code that was left, kept: to let go of it closes it, and closing hands control to its handlers once more."""


async def held(work: Callable[[], Awaitable[T]]) -> T:
    """What ``work()`` gives, or the signal that its operations were given up with (see ``give_up``)."""
    return await _Held(work())


async def give_up(signal: BaseException, place: str) -> None:
    """End the work that the caller is part of with ``signal``, and never return.

    Raising would not end it: code that catches everything, in a loop, can only be left. Returns where the caller runs
    in a task that the author made: it is not resumed from here, and only its own code can end it.
    """
    holder = _HOLDER.get()
    if holder is None or not holder.is_here():
        return
    _log.error(
        "workflow code in %s swallows %s and goes on, again and again; it is left behind. Let the engine's signals "
        "pass: catch Exception, not BaseException",
        place,
        type(signal).__name__,
    )
    holder.signal = signal
    await asyncio.sleep(0)


class _Held(Generic[T]):
    """Work that is resumed from here, whatever it waits for, and so can be left at any wait."""

    __slots__ = ("_task", "_work", "signal")

    def __init__(self, work: Awaitable[T]) -> None:
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self.signal: BaseException | None = None

    def is_here(self) -> bool:
        """Whether the caller runs in the task that this resumes."""
        return self._task is asyncio.current_task()

    def __await__(self) -> Generator[Any, Any, T]:
        self._task = asyncio.current_task()
        outer = _HOLDER.get()
        _HOLDER.set(self)
        try:
            value = yield from self._resumed(self._work.__await__())
        except GeneratorExit:
            # Whoever closes this does so from a context that is none of ours.
            raise
        except BaseException:
            _HOLDER.set(outer)
            raise
        _HOLDER.set(outer)
        return value

    def _resumed(self, work: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        thrown: BaseException | None = None
        while True:
            try:
                awaited = work.send(None) if thrown is None else work.throw(thrown)
            except StopIteration as ended:
                value: T = ended.value
                return value
            finally:
                # What is raised leads here, and must not lead on to itself.
                thrown = None
            if self.signal is not None:
                _LEFT.append(work)
                raise self.signal
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001 - handed on to where it belongs
                thrown = error


_HOLDER: ContextVar[_Held[Any] | None] = ContextVar("torpor_holder", default=None)
