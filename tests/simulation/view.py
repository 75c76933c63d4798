"""One life of a workflow as its stored items show it, decoded from outside, write by write as they are applied."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import cbor2

from engine import bare, keys, message_record
from engine.entry import Entry, EntryMetadata, LoopEntry, MessageEntry, RaceEntry
from engine.location import LoopIteration, render

if TYPE_CHECKING:
    from tests.simulation.dynamo import Change, Write
    from tests.simulation.expressions import Item
    from tests.simulation.sandbox import Sandbox

ENDED = ("completed", "failed", "cancelled")

PURGED = "purged"
"""The state, as we call it here, of what is being deleted or gone."""


def integer(item: Item | None, name: str) -> int | None:
    """A number attribute, or None."""
    return int(item[name]["N"]) if item is not None and name in item else None


def string(item: Item | None, name: str) -> str | None:
    """A text attribute, or None."""
    return str(item[name]["S"]) if item is not None and name in item else None


def outlived(head: Item | None, now_ms: int) -> str:
    """What is to be forgotten by ``now_ms`` of a workflow that has ended: "all", "history", or nothing."""
    until = integer(head, "prune_at")
    return "" if until is None or until > now_ms else string(head, "prune") or ""


@dataclass(slots=True, kw_only=True)
class Claim:
    """A change of the epoch: which process took the lease, by which request, and when (microseconds)."""

    epoch: int
    sandbox: str
    role: str
    at_us: int


@dataclass(slots=True, kw_only=True)
class News:
    """What one write changed in a workflow.

    Attributes:
        write: the write.
        changes: those of this workflow.
        head_before, head: HEAD before and after.
        puts: key -> (value before, value after) of what its LOG items put.
        removed: key -> value before, of what they removed for good.
    """

    write: Write
    changes: list[Change]
    head_before: Item | None
    head: Item | None
    puts: dict[bytes, tuple[bytes | None, bytes]] = field(default_factory=dict)
    removed: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def is_commit(self) -> bool:
        """Whether HEAD's number of commits moved."""
        return integer(self.head, "seq") != integer(self.head_before, "seq")


class View:
    """A life of a workflow as stored: from its start until it is purged, after which the id may begin another.

    Attributes:
        life: the id and the number of the life.
        items: sort key -> item.
        pairs: the key-value pairs that its LOG items amount to.
        claims: every change of the epoch.
        ended_us: when it ended, or None while it has not.
        ticket_us: ticket -> when it was given.
        deaths: claims since the last commit that took the lease from a holder that never released.
        is_purged: whether somebody has begun to delete it.
        states: every state that it was in, ``PURGED`` at last, and since when.
    """

    def __init__(self, workflow_id: str, number: int = 0) -> None:
        self.workflow_id = workflow_id
        self.number = number
        self.life = f"{workflow_id}.{number}"
        self.items: dict[str, Item] = {}
        self.pairs: dict[bytes, bytes] = {}
        self.claims: list[Claim] = []
        self.ended_us: int | None = None
        self.ticket_us: dict[int, int] = {}
        self.deaths = 0
        self.deaths_max = 0
        self.is_purged = False
        self.states: list[tuple[int, str]] = []
        self._last_head: Item | None = None
        self._midway: dict[str, tuple[Sandbox, int]] = {}
        self._entries: dict[bytes, Entry] = {}
        self._names: list[str] | None = None

    @property
    def head(self) -> Item | None:
        """HEAD."""
        return self.items.get("HEAD")

    @property
    def inbox(self) -> Item | None:
        """INBOX."""
        return self.items.get("INBOX")

    @property
    def state(self) -> str:
        """The state that HEAD says, or said at last."""
        return string(self.head or self._last_head, "state") or ""

    @property
    def type(self) -> str:
        """The type that HEAD says, or said at last."""
        return string(self.head or self._last_head, "type") or ""

    @property
    def is_gone(self) -> bool:
        """Whether HEAD was there and is not any more."""
        return self._last_head is not None

    @property
    def is_settled(self) -> bool:
        """Whether it has ended, and nobody is at work on deleting it."""
        return self.has_ended and self.is_purged == self.is_gone

    @property
    def has_ended(self) -> bool:
        """Whether that is an end."""
        return self.state in ENDED

    def states_since(self, since_us: int) -> set[str]:
        """Every state that it was in at any time since then."""
        later = {state for at_us, state in self.states if at_us >= since_us}
        return later | {state for at_us, state in self.states if at_us < since_us and state == self._state_at(since_us)}

    def _state_at(self, at_us: int) -> str:
        return [state for since_us, state in self.states if since_us < at_us][-1]

    def is_in_somebodys_hands(self) -> bool:
        """Whether a process lives that was midway in what a later life would not be safe from.

        That is sending a message or folding the log: a process that is stalled in one of them for over a minute is
        what nobody promises anything about.
        """
        return any(one.is_busy and not one.loop.is_dead and one.invocations == at for one, at in self._midway.values())

    def messages(self) -> dict[int, Item]:
        """The inbox, by ticket."""
        return {int(sk[4:]): item for sk, item in self.items.items() if sk.startswith("MSG#")}

    # --- taking in --------------------------------------------------------------------------------------------------

    def take(self, write: Write, changes: list[Change]) -> News:
        """Take in a write."""
        news = News(write=write, changes=changes, head_before=self.head, head=self.head)
        parts: dict[int, list[tuple[str, bytes]]] = {}
        for change in changes:
            if change.new is None:
                self.items.pop(change.sk, None)
            else:
                self.items[change.sk] = change.new
            if change.sk == "HEAD":
                self.is_purged = self.is_purged or "purging_at" in (change.new or {})
                self._last_head = change.old if change.new is None else None
            self._note_midway(write.request.sandbox, change)
            if change.sk.startswith("LOG#") and change.new is not None and change.old is None:
                parts.setdefault(int(change.sk.split("#")[1]), []).append((change.sk, change.new["b"]["B"]))
            if change.sk == "INBOX":
                self.ticket_us.setdefault(integer(change.new, "n") or 0, write.at_us)
        news.head = self.head
        for _, found in sorted(parts.items()):
            self._fold(b"".join(data for _, data in sorted(found)), news)
        self._claim(news)
        state = PURGED if self.is_purged else self.state
        if not self.states or self.states[-1][1] != state:
            self.states.append((write.at_us, state))
        if self.has_ended and self.ended_us is None:
            self.ended_us = write.at_us
        elif not self.has_ended:
            self.ended_us = None
        return news

    def _note_midway(self, sandbox: Sandbox, change: Change) -> None:
        numbers = [(integer(item, "n"), integer(item, "snapshot_seq")) for item in (change.old, change.new)]
        if (change.sk in ("INBOX", "HEAD") and numbers[0] != numbers[1]) or change.sk.startswith("SNAP#"):
            self._midway[sandbox.name] = (sandbox, sandbox.invocations)

    def _claim(self, news: News) -> None:
        before, after = integer(news.head_before, "epoch") or 0, integer(news.head, "epoch") or 0
        if news.is_commit:
            self.deaths = 0
        if news.head_before is None or news.head is None or before == after:
            return
        sandbox = news.write.request.sandbox
        self.claims.append(Claim(epoch=after, sandbox=sandbox.name, role=sandbox.role, at_us=news.write.at_us))
        if "owner" in news.head_before and sandbox.role == "worker":
            self.deaths += 1
            self.deaths_max = max(self.deaths_max, self.deaths)

    def _fold(self, data: bytes, news: News) -> None:
        _, flat_puts, deletes, prefixes, flat_ranges = cbor2.loads(data)
        ranges = list(zip(flat_ranges[::2], flat_ranges[1::2], strict=True))
        before = dict(self.pairs) if prefixes or ranges else self.pairs
        doomed = [key for key in deletes if key in self.pairs]
        if prefixes or ranges:
            doomed += [
                key
                for key in before
                if any(key.startswith(prefix) for prefix in prefixes) or any(low <= key < high for low, high in ranges)
            ]
        gone = {key: self.pairs.pop(key) for key in doomed if key in self.pairs}
        for key, value in zip(flat_puts[::2], flat_puts[1::2], strict=True):
            news.puts[key] = (gone.pop(key, self.pairs.get(key)), value)
            self.pairs[key] = value
            if key.startswith(keys.HISTORY_PREFIX):
                self._entries[key] = bare.decode_entry(value)
            elif is_name(key):
                self._names = None
        for key in gone:
            self._entries.pop(key, None)
        news.removed.update(gone)

    # --- decoding ---------------------------------------------------------------------------------------------------

    def entry(self, key: bytes, value: bytes) -> Entry:
        """The entry that a value is, or was."""
        return self._entries[key] if self.pairs.get(key) == value else bare.decode_entry(value)

    def entries(self) -> dict[bytes, Entry]:
        """Every entry of the history, by key."""
        return self._entries

    def names(self) -> list[str]:
        """The name registry."""
        if self._names is None:
            found = {keys.parse_name_key(key): value.decode() for key, value in self.pairs.items() if is_name(key)}
            self._names = [found.get(index, "?") for index in range(max(found, default=-1) + 1)]
        return self._names

    def path(self, entry: Entry) -> str:
        """Where an entry stands, as text."""
        return render(entry.location, self.names())

    def metadata(self, entry_id: str) -> EntryMetadata | None:
        """What is stored of an entry's execution."""
        value = self.pairs.get(keys.metadata_key(entry_id))
        return None if value is None else bare.decode_metadata(value)

    def why_gone(self, entry: Entry) -> str:
        """Why an entry may have left history: its iteration is ``finished``, its branch has ``lost``; else empty."""
        names = self.names()
        why = ""
        for depth, segment in enumerate(entry.location):
            above = self._entries.get(keys.entry_key(entry.location[:depth])) if depth else None
            if above is None:
                continue
            match above.kind, segment:
                # The iteration in progress, and the one that broke, are never forgotten.
                case LoopEntry(iteration=current), LoopIteration(iteration=iteration) if iteration < current:
                    why = why or "finished"
                case RaceEntry(winner=str(winner)), int(name) if winner != names[name]:
                    why = "lost"
        return why

    def stored_error(self) -> dict[str, Any] | None:
        """The stored error of a workflow that failed."""
        value = self.pairs.get(keys.ERROR_KEY)
        return None if value is None else cbor2.loads(value)


def is_name(key: bytes) -> bool:
    """Whether a key is one of the name registry."""
    return key.startswith(keys.NAMES_PREFIX)


def message_of(entry: Entry) -> str | None:
    """The id of the message that an entry records, or None where it records none."""
    if not isinstance(entry.kind, MessageEntry):
        return None
    return message_record.decode(entry.kind.name, entry.kind.data).id or None


def is_answered(entry: Entry) -> bool:
    """Whether an entry records a message that was completed."""
    kind = entry.kind
    return isinstance(kind, MessageEntry) and message_record.decode(kind.name, kind.data).is_completed
