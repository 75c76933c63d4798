"""What a run of either engine left behind, and how to read it: end, history, inbox, bodies run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from engine import bare, keys
from engine.entry import EntryMetadata, EntryStatus, StepEntry
from engine.location import render
from tests.interop.cases import Sent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.entry import Entry

Pairs = list[tuple[str, str]]
"""Keys and values in hexadecimal, sorted by key."""


class Snapshot(Struct, frozen=True, kw_only=True):
    """A workflow at one moment: what is stored, what is in its inbox or on the way to it, what time it is."""

    kv: Pairs
    messages: list[Sent]
    now: int


class Outcome(Struct, frozen=True, kw_only=True):
    """How a workflow ended (or where it stopped), and every moment at which its engine had written something."""

    state: str
    result: Any
    threw: dict[str, str] | None
    kv: Pairs
    ran: list[str]
    snapshots: list[Snapshot]


def _entries(pairs: Pairs) -> Iterator[tuple[str, Entry, EntryMetadata | None]]:
    stored = {bytes.fromhex(key): bytes.fromhex(value) for key, value in pairs}
    names = [stored[key].decode() for key in sorted(stored) if key.startswith(keys.NAMES_PREFIX)]
    for key, value in stored.items():
        if key.startswith(keys.HISTORY_PREFIX):
            entry = bare.decode_entry(value)
            metadata = stored.get(keys.metadata_key(entry.id))
            yield render(entry.location, names), entry, bare.decode_metadata(metadata) if metadata else None


def done(pairs: Pairs) -> set[str]:
    """The labels of the bodies that must not run again: steps with a result, and undos that were made."""
    found = set()
    for label, entry, metadata in _entries(pairs):
        if not isinstance(entry.kind, StepEntry):
            continue
        if entry.kind.output is not None or (metadata and metadata.status is EntryStatus.COMPLETED):
            found.add(label)
        if metadata and metadata.rollback_completed_at is not None:
            found.add(f"undo {label}")
    return found


def shape(pairs: Pairs) -> set[tuple[str, str]]:
    """What the history holds: the place and the kind of every entry."""
    return {(label, entry.kind.kind) for label, entry, _ in _entries(pairs)}


def state(pairs: Pairs) -> str:
    """The stored state; an absent one reads as pending."""
    return next((bytes.fromhex(value).decode() for key, value in pairs if key == keys.STATE_KEY.hex()), "pending")
