"""The log of a workflow: commits as bytes, folded into key-value pairs, and when folding them pays. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

import cbor2
from msgspec import Struct

from adapters.dynamodb.model.limits import COMPACT_DEAD_BYTES_MIN, LOG_PART_BYTES
from engine.errors import CorruptHistoryError, UnknownVersionError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.commit import Commit

RECORD_VERSION = 1
"""First element of every record. Another one is an error, never a guess."""

_RECORD_PARTS = 5


class Record(Struct, frozen=True, kw_only=True):
    """What one commit changes in the key-value namespace; deletions come before puts."""

    puts: list[tuple[bytes, bytes]] = []
    deletes: list[bytes] = []
    prefixes: list[bytes] = []
    ranges: list[tuple[bytes, bytes]] = []

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to log."""
        return not (self.puts or self.deletes or self.prefixes or self.ranges)


def record_of(commit: Commit) -> Record:
    """The part of a commit that goes into the log; the last of several puts of one key."""
    puts = list(dict(commit.puts).items())
    return Record(puts=puts, deletes=commit.deletes, prefixes=commit.prefixes, ranges=commit.ranges)


def encode(record: Record) -> bytes:
    """A record as CBOR: version, puts (key, value, key, value, ...), deletes, prefixes, ranges (start, end, ...)."""
    flat_puts = [part for pair in record.puts for part in pair]
    flat_ranges = [part for pair in record.ranges for part in pair]
    return cbor2.dumps([RECORD_VERSION, flat_puts, record.deletes, record.prefixes, flat_ranges])


def decode(data: bytes, where: str) -> Record:
    """The record of ``encode``; ``where`` names it in errors."""
    try:
        parts = cbor2.loads(data)
    except (cbor2.CBORDecodeError, ValueError) as error:
        raise CorruptHistoryError(f"{where} is no CBOR: {error}") from error
    if not isinstance(parts, list) or not parts:
        raise CorruptHistoryError(f"{where} is no log record")
    if parts[0] != RECORD_VERSION:
        raise UnknownVersionError(f"{where} has version {parts[0]!r}; this build reads version {RECORD_VERSION}")
    if len(parts) != _RECORD_PARTS or not all(_is_bytes_list(part) for part in parts[1:]):
        raise CorruptHistoryError(f"{where} is no log record")
    _, puts, deletes, prefixes, ranges = parts
    if len(puts) % 2 or len(ranges) % 2:
        raise CorruptHistoryError(f"{where} has a key without its value")
    return Record(puts=_pairs(puts), deletes=deletes, prefixes=prefixes, ranges=_pairs(ranges))


def _is_bytes_list(part: object) -> bool:
    return isinstance(part, list) and all(isinstance(element, bytes) for element in part)


def _pairs(flat: list[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def cut(data: bytes) -> list[bytes]:
    """``data`` in parts that each fit an item."""
    return [data[start : start + LOG_PART_BYTES] for start in range(0, len(data), LOG_PART_BYTES)] or [b""]


class Fold:
    """The key-value pairs that a log amounts to, and how much of the stored log still matters.

    Attributes:
        stored_bytes: bytes of all records folded so far.
        live_bytes: bytes of the pairs that are left.
    """

    __slots__ = ("_dead_bytes_min", "_keys", "_pairs", "live_bytes", "stored_bytes")

    def __init__(self) -> None:
        self._pairs: dict[bytes, bytes] = {}
        # The keys in order, so that a prefix or a range is found without looking at all of them.
        self._keys: list[bytes] = []
        self.stored_bytes = 0
        self.live_bytes = 0
        self._dead_bytes_min = 0

    def __len__(self) -> int:
        return len(self._pairs)

    def apply(self, record: Record, stored_bytes: int) -> None:
        """Take in the next record, which is ``stored_bytes`` long."""
        self.stored_bytes += stored_bytes
        for key in record.deletes:
            self._remove(key)
        for prefix in record.prefixes:
            self._remove_all(self._under(prefix))
        for start, end in record.ranges:
            self._remove_all(self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, end)])
        self._put_all(record.puts)

    def get(self, key: bytes) -> bytes | None:
        """The value of ``key``, or None."""
        return self._pairs.get(key)

    def under(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Every pair whose key starts with ``prefix``, sorted by key bytes."""
        return [(key, self._pairs[key]) for key in self._under(prefix)]

    @property
    def is_worth_compacting(self) -> bool:
        """Whether dead bytes outweigh live ones, and are worth the writes."""
        dead_bytes = self.stored_bytes - self.live_bytes
        return dead_bytes > max(self.live_bytes, COMPACT_DEAD_BYTES_MIN, self._dead_bytes_min)

    def postpone_compaction(self) -> None:
        """Compacting failed: not again before as much more is dead as makes it worth the writes."""
        self._dead_bytes_min = self.stored_bytes - self.live_bytes + COMPACT_DEAD_BYTES_MIN

    def compacted(self, stored_bytes: int) -> None:
        """The log was replaced by a snapshot of ``stored_bytes``."""
        self.stored_bytes = stored_bytes
        self._dead_bytes_min = 0

    def _under(self, prefix: bytes) -> list[bytes]:
        start = bisect_left(self._keys, prefix)
        end = start
        while end < len(self._keys) and self._keys[end].startswith(prefix):
            end += 1
        return self._keys[start:end]

    def _put_all(self, puts: Iterable[tuple[bytes, bytes]]) -> None:
        fresh = []
        for key, value in puts:
            old = self._pairs.get(key)
            if old is None:
                fresh.append(key)
                self.live_bytes += len(key) + len(value)
            else:
                self.live_bytes += len(value) - len(old)
            self._pairs[key] = value
        if len(fresh) > len(self._keys) // 8:
            self._keys = sorted(self._pairs)
        else:
            for key in fresh:
                insort(self._keys, key)

    def _remove(self, key: bytes) -> None:
        if key in self._pairs:
            self._remove_all([key])

    def _remove_all(self, keys: list[bytes]) -> None:
        if not keys:
            return
        # The keys are neighbours in the order, so that one cut removes them.
        start = bisect_left(self._keys, keys[0])
        del self._keys[start : start + len(keys)]
        for key in keys:
            self.live_bytes -= len(key) + len(self._pairs.pop(key))
