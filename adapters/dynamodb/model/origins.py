"""Origins in the store: which ids an item may hold, and how it holds them. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeGuard

from adapters.dynamodb.model.expressions import text
from adapters.dynamodb.model.limits import RAY_ID_CHARACTERS_MAX, REQUEST_ID_CHARACTERS_MAX
from engine.errors import InvalidIdError
from engine.origin import UNKNOWN, Origin

if TYPE_CHECKING:
    from adapters.dynamodb.model.expressions import Item

_RAY_ID = re.compile(rf"[A-Za-z0-9._:-]{{1,{RAY_ID_CHARACTERS_MAX}}}")
_REQUEST_ID = re.compile(rf"[!-~]{{1,{REQUEST_ID_CHARACTERS_MAX}}}")


def is_ray_id(candidate: object) -> TypeGuard[str]:
    """Whether something is a text that any log, header and event can hold as it is."""
    return isinstance(candidate, str) and _RAY_ID.fullmatch(candidate) is not None


def is_request_id(candidate: object) -> TypeGuard[str]:
    """Whether something is a text as AWS gives one to a call or an event; it can stand in a header."""
    return isinstance(candidate, str) and _REQUEST_ID.fullmatch(candidate) is not None


def check_ray_id(ray_id: str) -> None:
    """Raise ``InvalidIdError`` unless a ray id is one."""
    if not is_ray_id(ray_id):
        raise InvalidIdError(
            f"a ray id has 1 to {RAY_ID_CHARACTERS_MAX} characters: ASCII letters, digits and . _ : - alone"
        )


def check_origin(origin: Origin) -> None:
    """Raise ``InvalidIdError`` unless each id of an origin is empty or one."""
    if origin.ray_id:
        check_ray_id(origin.ray_id)
    if origin.request_id and not is_request_id(origin.request_id):
        raise InvalidIdError(
            f"a request id has 1 to {REQUEST_ID_CHARACTERS_MAX} characters of ASCII that can be seen, and no spaces"
        )


def encode_origin(origin: Origin) -> Item:
    """The attributes by which an item tells its origin; none of what is unknown."""
    return {name: text(value) for name, value in origin.known().items()}


def decode_origin(item: Item) -> Origin:
    """The origin that an item tells; unknown where it was written before there were any."""
    found = {name: item[name]["S"] for name in Origin.__struct_fields__ if name in item}
    return Origin(**found) if found else UNKNOWN
