"""Where an entry stands in a run: a path of names and loop iterations, and its readable form."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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
