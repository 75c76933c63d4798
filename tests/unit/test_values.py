from __future__ import annotations

import math
import socket
import subprocess
import sys
import threading
import tracemalloc
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Coroutine  # noqa: TC003 - annotations are resolved here
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import cbor2
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import values
from engine.errors import CorruptHistoryError, CriticalError, UnstorableValueError
from engine.limits import VALUE_DEPTH_MAX
from engine.values import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable

    import nowhere  # type: ignore[import-not-found]

T = TypeVar("T")
INSTANT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
IDENTIFIER = UUID("12345678-1234-5678-1234-567812345678")


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Shade(StrEnum):
    DARK = "dark"


class Old(str, Enum):  # noqa: UP042 - the older spelling is what is tested
    ONE = "one"


class Level(IntEnum):
    LOW = 1


class Access(Flag):
    READ = 1
    WRITE = 2


class Odd(Enum):
    HALF = 0.5
    PAIR = (1, 2)


@dataclass
class Line:
    sku: str
    price: Decimal
    tags: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Order:
    lines: list[Line]
    at: datetime
    color: Color = Color.RED
    total: int = field(init=False, default=0)


@dataclass(frozen=True)
class Point:
    x: int


@dataclass(frozen=True)
class Point3:
    x: int
    y: int = 0


@dataclass
class Shape:
    corner: Point | Point3
    odd: Odd = Odd.HALF


@dataclass
class Box(Generic[T]):
    content: T


class Pair(NamedTuple):
    left: int
    right: Decimal = Decimal(0)


class OddPair(NamedTuple):
    odd: Odd
    number: int = 0


class OddSettings(TypedDict):
    odd: Odd


class Settings(TypedDict, total=False):
    level: Level
    until: datetime


class Event(msgspec.Struct, tag="event", rename="camel"):
    event_id: UUID
    extra: str | msgspec.UnsetType = msgspec.UNSET


class Compact(msgspec.Struct, array_like=True):
    a: int
    b: bytes


class Inner(pydantic.BaseModel):
    amount: Decimal
    keys: dict[int, str] = {}


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    inner: Inner
    renamed: int = pydantic.Field(alias="other")
    raw: bytes = b""

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return self.renamed * 2


class Linked(pydantic.BaseModel):
    url: pydantic.HttpUrl


class Secretive(pydantic.BaseModel):
    secret: pydantic.SecretStr


@pydantic.dataclasses.dataclass
class Checked:
    size: int


UserId = NewType("UserId", str)


def order() -> Order:
    return Order(lines=[Line(sku="a", price=Decimal("1.10"), tags={"x", "y"})], at=INSTANT, color=Color.BLUE)


# --- what comes back ----------------------------------------------------------------------------------------------

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
    (1, Annotated[int, msgspec.Meta(ge=1)]),
    ("a", Literal["a", "b"]),
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


offsets: Any = st.just(UTC) | st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23)))

plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.datetimes(timezones=offsets)
    | st.dates()
    | st.timedeltas()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.uuids(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.text(), st.integers()), inner, max_size=4)
        | st.sets(st.integers() | st.text() | st.uuids(), max_size=4)
    ),
    max_leaves=15,
)


@given(plain_values)
def test_live_and_replayed_are_equal_and_settled(value: Any) -> None:
    data, live = values.round_trip(value)
    assert live == value
    assert values.decode(data) == live
    assert values.round_trip(live) == (data, live)


# --- what cannot be stored ----------------------------------------------------------------------------------------


def unstorable() -> list[tuple[Any, str]]:
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    return [
        (object(), "The value is of type object,"),
        ({"items": [0, 0, 0, {"handle": threading.Lock()}]}, r"at \.items\[3\]\.handle is of type _thread\.lock"),
        ([(n for n in [1])], r"at \[0\] is of type generator"),
        ({"a b": object()}, r"at \['a b'\] is"),
        ({1: object()}, r"at \[1\] is"),
        ({"s": {1, frozenset()}, "f": {object()}}, r"at \.f\{\} is of type object"),
        (Order(lines=[Line("a", object())], at=INSTANT), r"at \.lines\[0\]\.price is of type object"),  # type: ignore[arg-type]
        (Pair(1, object()), r"at \[1\] is of type object"),  # type: ignore[arg-type]
        (Event(object()), r"at \.eventId is of type object"),  # type: ignore[arg-type]
        ({"a": datetime(2026, 1, 2)}, r"at \.a is a datetime without a time zone"),  # noqa: DTZ001
        (["\ud800"], r"at \[0\] is a str with a lone surrogate"),
        ({"\ud800": 1}, r"has a key '\\ud800' that is a str with a lone surrogate"),
        ({Point(1): 1}, "has a key of type tests.unit.test_values.Point, which cannot be a stored key"),
        ({frozenset(): 1}, "has a key of type frozenset"),
        ({Color.RED: 1, "red": 2}, "has two keys that are stored as 'red'"),
        ({Color.RED, "red"}, "is a set of which two elements have the same stored form"),
        (Decimal("NaN"), "only finite Decimals"),
        (Order, "is the class Order"),
        (len, "is of type builtin_function_or_method"),
        (lambda: 0, "is of type function"),
        (ValueError("x"), "is of type ValueError"),
        (1j, "is of type complex"),
        (cyclic, "nested more than 200 levels deep, or contains itself"),
        (Secretive(secret=pydantic.SecretStr("s")), r"at \.secret is of type pydantic\.types\.SecretStr"),
        (cbor2.CBORTag(28, []), "CBORTag"),
    ]


@pytest.mark.parametrize(("value", "message"), unstorable(), ids=lambda part: part if isinstance(part, str) else "")
def test_what_has_no_stored_form_is_named(value: Any, message: str) -> None:
    with pytest.raises(UnstorableValueError, match=message):
        values.round_trip(value)
    with pytest.raises(UnstorableValueError, match=message):
        values.encode(value)


def test_a_socket_is_named() -> None:
    with socket.socket() as handle, pytest.raises(UnstorableValueError, match=r"\.handle is of type socket\.socket"):
        values.encode({"handle": handle})


def test_a_coroutine_is_asked_after() -> None:
    async def forgotten() -> None: ...

    coroutine = forgotten()
    with pytest.raises(UnstorableValueError, match="was it meant to be awaited"):
        values.encode([coroutine])
    coroutine.close()


def test_an_unstorable_value_is_critical() -> None:
    assert issubclass(UnstorableValueError, CriticalError)


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"a": inner}, lambda inner: frozenset([inner])])
def test_the_depth_of_a_value_is_bounded_alike_for_writing_and_reading(wrap: Callable[[Any], Any]) -> None:
    value: Any = 0
    for _ in range(VALUE_DEPTH_MAX):
        value = wrap(value)
    data, live = values.round_trip(value)
    assert values.encode(live) == data
    with pytest.raises(UnstorableValueError, match="nested more than"):
        values.encode(wrap(value))


def test_the_path_of_a_deep_part_is_shortened() -> None:
    value: Any = object()
    for _ in range(100):
        value = [value]
    with pytest.raises(UnstorableValueError, match=r"at (\[0\]){12}\.\.\. is"):
        values.encode(value)


MISFITS: list[tuple[Any, Any]] = [
    (1, str),
    ("1", int),
    (1.0, int),
    (True, int),
    (None, str),
    (1, None),
    ({"x": "a"}, Point),
    ({}, Point),
    ([1], Point | Point3),
    ([1, "a"], list[int]),
    (["a"], list[Odd]),
    ({"a": 1}, Odd),
    ([1], tuple[Odd, Odd]),
    ("green", Color),
    ({"amount": "x"}, Inner),
    ([{"amount": "x"}], list[Inner]),
    ("x", threading.Event),
    ({"level": 7}, Settings),
    ({}, OddSettings),
    ([0.5, 1, 2], OddPair),
    ([0.5], OddSettings),
    ({"odd": 1}, tuple[Odd, ...]),
    (1, set[Odd]),
    (1, dict[str, Odd]),
    (1, Shape),
    ([1], type[Odd]),
    ([], Box[Odd]),
]


@pytest.mark.parametrize(("value", "as_type"), MISFITS, ids=repr)
def test_a_value_of_another_type_fails_live_and_on_replay_alike(value: Any, as_type: Any) -> None:
    with pytest.raises(UnstorableValueError, match="does not fit its declared type") as live:
        values.round_trip(value, as_type)
    with pytest.raises(UnstorableValueError) as replayed:
        values.decode(values.encode(value), as_type)
    assert str(live.value) == str(replayed.value)


# --- what JavaScript wrote ----------------------------------------------------------------------------------------


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


# --- what is no value ---------------------------------------------------------------------------------------------


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


# --- what functions declare ---------------------------------------------------------------------------------------


def plain_function(order: Order, count: int = 1, *rest: str, key: str = "") -> Point: ...  # type: ignore[empty-body]


def coroutine_maker() -> Coroutine[Any, Any, Point]: ...  # type: ignore[empty-body]


def awaitable_maker() -> Awaitable[list[Point]]: ...  # type: ignore[empty-body]


async def awaited() -> list[Order]: ...  # type: ignore[empty-body]


def unresolvable(first: nowhere.Thing, second: Point) -> nowhere.Thing: ...


def half_resolvable(first: nowhere.Thing) -> Point: ...  # type: ignore[empty-body]


def anything() -> Any: ...


def nothing() -> None: ...


class Service:
    def method(self, point: Point) -> Color: ...  # type: ignore[empty-body]

    async def __call__(self, level: Level) -> Shade: ...  # type: ignore[empty-body]


def test_return_types() -> None:
    assert values.return_type(plain_function) is Point
    assert values.return_type(coroutine_maker) is Point
    assert values.return_type(awaitable_maker) == list[Point]
    assert values.return_type(awaited) == list[Order]
    assert values.return_type(half_resolvable) is Point
    assert values.return_type(nothing) is type(None)
    assert values.return_type(Service().method) is Color
    assert values.return_type(Service()) is Shade
    assert values.return_type(partial(partial(plain_function), count=1)) is Point
    assert values.return_type(Point) is Point
    assert values.return_type(plain_function) is Point


def test_no_type_where_none_is_declared() -> None:
    for fn in (unresolvable, anything, lambda: 0, len, print, partial(len), "not a function"):
        assert values.return_type(fn) is PLAIN  # type: ignore[arg-type]


def test_input_types() -> None:
    assert values.input_type(plain_function, 0) is Order
    assert values.input_type(plain_function, 1) is int
    assert values.input_type(plain_function, 7) is str
    assert values.input_type(unresolvable, 0) is PLAIN
    assert values.input_type(unresolvable, 1) is Point
    assert values.input_type(unresolvable, 2) is PLAIN
    assert values.input_type(Service().method, 0) is Point
    assert values.input_type(Service.method, 1) is Point
    assert values.input_type(Service(), 0) is Level
    assert values.input_type(partial(plain_function, order()), 0) is int
    assert values.input_type(lambda order: order, 0) is PLAIN
    assert values.input_type(print, 0) is PLAIN


def test_types_of_an_enclosing_function_are_found_where_they_are_used() -> None:
    @dataclass
    class Local:
        x: int

    def maker() -> Local:
        return Local(1)

    assert values.return_type(maker) is Local


def test_functions_are_not_kept_alive() -> None:
    import gc  # noqa: PLC0415
    import weakref  # noqa: PLC0415

    def passing() -> int:
        return 1

    assert values.return_type(passing) is int
    reference = weakref.ref(passing)
    del passing
    gc.collect()
    assert reference() is None


def test_pydantic_is_not_imported_for_it() -> None:
    program = (
        "import sys, dataclasses\nfrom engine import values\n"
        "@dataclasses.dataclass\nclass A:\n x: int\n"
        "values.round_trip(A(1), A); values.round_trip({'a': {1}})\n"
        "print('pydantic' in sys.modules)"
    )
    environment = {"PYTHONPATH": ":".join(sys.path)}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True, text=True)
    assert run.stdout == "False\n"


# --- errors -------------------------------------------------------------------------------------------------------


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
