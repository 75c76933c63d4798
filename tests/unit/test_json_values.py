"""What JSON can say for a declared type: the usual texts, kept exactly, and nothing that was not sent."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from engine import values
from engine.errors import UnstorableValueError

KEY = UUID("12345678-1234-5678-1234-567812345678")
NUMBERS = itertools.count()
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Line:
    price: Decimal
    count: int = 1


@dataclass(frozen=True)
class Bill:
    lines: list[Line]
    due: date | None = None
    number: UUID = field(default_factory=lambda: UUID(int=next(NUMBERS)))


class Shipment(msgspec.Struct, rename="camel"):
    leaves_at: datetime
    label: bytes = b""


class Visit(TypedDict):
    at: time
    lasts: timedelta


@dataclass(frozen=True)
class Marked:
    """Two kinds that both are texts in JSON: msgspec declines such a union."""

    mark: date | Decimal
    by_day: dict[date | Decimal, int]


@dataclass(frozen=True)
class Parcel:
    price: Decimal
    at: str
    kind: str = "plain"


class Tag(pydantic.BaseModel):
    a: str = pydantic.Field(alias="whose")
    b: str = pydantic.Field(alias="where")


@dataclass(frozen=True)
class Delivery:
    price: Decimal
    tag: Tag


CASES: list[tuple[Any, Any, Any]] = [
    ("9.90", Decimal, Decimal("9.90")),
    (9, Decimal, Decimal(9)),
    (9.5, Decimal, Decimal("9.5")),
    ("2026-03-01T12:00:00Z", datetime, NOON),
    ("2026-03-01", date, date(2026, 3, 1)),
    ("12:30:00", time, time(12, 30)),
    ("PT90M", timedelta, timedelta(minutes=90)),
    (str(KEY), UUID, KEY),
    ("aGk=", bytes, b"hi"),
    (7, float, 7.0),
    ({"1": "a", "2": "b"}, dict[int, str], {1: "a", 2: "b"}),
    ({"2026-03-01": "1.5"}, dict[date, Decimal], {date(2026, 3, 1): Decimal("1.5")}),
    (["1.5", "1.5"], tuple[Decimal, str], (Decimal("1.5"), "1.5")),
    (["1.5"], set[Decimal], {Decimal("1.5")}),
    (None, Decimal | None, None),
    ("2026-03-01", str | date, "2026-03-01"),
    (
        {"lines": [{"price": "1.10", "count": 2}], "due": "2026-03-01", "number": str(KEY)},
        Bill,
        Bill([Line(Decimal("1.10"), 2)], date(2026, 3, 1), KEY),
    ),
    ({"leavesAt": "2026-03-01T12:00:00Z", "label": "aGk="}, Shipment, Shipment(NOON, b"hi")),
    ({"at": "12:30:00", "lasts": "PT1S"}, Visit, {"at": time(12, 30), "lasts": timedelta(seconds=1)}),
    ({"mark": "1.5", "by_day": {"2026-03-01": 1}}, Marked, Marked(Decimal("1.5"), {date(2026, 3, 1): 1})),
]


@pytest.mark.parametrize(("sent", "as_type", "meant"), CASES, ids=lambda part: str(part)[:40])
def test_json_becomes_the_declared_type(sent: Any, as_type: Any, meant: Any) -> None:
    typed = values.fit_json(sent, as_type)
    read_back = values.decode(values.encode(typed), as_type)
    assert read_back == meant
    assert type(read_back) is type(meant)
    assert values.fit_json(sent, as_type) == typed


MISFITS: list[tuple[Any, Any, str]] = [
    ({"lines": [{"price": "much"}]}, Bill, r"\$\.lines\[0\]\.price"),
    ({"lines": [{"price": "1", "count": "2"}]}, Bill, r"\$\.lines\[0\]\.count"),
    ({"leavesAt": "tomorrow"}, Shipment, r"\$\.leavesAt"),
    ({"leavesAt": "2026-03-01T12:00:00"}, Shipment, r"\.leavesAt .*without a time zone"),
    ("1", int, "int"),
    ("?", bytes, "base64"),
    (True, Decimal, "decimal"),
]


@pytest.mark.parametrize(("sent", "as_type", "told"), MISFITS, ids=lambda part: str(part)[:40])
def test_what_does_not_fit_is_refused_with_its_place(sent: Any, as_type: Any, told: str) -> None:
    with pytest.raises(UnstorableValueError, match=told):
        values.fit_json(sent, as_type)


def test_no_default_is_filled_in_so_that_the_same_json_is_the_same_value() -> None:
    sent = {"lines": [{"price": "1.10"}], "due": "2026-03-01"}
    assert values.fit_json(sent, Bill) == {"lines": [{"price": Decimal("1.10")}], "due": date(2026, 3, 1)}


def test_a_field_that_nobody_knows_shifts_no_other() -> None:
    sent = {"note": "extra", "at": "home", "price": "1.10"}
    typed = values.fit_json(sent, Parcel)
    assert values.decode(values.encode(typed), Parcel) == Parcel(Decimal("1.10"), "home")


def test_a_field_by_its_alias_shifts_no_other() -> None:
    typed = values.fit_json({"price": "1.5", "tag": {"where": "home", "whose": "ada"}}, Delivery)
    meant = Delivery(Decimal("1.5"), Tag(whose="ada", where="home"))
    assert values.decode(values.encode(typed), Delivery) == meant


def test_what_fits_stays_as_it_was_sent() -> None:
    assert values.fit_json({"any": ["2026-03-01"]}, values.PLAIN) == {"any": ["2026-03-01"]}
    assert values.fit_json("12:30:00", time) == "12:30:00"
