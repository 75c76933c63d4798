"""What may be the id, the type and the tags of a workflow that is stored. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.dynamodb.model.limits import ID_BYTES_MAX, TAGS_BYTES_MAX, TAGS_MAX, TYPE_BYTES_MAX
from engine.author.reaching import has_control
from engine.errors import InvalidIdError

if TYPE_CHECKING:
    from collections.abc import Mapping


def check_id(identifier: str, what: str = "workflow id", bytes_max: int = ID_BYTES_MAX) -> None:
    """Raise ``InvalidIdError`` unless an id is 1 to ``bytes_max`` bytes of UTF-8 without control characters."""
    try:
        size = len(identifier.encode())
    except UnicodeEncodeError as error:
        raise InvalidIdError(f"the {what} {identifier!r} is no valid Unicode text") from error
    if not 1 <= size <= bytes_max:
        raise InvalidIdError(f"a {what} has 1 to {bytes_max} bytes of UTF-8; this one has {size}")
    if has_control(identifier):
        raise InvalidIdError(f"the {what} {identifier!r} holds a control character")


def check_type(workflow_type: str) -> None:
    """Raise ``InvalidIdError`` unless a type is a valid name."""
    check_id(workflow_type, "workflow type", TYPE_BYTES_MAX)


def check_tags(tags: Mapping[str, str]) -> None:
    """Raise ``InvalidIdError`` unless all tags are texts, and few and small enough for HEAD and a transaction."""
    if len(tags) > TAGS_MAX:
        raise InvalidIdError(f"a workflow has at most {TAGS_MAX} tags; this one would have {len(tags)}")
    for name, value in tags.items():
        check_id(name, "tag name")
        if not isinstance(value, str):
            raise InvalidIdError(f"the tag {name!r} is {type(value).__name__}, not text")
    try:
        size = sum(len(name.encode()) + len(value.encode()) for name, value in tags.items())
    except UnicodeEncodeError as error:
        raise InvalidIdError("a tag's value is no valid Unicode text") from error
    if size > TAGS_BYTES_MAX:
        raise InvalidIdError(f"all tags together have at most {TAGS_BYTES_MAX} bytes; these have {size}")
