"""How an ended history is made to go on: failures forgotten, or everything from a step on. Decides, writes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from engine.entry import (
    BranchState,
    BranchStatus,
    Entry,
    EntryMetadata,
    EntryStatus,
    JoinEntry,
    LoopEntry,
    RaceEntry,
    RemovedEntry,
    StepEntry,
    VersionCheckEntry,
)
from engine.errors import InvalidReplayError
from engine.history.documents import OF_ALL
from engine.history.kept import instant_of_id, uuid7_of
from engine.location import LoopIteration, is_prefix

if TYPE_CHECKING:
    from engine.entry import EntryKind
    from engine.history.storage import Storage
    from engine.location import Location, PathSegment

_NEVER = float("inf")


def recover_entries(storage: Storage) -> None:
    """Failures at the frontier go back to pending, with no attempts; branches that failed there run again.

    The reference resets every failure there is. That reopens those which the workflow had caught long ago and gone
    past: a step that now succeeds sends it another way than the one that history holds behind it, and it diverges for
    ever. So a failure stays where its own scope, or one around it, has gone on to something created later.
    """
    frontier = _Frontier(storage)
    for key, entry in list(storage.entries()):
        kind, metadata = entry.kind, storage.find_metadata(entry.id)
        has_failed = metadata is not None and metadata.status in (EntryStatus.FAILED, EntryStatus.EXHAUSTED)
        has_branches = isinstance(kind, (JoinEntry, RaceEntry))
        if not (has_failed or has_branches) or frontier.is_behind(key, entry):
            continue
        if metadata is not None and has_failed:
            storage.put_metadata(
                entry.id,
                msgspec.structs.replace(
                    metadata, status=EntryStatus.PENDING, attempts=0, last_attempt_at=0, error=None, completed_at=None
                ),
            )
        if isinstance(kind, (JoinEntry, RaceEntry)):
            statuses = {name: _again(status) for name, status in kind.branches.items()}
            if statuses != kind.branches:
                kind = msgspec.structs.replace(kind, branches=statuses)
                storage.put(key, Entry(entry.id, entry.location, kind))


class _Frontier:
    """How far each scope of a history has come, so that what it has gone past can be told."""

    __slots__ = ("_composites", "_latest", "_storage")

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._composites: dict[Location, EntryKind] = {}
        self._latest: dict[Location, tuple[tuple[float, str], PathSegment]] = {}
        for key, entry in storage.entries():
            if isinstance(entry.kind, (JoinEntry, RaceEntry, LoopEntry)):
                self._composites[entry.location] = entry.kind
            created = creation_order(storage, key, entry)[:2]
            # Changed code puts the one kind before what is there already; where the time is unknown nothing follows.
            if isinstance(entry.kind, (VersionCheckEntry, RemovedEntry)) or created[0] == _NEVER:
                continue
            for depth, segment in enumerate(entry.location):
                scope = entry.location[:depth]
                if scope not in self._latest or self._latest[scope][0] < created:
                    self._latest[scope] = created, segment

    def is_behind(self, key: bytes, entry: Entry) -> bool:
        """Whether the scope of ``entry``, or one around it, has gone past it."""
        created = creation_order(self._storage, key, entry)[:2]
        return any(
            self._has_passed(entry.location[:depth], segment, created) for depth, segment in enumerate(entry.location)
        )

    def _has_passed(self, scope: Location, segment: PathSegment, created: tuple[float, str]) -> bool:
        composite = self._composites.get(scope)
        if isinstance(composite, (JoinEntry, RaceEntry)) and isinstance(segment, int):
            # Branches stand side by side: what a sibling did later says nothing, only how this one ended.
            status = composite.branches.get(self._storage.names[segment])
            return status is not None and status.status is BranchState.COMPLETED
        if isinstance(composite, LoopEntry) and isinstance(segment, LoopIteration):
            return composite.output is not None or composite.iteration > segment.iteration
        # Whatever a scope does is in sequence, so where the latest is its own, nothing of the others is later.
        latest = self._latest.get(scope)
        return latest is not None and latest[1] != segment and latest[0] > created


def _again(status: BranchStatus) -> BranchStatus:
    return BranchStatus(status=BranchState.RUNNING) if status.status is BranchState.FAILED else status


def rewind(storage: Storage, entry_id: str | None) -> None:
    """Remove the step ``entry_id`` and every entry created after it; every entry where it is None.

    What goes from inside of loops takes its outermost loop with it, since the loops' states have moved past it.

    Raises:
        InvalidReplayError: no such step, or an entry that would remain is running.
    """
    ordered = sorted(storage.entries(), key=lambda pair: creation_order(storage, *pair))
    doomed = ordered if entry_id is None else _from(ordered, _boundary(ordered, entry_id))
    gone = {key for key, _ in doomed}
    _refuse_running(storage, [pair for pair in ordered if pair[0] not in gone])
    for key, _ in doomed:
        storage.remove(key)
    if entry_id is None:
        storage.remove_document(OF_ALL)
    lost = _segments_below([entry.location for _, entry in doomed])
    for key, entry in list(storage.entries()):
        if isinstance(entry.kind, (JoinEntry, RaceEntry)) and entry.location in lost:
            _reopen(storage, key, entry, entry.kind, {storage.names[index] for index in lost[entry.location]})


def _segments_below(gone: list[Location]) -> dict[Location, set[int]]:
    """By every place that had something below it which is gone: the names there that lead to that."""
    lost: dict[Location, set[int]] = {}
    for location in gone:
        for depth, segment in enumerate(location):
            if isinstance(segment, int):
                lost.setdefault(location[:depth], set()).add(segment)
    return lost


def _from(ordered: list[tuple[bytes, Entry]], boundary: int) -> list[tuple[bytes, Entry]]:
    """The entries from ``boundary`` on, with the loops of other branches that are around some of them."""
    earlier, doomed = ordered[:boundary], ordered[boundary:]
    within = {entry.location[:depth] for _, entry in doomed for depth in range(len(entry.location))}
    loops = {entry.location for _, entry in earlier if isinstance(entry.kind, LoopEntry) and entry.location in within}
    if not loops:
        return doomed
    return [pair for pair in earlier if _is_in(pair[1].location, loops)] + doomed


def _is_in(location: Location, places: set[Location]) -> bool:
    return any(location[:depth] in places for depth in range(1, len(location) + 1))


def creation_order(storage: Storage, key: bytes, entry: Entry) -> tuple[float, str, bytes]:
    """Sorts entries as they were created: by UUIDv7, else by the metadata's creation time; unknown ones last."""
    if uuid7_of(entry) is not None:
        return instant_of_id(entry.id), entry.id, key
    metadata = storage.find_metadata(entry.id)
    return (_NEVER if metadata is None else metadata.created_at), "", key


def _boundary(ordered: list[tuple[bytes, Entry]], entry_id: str) -> int:
    target = next((entry for _, entry in ordered if entry.id == entry_id), None)
    if target is None:
        raise InvalidReplayError(f"no entry has the id {entry_id!r}; the ids are in the workflow's history")
    if not isinstance(target.kind, StepEntry):
        raise InvalidReplayError(f"entry {entry_id!r} is a {target.kind.kind}; only a step can be replayed from")
    enclosing = [
        entry
        for _, entry in ordered
        if isinstance(entry.kind, LoopEntry) and is_prefix(entry.location, target.location)
    ]
    first = min(enclosing, key=lambda entry: len(entry.location), default=target)
    return next(index for index, (_, entry) in enumerate(ordered) if entry is first)


def _refuse_running(storage: Storage, remaining: list[tuple[bytes, Entry]]) -> None:
    for _, entry in remaining:
        metadata: EntryMetadata | None = storage.find_metadata(entry.id)
        if metadata is not None and metadata.status is EntryStatus.RUNNING:
            raise InvalidReplayError(
                f"the {entry.kind.kind} {entry.id} is running and would remain; cancel the workflow first, or replay "
                "from an earlier step"
            )


def _reopen(storage: Storage, key: bytes, entry: Entry, kind: JoinEntry | RaceEntry, lost: set[str]) -> None:
    """A join or race that remains, but has lost entries of the branches ``lost``, runs those again."""
    statuses = {
        name: BranchStatus(status=BranchState.RUNNING) if name in lost else status
        for name, status in kind.branches.items()
    }
    again: JoinEntry | RaceEntry = msgspec.structs.replace(kind, branches=statuses)
    if isinstance(kind, RaceEntry) and kind.winner in lost:
        again = RaceEntry(
            winner=None, branches={name: BranchStatus(status=BranchState.RUNNING) for name in kind.branches}
        )
    storage.put(key, Entry(entry.id, entry.location, again))
