from __future__ import annotations

import tracemalloc
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import values
from engine.errors import CorruptHistoryError, UnstorableValueError
from engine.values import PLAIN
from tests.unit.value_models import Order, Point, Point3, plain_values

# --- what JavaScript wrote


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ("f7", None),
        ("82f701", [None, 1]),
        ("b90001616bf7", {"k": None}),
        ("d9010281f7", {None}),
        ("81d9010281f7", [{None}]),
        ("b90001616182f4f7", {"a": [False, None]}),
        ("fb41f0000000000000", 4294967296.0),
        ("c1fb41da55cd696b645a", datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)),
        ("c11a6957e1f5", datetime(2026, 1, 2, 15, 19, 17, tzinfo=UTC)),
        ("d840430001ff", b"\x00\x01\xff"),
        ("d90103a1616b81f7", {"k": [None]}),
        ("d9010281f5", {True}),
        ("9f01ff", [1]),
    ],
)
def test_javascript_values_are_read(stored: str, expected: Any) -> None:
    read = values.decode(bytes.fromhex(stored))
    assert read == expected
    assert type(read) is type(expected)


def test_javascript_writes_large_whole_numbers_as_floats() -> None:
    assert values.decode(bytes.fromhex("fb41f0000000000000"), int) == 2**32
    read = values.decode(bytes.fromhex("a16178fb433fffffffffffff"), Point)
    assert read == Point(2**53 - 1)
    assert type(read.x) is int
    with pytest.raises(UnstorableValueError):
        values.decode(bytes.fromhex("fb3ff0000000000000"), int)


# --- what is no value


@pytest.mark.parametrize(
    "stored",
    [
        "",
        "ff",
        "0001",
        "18",
        "61ff",
        "6261",
        "a2616101616102",
        "a1810100ff",
        "9b7fffffffffffffff",
        "bb7fffffffffffffff",
        "5b7fffffffffffffff",
        "7b00000000ffffffff",
        "d901029b7fffffffffffffff",
        "e0",
        "f820",
        "81f8ff",
        "d81c80",  # shared references
        "d81d00",
        "82d81c80d81d00",
        "d81900",  # string references
        "d9010081d81900",
        "c5821b7fffffffffffffff02",  # a big float with an exponent beyond measure
        "d81e820102",  # rational
        "d823612e",  # pattern
        "d8246161",  # mail message
        "d8346161",  # addresses
        "d90104447f000001",
        "d9d9f701",  # CBOR about CBOR
        "d9a7f8820102",  # complex
        "d9ffff01",
        "c0613a",
        "c1f97e00",
        "c11b7fffffffffffffff",
        "c4821b7fffffffffffffff02",
        "c401",
        "c2f6",
        "d82541ff",
        "d840f6",
        "d90103f6",
        "d903ea01",
        "d903eaa10101",
        "d903eaa2011b7fffffffffffffff2500",
        "d903eaa20161612500",
        "d90102f6",
        "81" * 5000 + "00",
        "d81c" * 5000 + "00",
        "c1" * 100_000 + "00",
        "d90102" * 5000 + "80",
        "a100" * 5000 + "00",
    ],
    ids=lambda stored: stored[:24],
)
def test_hostile_bytes_are_corrupt_and_cost_little(stored: str) -> None:
    data = bytes.fromhex(stored)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptHistoryError):
            values.decode(data)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


PLAIN_TYPES = (type(None), bool, int, float, str, bytes, list, dict, set, datetime, date, timedelta, Decimal, UUID)


def test_no_tag_makes_anything_but_a_plain_value() -> None:
    contents = ["00", "6161", "4401020304", "820102", "a10102", "81820102", "fb41da55cd696b645a", "50" + "01" * 16]
    tags = [*range(1200), 43000, 55799, 2**16, 2**32, 2**64 - 1]
    read = set()
    for tag in tags:
        for content in contents:
            data = bytes([0xDB]) + tag.to_bytes(8, "big") + bytes.fromhex(content)
            try:
                value = values.decode(data)
            except CorruptHistoryError:
                continue
            assert isinstance(value, PLAIN_TYPES)
            read.add(tag)
    assert read <= {0, 1, 2, 3, 4, 37, 64, 258, 259, 1002, 1004}


@given(st.binary(max_size=40))
def test_any_bytes_are_a_value_or_corrupt(data: bytes) -> None:
    try:
        value = values.decode(data)
    except CorruptHistoryError:
        return
    assert isinstance(value, PLAIN_TYPES)


@given(plain_values, st.integers(0, 1000), st.binary(max_size=2), st.sampled_from([PLAIN, Order, list[Point | Point3]]))
def test_damaged_values_are_a_value_or_an_error_of_ours(value: Any, at: int, inserted: bytes, as_type: Any) -> None:
    data = values.encode(value)
    at %= len(data)
    try:
        values.decode(data[:at] + inserted + data[at + 1 :], as_type)
    except (CorruptHistoryError, UnstorableValueError):
        return
