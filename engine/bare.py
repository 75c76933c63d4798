"""Entries and their metadata as bytes: a version prefix, then BARE as ``engine/schema/v1.bare`` describes it.

Written by hand for speed; the tests hold it against an interpreter of the schema. Nothing is allocated ahead of the
bytes that fill it, so that an absurd length or count costs nothing.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from engine.bare_types import (
    BYTE,
    read_data,
    read_optional_data,
    read_optional_text,
    read_optional_u64,
    read_text,
    read_varint,
    write_data,
    write_optional_data,
    write_optional_error,
    write_optional_text,
    write_text,
    write_varint,
)
from engine.entry import (
    BranchState,
    BranchStatus,
    Entry,
    EntryMetadata,
    EntryStatus,
    JoinEntry,
    LoopEntry,
    MessageEntry,
    RaceEntry,
    RemovedEntry,
    RollbackCheckpointEntry,
    SleepEntry,
    SleepState,
    StepEntry,
    VersionCheckEntry,
)
from engine.errors import CorruptHistoryError, UnknownVersionError, UnstorableValueError
from engine.limits import FORMAT_VERSION
from engine.location import LoopIteration

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.entry import EntryKind
    from engine.location import Location

_VERSION = struct.pack("<H", FORMAT_VERSION)
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_NAME_SEGMENT = struct.Struct("<BI")
_LOOP_SEGMENT = struct.Struct("<BII")
_ONE_NAME = b"\1\0"
"""The first bytes of a location that is one name: most operations stand directly in their workflow."""
_VERSIONS = struct.Struct("<II")
_ATTEMPTS_AND_TIMES = struct.Struct("<IQQ")

_COMPLETED = struct.Struct("<4xIQQxQ2x")
"""Metadata with ``completed_at`` and nothing else that may be missing, from the version on."""

_ENTRY_STATUSES = tuple(EntryStatus)
_SLEEP_STATES = tuple(SleepState)
_BRANCH_STATES = tuple(BranchState)


# What reading malformed bytes can raise; UnicodeDecodeError is a ValueError.
_MALFORMED = (IndexError, struct.error, ValueError)


def encode_entry(entry: Entry) -> bytes:
    """The stored bytes of an entry.

    Raises:
        UnstorableValueError: a number is outside of its stored range, or a name is not valid Unicode.
    """
    return encode_entry_at(entry.id, encode_location(entry.location), entry.kind)


def encode_entry_at(entry_id: str, location_bytes: bytes, kind: EntryKind) -> bytes:
    """``encode_entry`` for a location that ``encode_location`` has encoded before."""
    try:
        return b"%b%b%b%b" % (_VERSION, write_text(entry_id), location_bytes, _KIND_WRITERS[type(kind)](kind))
    except (struct.error, UnicodeEncodeError) as error:
        raise UnstorableValueError(f"A {kind.kind} entry cannot be stored: {error}") from error


def encode_location(location: Location) -> bytes:
    """The stored bytes of a location, as they stand inside an entry.

    Raises:
        UnstorableValueError: an index or iteration is outside of the stored range.
    """
    try:
        segments = [
            _LOOP_SEGMENT.pack(1, *segment) if isinstance(segment, LoopIteration) else _NAME_SEGMENT.pack(0, segment)
            for segment in location
        ]
    except struct.error as error:
        raise UnstorableValueError(f"The location {location} cannot be stored: {error}") from error
    return write_varint(len(segments)) + b"".join(segments)


def encode_metadata(metadata: EntryMetadata) -> bytes:
    """The stored bytes of an entry's metadata.

    Raises:
        UnstorableValueError: a number is outside of its stored range.
    """
    completed_at, rolled_back_at = metadata.completed_at, metadata.rollback_completed_at
    try:
        return b"%b%b%b%b%b%b%b" % (
            _VERSION,
            BYTE[metadata.status],
            write_optional_error(metadata.error),
            _ATTEMPTS_AND_TIMES.pack(metadata.attempts, metadata.last_attempt_at, metadata.created_at),
            b"\0" if completed_at is None else b"\1" + _U64.pack(completed_at),
            b"\0" if rolled_back_at is None else b"\1" + _U64.pack(rolled_back_at),
            write_optional_error(metadata.rollback_error),
        )
    except struct.error as error:
        raise UnstorableValueError(f"The metadata of an entry cannot be stored: {error}") from error


def _branches(branches: dict[str, BranchStatus]) -> bytes:
    parts = [write_varint(len(branches))]
    for name, branch in branches.items():
        parts += (
            write_text(name),
            BYTE[branch.status],
            write_optional_data(branch.output),
            write_optional_error(branch.error),
        )
    return b"".join(parts)


def _write_step(step: StepEntry) -> bytes:
    if step.error is None:
        output = step.output
        return b"\0\0\0" if output is None else b"\0\1%b\0" % write_data(output)
    return b"\0" + write_optional_data(step.output) + write_optional_error(step.error)


def _write_loop(loop: LoopEntry) -> bytes:
    return b"\1%b%b%b" % (write_data(loop.state), _U32.pack(loop.iteration), write_optional_data(loop.output))


_KIND_WRITERS: dict[type[EntryKind], Callable[[Any], bytes]] = {
    StepEntry: _write_step,
    LoopEntry: _write_loop,
    SleepEntry: lambda sleep: b"\2" + _U64.pack(sleep.deadline) + BYTE[sleep.state],
    MessageEntry: lambda message: b"\3" + write_text(message.name) + write_data(message.data),
    RollbackCheckpointEntry: lambda checkpoint: b"\4" + write_text(checkpoint.name),
    JoinEntry: lambda join: b"\5" + _branches(join.branches),
    RaceEntry: lambda race: b"\6" + write_optional_text(race.winner) + _branches(race.branches),
    RemovedEntry: lambda removed: (
        b"\7" + write_text(removed.original_type) + write_optional_text(removed.original_name)
    ),
    VersionCheckEntry: lambda check: b"\x08" + _VERSIONS.pack(check.resolved, check.latest),
}


def decode_entry(data: bytes) -> Entry:
    """The entry whose stored bytes ``data`` is.

    Raises:
        UnknownVersionError: a newer or foreign engine wrote it.
        CorruptHistoryError: it is not exactly one entry.
    """
    if data[:2] != _VERSION:
        raise _unknown_version(data, "entry")
    try:
        entry_id, offset = read_text(data, 2)
        location, offset = _read_location(data, offset)
        kind, offset = _KIND_READERS[data[offset]](data, offset + 1)
    except _MALFORMED as error:
        raise CorruptHistoryError(f"Stored entry of {len(data)} bytes is malformed: {error}") from error
    if offset != len(data):
        raise _wrong_size(data, offset, "entry")
    return Entry(entry_id, location, kind)


def decode_metadata(data: bytes) -> EntryMetadata:
    """The metadata whose stored bytes ``data`` is.

    Raises:
        UnknownVersionError: a newer or foreign engine wrote it.
        CorruptHistoryError: it is not exactly one record of metadata.
    """
    if data[:2] != _VERSION:
        raise _unknown_version(data, "metadata")
    try:
        status = _ENTRY_STATUSES[data[2]]
        if len(data) == _COMPLETED.size and data[3] == 0 and data[24] == 1 and data.endswith(b"\0\0"):
            # That of a step which went well, as nearly every one has: read in one go at each replay.
            attempts, last_attempt_at, created_at, completed_at = _COMPLETED.unpack(data)
            return EntryMetadata(
                status=status,
                attempts=attempts,
                last_attempt_at=last_attempt_at,
                created_at=created_at,
                completed_at=completed_at,
            )
        error, offset = read_optional_text(data, 3)
        attempts, last_attempt_at, created_at = _ATTEMPTS_AND_TIMES.unpack_from(data, offset)
        completed_at, offset = read_optional_u64(data, offset + 20)
        rollback_completed_at, offset = read_optional_u64(data, offset)
        rollback_error, offset = read_optional_text(data, offset)
    except _MALFORMED as malformed:
        raise CorruptHistoryError(f"Stored metadata of {len(data)} bytes is malformed: {malformed}") from malformed
    if offset != len(data):
        raise _wrong_size(data, offset, "metadata")
    return EntryMetadata(
        status=status,
        error=error,
        attempts=attempts,
        last_attempt_at=last_attempt_at,
        created_at=created_at,
        completed_at=completed_at,
        rollback_completed_at=rollback_completed_at,
        rollback_error=rollback_error,
    )


def _unknown_version(data: bytes, what: str) -> UnknownVersionError | CorruptHistoryError:
    if len(data) < len(_VERSION):
        return CorruptHistoryError(f"Stored {what} of {len(data)} bytes is too short to carry a version")
    found = int.from_bytes(data[:2], "little")
    return UnknownVersionError(
        f"Stored {what} has format version {found}; this engine knows version {FORMAT_VERSION}: run a newer build"
    )


def _wrong_size(data: bytes, offset: int, what: str) -> CorruptHistoryError:
    return CorruptHistoryError(f"Stored {what} should be {offset} bytes but is {len(data)}")


def _read_location(data: bytes, offset: int) -> tuple[Location, int]:
    if data[offset : offset + 2] == _ONE_NAME:
        return _U32.unpack_from(data, offset + 2), offset + 6
    count, offset = read_varint(data, offset)
    segments: list[int | LoopIteration] = []
    while len(segments) < count:
        tag = data[offset]
        if tag == 0:
            segments.append(_U32.unpack_from(data, offset + 1)[0])
            offset += 5
        elif tag == 1:
            segments.append(LoopIteration(*_VERSIONS.unpack_from(data, offset + 1)))
            offset += 9
        else:
            raise ValueError(f"{tag} is no kind of path segment")
    return tuple(segments), offset


def _read_branches(data: bytes, offset: int) -> tuple[dict[str, BranchStatus], int]:
    count, offset = read_varint(data, offset)
    branches: dict[str, BranchStatus] = {}
    while len(branches) < count:
        name, offset = read_text(data, offset)
        if name in branches:
            raise ValueError(f"the branch {name!r} is there twice")
        status = _BRANCH_STATES[data[offset]]
        output, offset = read_optional_data(data, offset + 1)
        error, offset = read_optional_text(data, offset)
        branches[name] = BranchStatus(status=status, output=output, error=error)
    return branches, offset


def _read_step(data: bytes, offset: int) -> tuple[StepEntry, int]:
    output, offset = read_optional_data(data, offset)
    if data[offset] == 0:
        return StepEntry(output=output), offset + 1
    error, offset = read_optional_text(data, offset)
    return StepEntry(output=output, error=error), offset


def _read_loop(data: bytes, offset: int) -> tuple[LoopEntry, int]:
    state, offset = read_data(data, offset)
    (iteration,) = _U32.unpack_from(data, offset)
    output, offset = read_optional_data(data, offset + 4)
    return LoopEntry(state=state, iteration=iteration, output=output), offset


def _read_sleep(data: bytes, offset: int) -> tuple[SleepEntry, int]:
    (deadline,) = _U64.unpack_from(data, offset)
    return SleepEntry(deadline=deadline, state=_SLEEP_STATES[data[offset + 8]]), offset + 9


def _read_message(data: bytes, offset: int) -> tuple[MessageEntry, int]:
    name, offset = read_text(data, offset)
    content, offset = read_data(data, offset)
    return MessageEntry(name=name, data=content), offset


def _read_checkpoint(data: bytes, offset: int) -> tuple[RollbackCheckpointEntry, int]:
    name, offset = read_text(data, offset)
    return RollbackCheckpointEntry(name=name), offset


def _read_join(data: bytes, offset: int) -> tuple[JoinEntry, int]:
    branches, offset = _read_branches(data, offset)
    return JoinEntry(branches=branches), offset


def _read_race(data: bytes, offset: int) -> tuple[RaceEntry, int]:
    winner, offset = read_optional_text(data, offset)
    branches, offset = _read_branches(data, offset)
    return RaceEntry(winner=winner, branches=branches), offset


def _read_removed(data: bytes, offset: int) -> tuple[RemovedEntry, int]:
    original_type, offset = read_text(data, offset)
    original_name, offset = read_optional_text(data, offset)
    return RemovedEntry(original_type=original_type, original_name=original_name), offset


def _read_version_check(data: bytes, offset: int) -> tuple[VersionCheckEntry, int]:
    resolved, latest = _VERSIONS.unpack_from(data, offset)
    return VersionCheckEntry(resolved=resolved, latest=latest), offset + 8


_KIND_READERS: tuple[Callable[[bytes, int], tuple[EntryKind, int]], ...] = (
    _read_step,
    _read_loop,
    _read_sleep,
    _read_message,
    _read_checkpoint,
    _read_join,
    _read_race,
    _read_removed,
    _read_version_check,
)
