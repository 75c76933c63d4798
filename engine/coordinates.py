"""The places of operations that have no name: coordinates that keep their order however often code is edited.

A coordinate is a list of ordinals, `1.0.2`. Coordinates sort lexicographically, a prefix first. What code does for
the first time is numbered on from what history has; what newer code inserts between two recorded operations gets a
coordinate between theirs, and nothing recorded ever moves.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

Coordinate = tuple[int, ...]
"""Non-negative ordinals, at least one."""

LEFT_BOUND: Coordinate = (0,)
"""Before every coordinate that an operation can have."""

_NAME = re.compile(r"\{(\d+(?:\.\d+)*)\}(?:@(\d+))?")


class Recorded(Struct, frozen=True, order=True):
    """A recorded operation: its coordinate, its version, and its kind."""

    coordinate: Coordinate
    version: int
    kind: str


class Replayed(Struct, frozen=True):
    """The operation is recorded as ``event``."""

    event: Recorded


class Added(Struct, frozen=True):
    """The operation is new, behind everything recorded."""

    coordinate: Coordinate


class Inserted(Struct, frozen=True):
    """The operation is new, between what is recorded."""

    coordinate: Coordinate


class Mismatch(Struct, frozen=True):
    """Code and history disagree: history has ``event`` where the code has something else."""

    event: Recorded


def render(coordinate: Coordinate, version: int = 1) -> str:
    """The stored name of the operation at ``coordinate``: `{1.1}`, with `@2` behind it for a version above 1."""
    text = "{" + ".".join(map(str, coordinate)) + "}"
    return text if version == 1 else f"{text}@{version}"


def parse(name: str) -> tuple[Coordinate, int] | None:
    """The coordinate and version of a stored name, or None where it is none."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return tuple(map(int, match[1].split("."))), int(match[2] or 1)


def between(previous: Coordinate, following: Coordinate) -> Coordinate:
    """A coordinate behind ``previous`` and before ``following``, which are neighbours."""
    if len(previous) == len(following):
        return (*previous, 1)
    if len(previous) > len(following):
        return (*previous[:-1], previous[-1] + 1)
    if following[: len(previous)] != previous:
        return (*previous, 1)
    # following is previous, then zeros, then more: one zero more stays before it.
    rest = following[len(previous) :]
    zeros = next((index for index, ordinal in enumerate(rest) if ordinal), len(rest))
    return (*previous, *(0,) * (zeros + 1), 1)


class Cursor:
    """Walks the recorded operations of one scope, in the order in which its code performs them."""

    __slots__ = ("_events", "_index", "_previous")

    def __init__(self, events: Iterable[Recorded]) -> None:
        self._events = sorted(events)
        self._index = 0
        self._previous = LEFT_BOUND

    def current(self) -> Coordinate:
        """The coordinate of the next operation, if nothing is inserted before it."""
        count = len(self._events)
        if self._index < count:
            return self._events[self._index].coordinate
        if count:
            return (self._events[-1].coordinate[0] + self._index - count + 1,)
        return (self._index + 1,)

    def upcoming(self) -> Recorded | None:
        """The recorded operation that comes next, or None behind the last."""
        return self._events[self._index] if self._index < len(self._events) else None

    def place(self, kind: str, version: int) -> Replayed | Added | Inserted | Mismatch:
        """Where an operation of ``kind`` and ``version`` stands that the code performs now."""
        event = self.upcoming()
        if event is None:
            return Added(self.current())
        if version > event.version:
            return self.insert()
        if version < event.version or kind != event.kind:
            return Mismatch(event)
        return Replayed(event)

    def insert(self) -> Inserted:
        """A place before the recorded operation that comes next."""
        return Inserted(between(self._previous, self.current()))

    def advance(self, coordinate: Coordinate) -> None:
        """The operation at ``coordinate`` has been performed."""
        if coordinate == self.current():
            self._index += 1
        self._previous = coordinate

    def leftovers(self) -> list[Recorded]:
        """What is recorded and was not performed."""
        return self._events[self._index :]
