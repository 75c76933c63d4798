"""A clock that moves only when told to: time for tests and simulations."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


class VirtualTimer:
    """A pending call of a ``VirtualClock``."""

    __slots__ = ("at_ms", "callback", "is_cancelled")

    def __init__(self, at_ms: float, callback: Callable[[], None]) -> None:
        self.at_ms = at_ms
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        """Forget the call."""
        self.is_cancelled = True
        # The clock keeps the timer until its time has come, but not all that the call would have needed.
        self.callback = _nothing


def _nothing() -> None:
    """What a cancelled timer would call."""


class VirtualClock:
    """A clock that moves only when told to.

    ``start_ms`` is integer milliseconds since the epoch; the start of 2026 where None.
    """

    def __init__(self, start_ms: int | None = None) -> None:
        self._now_ms: float = _START_MS if start_ms is None else start_ms
        self._timers: list[tuple[float, int, VirtualTimer]] = []
        self._order = itertools.count()
        self.sleepers = 0

    def now(self) -> int:
        """Integer milliseconds since the epoch, UTC."""
        return int(self._now_ms)

    def advance(self, seconds: float) -> None:
        """Move forward by ``seconds``, making every call that falls due on the way, each at its own time."""
        target = self._now_ms + seconds * 1000
        while (timer := self._next()) is not None and timer.at_ms <= target:
            heapq.heappop(self._timers)
            self._now_ms = max(self._now_ms, timer.at_ms)
            timer.callback()
        self._now_ms = max(self._now_ms, target)

    def advance_to(self, at_ms: float) -> None:
        """Move forward to ``at_ms``; nothing happens where that has passed."""
        self.advance(max(0.0, at_ms - self._now_ms) / 1000)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> VirtualTimer:
        """Call ``callback`` when the clock has moved on by ``delay_s`` seconds."""
        timer = VirtualTimer(self._now_ms + max(0.0, delay_s) * 1000, callback)
        heapq.heappush(self._timers, (timer.at_ms, next(self._order), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        """Return when the clock has moved on by ``seconds``: for step functions under test."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, lambda: None if done.done() else done.set_result(None))
        self.sleepers += 1
        try:
            await done
        finally:
            self.sleepers -= 1
            timer.cancel()

    def next_timer(self) -> int | None:
        """When the next pending call is due, in milliseconds since the epoch, or None."""
        timer = self._next()
        return None if timer is None else -int(-timer.at_ms // 1)

    def _next(self) -> VirtualTimer | None:
        while self._timers and self._timers[0][2].is_cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][2] if self._timers else None
