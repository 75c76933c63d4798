"""What a run waits for, as data: one parked task's wait, and several waits as one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from engine.errors import MessageWaitError, SleepError, StepFailedError, WorkflowWaitError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.errors import Yield


class Wait:
    """One parked task: what it waits for, and the future that ends the wait."""

    __slots__ = ("future", "is_resumed", "is_short", "signal")

    def __init__(self, signal: Yield, *, is_short: bool) -> None:
        self.signal = signal
        self.is_short = is_short
        self.is_resumed = False
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_listening(self) -> bool:
        """Whether it is for what others bring: a message, or an end."""
        return self.signal.names is not None or bool(self.signal.awaited)

    def forget(self) -> None:
        """Nobody looks at the future any more; what it holds is no error that went unseen."""
        if self.future.done() and not self.future.cancelled():
            self.future.exception()


class Waits:
    """The waits of a run, in the order in which they began; ends of several come in that order."""

    __slots__ = ("_listening", "_waits")

    def __init__(self) -> None:
        self._waits: dict[Wait, None] = {}
        # Counted, since it is asked at every wait that begins.
        self._listening = 0

    def __bool__(self) -> bool:
        return bool(self._waits)

    def add(self, wait: Wait) -> None:
        """It has begun."""
        self._waits[wait] = None
        self._listening += wait.is_listening

    def discard(self, wait: Wait) -> None:
        """It is over; no error where it was before."""
        if wait in self._waits:
            del self._waits[wait]
            self._listening -= wait.is_listening

    def all(self) -> list[Wait]:
        """Every one, to be ended one by one."""
        return list(self._waits)

    def for_messages(self) -> list[Wait]:
        """Those that a message may end."""
        return [wait for wait in self._waits if wait.signal.names is not None]

    def for_workflows(self) -> list[Wait]:
        """Those that the end of another workflow may end."""
        return [wait for wait in self._waits if wait.signal.awaited]

    def due(self, now: int) -> list[Wait]:
        """Those whose deadline has come by ``now`` (milliseconds)."""
        return [wait for wait in self._waits if wait.signal.deadline is not None and wait.signal.deadline <= now]

    def earliest(self) -> int | None:
        """The first deadline of all (milliseconds); None where none has one."""
        deadlines = [wait.signal.deadline for wait in self._waits if wait.signal.deadline is not None]
        return min(deadlines, default=None)

    def has_short(self, before: float, *, is_any: bool) -> bool:
        """Whether one that is not worth a yield, or any where ``is_any``, is over before then (milliseconds)."""
        return any(
            (wait.is_short or is_any) and wait.signal.deadline is not None and wait.signal.deadline < before
            for wait in self._waits
        )

    def is_listening(self) -> bool:
        """Whether somebody waits for what others bring: a message, or an end."""
        return self._listening > 0

    def pending(self) -> Yield | None:
        """All of them as one yield; None where there are none."""
        return merge(wait.signal for wait in self._waits)


def untied(signal: Yield) -> Yield:
    """``signal`` without the way that it came.

    That leads to frames which lead to the signal again: all that a run had in memory would stay until such circles are
    found, which is seldom where a history is few and large things.
    """
    signal.__traceback__ = signal.__context__ = None
    return signal


def merge(signals: Iterable[Yield]) -> Yield | None:
    """Several yields as one: the earliest deadline, and the union of what is waited for; ``()`` is any name."""
    signals = list(signals)
    merged = _merged(signals)
    if merged is not None:
        merged.failed = tuple(step for signal in signals for step in failed_steps(signal))
    return merged


def failed_steps(signal: Yield) -> tuple[StepFailedError, ...]:
    """The steps that ``signal`` waits to try again."""
    return (signal,) if isinstance(signal, StepFailedError) else signal.failed


def _merged(signals: Iterable[Yield]) -> Yield | None:
    deadlines: list[int] = []
    names: dict[str, None] = {}
    awaited: dict[str, None] = {}
    has_names = is_any = False
    for signal in signals:
        if signal.deadline is not None:
            deadlines.append(signal.deadline)
        if signal.names is not None:
            has_names = True
            is_any = is_any or not signal.names
            names.update(dict.fromkeys(signal.names))
        awaited.update(dict.fromkeys(signal.awaited))
    wanted = () if is_any else tuple(names)
    if deadlines:
        return SleepError(min(deadlines), wanted if has_names else None, tuple(awaited))
    if has_names:
        return MessageWaitError(wanted, tuple(awaited))
    return WorkflowWaitError(tuple(awaited)) if awaited else None
