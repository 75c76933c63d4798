"""A workflow's history as it was loaded: what the operations of a run look up, and what a run has visited of it."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Self

from engine import bare, keys
from engine.errors import CorruptHistoryError
from engine.history import kept
from engine.lifecycle import WorkflowState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.entry import Entry, EntryMetadata


class LoadedHistory:
    """One workflow's names, entries, metadata and fields, by key; ``Storage`` changes them.

    Entries are decoded when they are first looked at, so that loading costs nothing per entry beyond the listing.

    Attributes:
        names: the name registry, by index.
        entry_keys: the keys of all entries, sorted, so that a scope is a slice.
        loaded_count: how many entries an earlier run left; 0 means that nothing can be unvisited.
        visited: the keys of the entries that this run has looked at.
        state: the workflow's state as of now, committed or not.
        input: the workflow's input, CBOR; None where there is none. So ``output``; ``error`` is a CBOR map.
    """

    __slots__ = (
        "_entries",
        "_metadata",
        "_name_index",
        "entry_keys",
        "error",
        "input",
        "loaded_count",
        "names",
        "output",
        "state",
        "visited",
    )

    def __init__(self) -> None:
        self.names: list[str] = []
        self.entry_keys: list[bytes] = []
        self.loaded_count = 0
        self.visited: set[bytes] = set()
        self.state = WorkflowState.PENDING
        self.input: bytes | None = None
        self.output: bytes | None = None
        self.error: bytes | None = None
        self._name_index: dict[str, int] = {}
        self._entries: dict[bytes, Entry | bytes] = {}
        self._metadata: dict[str, EntryMetadata | bytes] = {}

    @classmethod
    def load(cls, pairs: list[tuple[bytes, bytes]]) -> Self:
        """The history that holds ``pairs`` (sorted by key), as a driver lists them.

        Raises:
            CorruptHistoryError: a key or a state that no engine wrote.
        """
        history = cls()
        for key, value in pairs:
            if key.startswith(keys.HISTORY_PREFIX):
                history._entries[key] = value
            elif key.startswith(keys.METADATA_PREFIX):
                history._metadata[keys.parse_metadata_key(key)] = value
            elif key.startswith(keys.NAMES_PREFIX):
                history._load_name(keys.parse_name_key(key), value)
            else:
                history._load_field(key, value)
        history.entry_keys = list(history._entries)
        history.loaded_count = len(history.entry_keys)
        return history

    def _load_field(self, key: bytes, value: bytes) -> None:
        if key == keys.STATE_KEY:
            self.state = kept.parse_state(value)
        elif key == keys.OUTPUT_KEY:
            self.output = value
        elif key == keys.ERROR_KEY:
            self.error = value
        elif key == keys.INPUT_KEY:
            self.input = value

    def _load_name(self, index: int, value: bytes) -> None:
        if index != len(self.names):
            raise CorruptHistoryError(f"the name registry has a gap: expected index {len(self.names)}, found {index}")
        name = value.decode("utf-8", "surrogateescape")
        self.names.append(name)
        self._name_index[name] = index

    def find_name(self, name: str) -> int | None:
        """The index of ``name``, or None where it was never used."""
        return self._name_index.get(name)

    def find(self, key: bytes) -> Entry | None:
        """The entry at ``key``, or None.

        Raises:
            CorruptHistoryError: what is stored there is no entry; it names the key.
        """
        entry = self._entries.get(key)
        if type(entry) is bytes:
            try:
                entry = self._entries[key] = bare.decode_entry(entry)
            except CorruptHistoryError as error:
                raise CorruptHistoryError(f"the entry at key {key.hex()} cannot be read: {error}") from error
        return entry  # type: ignore[return-value]  # decoded above where it was bytes

    def find_below(self, scope_key: bytes, name: str) -> Entry | None:
        """The entry ``name`` directly inside the scope at ``scope_key``, or None."""
        index = self._name_index.get(name)
        return None if index is None else self.find(keys.child_key(scope_key, index))

    def find_metadata(self, entry_id: str) -> EntryMetadata | None:
        """The metadata of an entry, or None.

        Raises:
            CorruptHistoryError: what is stored is no metadata; it names the entry.
        """
        metadata = self._metadata.get(entry_id)
        if type(metadata) is bytes:
            try:
                metadata = self._metadata[entry_id] = bare.decode_metadata(metadata)
            except CorruptHistoryError as error:
                raise CorruptHistoryError(f"the metadata of entry {entry_id} cannot be read: {error}") from error
        return metadata  # type: ignore[return-value]  # decoded above where it was bytes

    def below(self, scope_key: bytes) -> list[bytes]:
        """The keys of every entry below ``scope_key`` (itself left out), sorted."""
        start, end = keys.range_of(scope_key)
        found = self.entry_keys[bisect_left(self.entry_keys, start) : bisect_left(self.entry_keys, end)]
        return found[1:] if found and found[0] == scope_key else found

    def between(self, start: bytes, end: bytes) -> list[bytes]:
        """The keys of every entry with ``start <= key < end``, sorted."""
        return self.entry_keys[bisect_left(self.entry_keys, start) : bisect_left(self.entry_keys, end)]

    def first_unvisited(self, scope_key: bytes, since: bytes | None = None) -> bytes | None:
        """The first entry below ``scope_key`` that an earlier run left and this run has not visited, or None.

        ``since`` is an earlier answer: what is visited stays so, and what is new is visited, so nothing is before it.
        """
        return next(self.unvisited(scope_key, since), None) if self.loaded_count else None

    def unvisited(self, scope_key: bytes, since: bytes | None = None) -> Iterator[bytes]:
        """The entries below ``scope_key``, from ``since`` on, that this run has not visited, sorted."""
        start, end = keys.range_of(scope_key)
        entry_keys, visited = self.entry_keys, self.visited
        for index in range(bisect_left(entry_keys, since or start), len(entry_keys)):
            key = entry_keys[index]
            if key >= end:
                return
            if key not in visited and key != scope_key:
                yield key

    def first_id(self) -> str | None:
        """The first UUIDv7 of all entries, or None."""
        return min(filter(None, map(kept.uuid7_of, self._entries.values())), default=None)

    def latest_id(self) -> str | None:
        """The last UUIDv7 of all entries, or None; other ids say nothing of the order of creation."""
        return max(filter(None, map(kept.uuid7_of, self._entries.values())), default=None)

    def entries(self) -> Iterator[tuple[bytes, Entry]]:
        """Every entry with its key, sorted by key."""
        for key in self.entry_keys:
            entry = self.find(key)
            assert entry is not None
            yield key, entry

    def all_metadata(self) -> dict[str, EntryMetadata]:
        """The metadata of every entry that has any."""
        return {entry_id: found for entry_id in self._metadata if (found := self.find_metadata(entry_id)) is not None}

    def begin_run(self) -> None:
        """Start over from the top: what is stored now was left by an earlier run, and nothing is visited."""
        self.loaded_count = len(self.entry_keys)
        self.visited = set()

    def let_go(self) -> None:
        """Forget what is large: nobody asks any more. Names stay, for messages."""
        self._entries, self._metadata, self.entry_keys = {}, {}, []
        self.input = self.output = None
        self.begin_run()
