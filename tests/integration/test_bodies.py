"""Bodies: what JSON and CBOR become inside, what is refused, and what values become on the way out."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import cbor2
import pytest

from engine.limits import VALUE_DEPTH_MAX
from handlers import bodies, problems
from handlers.problems import Problem

MOMENT = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize("value", [None, 0, "", {}, [], False, 10**60, -0.5, "\u0000", {"a": [1, {"b": None}]}])
def test_a_value_comes_through_both_ways(value: object) -> None:
    assert bodies.read(json.dumps(value).encode(), "application/json; charset=utf-8") == value
    assert bodies.read(cbor2.dumps(value), "application/cbor") == value


def test_an_empty_body_is_absent_and_null_is_not() -> None:
    assert bodies.read(b"", None) is bodies.ABSENT
    assert bodies.read(b"null", None) is None


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"{", "application/json"),
        (b"NaN", "application/json"),
        (b"[1e999]", "application/json"),
        (b"\xff", "application/json"),
        (b"9" * 5000, "application/json"),
        (b"[" * (VALUE_DEPTH_MAX + 1) + b"]" * (VALUE_DEPTH_MAX + 1), "application/json"),
        (b"[" * 100_000, "application/json"),
        (b"\x82\x01", "application/cbor"),
        (b"\x01\x01", "application/cbor"),
        (b"\x81" * 100_000 + b"\x01", "application/cbor"),
        (cbor2.dumps(cbor2.CBORTag(12345, 1)), "application/cbor"),
    ],
)
def test_what_cannot_be_read_is_a_malformed_body(body: bytes, content_type: str) -> None:
    with pytest.raises(Problem) as refused:
        bodies.read(body, content_type)
    assert refused.value.kind is problems.MALFORMED_BODY


def test_depth_is_allowed_up_to_the_limit() -> None:
    body = b"[" * VALUE_DEPTH_MAX + b"]" * VALUE_DEPTH_MAX
    assert isinstance(bodies.read(body, None), list)


def test_other_types_and_large_bodies_are_refused() -> None:
    with pytest.raises(Problem) as refused:
        bodies.read(b"<a/>", "text/xml")
    assert refused.value.kind is problems.UNSUPPORTED_MEDIA_TYPE
    with pytest.raises(Problem) as refused:
        bodies.read(b" " * (bodies.BODY_BYTES_MAX + 1), None)
    assert refused.value.kind is problems.BODY_TOO_LARGE


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (b"\x00\xff", "AP8="),
        (MOMENT, "2026-11-29T12:00:00+00:00"),
        (MOMENT.date(), "2026-11-29"),
        (timedelta(minutes=1), 60.0),
        (Decimal("1.10"), "1.10"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ({1: "a", None: "b", "c": {2}}, {"1": "a", "null": "b", "c": [2]}),
        (10**60, 10**60),
        ("\ud800", "\ud800"),
    ],
)
def test_values_that_json_lacks_are_put_as_documented(value: object, expected: object) -> None:
    assert json.loads(bodies.write(value, bodies.JSON)) == expected


def test_an_integer_that_no_parser_reads_is_put_as_text() -> None:
    assert json.loads(bodies.write({"n": 10**4200}, bodies.JSON)) == {"n": 10**4200}
    assert json.loads(bodies.write([-(16**4000)], bodies.JSON)) == ["-0x1" + "0" * 4000]


def test_cbor_answers_carry_values_as_they_are() -> None:
    value = {"at": MOMENT, "bytes": b"\x00", "amount": Decimal("1.10"), "far": math.inf}
    assert cbor2.loads(bodies.write(value, bodies.CBOR)) == value


def test_json_answers_are_harmless_inside_a_page() -> None:
    body = bodies.write({"name": "</script><!-- & \u2028"}, bodies.JSON)
    assert not set(b"<>&") & set(body)
    assert json.loads(body) == {"name": "</script><!-- & \u2028"}


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, bodies.JSON),
        ("*/*", bodies.JSON),
        ("application/cbor", bodies.CBOR),
        ("application/cbor, */*;q=0.1", bodies.CBOR),
        ("application/json, application/cbor", bodies.JSON),
        ("application/json;q=0.5, application/cbor", bodies.CBOR),
        ("application/cbor;q=x", bodies.JSON),
    ],
)
def test_accept_chooses_the_form(accept: str | None, expected: str) -> None:
    assert bodies.wanted(accept) == expected
