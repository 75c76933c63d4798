from __future__ import annotations

import socket
import threading
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import cbor2
import pydantic
import pytest

from engine import values
from engine.errors import CriticalError, UnstorableValueError
from engine.limits import VALUE_DEPTH_MAX
from tests.unit.value_models import (
    INSTANT,
    Box,
    Color,
    Event,
    Inner,
    Line,
    Odd,
    OddPair,
    OddSettings,
    Order,
    Pair,
    Point,
    Point3,
    Secretive,
    Settings,
    Shape,
)

if TYPE_CHECKING:
    from collections.abc import Callable


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
        ({Point(1): 1}, "has a key of type tests.unit.value_models.Point, which cannot be a stored key"),
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
