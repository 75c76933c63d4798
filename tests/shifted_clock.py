"""A clock that goes when a test says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.driver import Timer

BOUND_S_MIN = 5
"""Seconds from which on a delay is a bound on what may hang, such as a step's timeout, and not a pause."""


class ShiftedClock:
    """A clock that stands still but for what a test shifts it: no instant depends on how long the machine takes.

    Pauses pass ``haste`` times as fast. What bounds a wait for what may hang takes its time, in a hundredth of which a
    machine may stand still, or ends when ``shift`` passes its end.
    """

    def __init__(self) -> None:
        self.shift_ms = 0
        self.haste = 100
        self._began_at = SystemClock().now()
        self._bounds: list[Bound] = []

    def now(self) -> int:
        return self._began_at + self.shift_ms

    def shift(self, ahead_ms: int) -> None:
        """Go ahead, and have the bounds that end meanwhile do so, in their order; on the loop that they are of."""
        self.shift_ms += ahead_ms
        for bound in sorted(self._bounds, key=lambda bound: bound.ends_at):
            if bound.ends_at <= self.now():
                bound.end()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        if delay_s < BOUND_S_MIN:
            return SystemClock().call_later(delay_s / self.haste, callback)
        return Bound(self._bounds, self.now() + int(delay_s * 1000), delay_s, callback)


class Bound:
    """A callback that is due at ``ends_at`` of the clock, or after ``delay_s`` of the machine's."""

    def __init__(self, among: list[Bound], ends_at: int, delay_s: float, callback: Callable[[], None]) -> None:
        self.ends_at = ends_at
        self._callback = callback
        self._timer = SystemClock().call_later(delay_s, self.end)
        self._among = among
        among.append(self)

    def end(self) -> None:
        if self in self._among:
            self.cancel()
            self._callback()

    def cancel(self) -> None:
        self._timer.cancel()
        if self in self._among:
            self._among.remove(self)
