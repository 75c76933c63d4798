"""Bodies of requests and answers: JSON or CBOR on the wire, plain values inside.

CBOR carries every value as it is. JSON has fewer kinds of value, so on the way out

====================  =======================================================
bytes                 base64 text (RFC 4648, padded)
datetime, date        RFC 3339 text, in its own offset
timedelta             its seconds, as a number
Decimal, UUID         their text
NaN, Infinity         the texts ``NaN``, ``Infinity``, ``-Infinity``
integers past 4,200   their hexadecimal text, as ``0x1f``; parsers refuse so
digits                many digits, since reading them takes quadratic time
set, frozenset        a list
keys of any kind      their text
====================  =======================================================

and on the way in texts stay texts, but for the input of a workflow that declares another type
(``engine.values.fit_json``). Whoever needs the exact value back asks for CBOR.
"""

from __future__ import annotations

import base64
import json
import math
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

from engine.errors import CorruptHistoryError
from engine.limits import VALUE_DEPTH_MAX
from engine.values import decode, encode
from handlers.problems import BODY_TOO_LARGE, MALFORMED_BODY, UNSUPPORTED_MEDIA_TYPE, Problem, harmless

if TYPE_CHECKING:
    from collections.abc import Callable

JSON = "application/json"
CBOR = "application/cbor"

BODY_BYTES_MAX = 5 * 1024 * 1024
"""Bytes of a request's body. Source: Lambda takes 6 MB a request, in which API Gateway's base64 grows binary bodies by
a third; what the store can keep is less and is checked when it is known."""

JSON_INTEGER_BITS_MAX = 14_000
"""Bits of the largest integer that is written as a JSON number. Source: Python converts at most 4,300 digits."""

ABSENT: Any = object()
"""What an empty body reads as."""


def read(body: bytes, content_type: str | None) -> Any:
    """The value of a request's body, ``ABSENT`` where it is empty.

    Args:
        body: its bytes.
        content_type: the header; a body without one is read as JSON.

    Raises:
        Problem: 413 too large, 415 neither JSON nor CBOR, 400 not readable.
    """
    if len(body) > BODY_BYTES_MAX:
        raise Problem(BODY_TOO_LARGE, f"The body has {len(body)} bytes; send at most {BODY_BYTES_MAX}.")
    if not body:
        return ABSENT
    return _reader(content_type)(body)


def is_json(content_type: str | None) -> bool:
    """Whether a body of that header is read as JSON."""
    media_type = _media_type(content_type)
    return media_type == JSON or media_type.endswith("+json")


def _media_type(content_type: str | None) -> str:
    return (content_type or JSON).partition(";")[0].strip().lower()


def _reader(content_type: str | None) -> Callable[[bytes], Any]:
    if is_json(content_type):
        return _read_json
    media_type = _media_type(content_type)
    if media_type == CBOR or media_type.endswith("+cbor"):
        return _read_cbor
    detail = f'Send {JSON} or {CBOR}, not "{media_type}".'
    raise Problem(UNSUPPORTED_MEDIA_TYPE, detail, {"accept-post": f"{JSON}, {CBOR}"})


def _read_json(body: bytes) -> Any:
    try:
        value = json.loads(body.decode(), parse_constant=_refuse_constant, parse_float=_finite)
    except UnicodeDecodeError:
        raise Problem(MALFORMED_BODY, "The body is not UTF-8. Send JSON as UTF-8.") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise Problem(MALFORMED_BODY, f"The body is not JSON: {error}.") from None
    _check_depth(value)
    return value


def _read_cbor(body: bytes) -> Any:
    try:
        return decode(body)
    except CorruptHistoryError as error:
        raise Problem(MALFORMED_BODY, f"The body is not CBOR as it is taken here. {error}.") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number; send it as CBOR")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:40]} is beyond what a number can hold")
    return number


def _too_deep() -> Problem:
    return Problem(MALFORMED_BODY, f"The body nests deeper than {VALUE_DEPTH_MAX} levels. Send a flatter value.")


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(VALUE_DEPTH_MAX):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return
    raise _too_deep()


def _children(value: Any) -> list[Any]:
    # Scalars are left out here: most of a large body is scalars, and the list would hold it all again.
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [part for part in parts if isinstance(part, (dict, list))]


def wanted(accept: str | None) -> str:
    """The media type to answer in: CBOR where ``Accept`` prefers it to JSON, JSON in every other case."""
    weights = _weights(accept or "")
    return CBOR if weights.get(CBOR, 0.0) > weights.get(JSON, 0.0) else JSON


def _weights(accept: str) -> dict[str, float]:
    weights: dict[str, float] = {}
    for part in accept.split(","):
        media_range, *parameters = (piece.strip().lower() for piece in part.split(";"))
        weight = next((piece[2:] for piece in parameters if piece.startswith("q=")), "1")
        try:
            weights[media_range] = float(weight)
        except ValueError:
            weights[media_range] = 0.0
    return weights


def write(value: Any, media_type: str) -> bytes:
    """``value`` as a body of ``media_type``; see the module for what JSON makes of what it lacks."""
    if media_type == CBOR:
        return encode(value)
    return harmless(json.dumps(plain(value), allow_nan=False, separators=(",", ":")))


def plain(value: Any) -> Any:
    """``value`` with everything that JSON lacks put as the module says."""
    if value is None or isinstance(value, (bool, int)):
        return hex(value) if value is not None and value.bit_length() > JSON_INTEGER_BITS_MAX else value
    if isinstance(value, float):
        return value if math.isfinite(value) else _constant(value)
    if isinstance(value, dict):
        return {_key(key): plain(child) for key, child in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(child) for child in value]
    return _text(value)


def _constant(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def _key(key: Any) -> str:
    if isinstance(key, str):
        return str(key)
    scalar = plain(key)
    return scalar if isinstance(scalar, str) else json.dumps(scalar)


def _text(value: Any) -> Any:
    if isinstance(value, (str, Decimal, UUID)):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Enum):
        return plain(value.value)
    return str(value)


def headers(media_type: str) -> dict[str, str]:
    """The headers of an answer with a body: no browser may guess another type, and no cache may keep it."""
    return {"content-type": media_type, "x-content-type-options": "nosniff", "cache-control": "no-store"}
