"""Types and values that the tests of stored values share."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from typing import Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pydantic
from hypothesis import strategies as st

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


@dataclass
class Shelf(Generic[T]):
    boxes: list[Box[T]]
    spare: T | None = None


class Points(Box[Point | Point3]):
    """A generic class's type parameter, given once and for all."""


@dataclass
class Crate(Box[list[T]], Generic[T]):
    label: T


@dataclass
class Chosen:
    color: Literal[Color.RED, Odd.HALF]


class Row(NamedTuple, Generic[T]):
    first: T
    rest: tuple[T, ...] = ()


class Cells(TypedDict, Generic[T]):
    cells: list[T]


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
