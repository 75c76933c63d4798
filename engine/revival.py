"""How an ended history is made to go on: failures forgotten, or everything from a step on. Decides, writes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    StepEntry,
)
from engine.errors import InvalidReplayError
from engine.location import is_prefix

if TYPE_CHECKING:
    from engine.storage import Storage

_UUID7_VERSION = "7"
_VERSION_AT = 14
_NEVER = float("inf")


def recover_entries(storage: Storage) -> None:
    """What has failed or is exhausted goes back to pending, with no attempts; failed branches run again."""
    for entry_id, metadata in storage.all_metadata().items():
        if metadata.status in (EntryStatus.FAILED, EntryStatus.EXHAUSTED):
            storage.put_metadata(
                entry_id,
                msgspec.structs.replace(
                    metadata, status=EntryStatus.PENDING, attempts=0, last_attempt_at=0, error=None, completed_at=None
                ),
            )
    for key, entry in list(storage.entries()):
        if isinstance(entry.kind, (JoinEntry, RaceEntry)):
            statuses = {name: _again(status) for name, status in entry.kind.branches.items()}
            if statuses != entry.kind.branches:
                kind = msgspec.structs.replace(entry.kind, branches=statuses)
                storage.put(key, Entry(entry.id, entry.location, kind))


def _again(status: BranchStatus) -> BranchStatus:
    return BranchStatus(status=BranchState.RUNNING) if status.status is BranchState.FAILED else status


def rewind(storage: Storage, entry_id: str | None) -> None:
    """Remove the step ``entry_id`` and every entry created after it; every entry where it is None.

    A step inside loops takes its outermost loop with it, since the loops' states have moved past it.

    Raises:
        InvalidReplayError: no such step, or an entry that would remain is running.
    """
    ordered = sorted(storage.entries(), key=lambda pair: creation_order(storage, *pair))
    doomed = ordered if entry_id is None else ordered[_boundary(ordered, entry_id) :]
    _refuse_running(storage, ordered[: len(ordered) - len(doomed)])
    for key, _ in doomed:
        storage.remove(key)
    for key, entry in list(storage.entries()):
        _reopen(storage, key, entry, [gone.location for _, gone in doomed])


def creation_order(storage: Storage, key: bytes, entry: Entry) -> tuple[float, str, bytes]:
    """Sorts entries as they were created: by UUIDv7, else by the metadata's creation time; unknown ones last."""
    if len(entry.id) > _VERSION_AT and entry.id[_VERSION_AT] == _UUID7_VERSION:
        return int(entry.id.replace("-", "")[:12], 16), entry.id, key
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


def _reopen(storage: Storage, key: bytes, entry: Entry, gone: list[Any]) -> None:
    """A join or race that remains, but has lost entries of a branch, runs that branch again."""
    if not isinstance(entry.kind, (JoinEntry, RaceEntry)):
        return
    depth = len(entry.location)
    lost = {storage.names[at[depth]] for at in gone if len(at) > depth and is_prefix(entry.location, at)}
    if not lost:
        return
    statuses = {
        name: BranchStatus(status=BranchState.RUNNING) if name in lost else status
        for name, status in entry.kind.branches.items()
    }
    kind: JoinEntry | RaceEntry = msgspec.structs.replace(entry.kind, branches=statuses)
    if isinstance(kind, RaceEntry) and kind.winner in lost:
        again = {name: BranchStatus(status=BranchState.RUNNING) for name in statuses}
        kind = RaceEntry(winner=None, branches=again)
    storage.put(key, Entry(entry.id, entry.location, kind))
