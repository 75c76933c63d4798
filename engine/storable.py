"""From any Python value to the few types that are stored, or an error that names the place inside it that cannot be.

What comes out consists of None, bool, int, float, text, bytes, list, dict, aware datetime, date, Decimal, UUID, and
CBOR tags for sets and durations. Nothing here knows the declared type: that is ``engine.shapes``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Never
from uuid import UUID

import cbor2
import msgspec

from engine.errors import RecordedError, UnstorableValueError
from engine.limits import VALUE_DEPTH_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SET_TAG = 258
"""CBOR tag of a set: an array of distinct elements. Source: the IANA registry of CBOR tags."""

DURATION_TAG = 1002
"""CBOR tag of a duration: a map of seconds (key 1) and microseconds (key -6). Source: RFC 9581."""

DURATION_SECONDS, DURATION_MICROSECONDS = 1, -6

_PATH_STEPS_SHOWN = 12
_KEY_CHARACTERS_SHOWN = 40
_ATOMS = frozenset({type(None), bool, int, float, bytes})
_DEFECTS_OF_TIME_ZONES = (OverflowError, ValueError)


class _RefusedError(Exception):
    """Travels up from the part that cannot be stored, collecting the path on its way."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path: list[str] = []

    def inside(self, step: str) -> _RefusedError:
        self.path.append(step)
        return self


def encode(value: Any) -> bytes:
    """The CBOR of ``value``.

    Raises:
        UnstorableValueError: a part of it has no stored form; names the path to it and its type.
    """
    return cbor2.dumps(prepare(value))


def prepare(value: Any) -> Any:
    """``value`` in stored types only; containers are copied, so that later changes of ``value`` do not matter.

    Raises:
        UnstorableValueError: a part of it has no stored form; names the path to it and its type.
    """
    try:
        return _prepare(value, 0)
    except _RefusedError as refused:
        steps = refused.path[::-1]
        if len(steps) > _PATH_STEPS_SHOWN:
            steps = [*steps[:_PATH_STEPS_SHOWN], "..."]
        where = f"The value at {''.join(steps)}" if steps else "The value"
        raise UnstorableValueError(f"{where} {refused.problem}") from refused.__cause__


def _prepare(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is str:
        return _prepare_text(value)
    if depth >= VALUE_DEPTH_MAX:
        raise _RefusedError(f"is nested more than {VALUE_DEPTH_MAX} levels deep, or contains itself")
    if kind is dict:
        return _prepare_mapping(value.items(), depth)
    if kind is list:
        return _prepare_items(value, depth)
    return _prepare_other(value, depth)


def _prepare_text(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _RefusedError("is a str with a lone surrogate, which is not valid Unicode") from None
    return text


def _prepare_items(items: Iterable[Any], depth: int) -> list[Any]:
    prepared: list[Any] = []
    for item in items:
        try:
            prepared.append(_prepare(item, depth + 1))
        except _RefusedError as refused:
            raise refused.inside(f"[{len(prepared)}]") from refused.__cause__
    return prepared


def _prepare_mapping(pairs: Iterable[tuple[Any, Any]], depth: int) -> dict[Any, Any]:
    prepared: dict[Any, Any] = {}
    for key, value in pairs:
        stored_key = key if type(key) is str and key.isascii() else _prepare_key(key, depth)
        if stored_key in prepared:
            raise _RefusedError(f"has two keys that are stored as {_shown(stored_key)}")
        try:
            prepared[stored_key] = _prepare(value, depth + 1)
        except _RefusedError as refused:
            raise refused.inside(_step(key)) from refused.__cause__
    return prepared


def _prepare_key(key: Any, depth: int) -> Any:
    try:
        prepared = _hashable(_prepare(key, depth + 1))
    except _RefusedError as refused:
        raise _RefusedError(f"has a key {_shown(key)} that {refused.problem}") from None
    if prepared is _UNHASHABLE:
        raise _RefusedError(f"has a key of type {_type_name(key)}, which cannot be a stored key")
    return prepared


_UNHASHABLE = object()


def _hashable(prepared: Any) -> Any:
    if isinstance(prepared, list):
        items = tuple(map(_hashable, prepared))
        return _UNHASHABLE if _UNHASHABLE in items else items
    return _UNHASHABLE if isinstance(prepared, dict | cbor2.CBORTag) else prepared


def _prepare_set(elements: AbstractSet[Any], depth: int) -> cbor2.CBORTag:
    try:
        prepared = _prepare_items(elements, depth)
    except _RefusedError as refused:
        # A set has no order, so an index would say nothing.
        refused.path[-1] = "{}"
        raise
    # Sorted, so that equal sets have equal bytes in every process.
    by_bytes = {cbor2.dumps(element): element for element in prepared}
    if len(by_bytes) != len(prepared):
        raise _RefusedError("is a set of which two elements have the same stored form")
    return cbor2.CBORTag(SET_TAG, [by_bytes[key] for key in sorted(by_bytes)])


def _prepare_other(value: Any, depth: int) -> Any:
    if isinstance(value, type):
        raise _RefusedError(f"is the class {value.__qualname__}, which has no stored form")
    preparer = _preparer_of(value)
    if preparer is not None:
        return preparer(value, depth)
    return _refuse(value)


def _refuse(value: Any) -> Never:
    hint = "; was it meant to be awaited?" if isawaitable(value) else ""
    raise _RefusedError(f"is of type {_type_name(value)}, which has no stored form{hint}")


def _preparer_of(value: Any) -> Callable[[Any, int], Any] | None:
    for kind, preparer in _SCALARS:
        if isinstance(value, kind):
            return preparer
    for mark, preparer in _MODELS:
        if hasattr(type(value), mark):
            return preparer
    for kind, preparer in _CONTAINERS:
        if isinstance(value, kind):
            return preparer
    return None


def _prepare_datetime(instant: datetime, _depth: int) -> datetime:
    try:
        offset = instant.utcoffset()
        if offset is None:
            raise _RefusedError("is a datetime without a time zone; give it one, such as datetime.UTC")
        if offset.seconds % 60 or offset.microseconds:
            # Such offsets cannot be written; the instant stays the same.
            instant, offset = instant.astimezone(UTC), timedelta()
        # Rebuilt plainly: subclasses and named zones come back as this too.
        return instant if type(instant) is datetime else datetime.combine(instant.date(), instant.timetz())
    except _DEFECTS_OF_TIME_ZONES as error:
        raise _RefusedError(f"is a datetime whose time zone cannot be stored ({error})") from error


def _prepare_decimal(number: Decimal, _depth: int) -> Decimal:
    if not number.is_finite():
        raise _RefusedError(f"is {number!r}; only finite Decimals have a stored form")
    return number


def _prepare_duration(duration: timedelta, _depth: int) -> cbor2.CBORTag:
    seconds = duration.days * 86400 + duration.seconds
    return cbor2.CBORTag(DURATION_TAG, {DURATION_SECONDS: seconds, DURATION_MICROSECONDS: duration.microseconds})


def _prepare_attributes(value: Any, names: Iterable[str], depth: int) -> dict[str, Any]:
    try:
        pairs = [(name, getattr(value, name)) for name in names]
    except Exception as error:
        raise _RefusedError(f"is a {_type_name(value)} that lacks a field ({error})") from error
    return _prepare_mapping(pairs, depth)


def _prepare_dataclass(value: Any, depth: int) -> dict[str, Any]:
    return _prepare_attributes(value, (field.name for field in dataclasses.fields(value)), depth)


def _prepare_attrs(value: Any, depth: int) -> dict[str, Any]:
    return _prepare_attributes(value, (field.name for field in type(value).__attrs_attrs__), depth)


def _prepare_struct(struct: msgspec.Struct, depth: int) -> Any:
    config = struct.__struct_config__
    if config.array_like:
        items = [getattr(struct, name) for name in struct.__struct_fields__]
        return _prepare_items(items if config.tag is None else [config.tag, *items], depth)
    names = zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True)
    pairs = [(stored, getattr(struct, name)) for stored, name in names]
    tag = [] if config.tag is None else [(config.tag_field, config.tag)]
    return _prepare_mapping([*tag, *(pair for pair in pairs if pair[1] is not msgspec.UNSET)], depth)


def _prepare_pydantic(model: Any, depth: int) -> Any:
    dump = _pydantic_dump(model, "python")
    try:
        # Types that dump as themselves (pydantic's URLs) are none of ours.
        return _refuse(model) if type(dump) is type(model) else _prepare(dump, depth + 1)
    except _RefusedError as refused:
        # Types that only pydantic knows (URLs, paths) have a form in its JSON; a secret's is a mask, hence the check.
        as_json = _pydantic_dump(model, "json")
        if not _pydantic_is_same(model, as_json):
            raise refused from refused.__cause__
        return _prepare(as_json, depth + 1)


def _pydantic_dump(model: Any, mode: str) -> Any:
    try:
        return model.__pydantic_serializer__.to_python(
            model, mode=mode, by_alias=False, round_trip=True, warnings=False
        )
    except Exception as error:
        raise _RefusedError(f"is a {_type_name(model)} that pydantic cannot dump ({error})") from error


def _pydantic_is_same(model: Any, dump: Any) -> bool:
    try:
        rebuilt = type(model).__pydantic_validator__.validate_python(dump, by_alias=True, by_name=True)
    except Exception:  # noqa: BLE001 - whatever a validator of the author raises, the dump is no form of this model
        return False
    return bool(rebuilt == model)


_Preparers = tuple[tuple[type | tuple[type, ...], "Callable[[Any, int], Any]"], ...]

_SCALARS: _Preparers = (
    # An enum may also be a text or a number, and a datetime is a date: the order matters.
    (Enum, lambda member, depth: _prepare(member.value, depth + 1)),
    (str, lambda text, _: _prepare_text(str.__str__(text))),
    (int, lambda number, _: int.__int__(number)),
    (float, lambda number, _: float.__float__(number)),
    ((bytes, bytearray, memoryview), lambda content, _: bytes(content)),
    (datetime, _prepare_datetime),
    (date, lambda day, _: date(day.year, day.month, day.day)),
    (time, lambda clock_time, _: clock_time.isoformat()),
    (timedelta, _prepare_duration),
    (Decimal, _prepare_decimal),
    (UUID, lambda uuid, _: UUID(int=uuid.int)),
    # What `TryResult` and the errors of joins hold, so that a branch may give a failure as its value.
    (RecordedError, lambda error, depth: _prepare_attributes(error, ("name", "message"), depth)),
)

# Models are known by the attribute that their library gives the class, so that no library is imported to find out.
_MODELS: tuple[tuple[str, Callable[[Any, int], Any]], ...] = (
    ("__struct_config__", _prepare_struct),
    ("__pydantic_serializer__", _prepare_pydantic),
    ("__dataclass_fields__", _prepare_dataclass),
    ("__attrs_attrs__", _prepare_attrs),
)

_CONTAINERS: _Preparers = (
    ((list, tuple), _prepare_items),
    (AbstractSet, _prepare_set),
    (Mapping, lambda mapping, depth: _prepare_mapping(mapping.items(), depth)),
)


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _step(key: Any) -> str:
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{_shown(key)}]"


def _shown(key: Any) -> str:
    text = ascii(key)
    return text if len(text) <= _KEY_CHARACTERS_SHOWN else f"{text[:_KEY_CHARACTERS_SHOWN]}..."
