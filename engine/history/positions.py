"""The operations of one scope that have no names: where each stands among those that history has."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from msgspec import Struct

from engine import keys
from engine.coordinates import Added, Cursor, Inserted, Mismatch, Recorded, parse, render
from engine.entry import JoinEntry, LoopEntry, MessageEntry, RaceEntry, RemovedEntry, VersionCheckEntry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engine.coordinates import Coordinate
    from engine.history.storage import Storage
    from engine.location import Location

OF_NO_ORDER = ("send:", "signal:", "publish:", "dispatch:", "output:")
"""How the names begin that the engine gives by itself; they stand in scopes of both sorts."""

MIXED = (
    "{name} {is_what} in a scope whose other operations {are_what}. Name all operations of a scope, or none of them; "
    "ctx.activity, ctx.map, ctx.inline, ctx.listen, ctx.try_block and ctx.get_version are named"
)
NAMED_REMEDY = "Keep the operation, mark it with ctx.removed(name, type), or branch on ctx.get_version(name, latest)"
REMEDY = (
    "Insert new operations with ctx.v(n), a version above those around them; leave ctx.removed(original_type=...) "
    "where one was; or branch on ctx.check_version(latest)"
)


_WITH_SCOPES = "join, race or loop"
"""The kind where history has only what is inside: the entry itself was to go with a later commit, which was lost."""

_SCOPED = (JoinEntry.kind, RaceEntry.kind, LoopEntry.kind)


class MisplacedError(Exception):
    """The code performs what cannot stand here; the text says why, and what to do."""


class Placed(Struct, frozen=True):
    """An operation's stored ``name``, its ``version``, and what history has there: None where it is new."""

    name: str
    version: int
    event: Recorded | None
    following: Recorded | None = None


class Positions:
    """Gives the operations of a scope their places, in the order in which the code performs them."""

    __slots__ = ("_cursor", "_latest")

    def __init__(self, storage: Storage, location: Location, key: bytes, used: Iterable[str]) -> None:
        named = next((name for name in used if not name.startswith(OF_NO_ORDER)), None)
        if named is not None:
            raise MisplacedError(MIXED.format(name="an operation", is_what="has no name", are_what="have some"))
        events: dict[str, Recorded] = {}
        for name, child in _children(storage, location, key):
            base, _, _part = name.partition(":")
            place = parse(base)
            if place is not None:
                events[base] = Recorded(*place, _kind_of(storage, child, name != base))
            elif not name.startswith(OF_NO_ORDER):
                raise MisplacedError(
                    f"history has {name!r} here, which has a name, and the code has operations without names. Keep the "
                    "names in scopes that workflows under way have reached"
                )
        self._cursor = Cursor(events.values())
        self._latest = ""

    def admits(self, name: str) -> bool:
        """Whether ``name`` is the place that was given last, or one that may stand beside places."""
        return name == self._latest or name.startswith(OF_NO_ORDER)

    def place(self, kind: str, version: int) -> Placed:
        """Where an operation of ``kind`` stands that the code performs now.

        Raises:
            MisplacedError: history has something else here.
        """
        event = self._cursor.upcoming()
        match self._cursor.place(kind if event is None else _as(event, kind), version):
            case Added(coordinate) | Inserted(coordinate):
                return self._placed(coordinate, version, None)
            case Mismatch(event):
                raise MisplacedError(
                    f"the code has a {kind} of version {version} where history has a {event.kind} of version "
                    f"{event.version}, at {render(event.coordinate, event.version)}. {REMEDY}"
                )
            case found:
                return self._placed(found.event.coordinate, version, found.event)

    def place_removed(self, kind: str) -> Placed:
        """Where an operation of ``kind`` stood that the code no longer performs; its version does not matter.

        Raises:
            MisplacedError: history has something else here.
        """
        event = self._cursor.upcoming()
        if event is None:
            return self._placed(self._cursor.current(), 1, None)
        if event.kind not in (_as(event, kind), f"{RemovedEntry.kind} {kind}"):
            raise MisplacedError(
                f"ctx.removed(original_type={kind!r}), but history has a {event.kind} at "
                f"{render(event.coordinate, event.version)}; name the right type"
            )
        return self._placed(event.coordinate, event.version, event)

    def place_check(self, version: int) -> Placed:
        """Where a check of the version stands; ``following`` is the operation that history has instead of one.

        A recorded check of a lower version than ``version`` is another one, before which this one is put.
        """
        event = self._cursor.upcoming()
        if event is None:
            return self._placed(self._cursor.current(), version, None)
        if event.kind == VersionCheckEntry.kind and version <= event.version:
            return self._placed(event.coordinate, event.version, event)
        placed = max(version, event.version + 1)
        return self._placed(self._cursor.insert().coordinate, placed, None, following=event)

    def _placed(
        self, coordinate: Coordinate, version: int, event: Recorded | None, *, following: Recorded | None = None
    ) -> Placed:
        self._cursor.advance(coordinate)
        self._latest = render(coordinate, version)
        return Placed(self._latest, version, event, following)


def _children(storage: Storage, location: Location, key: bytes) -> Iterator[tuple[str, bytes]]:
    """The name and the key of everything that history has directly in a scope; what lies deeper is skipped."""
    start, end = keys.range_of(key)
    entry_keys = storage.entry_keys
    index = bisect_left(entry_keys, start)
    while index < len(entry_keys) and entry_keys[index] < end:
        entry = storage.find(entry_keys[index])
        assert entry is not None
        if entry_keys[index] == key:
            index += 1
            continue
        segment = entry.location[len(location)]
        assert isinstance(segment, int)
        child = keys.child_key(key, segment)
        yield storage.names[segment], child
        index = bisect_left(entry_keys, keys.range_of(child)[1])


def has_traces(storage: Storage, scope_key: bytes, name: str) -> bool:
    """Whether the operation at the place ``name`` has an entry, a part or anything below it."""
    indexes = (storage.find_name(part) for part in (name, f"{name}:count", f"{name}:deadline", f"{name}:0"))
    ranges = (keys.range_of(keys.child_key(scope_key, index)) for index in indexes if index is not None)
    return any(storage.between(start, end) for start, end in ranges)


def _as(event: Recorded, kind: str) -> str:
    """``kind`` as ``event`` would tell it."""
    return _WITH_SCOPES if event.kind == _WITH_SCOPES and kind in _SCOPED else kind


def _kind_of(storage: Storage, child: bytes, is_part: bool) -> str:  # noqa: FBT001 - private, and said at the call
    entry = storage.find(child)
    if is_part or entry is None:
        return MessageEntry.kind if is_part else _WITH_SCOPES
    kind = entry.kind
    return f"{kind.kind} {kind.original_type}" if isinstance(kind, RemovedEntry) else kind.kind
