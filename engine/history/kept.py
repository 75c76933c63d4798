"""Entries and metadata as a storage keeps them: the stored bytes until somebody looks, then the record."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from engine import bare
from engine.entry import LoopEntry, StepEntry
from engine.errors import CorruptHistoryError, UnknownVersionError
from engine.lifecycle import WorkflowState

if TYPE_CHECKING:
    from engine.entry import Entry, EntryMetadata

UNREADABLE = (CorruptHistoryError, UnknownVersionError)
"""What is raised where stored bytes are none of ours, or of a newer build: whoever meets it leaves them as they are."""


def insert_key(sorted_keys: list[bytes], key: bytes) -> None:
    """Put ``key`` into its place; mostly that is the end, since names are numbered as they appear."""
    if not sorted_keys or key > sorted_keys[-1]:
        sorted_keys.append(key)
    else:
        sorted_keys.insert(bisect_left(sorted_keys, key), key)


def uuid7_of(entry: Entry | bytes) -> str | None:
    """The id of an entry where that is a UUIDv7, else None."""
    # Undecoded, behind the version (two bytes) and the length (one): this is asked of every entry, once a run.
    if isinstance(entry, bytes):
        return entry[3:39].decode("ascii", "replace") if entry[2:3] == b"\x24" and entry[17:18] == b"7" else None
    return entry.id if entry.id[14:15] == "7" else None


def instant_of_id(uuid7: str) -> int:
    """When a UUIDv7 was made (milliseconds)."""
    return int(uuid7.replace("-", "")[:12], 16)


def is_whole(entry: Entry | None) -> bool:
    """Whether a document may be kept beside an entry: a step that has completed, or a loop."""
    kind = None if entry is None else entry.kind
    return isinstance(kind, LoopEntry) or (isinstance(kind, StepEntry) and kind.output is not None)


def encoded_entry(entry: Entry | bytes) -> bytes:
    """The stored form of an entry."""
    return entry if type(entry) is bytes else bare.encode_entry(entry)  # type: ignore[arg-type]


def encoded_metadata(metadata: EntryMetadata | bytes) -> bytes:
    """The stored form of metadata."""
    return metadata if type(metadata) is bytes else bare.encode_metadata(metadata)  # type: ignore[arg-type]


def parse_state(value: bytes) -> WorkflowState:
    """The state whose stored text is ``value``.

    Raises:
        CorruptHistoryError: there is no such state.
    """
    try:
        return WorkflowState(value.decode())
    except ValueError as error:
        raise CorruptHistoryError(f"unknown workflow state {value[:40]!r}") from error
