"""When the entries of a history finished, as far as they tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine import message_record
from engine.entry import MessageEntry, SleepEntry, SleepState
from engine.history.kept import instant_of_id

if TYPE_CHECKING:
    from engine.entry import Entry, EntryMetadata
    from engine.history.storage import Storage


def instant_of(entry: Entry, metadata: EntryMetadata | None) -> int:
    """When an entry finished, as far as history tells (milliseconds), else 0."""
    if metadata is not None and metadata.completed_at is not None:
        return metadata.completed_at
    kind = entry.kind
    if isinstance(kind, SleepEntry):
        return kind.deadline if kind.state is SleepState.COMPLETED else 0
    if isinstance(kind, MessageEntry):
        return message_record.decode(kind.name, kind.data).created_at
    return 0


def first_instant(storage: Storage, otherwise: int) -> int:
    """When the first entry was created, as far as history tells (milliseconds); ``otherwise`` where it does not."""
    first = storage.first_id()
    created = [] if first is None else [instant_of_id(first)]
    return min([*created, *(each.created_at for each in storage.all_metadata().values())], default=otherwise)


class Latest:
    """When the latest operation of a scope finished, in milliseconds; 0 where none has."""

    __slots__ = ("_at", "_composites")

    def __init__(self) -> None:
        self._at = 0
        self._composites: list[bytes] = []

    def add(self, at: int, composite: bytes | None = None) -> None:
        """One finished at ``at``; ``composite`` is its key where what is below it counts too."""
        self._at = max(self._at, at)
        if composite is not None:
            self._composites.append(composite)

    def of(self, storage: Storage) -> int:
        """The instant, with ``storage`` to look below composites; those are looked at once."""
        for composite in self._composites:
            for key in storage.below(composite):
                entry = storage.find(key)
                assert entry is not None
                self._at = max(self._at, instant_of(entry, storage.find_metadata(entry.id)))
        self._composites.clear()
        return self._at
