"""What the turns of one invocation share: until when there is time, and how running workflows are asked to stop."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.driver import Clock, Timer
    from engine.handle import WorkflowHandle

GIVE_UP_SHARE = 0.2
"""The share of the stop margin that is kept for handing on; a run that has not stopped by then is left to its lease."""


class TurnLimits(Struct, frozen=True, kw_only=True):
    """How long a lease is, and when before its deadline an invocation asks its runs to stop; all in milliseconds."""

    lease_ms: int
    evict_margin_ms: int
    stop_margin_ms: int


class Invocation:
    """What the turns of one invocation share: until when they may run, and how they are asked to stop.

    Args:
        clock: measures the deadline.
        limits: when before the deadline runs are asked to stop at their next operation (the evict margin), and when
            they are stopped where they are (the stop margin).
        deadline_ms: when the process is stopped, in milliseconds since the epoch.
    """

    def __init__(self, clock: Clock, limits: TurnLimits, *, deadline_ms: int) -> None:
        remaining_ms = max(0, deadline_ms - clock.now())
        self.deadline_ms = deadline_ms
        self.is_stopping = False
        self.given_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._handles: dict[WorkflowHandle[Any], None] = {}
        # The margins are meant for a whole invocation. One that begins with little time left still uses half of it,
        # or a workflow could be woken again and again without ever taking a step.
        evict_after_ms = max(remaining_ms - limits.evict_margin_ms, remaining_ms * 0.5)
        stop_after_ms = max(remaining_ms - limits.stop_margin_ms, remaining_ms * 0.75)
        give_up_after_ms = max(remaining_ms - limits.stop_margin_ms * GIVE_UP_SHARE, remaining_ms * 0.9)
        self._timers: list[Timer] = [
            clock.call_later(evict_after_ms / 1000, self.evict),
            clock.call_later(stop_after_ms / 1000, self.stop),
            clock.call_later(give_up_after_ms / 1000, self._give_up),
        ]

    def evict(self) -> None:
        """Ask every run to stop at its next operation; none begins any more."""
        self.is_stopping = True
        for handle in list(self._handles):
            handle.evict()

    def stop(self) -> None:
        """Stop every run where it is."""
        self.is_stopping = True
        for handle in list(self._handles):
            handle.evict(grace=0)

    def _give_up(self) -> None:
        if not self.given_up.done():
            self.given_up.set_result(None)

    @contextlib.contextmanager
    def running(self, handle: WorkflowHandle[Any]) -> Iterator[None]:
        """Within the block ``handle`` is among those that are asked to stop."""
        self._handles[handle] = None
        try:
            yield
        finally:
            self._handles.pop(handle, None)

    def close(self) -> None:
        """Forget the deadline."""
        for timer in self._timers:
            timer.cancel()
