"""Where an entry stands in a run: a path of names and loop iterations, its readable form, and what may be a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine import limits
from engine.errors import InvalidIdError

if TYPE_CHECKING:
    from collections.abc import Sequence


class LoopIteration(NamedTuple):
    """One iteration of a loop: the loop's index in the name registry, and which iteration."""

    loop: int
    iteration: int


PathSegment = int | LoopIteration
"""A name's index in the registry, or a loop iteration."""

Location = tuple[PathSegment, ...]
"""A path from the root of a workflow; the root itself is ``()``."""

EVERYTHING = "*"
"""The topic of what is about nothing in particular."""

RESERVED_PREFIX = "torpor."
"""Names that begin so are not for authors: on the bus they tell the stack itself what to do."""


def is_prefix(prefix: Location, location: Location) -> bool:
    """Whether ``location`` is ``prefix`` itself or lies below it."""
    return location[: len(prefix)] == prefix


def render(location: Location, names: Sequence[str]) -> str:
    """The form that messages show, ``outer/~3/inner``; a name that the registry lacks shows as ``#index``."""
    return "/".join(_render_segment(segment, names) for segment in location)


def _render_segment(segment: PathSegment, names: Sequence[str]) -> str:
    if isinstance(segment, LoopIteration):
        return f"~{segment.iteration}"
    return names[segment] if segment < len(names) else f"#{segment}"


def spell(location: Location, names: Sequence[str]) -> bytes:
    """The place by its names, no two places alike: which number a name has depends on which branch came first."""
    return b"".join(_spell_segment(segment, names) for segment in location)


def _spell_segment(segment: PathSegment, names: Sequence[str]) -> bytes:
    if isinstance(segment, LoopIteration):
        return b"~%d/" % segment.iteration
    name = names[segment].encode("utf-8", "surrogateescape")
    return b"%d:%b/" % (len(name), name)


def check_name(name: str) -> None:
    """Raise where ``name`` is no name of an operation, a branch or a message: TypeError or InvalidIdError."""
    if not isinstance(name, str):
        raise TypeError(f"the name {name!r} is no text")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidIdError(f"the name {name[:40]!r} is no valid Unicode text") from None
    if size > limits.NAME_BYTES_MAX:
        raise InvalidIdError(f"the name {name[:40]!r}... is longer than {limits.NAME_BYTES_MAX} bytes")


def check_publication(name: str, topic: str) -> None:
    """Raise where ``name`` or ``topic`` is none of a publication: TypeError or InvalidIdError."""
    for what in (name, topic):
        check_name(what)
        if not what or any(character < " " or "\x7f" <= character <= "\x9f" for character in what):
            raise InvalidIdError(f"{what[:40]!r} is no name or topic of a message: empty, or with a control character")
    if len(name) > limits.PUBLICATION_NAME_CHARACTERS_MAX:
        most = limits.PUBLICATION_NAME_CHARACTERS_MAX
        raise InvalidIdError(f"the name {name[:40]!r}... of a message to publish is longer than {most} characters")
    if name.startswith(RESERVED_PREFIX):
        raise InvalidIdError(f"the name {name!r} begins with {RESERVED_PREFIX!r}, which is for torpor itself")
