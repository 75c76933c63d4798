"""From plain values, as they are read from history, to the type that the author declared for them."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NewType, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict
from uuid import UUID

import msgspec

from engine.errors import UnstorableValueError
from engine.storable import encode

# Types that are read as themselves and must not be looked for in texts. A time of day is stored as text.
_NATIVE = (bytes, bytearray, datetime, date, timedelta, Decimal, UUID)

_JAVASCRIPT_INTEGER_MIN = 2**31
"""JavaScript's encoder writes whole numbers of this size and beyond as floats."""

_MAPPINGS = (dict, Mapping, MutableMapping)

READ_BACK = "__torpor_read_back__"
"""The class method by which a class is made from what is stored of it and from its type's arguments."""


class _MisfitError(Exception):
    """The plain value is not one of the type."""


def fit(plain: Any, as_type: Any) -> Any:
    """``plain`` as a value of ``as_type``. What it gives depends on these two alone, so it is the same on every replay.

    Raises:
        UnstorableValueError: it is not one of that type, or the type cannot be rebuilt from plain values.
    """
    return _fit_or_refuse(plain, as_type, _STORED)


def fit_texts(plain: Any, as_type: Any) -> Any:
    """``plain``, as it was read from JSON, as a value of ``as_type``: what JSON lacks is read from its usual text.

    Those are ISO 8601 for times and durations, digits for Decimals, the text of a UUID, base64 for bytes; a number
    may also be a Decimal or a key in text.

    Raises:
        UnstorableValueError: it is not one of that type, or the type cannot be rebuilt from plain values.
    """
    return _fit_or_refuse(plain, as_type, _JSON)


def _fit_or_refuse(plain: Any, as_type: Any, reading: _Reading) -> Any:
    try:
        return _fit(plain, as_type, reading)
    except Exception as error:
        raise UnstorableValueError(f"The value does not fit its declared type {shown(as_type)}: {error}") from error


def shown(as_type: Any) -> str:
    """A type as messages show it."""
    return as_type.__qualname__ if isinstance(as_type, type) and not get_args(as_type) else str(as_type)


def _fit(plain: Any, as_type: Any, reading: _Reading) -> Any:
    try:
        return reading.convert(plain, as_type)
    except msgspec.ValidationError:
        whole = _with_whole_numbers(plain)
        if whole is None:
            raise
        return reading.convert(whole, as_type)
    except TypeError:
        return _fit_by_parts(plain, as_type, reading)


def _fit_foreign(as_type: Any, plain: Any) -> Any:
    validator = getattr(as_type, "__pydantic_validator__", None)
    if validator is not None:
        return validator.validate_python(plain, by_alias=True, by_name=True)
    return _require_instance(as_type, plain)


def _fit_foreign_json(as_type: Any, plain: Any) -> Any:
    validator = getattr(as_type, "__pydantic_validator__", None)
    if validator is not None:
        return validator.validate_json(msgspec.json.encode(plain), by_alias=True, by_name=True)
    return _require_instance(as_type, plain)


def _require_instance(as_type: Any, plain: Any) -> Any:
    # A type of the engine's own, further right in the order of imports, says itself how it is read.
    read_back = getattr(get_origin(as_type) or as_type, READ_BACK, None)
    if read_back is not None:
        return read_back(plain, get_args(as_type))
    if get_origin(as_type) is not None:
        raise _MisfitError(
            "such a generic type cannot be rebuilt from a stored value; declare a list, dict, set or tuple"
        )
    if isinstance(plain, as_type):
        return plain
    raise _MisfitError(f"a {type(plain).__qualname__} cannot be read as {shown(as_type)}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """How plain values are read: which types are their own, and who reads those that msgspec does not know."""

    native: tuple[type, ...]
    has_text_keys: bool
    foreign: Callable[[Any, Any], Any]

    def convert(self, plain: Any, as_type: Any) -> Any:
        return msgspec.convert(
            plain, as_type, builtin_types=self.native, str_keys=self.has_text_keys, dec_hook=self.foreign
        )


_STORED = _Reading(native=_NATIVE, has_text_keys=False, foreign=_fit_foreign)
_JSON = _Reading(native=(), has_text_keys=True, foreign=_fit_foreign_json)


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


def _fit_by_parts(plain: Any, as_type: Any, reading: _Reading) -> Any:
    origin, arguments = get_origin(as_type), get_args(as_type)
    made = as_type if origin is None else origin
    if (meant := _meant_by(as_type)) is not as_type:
        return _fit(plain, meant, reading)
    if origin in (Union, types.UnionType):
        return _fit_union(plain, arguments, reading)
    if origin is Literal:
        return _fit_member(plain, arguments, as_type)
    if isinstance(made, type) and (origin is None or _is_of_fields(made)):
        return _fit_class(plain, as_type, made, reading)
    if origin is not None and arguments:
        return _fit_generic(plain, as_type, origin, arguments, reading)
    raise _MisfitError("such a type cannot be rebuilt from a stored value")


def _meant_by(as_type: Any) -> Any:
    """The type that another name, or notes on it, stand for; else ``as_type``."""
    if isinstance(as_type, NewType):
        return as_type.__supertype__
    if type(as_type).__name__ == "TypeAliasType":
        return as_type.__value__
    return get_args(as_type)[0] if get_origin(as_type) is Annotated else as_type


def _fit_union(plain: Any, members: tuple[Any, ...], reading: _Reading) -> Any:
    stored = encode(plain)
    fitting: list[Any] = []
    for member in members:
        try:
            candidate = _fit(plain, member, reading)
        except Exception:  # noqa: BLE001, S112 - whatever the author's constructor raises, this is not the member
            continue
        # The member that would have been stored as exactly this is the one that was.
        if encode(candidate) == stored:
            return candidate
        fitting.append(candidate)
    if not fitting:
        raise _MisfitError(f"a {type(plain).__qualname__} is none of {', '.join(map(shown, members))}")
    return fitting[0]


def _fit_generic(plain: Any, as_type: Any, origin: Any, arguments: tuple[Any, ...], reading: _Reading) -> Any:
    if origin in _MAPPINGS:
        _require(plain, Mapping)
        key_type, value_type = arguments
        return {_fit_key(key, key_type, reading): _fit(value, value_type, reading) for key, value in plain.items()}
    if origin is tuple:
        _require(plain, list | tuple)
        if arguments[-1] is Ellipsis:
            return tuple(_fit(item, arguments[0], reading) for item in plain)
        return tuple(_fit(item, argument, reading) for item, argument in zip(plain, arguments, strict=True))
    if isinstance(origin, type) and issubclass(origin, AbstractSet):
        _require(plain, AbstractSet | list)
        items = (_fit(item, arguments[0], reading) for item in plain)
        return frozenset(items) if origin is frozenset else set(items)
    if isinstance(origin, type) and issubclass(list, origin) and issubclass(origin, Sequence):
        _require(plain, list)
        return [_fit(item, arguments[0], reading) for item in plain]
    return _require_instance(as_type, plain)


def _fit_key(key: Any, as_type: Any, reading: _Reading) -> Any:
    if not reading.has_text_keys:
        return _fit(key, as_type, reading)
    try:
        return _fit(key, as_type, reading)
    except (msgspec.ValidationError, _MisfitError):
        # A number that had to be written as text, since it is a key.
        return msgspec.convert(key, as_type, strict=False)


def _require(plain: Any, kind: Any) -> None:
    if not isinstance(plain, kind):
        raise _MisfitError(f"a {type(plain).__qualname__} was stored")


def _is_of_fields(as_type: type) -> bool:
    return dataclasses.is_dataclass(as_type) or is_typeddict(as_type) or _is_named_tuple(as_type)


def _is_named_tuple(as_type: type) -> bool:
    return issubclass(as_type, tuple) and hasattr(as_type, "_fields")


def _fit_class(plain: Any, as_type: Any, made: Any, reading: _Reading) -> Any:
    """``plain`` as the class ``made``; ``as_type`` is the same, or says what its type parameters are."""
    if issubclass(made, Enum):
        return _fit_member(plain, made, as_type)
    if dataclasses.is_dataclass(made):
        return _fit_dataclass(plain, made, _hints(as_type, made, include_extras=True), reading)
    if is_typeddict(made):
        return _fit_typed_dict(plain, made, _hints(as_type, made), reading)
    if _is_named_tuple(made):
        return _fit_named_tuple(plain, made, _hints(as_type, made), reading)
    return reading.foreign(as_type, plain)


def _hints(as_type: Any, made: Any, *, include_extras: bool = False) -> dict[str, Any]:
    """What ``made`` declares for its fields, with what ``as_type`` says of its type parameters put in their place."""
    hints = get_type_hints(made, include_extras=include_extras)
    given: dict[Any, dict[Any, Any]] = {}
    _give_parameters(as_type, {}, given)
    if not any(given.values()):
        return hints
    declaring = {name: kind for kind in made.__mro__[::-1] for name in inspect.get_annotations(kind)}
    return {name: _with_parameters(hint, given.get(declaring.get(name, made), {})) for name, hint in hints.items()}


def _give_parameters(as_type: Any, outer: Mapping[Any, Any], given: dict[Any, dict[Any, Any]]) -> None:
    """Put into ``given`` what the type parameters of a class stand for, and those of its bases."""
    made = get_origin(as_type) or as_type
    arguments = (_with_parameters(argument, outer) for argument in get_args(as_type))
    given[made] = dict(zip(getattr(made, "__parameters__", ()), arguments, strict=False))
    for base in made.__dict__.get("__orig_bases__", getattr(made, "__bases__", ())):
        _give_parameters(base, given[made], given)


def _with_parameters(hint: Any, given: Mapping[Any, Any]) -> Any:
    if isinstance(hint, TypeVar):
        return given.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    if isinstance(hint, type) or not any(parameter in given for parameter in parameters):
        return hint
    return hint[tuple(given.get(parameter, parameter) for parameter in parameters)]


def _fit_named_tuple(plain: Any, as_type: Any, hints: dict[str, Any], reading: _Reading) -> Any:
    _require(plain, list | tuple)
    if len(plain) > len(as_type._fields):
        raise _MisfitError(f"{len(plain)} items were stored, {len(as_type._fields)} are declared")
    named = zip(as_type._fields, plain, strict=False)
    return as_type(*(_fit(item, hints.get(name, Any), reading) for name, item in named))


def _fit_member(plain: Any, members: Iterable[Any], as_type: Any) -> Any:
    """That of ``members`` whose stored form is that of ``plain``."""
    stored = encode(plain)
    for member in members:
        if encode(member) == stored:
            return member
    raise _MisfitError(f"{plain!r} is no value of {shown(as_type)}")


def _fit_dataclass(plain: Any, as_type: Any, hints: dict[str, Any], reading: _Reading) -> Any:
    _require(plain, Mapping)
    fields = [field for field in dataclasses.fields(as_type) if field.name in plain]
    values = {field.name: _fit(plain[field.name], hints[field.name], reading) for field in fields}
    rebuilt = as_type(**{field.name: values[field.name] for field in fields if field.init})
    for field in fields:
        if not field.init:
            object.__setattr__(rebuilt, field.name, values[field.name])
    return rebuilt


def _fit_typed_dict(plain: Any, as_type: Any, hints: dict[str, Any], reading: _Reading) -> Any:
    _require(plain, Mapping)
    missing = as_type.__required_keys__ - plain.keys()
    if missing:
        raise _MisfitError(f"the key {min(missing)!r} is missing")
    return {key: _fit(value, hints[key], reading) for key, value in plain.items() if key in hints}
