"""What to say where code and history have different operations under one name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine import keys
from engine.entry import JoinEntry, LoopEntry, MessageEntry, RaceEntry, RemovedEntry, StepEntry
from engine.errors import EntryInProgressError, UnstorableValueError, YieldSwallowedError
from engine.location import render

if TYPE_CHECKING:
    from engine.entry import Entry, EntryKind
    from engine.history.storage import Storage
    from engine.location import Location, PathSegment

_REMEDY = (
    "Give the new operation another name and mark the old one with ctx.removed(name, type), or branch on "
    "ctx.get_version(name, latest)"
)
_WITH_SCOPES = (LoopEntry, JoinEntry, RaceEntry)


def text(storage: Storage, location: Location, name: str, wanted: str, found: EntryKind | str) -> str:
    """The message for an operation ``wanted`` at ``name`` below ``location``, where history has ``found``."""
    path = "/".join(part for part in (render(location, storage.names), name) if part)
    if isinstance(found, RemovedEntry):
        return (
            f"{path!r} is a {wanted} in the code, but history recorded it as removed ({found.original_type}); give the "
            "new operation another name"
        )
    kind = found if isinstance(found, str) else found.kind
    return f"{path!r} is a {wanted} in the code, but history has a {kind} there. {_REMEDY}"


def other_operation(storage: Storage, scope_key: bytes, name: str, wanted: type[EntryKind]) -> str | None:
    """The kind of an operation that leaves no entry of its own at ``name``, where history has one of another kind."""
    if wanted is not MessageEntry and _has_parts(storage, scope_key, name):
        return MessageEntry.kind
    index = storage.find_name(name)
    if index is None:
        return None
    place = keys.child_key(scope_key, index)
    below = storage.below(place)
    # What stands in the place itself, and in no branch and no iteration, is of no operation with several scopes.
    if below and (wanted not in _WITH_SCOPES or any(_is_in(storage, place, key) for key in below)):
        return "try_block"
    return None


def _is_in(storage: Storage, place: bytes, key: bytes) -> bool:
    entry = storage.find(key)
    assert entry is not None
    segment = entry.location[-1]
    return isinstance(segment, int) and keys.child_key(place, segment) == key


def _has_parts(storage: Storage, scope_key: bytes, name: str) -> bool:
    parts = (f"{name}:count", f"{name}:deadline")
    return any(storage.find_below(scope_key, part) is not None for part in parts)


def leftover(storage: Storage, key: bytes) -> str:
    """What to say of the entry at ``key``, to which the code no longer comes."""
    entry = storage.find(key)
    assert entry is not None
    path = render(entry.location, storage.names)
    return f"history has a {entry.kind.kind} at {path!r}, which the code no longer reaches."


def passed_over(storage: Storage, location: Location, missing: str) -> str | None:
    """Why undoing cannot end at the operation ``missing`` of the scope at ``location``; None where it can.

    That is where steps behind it are done: in its scope, or in those around it, up to where branches begin.
    """
    place = "/".join(filter(None, (render(location, storage.names), missing)))
    while (done := _done_behind(storage, location, missing)) is None:
        if not location or _has_branches(storage, location[:-1]):
            return None
        segment, location = location[-1], location[:-1]
        missing = _name(storage, segment)
    return (
        f"{place!r} has not run, and the step {render(done.location, storage.names)!r}, which comes after it in the "
        "code, has: so what there is to undo cannot be found. Let the workflow go on with this code first, or roll it "
        "back with the code that it ran with"
    )


def _done_behind(storage: Storage, location: Location, missing: str) -> Entry | None:
    """A step in the scope at ``location`` that is done, and to which the code has not come.

    What is below the operation ``missing`` is not behind it.
    """
    for key in storage.unvisited(keys.entry_key(location)):
        entry = storage.find(key)
        assert entry is not None
        name = _name(storage, entry.location[len(location)])
        if name != missing and _is_to_undo(storage, entry):
            return entry
    return None


def _has_branches(storage: Storage, location: Location) -> bool:
    operation = storage.find(keys.entry_key(location))
    return operation is not None and isinstance(operation.kind, (JoinEntry, RaceEntry))


def _name(storage: Storage, segment: PathSegment) -> str:
    return storage.names[segment if isinstance(segment, int) else segment.loop]


def _is_to_undo(storage: Storage, entry: Entry) -> bool:
    """Whether an entry is of a step that is done and, as far as history tells, may have to be undone."""
    metadata = storage.find_metadata(entry.id)
    is_undone = metadata is not None and metadata.rollback_completed_at is not None
    return isinstance(entry.kind, StepEntry) and entry.kind.output is not None and not is_undone


def swallowed(where: str, instead: BaseException | None = None) -> YieldSwallowedError:
    """The error of workflow code that caught the engine's control flow; its cause is what that raised ``instead``."""
    error = YieldSwallowedError(
        f"in {where} workflow code caught the signal by which the engine suspends a run and went on. Catch "
        "Exception, not BaseException, and use no bare except around ctx operations"
    )
    error.__cause__ = instead
    return error


def unfinished(where: str, name: str | None) -> EntryInProgressError:
    """The error of workflow code that starts an operation in ``where`` while its operation ``name`` is unfinished."""
    return EntryInProgressError(
        f"cannot start another operation in {where} while {name!r} is unfinished: did you forget to await {name!r}? "
        "To run operations side by side use ctx.join"
    )


def too_large(what: str, size: int, most: int) -> UnstorableValueError:
    """The error of a value of ``what`` that is larger than the driver can keep; both sizes in bytes."""
    return UnstorableValueError(
        f"the value of {what} has {size} bytes; this store keeps at most {most}. Put the data into S3 and keep its key"
    )
