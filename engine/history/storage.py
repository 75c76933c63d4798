"""What a run changes of a workflow's history, and the commit that carries the changes.

A change marks its key; ``gather`` turns all marks into one ``Commit`` and moves them into ``_in_flight``, where they
stay until ``settled`` says that every write has succeeded or ``restore`` brings them back.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Self

from engine import keys, message_record
from engine.entry import MessageEntry
from engine.history import kept
from engine.history.changes import Changes
from engine.history.documents import EMPTY, Documents
from engine.history.loaded import LoadedHistory
from engine.lifecycle import OVER, WorkflowState, is_allowed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine.commit import Alarm, Child, Commit, Outgoing, Pruning, Publication, Reply
    from engine.entry import Entry, EntryMetadata, Message
    from engine.errors import ChildRefusedError
    from engine.history.changes import Room
    from engine.history.documents import Document


class Storage(LoadedHistory):
    """One workflow's history, with marks on what is not yet committed.

    Attributes:
        documents: the versions of the workflow's document, committed or not.
        pruning: what is to be forgotten of the workflow once it has ended; None where nothing is.
        is_partial: the last gathered commit had no room for everything; the next one carries more of it.
        refusals: by the entry that records a start, what to call where the driver refuses it.
        is_urgent: something changed that must be committed before anything else acts.
    """

    __slots__ = (
        "_changes",
        "_flushed_names",
        "_flushed_state",
        "_group",
        "_in_flight",
        "_recorded_messages",
        "documents",
        "is_partial",
        "is_urgent",
        "pruning",
        "refusals",
    )

    def __init__(self) -> None:
        super().__init__()
        self.documents = Documents()
        self.pruning: Pruning | None = None
        self.is_urgent = False
        self.is_partial = False
        self._group = 0
        self._recorded_messages: set[str] | None = None
        self.refusals: dict[str, Callable[[Exception], None]] = {}
        self._flushed_names = 0
        self._flushed_state: WorkflowState | None = None
        self._changes = Changes()
        self._in_flight: Changes | None = None

    @classmethod
    def load(cls, pairs: list[tuple[bytes, bytes]]) -> Self:
        """The storage that holds ``pairs`` (sorted by key), as a driver lists them.

        Raises:
            CorruptHistoryError: a key or a state that no engine wrote.
        """
        storage = super().load(pairs)
        storage._flushed_names = len(storage.names)  # noqa: SLF001 - of its own class
        if storage.documents:
            torn = storage.documents.loaded(lambda key: kept.is_whole(storage.find(key)))
            storage._changes.deletes.update((keys.document_key(key), 0) for key in torn)  # noqa: SLF001 - likewise
        return storage

    def let_go(self) -> None:
        """Forget what is large, committed or not."""
        super().let_go()
        self.documents, self._changes = Documents(), Changes()

    def _load_field(self, key: bytes, value: bytes) -> None:
        super()._load_field(key, value)
        if key == keys.STATE_KEY:
            self._flushed_state = self.state
        elif key.startswith(keys.DOCUMENT_PREFIX):
            self.documents.load(key, value)

    # --- names --------------------------------------------------------------------------------------------------

    def register_name(self, name: str) -> int:
        """The index of ``name``, given now where it was never used."""
        index = self._name_index.get(name)
        if index is None:
            index = len(self.names)
            self.names.append(name)
            self._name_index[name] = index
        return index

    # --- entries and metadata -----------------------------------------------------------------------------------

    def put(self, key: bytes, entry: Entry, *, is_urgent: bool = True) -> None:
        """Store an entry, new or changed."""
        if key not in self._entries:
            kept.insert_key(self.entry_keys, key)
            self._changes.deletes.pop(key, None)
        self._entries[key] = entry
        changes = self._changes
        if key in changes.entries and changes.entries[key] != self._group:
            self._put_again(key, entry)
        changes.entries[key] = self._group
        self.visited.add(key)
        if is_urgent:
            self.is_urgent = True

    def _put_again(self, key: bytes, entry: Entry) -> None:
        """Of two changes that are not committed only the later is kept, so what belongs to the earlier goes with it."""
        changes = self._changes
        if entry.id in changes.metadata:
            changes.metadata[entry.id] = self._group
        if type(entry.kind) is MessageEntry or self.documents.is_unsaved(key):
            changes.merge(changes.entries[key], self._group)

    def put_metadata(self, entry_id: str, metadata: EntryMetadata) -> None:
        """Store an entry's metadata, new or changed."""
        self._metadata[entry_id] = metadata
        self._changes.metadata[entry_id] = self._group

    def remove_range(self, start: bytes, end: bytes) -> list[Entry]:
        """Remove every entry with ``start <= key < end``, with its metadata; the removal rides on the next commit."""
        low, high = bisect_left(self.entry_keys, start), bisect_left(self.entry_keys, end)
        removed = self.entry_keys[low:high]
        if not removed:
            return []
        del self.entry_keys[low:high]
        entries = [self._remove(key) for key in removed]
        ranges = [(start, end), *self.documents.drop_between(start, end)]
        self._changes.ranges += [(self._group, each) for each in ranges]
        return entries

    def remove(self, key: bytes) -> None:
        """Remove one entry with its metadata; the removal rides on the next commit."""
        del self.entry_keys[bisect_left(self.entry_keys, key)]
        self._remove(key)
        self._changes.deletes[key] = self._group
        self.remove_document(key)

    def remove_document(self, key: bytes) -> None:
        """Remove the version of the document that is beside the entry at ``key``, if any."""
        if self.documents.drop(key):
            self._changes.deletes[keys.document_key(key)] = self._group

    def put_document(self, key: bytes, document: Document) -> None:
        """Keep a version of the document beside the entry at ``key``, which was put just now."""
        self._changes.deletes.pop(keys.document_key(key), None)
        self.documents.put(key, document)

    def _remove(self, key: bytes) -> Entry:
        entry = self.find(key)
        assert entry is not None
        del self._entries[key]
        self.visited.discard(key)
        group = self._changes.entries.pop(key, None)
        if group is not None and type(entry.kind) is MessageEntry:
            # Its message was taken in that group, and the record is not needed only because of what is in this one.
            self._changes.merge(group, self._group)
        self._changes.forget(entry.id)
        if self._metadata.pop(entry.id, None) is not None:
            self._changes.deletes[keys.metadata_key(entry.id)] = self._group
        return entry

    # --- messages -----------------------------------------------------------------------------------------------

    def consume(self, message: Message) -> None:
        """``message`` leaves the inbox with the next commit."""
        self._changes.returned.pop(message.id, None)
        self._changes.consumed[message.id] = self._group
        self.hold(message.id)
        self.is_urgent = True

    def hold(self, message_id: str) -> None:
        """This run has ``message_id``; nobody else may receive it."""
        self._known_messages().add(message_id)

    def give_back(self, message: Message) -> None:
        """``message``, which a race's loser had taken, returns to the inbox with the next commit."""
        self._known_messages().discard(message.id)
        if message.id in self._changes.consumed:
            del self._changes.consumed[message.id]
        else:
            self._changes.returned[message.id] = (self._group, message)
        self.is_urgent = True

    def is_recorded(self, message_id: str) -> bool:
        """Whether history has this message already, consumed or still to be completed."""
        return message_id in self._known_messages()

    def _known_messages(self) -> set[str]:
        if self._recorded_messages is None:
            self._recorded_messages = set()
            for _, entry in self.entries():
                if type(entry.kind) is MessageEntry and (found := message_record.read_id(entry.kind.data)) is not None:
                    self._recorded_messages.add(found)
        return self._recorded_messages

    def reply(self, reply: Reply) -> None:
        """Answer a completable message with the next commit."""
        self._changes.replies.append((self._group, reply))
        self.is_urgent = True

    def send(self, outgoing: Outgoing) -> None:
        """Send with the next commit what the entry of that id records; where that goes before, so does the message."""
        self._changes.outgoing[outgoing.message.id] = (self._group, outgoing)
        self.is_urgent = True

    def publish(self, publication: Publication) -> None:
        """Publish with the next commit what the entry of the same id records; where that goes before, so does this."""
        self._changes.published[publication.id] = (self._group, publication)
        self.is_urgent = True

    def start(self, entry_id: str, child: Child) -> None:
        """Start a workflow with the next commit, which has the entry that records it."""
        self._changes.children[entry_id] = (self._group, child)
        self.is_urgent = True

    def starting(self) -> Iterator[Child]:
        """The workflows that are to be started and may not be there yet."""
        for changes in (self._changes, self._in_flight):
            if changes is not None:
                yield from (child for _, child in changes.children.values())

    def refuse(self, error: ChildRefusedError, commit: Commit) -> bool:
        """Forget the child that ``error`` says ``commit`` cannot start, and tell whoever recorded it.

        The answer is whether the same can be committed without it.
        """
        taken = self._changes.take_child(error.workflow_id)
        if not all(entry_id in self.refusals for entry_id in taken):
            # Nobody can be told any more, or nobody expected it: what was recorded is wrong, and must not be stored.
            return False
        for entry_id in taken:
            self.refusals[entry_id](error)
        # Or else it has gone with the branch that wanted it, which lost its race while the commit was under way.
        return bool(taken) or any(child.workflow_id == error.workflow_id for child in commit.children)

    # --- fields -------------------------------------------------------------------------------------------------

    def set_input(self, value: bytes) -> None:
        """Keep the workflow's input (CBOR)."""
        self.input = self._changes.fields[keys.INPUT_KEY] = value

    def set_output(self, value: bytes | None) -> None:
        """Keep the workflow's output (CBOR), or remove it."""
        self.output = self._changes.fields[keys.OUTPUT_KEY] = value

    def set_error(self, value: bytes | None) -> None:
        """Keep the workflow's error (a CBOR map), or remove it."""
        self.error = self._changes.fields[keys.ERROR_KEY] = value

    # --- flushing -----------------------------------------------------------------------------------------------

    def is_dirty(self) -> bool:
        """Whether anything but the state waits to be committed."""
        return not self._changes.is_empty() or len(self.names) > self._flushed_names

    def has_news(self) -> bool:
        """Whether a commit now would write anything."""
        return self.is_dirty() or self.state is not self._flushed_state

    @property
    def has_gathered(self) -> bool:
        """Whether a commit has been gathered that is neither settled nor restored."""
        return self._in_flight is not None

    def fills(self, room: Room) -> bool:
        """Whether as much waits to be committed as one commit can move."""
        return self._changes.fills(room)

    def close_group(self) -> None:
        """What was recorded since the last call belongs together, and is committed whole."""
        self._group += 1

    def gather(
        self,
        room: Room | None = None,
        *,
        alarm: Alarm | None = None,
        yields: bool = False,
        names: tuple[str, ...] | None = None,
        awaited: tuple[str, ...] = (),
    ) -> Commit:
        """Everything uncommitted as one commit. Follow it with ``settled`` or ``restore``, before the next one.

        What does not fit into ``room`` stays behind (``is_partial``), and so do the state and the alarm: gather again.
        """
        assert self._in_flight is None
        changes = self._changes
        state = None if self.state is self._flushed_state else self.state
        assert state is None or is_allowed(self._flushed_state or WorkflowState.PENDING, state)
        puts = self._encode_puts(changes, state)
        pruning = self.pruning if state in OVER else None
        commit = changes.commit(
            puts, alarm=alarm, state=state, yields=yields, names=names, awaited=awaited, pruning=pruning
        )
        self.is_partial = False
        if room is not None and not room.holds(commit):
            sizes = {key: self._size(key) for key in changes.entries}
            first, rest = changes.split(changes.first_groups(sizes, room)) if sizes else (changes, Changes())
            self.is_partial = not rest.is_empty()
            if self.is_partial:
                commit = first.commit(self._encode_puts(first, None))
                changes = first
                self._changes = rest
        self._in_flight = changes
        if not self.is_partial:
            self._changes = Changes()
        self.is_urgent = self.is_partial
        return commit

    def _encode_puts(self, changes: Changes, state: WorkflowState | None) -> list[tuple[bytes, bytes]]:
        puts = [
            (keys.name_key(index), self.names[index].encode("utf-8", "surrogateescape"))
            for index in range(self._flushed_names, len(self.names))
        ]
        entries, metadata = self._entries, self._metadata
        # Ahead of their entries: where a write is torn, a version without its entry is none.
        puts += self.documents.gather(changes.entries)
        puts += [(key, kept.encoded_entry(entries[key])) for key in changes.entries]
        puts += [
            (keys.metadata_key(entry_id), kept.encoded_metadata(metadata[entry_id])) for entry_id in changes.metadata
        ]
        if changes.fields:
            puts += [(key, value) for key, value in changes.fields.items() if value is not None]
        if state is not None:
            puts.append((keys.STATE_KEY, state.value.encode()))
        return puts

    def _size(self, key: bytes) -> int:
        document = self.documents.of(key) if self.documents.is_unsaved(key) else EMPTY
        return len(kept.encoded_entry(self._entries[key])) + len(document.data)

    def settled(self, names_count: int, state: WorkflowState | None) -> None:
        """The gathered commit is stored; ``names_count`` and ``state`` are what it carried."""
        self._in_flight = None
        self.documents.settled()
        self._flushed_names = names_count
        if state is not None:
            self._flushed_state = state

    def restore(self) -> None:
        """The gathered commit was not stored: mark everything again that it carried and that is still there."""
        assert self._in_flight is not None
        self._changes.prepend(self._in_flight)
        for key in [key for key in self._changes.entries if key not in self._entries]:
            del self._changes.entries[key]
        for entry_id in [entry_id for entry_id in self._changes.metadata if entry_id not in self._metadata]:
            self._changes.forget(entry_id)
        self._in_flight = None
        self.is_urgent = True
