"""User values as CBOR bytes and back, the same live as on replay; never pickle.

Read are the tags that are written here (datetime, date, big integer, Decimal, UUID, set, duration) and those that
JavaScript's encoder writes for its own values (epoch datetime, map, byte array). Any other tag is corrupt history.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from io import BytesIO
from typing import Any

import cbor2
import msgspec

from engine.declared import PLAIN, input_type, return_type
from engine.errors import CorruptHistoryError, UnstorableValueError
from engine.limits import VALUE_DEPTH_MAX
from engine.shapes import fit, fit_texts
from engine.storable import DURATION_MICROSECONDS, DURATION_SECONDS, DURATION_TAG, encode

__all__ = [
    "PLAIN",
    "StoredError",
    "decode",
    "decode_error",
    "encode",
    "encode_error",
    "fit_json",
    "input_type",
    "return_type",
    "round_trip",
]

_EXACT = frozenset({type(None), bool, int, float, str, bytes})
"""Types whose values are read back as they are; bytes are immutable, so that no copy is needed either."""

_CONTAINERS_PER_LEVEL = 2
"""A set is a tag around an array: two containers to the decoder, one level to the author."""


# --- writing ------------------------------------------------------------------------------------------------------


def round_trip(value: Any, as_type: Any = PLAIN) -> tuple[bytes, Any]:
    """``(stored bytes, the value as it will be read back)``: what a step must answer so that replay answers the same.

    Raises:
        UnstorableValueError: a part of it has no stored form, or it does not fit ``as_type``.
    """
    kind = type(value)
    if kind in _EXACT and (as_type is PLAIN or as_type is kind):
        return (encode(value) if kind is str else cbor2.dumps(value)), value
    data = encode(value)
    try:
        return data, decode(data, as_type)
    except CorruptHistoryError as error:
        raise UnstorableValueError(f"A {kind.__qualname__} cannot be read back: {error}") from error


# --- reading ------------------------------------------------------------------------------------------------------


def decode(data: bytes, as_type: Any = PLAIN) -> Any:
    """The value whose CBOR ``data`` is, as a value of ``as_type``.

    Raises:
        CorruptHistoryError: it is not exactly one value of the tags that are read, or nested too deeply.
        UnstorableValueError: it does not fit ``as_type``.
    """
    plain = _read(data)
    if as_type is PLAIN or as_type is Any or (type(plain) is as_type and as_type in _EXACT):
        return plain
    return fit(plain, as_type)


def _read(data: bytes) -> Any:
    if data and _SCALAR_BYTES[data[0]] == len(data):
        try:
            return cbor2.loads(data)
        except cbor2.CBORDecodeError:
            # What is wrong with it is told below, as for every other value.
            pass
    stream = BytesIO(data)
    try:
        plain = cbor2.CBORDecoder(
            stream,
            tag_hook=_refuse_tag,
            semantic_decoders=_TAGS,
            max_depth=_CONTAINERS_PER_LEVEL * VALUE_DEPTH_MAX + 1,
            allow_duplicate_keys=False,
        ).decode()
        plain = _without_simple(plain) if _MAY_BE_SIMPLE.search(data) else plain
    except CorruptHistoryError:
        raise
    except Exception as error:
        reason = error.__cause__ or error
        raise CorruptHistoryError(f"Stored value of {len(data)} bytes is malformed: {reason}") from error
    if stream.tell() != len(data):
        raise CorruptHistoryError(f"Stored value of {len(data)} bytes ends after {stream.tell()}")
    return plain


def _scalar_bytes(first: int) -> int:
    """The size of a value whose first byte tells it, as that of a number, a short text or short bytes does; else 0."""
    kind, size = first >> 5, first & 0x1F
    if kind in (0, 1):
        return 1 if size < 24 else {24: 2, 25: 3, 26: 5, 27: 9}.get(size, 0)  # noqa: PLR2004 - RFC 8949, section 3
    if kind in (2, 3):
        return 1 + size if size < 24 else 0  # noqa: PLR2004 - the same
    return {0xF4: 1, 0xF5: 1, 0xF6: 1, 0xFB: 9}.get(first, 0)


# Most results are this small. They hold no tag, no depth and no key to check, so their decoder needs no settings.
_SCALAR_BYTES = tuple(map(_scalar_bytes, range(256)))

# First bytes of the simple values that cbor2 gives as objects of its own: undefined, and those that nobody defined.
_MAY_BE_SIMPLE = re.compile(rb"[\xe0-\xf3\xf7\xf8]")


def _without_simple(part: Any) -> Any:
    """``part`` with None for JavaScript's ``undefined``; other simple values are refused."""
    if part is cbor2.undefined:
        return None
    match part:
        case dict():
            return {_without_simple(key): _without_simple(value) for key, value in part.items()}
        case list() | tuple() | set() | frozenset():
            return type(part)(map(_without_simple, part))
        case Mapping():
            return cbor2.frozendict({key: _without_simple(value) for key, value in part.items()})
        case cbor2.CBORSimpleValue():
            raise CorruptHistoryError(f"Simple value {part.value} is not one that is stored")
    return part


def _refuse_tag(tag: Any, _immutable: bool = False) -> Any:  # noqa: FBT001, FBT002 - the decoder's protocol
    raise CorruptHistoryError(f"CBOR tag {tag.tag} is not one that is stored")


def _refuser(number: int) -> Any:
    return lambda _value, _immutable: _refuse_tag(cbor2.CBORTag(number, None))


def _duration(parts: Any, _immutable: bool) -> timedelta:  # noqa: FBT001 - the decoder's protocol
    match dict(parts):
        case {1: int(seconds), -6: int(microseconds)} if len(parts) == len((DURATION_SECONDS, DURATION_MICROSECONDS)):
            return timedelta(seconds=seconds, microseconds=microseconds)
    raise CorruptHistoryError("A stored duration is malformed")


def _byte_array(content: Any, _immutable: bool) -> bytes:  # noqa: FBT001 - the decoder's protocol
    if isinstance(content, bytes):
        return content
    raise CorruptHistoryError("A stored byte array holds no bytes")


def _javascript_map(content: Any, _immutable: bool) -> Any:  # noqa: FBT001 - the decoder's protocol
    if isinstance(content, Mapping):
        return content
    raise CorruptHistoryError("A stored map holds no map")


# Known to the decoder and unwanted: references (which could expand without bound), big floats (whose exponents could
# too), and objects with behaviour of their own such as patterns and mail messages.
_UNWANTED_TAGS = (5, 25, 28, 29, 30, 35, 36, 52, 54, 100, 256, 260, 261, 43000, 55799)

_TAGS = {number: _refuser(number) for number in _UNWANTED_TAGS} | {
    64: _byte_array,
    259: _javascript_map,
    DURATION_TAG: _duration,
}


# --- from JSON ----------------------------------------------------------------------------------------------------


def fit_json(value: Any, as_type: Any) -> Any:
    """``value``, as it was read from JSON, with what JSON cannot say made what ``as_type`` declares.

    What fits as it is stays as it is. Otherwise only the parts that JSON lacks are replaced, such as a text by the
    Decimal that it means: no defaults are filled in, so the same JSON gives the same value each time.

    Raises:
        UnstorableValueError: it is none of that type even so.
    """
    if as_type is PLAIN or as_type is Any:
        return value
    try:
        fit(value, as_type)
    except UnstorableValueError:
        return _replaced(value, _read(encode(fit_texts(value, as_type))))
    return value


def _replaced(sent: Any, typed: Any) -> Any:
    """``typed`` where its kind is another than that of ``sent``, and no more than what was sent."""
    if isinstance(sent, dict) and isinstance(typed, dict):
        if sent.keys() <= typed.keys():
            return {key: _replaced(part, typed[key]) for key, part in sent.items()}
        if len(sent) == len(typed) and not any(isinstance(key, str) for key in typed):
            # A mapping whose keys only JSON makes texts: their order is the same.
            return {key: _replaced(part, typed[key]) for part, key in zip(sent.values(), typed, strict=True)}
        return typed
    if isinstance(sent, list) and isinstance(typed, list) and len(sent) == len(typed):
        return [_replaced(*pair) for pair in zip(sent, typed, strict=True)]
    return sent if type(sent) is type(typed) and not isinstance(sent, (dict, list)) else typed


# --- the error of a workflow --------------------------------------------------------------------------------------


class StoredError(msgspec.Struct, frozen=True, kw_only=True):
    """How a workflow failed: the error's class ``name``, its ``message``, and what else is known of it."""

    name: str
    message: str
    stack: str | None = None
    metadata: dict[str, Any] | None = None


def encode_error(error: StoredError) -> bytes:
    """The CBOR map ``{name, message, stack, metadata}``, absent parts left out; never fails on the text of an error.

    Raises:
        UnstorableValueError: the metadata holds something other than storable values.
    """
    parts = {"name": _clean(error.name), "message": _clean(error.message)}
    stack = {} if error.stack is None else {"stack": _clean(error.stack)}
    return encode(parts | stack | ({} if error.metadata is None else {"metadata": error.metadata}))


def decode_error(data: bytes) -> StoredError:
    """The error whose CBOR ``data`` is.

    Raises:
        CorruptHistoryError: it is no such map.
    """
    match _read(data):
        case {"name": str(name), "message": str(message), **others}:
            stack, metadata = others.get("stack"), others.get("metadata")
            return StoredError(
                name=name,
                message=message,
                stack=stack if isinstance(stack, str) else None,
                metadata=metadata if isinstance(metadata, dict) else None,
            )
    raise CorruptHistoryError("The stored error is no map of name and message")


def _clean(text: str) -> str:
    # Messages may hold lone surrogates (of an undecodable file name, say); recording a failure must not fail itself.
    return text.encode(errors="backslashreplace").decode()
