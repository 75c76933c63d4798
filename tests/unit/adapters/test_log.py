from __future__ import annotations

import itertools

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.dynamodb.model.limits import COMPACT_DEAD_BYTES_MIN, LOG_PART_BYTES
from adapters.dynamodb.model.log import Fold, Record, cut, decode, encode, record_of
from engine.commit import Commit
from engine.errors import CorruptHistoryError, UnknownVersionError

short_keys = st.binary(min_size=0, max_size=3)
pairs = st.tuples(short_keys, st.binary(max_size=5))
records = st.builds(
    Record,
    puts=st.lists(pairs, max_size=5, unique_by=lambda pair: pair[0]),
    deletes=st.lists(short_keys, max_size=3),
    prefixes=st.lists(short_keys, max_size=2),
    ranges=st.lists(st.tuples(short_keys, short_keys), max_size=2),
)


def plainly(history: list[Record]) -> dict[bytes, bytes]:
    state: dict[bytes, bytes] = {}
    for record in history:
        state = {
            key: value
            for key, value in state.items()
            if key not in record.deletes
            and not any(key.startswith(prefix) for prefix in record.prefixes)
            and not any(start <= key < end for start, end in record.ranges)
        }
        state |= dict(record.puts)
    return state


@given(st.lists(records, max_size=8))
def test_folding_does_what_the_records_say(history: list[Record]) -> None:
    fold = Fold()
    for record in history:
        fold.apply(decode(encode(record), "here"), 10)
    expected = plainly(history)
    assert fold.under(b"") == sorted(expected.items())
    assert len(fold) == len(expected)
    assert fold.live_bytes == sum(len(key) + len(value) for key, value in expected.items())
    assert fold.stored_bytes == 10 * len(history)
    for key in [b"", b"\x00", b"\xff\xff"]:
        assert fold.get(key) == expected.get(key)
        assert fold.under(key) == sorted(pair for pair in expected.items() if pair[0].startswith(key))


@given(records)
def test_a_record_survives_its_bytes(record: Record) -> None:
    assert decode(encode(record), "here") == record


def test_the_last_put_of_a_key_counts() -> None:
    assert record_of(Commit(puts=[(b"a", b"1"), (b"b", b"1"), (b"a", b"2")])).puts == [(b"a", b"2"), (b"b", b"1")]
    assert record_of(Commit(consumed=["m"])).is_empty
    assert not record_of(Commit(ranges=[(b"a", b"b")])).is_empty


@pytest.mark.parametrize("size", [0, 1, LOG_PART_BYTES, LOG_PART_BYTES + 1, 3_000_000])
def test_cutting_loses_nothing(size: int) -> None:
    data = bytes(size)
    parts = cut(data)
    assert b"".join(parts) == data
    assert max(map(len, parts)) <= LOG_PART_BYTES
    assert len(parts) == max(1, -(-size // LOG_PART_BYTES))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        cbor2.dumps("text"),
        cbor2.dumps([]),
        cbor2.dumps([1, [], []]),
        cbor2.dumps([1, [b"k"], [], [], []]),
        cbor2.dumps([1, [], [], [], [b"k"]]),
        cbor2.dumps([1, ["k", b"v"], [], [], []]),
        cbor2.dumps([1, [], None, [], []]),
    ],
)
def test_bytes_that_are_no_record_are_named(data: bytes) -> None:
    with pytest.raises(CorruptHistoryError, match="commit 7 of 'w'"):
        decode(data, "the commit 7 of 'w'")


def test_a_version_of_tomorrow_is_never_guessed_at() -> None:
    with pytest.raises(UnknownVersionError, match="version 2"):
        decode(cbor2.dumps([2, "whatever"]), "here")


def test_a_straight_history_is_never_folded() -> None:
    fold = Fold()
    for number in range(2000):
        record = Record(puts=[(number.to_bytes(4, "big"), bytes(100))])
        fold.apply(record, len(encode(record)))
        assert not fold.is_worth_compacting


def test_a_loop_is_folded_once_dead_bytes_outweigh_live_ones() -> None:
    fold = Fold()
    folded_at = []
    for number in range(3000):
        record = Record(puts=[(b"state", bytes(100)), (b"entry%d" % (number % 20), bytes(100))])
        fold.apply(record, len(encode(record)))
        if fold.is_worth_compacting:
            folded_at.append(number)
            fold.compacted(len(encode(Record(puts=fold.under(b"")))))
    assert len(folded_at) > 5
    # Not at every turn: each folding has first to be outweighed anew.
    assert min(after - before for before, after in itertools.pairwise(folded_at)) > 100
    assert fold.stored_bytes < 2 * fold.live_bytes + COMPACT_DEAD_BYTES_MIN + 1000
