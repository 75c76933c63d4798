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

    def forget(self) -> None:
        """Nobody looks at the future any more; what it holds is no error that went unseen."""
        if self.future.done() and not self.future.cancelled():
            self.future.exception()


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
