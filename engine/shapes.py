"""From plain values, as they are read from history, to the type that the author declared for them."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping, MutableMapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, NewType, Union, get_args, get_origin, get_type_hints, is_typeddict
from uuid import UUID

import msgspec

from engine.errors import UnstorableValueError
from engine.storable import encode

# Types that are read as themselves and must not be looked for in texts. A time of day is stored as text.
_NATIVE = (bytes, bytearray, datetime, date, timedelta, Decimal, UUID)

_JAVASCRIPT_INTEGER_MIN = 2**31
"""JavaScript's encoder writes whole numbers of this size and beyond as floats."""

_MAPPINGS = (dict, Mapping, MutableMapping)


class _MisfitError(Exception):
    """The plain value is not one of the type."""


def fit(plain: Any, as_type: Any) -> Any:
    """``plain`` as a value of ``as_type``. What it gives depends on these two alone, so it is the same on every replay.

    Raises:
        UnstorableValueError: it is not one of that type, or the type cannot be rebuilt from plain values.
    """
    try:
        return _fit(plain, as_type)
    except Exception as error:
        raise UnstorableValueError(f"The value does not fit its declared type {shown(as_type)}: {error}") from error


def shown(as_type: Any) -> str:
    """A type as messages show it."""
    return as_type.__qualname__ if isinstance(as_type, type) and not get_args(as_type) else str(as_type)


def _fit(plain: Any, as_type: Any) -> Any:
    try:
        return _convert(plain, as_type)
    except msgspec.ValidationError:
        whole = _with_whole_numbers(plain)
        if whole is None:
            raise
        return _convert(whole, as_type)
    except TypeError:
        return _fit_by_parts(plain, as_type)


def _convert(plain: Any, as_type: Any) -> Any:
    return msgspec.convert(plain, as_type, builtin_types=_NATIVE, dec_hook=_fit_foreign)


def _fit_foreign(as_type: Any, plain: Any) -> Any:
    validator = getattr(as_type, "__pydantic_validator__", None)
    if validator is not None:
        return validator.validate_python(plain, by_alias=True, by_name=True)
    if isinstance(plain, as_type):
        return plain
    raise _MisfitError(f"a {type(plain).__qualname__} cannot be read as {shown(as_type)}")


def _with_whole_numbers(plain: Any) -> Any:
    """``plain`` with JavaScript's large whole floats as integers; None where there is none."""
    found = False

    def visit(part: Any) -> Any:
        nonlocal found
        if isinstance(part, float) and abs(part) >= _JAVASCRIPT_INTEGER_MIN and part.is_integer():
            found = True
            return int(part)
        if isinstance(part, dict):
            return {key: visit(value) for key, value in part.items()}
        return list(map(visit, part)) if isinstance(part, list) else part

    whole = visit(plain)
    return whole if found else None


# --- what msgspec declines: unions of look-alikes, enums of other values, and whatever contains them --------------


def _fit_by_parts(plain: Any, as_type: Any) -> Any:
    if isinstance(as_type, NewType):
        return _fit(plain, as_type.__supertype__)
    if type(as_type).__name__ == "TypeAliasType":
        return _fit(plain, as_type.__value__)
    origin, arguments = get_origin(as_type), get_args(as_type)
    if origin is Annotated:
        return _fit(plain, arguments[0])
    if origin in (Union, types.UnionType):
        return _fit_union(plain, arguments)
    if origin is not None and arguments:
        return _fit_generic(plain, origin, arguments)
    if isinstance(as_type, type):
        return _fit_class(plain, as_type)
    raise _MisfitError("such a type cannot be rebuilt from a stored value")


def _fit_union(plain: Any, members: tuple[Any, ...]) -> Any:
    stored = encode(plain)
    fitting: list[Any] = []
    for member in members:
        try:
            candidate = _fit(plain, member)
        except Exception:  # noqa: BLE001, S112 - whatever the author's constructor raises, this is not the member
            continue
        # The member that would have been stored as exactly this is the one that was.
        if encode(candidate) == stored:
            return candidate
        fitting.append(candidate)
    if not fitting:
        raise _MisfitError(f"a {type(plain).__qualname__} is none of {', '.join(map(shown, members))}")
    return fitting[0]


def _fit_generic(plain: Any, origin: Any, arguments: tuple[Any, ...]) -> Any:
    if origin in _MAPPINGS:
        _require(plain, Mapping)
        return {_fit(key, arguments[0]): _fit(value, arguments[1]) for key, value in plain.items()}
    if origin is tuple:
        _require(plain, list | tuple)
        if arguments[-1] is Ellipsis:
            return tuple(_fit(item, arguments[0]) for item in plain)
        return tuple(_fit(item, argument) for item, argument in zip(plain, arguments, strict=True))
    if isinstance(origin, type) and issubclass(origin, AbstractSet):
        _require(plain, AbstractSet | list)
        items = (_fit(item, arguments[0]) for item in plain)
        return frozenset(items) if origin is frozenset else set(items)
    if isinstance(origin, type) and issubclass(list, origin) and issubclass(origin, Sequence):
        _require(plain, list)
        return [_fit(item, arguments[0]) for item in plain]
    if dataclasses.is_dataclass(origin):
        return _fit_class(plain, origin)
    raise _MisfitError("such a generic type cannot be rebuilt from a stored value")


def _require(plain: Any, kind: Any) -> None:
    if not isinstance(plain, kind):
        raise _MisfitError(f"a {type(plain).__qualname__} was stored")


def _fit_class(plain: Any, as_type: Any) -> Any:
    if issubclass(as_type, Enum):
        return _fit_enum(plain, as_type)
    if dataclasses.is_dataclass(as_type):
        return _fit_dataclass(plain, as_type)
    if is_typeddict(as_type):
        return _fit_typed_dict(plain, as_type)
    if issubclass(as_type, tuple) and hasattr(as_type, "_fields"):
        return _fit_named_tuple(plain, as_type)
    return _fit_foreign(as_type, plain)


def _fit_named_tuple(plain: Any, as_type: Any) -> Any:
    _require(plain, list | tuple)
    if len(plain) > len(as_type._fields):
        raise _MisfitError(f"{len(plain)} items were stored, {len(as_type._fields)} are declared")
    hints = get_type_hints(as_type)
    return as_type(*(_fit(item, hints.get(name, Any)) for name, item in zip(as_type._fields, plain, strict=False)))


def _fit_enum(plain: Any, as_type: type[Enum]) -> Enum:
    stored = encode(plain)
    for member in as_type:
        if encode(member.value) == stored:
            return member
    raise _MisfitError(f"{plain!r} is no value of {shown(as_type)}")


def _fit_dataclass(plain: Any, as_type: Any) -> Any:
    _require(plain, Mapping)
    hints = get_type_hints(as_type, include_extras=True)
    fields = [field for field in dataclasses.fields(as_type) if field.name in plain]
    values = {field.name: _fit(plain[field.name], hints[field.name]) for field in fields}
    rebuilt = as_type(**{field.name: values[field.name] for field in fields if field.init})
    for field in fields:
        if not field.init:
            object.__setattr__(rebuilt, field.name, values[field.name])
    return rebuilt


def _fit_typed_dict(plain: Any, as_type: Any) -> Any:
    _require(plain, Mapping)
    hints = get_type_hints(as_type)
    missing = as_type.__required_keys__ - plain.keys()
    if missing:
        raise _MisfitError(f"the key {min(missing)!r} is missing")
    return {key: _fit(value, hints[key]) for key, value in plain.items() if key in hints}
