"""Ids of entries and messages: UUIDs of version 7 that never go backwards, so that they sort by creation."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.driver import Clock

_COUNTER_MAX = (1 << 74) - 1
_DIGITS = 32
_STRIDE_BYTES = 7


class Ids:
    """A source of UUIDv7 texts, strictly increasing within one source.

    The 48 bits of milliseconds come from ``clock`` and never step back; the 74 bits behind them start at random in each
    millisecond and count up within it.
    """

    __slots__ = ("_clock", "_counter", "_millisecond", "_random_bytes")

    def __init__(self, clock: Clock, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        self._clock = clock
        self._random_bytes = random_bytes
        self._millisecond = -1
        self._counter = 0

    def new(self, after: str | None = None) -> str:
        """The next id; with ``after`` it also sorts behind that one, which an earlier process may have made."""
        if after is not None:
            self._reach(after)
        now = self._clock.now()
        if now > self._millisecond:
            self._millisecond = now
            # Half the range is left free, so that counting up within a millisecond cannot overflow.
            self._counter = int.from_bytes(self._random_bytes(9), "big") >> 1
        elif self._counter < _COUNTER_MAX:
            self._counter += 1
        else:
            # Only behind a foreign id: ours leave half the range free.
            self._millisecond, self._counter = self._millisecond + 1, 0
        high, low = self._counter >> 62, self._counter & ((1 << 62) - 1)
        number = self._millisecond << 80 | 0x7 << 76 | (high & 0xFFF) << 64 | 0b10 << 62 | low
        text = f"{number:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def _reach(self, other: str) -> None:
        digits = other.replace("-", "")
        try:
            number = int(digits, 16)
        except ValueError:
            return
        if len(digits) != _DIGITS or digits[12] != "7":
            return
        millisecond = number >> 80
        counter = (number >> 64 & 0xFFF) << 62 | number & ((1 << 62) - 1)
        if (millisecond, counter) >= (self._millisecond, self._counter):
            # A random stride ahead: what that process made after it may be pruned by now, and must not be made again.
            stride = int.from_bytes(self._random_bytes(_STRIDE_BYTES), "big")
            self._millisecond, self._counter = millisecond, min(counter + stride, _COUNTER_MAX)
