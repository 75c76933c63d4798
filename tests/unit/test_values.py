from __future__ import annotations

import math
import subprocess
import sys
from collections import OrderedDict, defaultdict
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from types import MappingProxyType
from typing import Annotated, Any, Literal, NewType
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given

from engine import values
from engine.errors import CorruptHistoryError
from tests.unit.value_models import (
    IDENTIFIER,
    INSTANT,
    Access,
    Box,
    Cells,
    Checked,
    Chosen,
    Color,
    Compact,
    Crate,
    Event,
    Inner,
    Level,
    Linked,
    Model,
    Odd,
    OddPair,
    OddSettings,
    Old,
    Order,
    Pair,
    Point,
    Point3,
    Points,
    Row,
    Settings,
    Shade,
    Shape,
    Shelf,
    UserId,
    order,
    plain_values,
)

AS_THEY_ARE = [
    None,
    True,
    False,
    0,
    -1,
    2**31,
    2**63 - 1,
    -(2**63),
    2**64,
    -(2**64) - 1,
    10**400,
    1.5,
    1e300,
    math.inf,
    -math.inf,
    "",
    "héllo 🚀",
    "\0",
    b"",
    b"\x00\xff\xf7\xf8",
    [],
    [1, [2, [3]]],
    {},
    {"a": {"b": [{"c": 1}]}},
    {1: "int", None: "none", False: "bool", 2.5: "float", b"b": "bytes", (1, (2, "x")): "tuple", "s": "str"},
    {IDENTIFIER: 1, INSTANT: 2, Decimal("1.5"): 3, date(2026, 1, 2): 4},
    INSTANT,
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=-9, minutes=-30))),
    date(2026, 1, 2),
    timedelta(days=-3, seconds=5, microseconds=7),
    timedelta.max,
    timedelta.min,
    Decimal("1.10"),
    Decimal("-1E+30"),
    Decimal("123456789012345678901234567890.123456789"),
    IDENTIFIER,
    set(),
    {1, "a", (1, 2), IDENTIFIER},
]


@pytest.mark.parametrize("value", AS_THEY_ARE, ids=repr)
def test_these_come_back_as_they_are(value: Any) -> None:
    data, live = values.round_trip(value)
    assert live == value
    assert type(live) is type(value)
    replayed = values.decode(data)
    assert replayed == live
    assert repr(replayed) == repr(live)
    assert data == values.encode(value) == values.encode(live)


def test_a_nan_and_a_negative_zero_survive() -> None:
    assert math.isnan(values.round_trip(math.nan)[1])
    assert math.isnan(values.decode(values.encode([math.nan]))[0])
    assert math.copysign(1, values.decode(values.encode([-0.0]))[0]) == -1


TYPED = [
    (order(), Order),
    ([order()], list[Order]),
    (Color.RED, Color),
    (Shade.DARK, Shade),
    (Old.ONE, Old),
    (Level.LOW, Level),
    (Access.READ | Access.WRITE, Access),
    (Odd.HALF, Odd),
    (Odd.PAIR, Odd),
    ([Odd.PAIR, Odd.HALF], list[Odd]),
    ({"a": Odd.PAIR}, dict[str, Odd]),
    ((Odd.PAIR, 1), tuple[Odd, int]),
    ((Odd.PAIR,) * 3, tuple[Odd, ...]),
    ({Odd.PAIR}, set[Odd]),
    (frozenset({Odd.HALF}), frozenset[Odd]),
    ((1, "a"), tuple[int, str]),
    ((1, 2, 3), tuple[int, ...]),
    ((), tuple),
    (Pair(1, Decimal(2)), Pair),
    ([Pair(1)], list[Pair]),
    ({"level": Level.LOW, "until": INSTANT}, Settings),
    ({}, Settings),
    (OddPair(Odd.PAIR, 1), OddPair),
    (OddPair(Odd.PAIR), "OddPair | None"),
    ({"odd": Odd.PAIR}, OddSettings),
    ([Odd.HALF], "Sequence[Odd]"),
    (Odd.HALF, Annotated[Odd, "half"]),
    (Odd.HALF, NewType("Halved", Odd)),
    (Event(IDENTIFIER), Event),
    (Event(IDENTIFIER, extra="x"), Event | None),
    (Compact(1, b"x"), Compact),
    (Model(inner=Inner(amount=Decimal("1.5"), keys={1: "a"}), other=2, raw=b"\xff"), Model),
    ([Inner(amount=Decimal(1))], list[Inner]),
    ({"k": Inner(amount=Decimal(1))}, dict[str, Inner | None]),
    (Linked(url="https://example.com/a"), Linked),  # type: ignore[arg-type]
    (Checked(size=1), Checked),
    (UserId("u"), UserId),
    (None, str | None),
    ("x", str | None),
    (None, None),
    (None, type(None)),
    (1, int | str),
    ("x", datetime | str),
    (INSTANT, datetime | str),
    (IDENTIFIER, str | UUID | None),
    (Point(1), Point | Point3),
    (Point3(1), Point | Point3),
    ([Point3(1), Point(2)], list[Point | Point3]),
    ({"a": [Point3(1)]}, "dict[str, list[Point | Point3]]"),
    (Shape(Point3(1, 2)), Shape),
    (Shape(Point(1), Odd.PAIR), Shape | None),
    (Box(Point(1)), Box[Point]),
    (Box([1]), Box[list[int]]),
    (Box([Point3(1)]), Box[list[Point | Point3]]),
    ([Box(Point3(1))], list[Box[Point | Point3]]),
    (Shelf[Point | Point3]([Box(Point3(1))], Point(2)), Shelf[Point | Point3]),
    (Points(Point3(1)), Points),
    (Crate[Point | Point3]([Point3(1)], Point(2)), Crate[Point | Point3]),
    (Row(Point(1), (Point3(2),)), Row[Point | Point3]),
    ({"cells": [Point3(1), Point(2)]}, Cells[Point | Point3]),
    (Chosen(Color.RED), Chosen),
    (Chosen(Odd.HALF), Chosen | None),
    (1, Annotated[int, msgspec.Meta(ge=1)]),
    ("a", Literal["a", "b"]),
    (Color.BLUE, Literal[Color.RED, Color.BLUE]),
    (b"x", Literal[b"x", b"y"]),
    (True, Literal[True, 1]),
    (1, Literal[True, 1]),
    (frozenset({1}), frozenset[int]),
    ({Point(1), Point(2)}, set[Point]),
    (time(10, 5, 6, 7), time),
    (timedelta(seconds=1.5), timedelta),
    (bytearray(b"x"), bytearray),
    ([1], "Sequence[int]"),
    ({"a": 1}, "Mapping[str, int]"),
]


@pytest.mark.parametrize(("value", "as_type"), TYPED, ids=repr)
def test_these_come_back_as_their_declared_type(value: Any, as_type: Any) -> None:
    if isinstance(as_type, str):
        as_type = eval(as_type, globals() | vars(sys.modules["collections.abc"]))  # noqa: S307
    data, live = values.round_trip(value, as_type)
    assert live == value
    assert type(live) is type(value)
    replayed = values.decode(data, as_type)
    assert replayed == live
    assert type(replayed) is type(live)
    assert values.encode(live) == data


UNTYPED = [
    (Point(1), {"x": 1}),
    (Color.RED, "red"),
    (Level.LOW, 1),
    (Odd.PAIR, [1, 2]),
    ((1, (2,)), [1, [2]]),
    (Pair(1), [1, Decimal(0)]),
    (frozenset({1}), {1}),
    (time(10, 5), "10:05:00"),
    (Event(IDENTIFIER), {"type": "event", "eventId": IDENTIFIER}),
    (Inner(amount=Decimal(1)), {"amount": Decimal(1), "keys": {}}),
    (bytearray(b"x"), b"x"),
    (memoryview(b"x"), b"x"),
    (OrderedDict(a=1), {"a": 1}),
    (defaultdict(int, a=1), {"a": 1}),
    (MappingProxyType({"a": 1}), {"a": 1}),
    ({Color.RED: Color.BLUE}, {"red": "blue"}),
    ({Shade.DARK: 1}, {"dark": 1}),
]


@pytest.mark.parametrize(("value", "expected"), UNTYPED, ids=repr)
def test_without_a_declared_type_plain_values_come_back(value: Any, expected: Any) -> None:
    data, live = values.round_trip(value)
    assert live == expected == values.decode(data) == values.decode(data, Any)
    assert type(live) is type(expected)


def test_named_time_zones_come_back_as_their_offset() -> None:
    summer = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    _, live = values.round_trip(summer)
    assert live == summer
    assert live.utcoffset() == timedelta(hours=2)
    odd = datetime(2026, 1, 1, tzinfo=timezone(timedelta(seconds=1, microseconds=5)))
    _, live = values.round_trip(odd)
    assert (live, live.tzinfo) == (odd, UTC)


def test_a_later_change_of_the_value_does_not_matter() -> None:
    value = {"a": [1]}
    _, live = values.round_trip(value)
    value["a"].append(2)
    assert live == {"a": [1]}


def test_equal_sets_have_equal_bytes_in_every_process() -> None:
    program = "from engine import values; print(values.encode({'a','b','c','d', 1, (2,)}).hex())"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1


@given(plain_values)
def test_live_and_replayed_are_equal_and_settled(value: Any) -> None:
    data, live = values.round_trip(value)
    assert live == value
    assert values.decode(data) == live
    assert values.round_trip(live) == (data, live)


# --- errors


def test_an_error_comes_back() -> None:
    error = values.StoredError(name="ValueError", message="bad", stack="at x", metadata={"code": 5})
    assert values.decode_error(values.encode_error(error)) == error
    bare = values.StoredError(name="ValueError", message="")
    assert values.decode_error(values.encode_error(bare)) == bare
    assert values.decode(values.encode_error(bare)) == {"name": "ValueError", "message": ""}


def test_the_text_of_an_error_never_fails_to_be_stored() -> None:
    error = values.StoredError(name="E", message="caf\udce9", stack="\udce9")
    read = values.decode_error(values.encode_error(error))
    assert (read.message, read.stack) == ("caf\\udce9", "\\udce9")


@pytest.mark.parametrize("value", [None, [], {}, {"name": "E"}, {"name": 1, "message": "m"}])
def test_what_is_no_error_is_corrupt(value: Any) -> None:
    with pytest.raises(CorruptHistoryError):
        values.decode_error(values.encode(value))


def test_parts_of_a_wrong_type_are_left_out() -> None:
    stored = values.encode({"name": "E", "message": "m", "stack": 1, "metadata": "x"})
    assert values.decode_error(stored) == values.StoredError(name="E", message="m")
