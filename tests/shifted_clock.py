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

    Pauses pass ``haste`` times as fast. What bounds a wait for what may hang takes its time: in a hundredth of it a
    machine may stand still.
    """

    def __init__(self) -> None:
        self.shift_ms = 0
        self.haste = 100
        self._began_at = SystemClock().now()

    def now(self) -> int:
        return self._began_at + self.shift_ms

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return SystemClock().call_later(delay_s / self.haste if delay_s < BOUND_S_MIN else delay_s, callback)
