"""Pairs of bytes that can be listed and removed by ranges of their keys: the store of the driver in memory."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHELF_BYTES = 2
"""The engine's keys begin with two bytes that say of what kind they are."""


class SortedPairs:
    """A dictionary whose keys are also known in order.

    Keys are kept on a shelf for each beginning, since within one the engine's new keys are nearly always the last:
    putting one in then moves nothing, however many there are.
    """

    __slots__ = ("_shelves", "values")

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self._shelves: dict[bytes, list[bytes]] = {}

    def put(self, key: bytes, value: bytes) -> None:
        """Store one pair."""
        if key not in self.values:
            shelf = self._shelves.get(key[:_SHELF_BYTES])
            if shelf is None:
                shelf = self._shelves[key[:_SHELF_BYTES]] = []
            if not shelf or key > shelf[-1]:
                shelf.append(key)
            else:
                shelf.insert(bisect_left(shelf, key), key)
        self.values[key] = value

    def drop(self, key: bytes) -> None:
        """Remove one key; no error where it is not there."""
        if self.values.pop(key, None) is not None:
            shelf = self._shelves[key[:_SHELF_BYTES]]
            del shelf[bisect_left(shelf, key)]

    def drop_between(self, start: bytes, end: bytes | None) -> None:
        """Remove every key with ``start <= key < end``; every key from ``start`` on where ``end`` is None."""
        for shelf, low, high in self._slices(start, end):
            for key in shelf[low:high]:
                del self.values[key]
            del shelf[low:high]

    def between(self, start: bytes, end: bytes | None) -> list[tuple[bytes, bytes]]:
        """Every pair with ``start <= key < end``, sorted."""
        values = self.values
        return [(key, values[key]) for shelf, low, high in self._slices(start, end) for key in shelf[low:high]]

    def _slices(self, start: bytes, end: bytes | None) -> Iterator[tuple[list[bytes], int, int]]:
        for beginning in sorted(self._shelves):
            shelf = self._shelves[beginning]
            yield shelf, bisect_left(shelf, start), len(shelf) if end is None else bisect_left(shelf, end)


def after(prefix: bytes) -> bytes | None:
    """The first key behind every key that starts with ``prefix``; None where there is no such key."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None
