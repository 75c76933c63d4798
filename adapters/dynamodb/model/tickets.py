"""Which messages of an inbox are there, and which tickets still wait for theirs. Pure.

A sender first takes a ticket, then puts its message. A ticket whose message is not there yet is *outstanding*: its
message may still come without a further sign, so the inbox has to be looked at again.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

from adapters.dynamodb.model.limits import OUTSTANDING_MAX_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.entry import Message


class Account(Struct, frozen=True, kw_only=True):
    """How far the tickets of an inbox are accounted for; it lives in HEAD.

    Attributes:
        done: every ticket up to this one has its message, or never will.
        gap_n: tickets up to this one were first missed at ``gap_at`` (milliseconds); 0 where none is missed.
    """

    done: int = 0
    gap_n: int = 0
    gap_at: int = 0

    @property
    def is_outstanding(self) -> bool:
        """Whether a ticket still waits for its message."""
        return self.gap_n > 0


def settle(account: Account, last_ticket: int, seen: Iterable[int], now: int) -> Account:
    """The account after a look that saw ``last_ticket`` tickets given, and messages with the tickets ``seen``."""
    present = set(seen)
    missing = [ticket for ticket in range(account.done + 1, last_ticket + 1) if ticket not in present]
    is_gap_over = account.gap_n > 0 and now - account.gap_at >= OUTSTANDING_MAX_MS
    if is_gap_over:
        # Their senders died, or took so long that they have asked to be looked at anew.
        missing = [ticket for ticket in missing if ticket > account.gap_n]
    if not missing:
        return Account(done=max(account.done, last_ticket))
    done = missing[0] - 1
    if account.gap_n >= missing[0]:
        return Account(done=done, gap_n=account.gap_n, gap_at=account.gap_at)
    return Account(done=done, gap_n=last_ticket, gap_at=now)


class Counts(Struct, frozen=True, kw_only=True):
    """What INBOX says.

    Attributes:
        last_ticket: the last ticket given.
        is_due: whether it is in the index ``due``.
        told_n: how often the workflow was told of an end.
        told: of whose, since its holder last wrote that it knows.
        waited: how often others have begun to wait for its own end.
    """

    last_ticket: int = 0
    is_due: bool = False
    told_n: int = 0
    told: frozenset[str] = frozenset()
    waited: int = 0


class Inbox:
    """One workflow's inbox as of the last look at it, and what its holder has done to it since.

    Attributes:
        last_ticket: the last ticket given then; a yield is conditioned on it.
        is_due: whether it was in the index ``due``.
        told_n: how often it had been told of the end of a workflow; a yield is conditioned on that too.
        told: the workflows whose ends it had been told of.
        waited: how often others had begun to wait for its own end; an end is conditioned on it.
        account: how far tickets are accounted for, judged by that look.
        bare: tickets of messages whose bodies are not here, but only stored.
        looks: how many looks there have been.
        passed: messages that no look has read, because nobody had wanted them by the last one before these.
    """

    __slots__ = (
        "_by_id",
        "_by_ticket",
        "_gone",
        "_kept",
        "account",
        "bare",
        "is_due",
        "last_ticket",
        "looks",
        "passed",
        "told",
        "told_n",
        "waited",
    )

    def __init__(self, account: Account, *, passed: int = 0) -> None:
        self.account = account
        self.passed = passed
        self.last_ticket = 0
        self.is_due = False
        self.told_n = 0
        self.told: frozenset[str] = frozenset()
        self.waited = 0
        self.looks = 0
        self.bare: set[int] = set()
        # In the order of tickets, and what each id stands for: taking a message must not mean looking at all of them.
        self._by_ticket: dict[int, Message] = {}
        self._by_id: dict[str, list[int]] = {}
        # A look may have begun before a commit of this holder and end after it. Nobody else takes messages out, so what
        # this holder consumed is gone and what it put in is there, whatever the look has seen.
        self._gone: set[int] = set()
        self._kept: dict[int, Message] = {}

    def glance(self, counts: Counts) -> bool:
        """Take in what INBOX says; whether that is a whole look, since no message can have come since the last one."""
        if not self.looks or self.account.is_outstanding or counts.last_ticket != self.last_ticket:
            return False
        self._count(counts)
        return True

    def look(self, counts: Counts, *, messages: Sequence[Message], bare: Iterable[int] = (), now: int) -> None:
        """Take in a look at the stored inbox; the INBOX item has to be read before the messages."""
        self._count(counts)
        found = {message.ticket: message for message in messages if message.ticket not in self._gone}
        self._take_in(found | self._kept)
        self.bare = set(bare) - self._kept.keys()
        self.account = settle(self.account, counts.last_ticket, self._by_ticket.keys() | self._gone, now)

    def _count(self, counts: Counts) -> None:
        self.looks += 1
        self.last_ticket = counts.last_ticket
        self.is_due = counts.is_due
        self.told_n = counts.told_n
        self.told = counts.told
        self.waited = counts.waited

    def _take_in(self, by_ticket: dict[int, Message]) -> None:
        self._by_ticket = dict(sorted(by_ticket.items()))
        self._by_id = {}
        for ticket, message in self._by_ticket.items():
            self._by_id.setdefault(message.id, []).append(ticket)

    def receive(self, names: Sequence[str], count: int) -> list[Message]:
        """The oldest ``count`` messages of ``names`` (all where empty).

        All of them, also beyond what one commit could take: a reader who holds some asks for more to look past those.
        """
        wanted = set(names)
        ordered = self._by_ticket.values()
        return list(islice((message for message in ordered if not wanted or message.name in wanted), count))

    @property
    def unread(self) -> int:
        """How many messages are there, with those that were ``passed`` over."""
        return len(self._by_ticket) + self.passed

    def has_any(self, names: Sequence[str]) -> bool:
        """Whether a message of ``names`` (any where empty) is there."""
        return bool(self.receive(names, 1))

    def tickets_of(self, message_ids: Iterable[str]) -> list[int]:
        """The tickets of these messages, each once: the oldest where an id, long forgotten, was accepted again."""
        asked = Counter(iter(message_ids))
        return [ticket for name, times in asked.items() for ticket in self._by_id.get(name, ())[:times]]

    def apply(self, *, removed: Iterable[int], added: Sequence[Message]) -> None:
        """Take in what a commit of this holder has written."""
        for ticket in removed:
            self._forget(ticket)
            self._kept.pop(ticket, None)
            self._gone.add(ticket)
        # One behind tickets that have not been looked at yet has to wait for that look, to keep its place.
        kept = {message.ticket: message for message in added if message.ticket <= self.last_ticket}
        self._gone -= {message.ticket for message in added}
        if kept:
            self._kept |= kept
            self.bare -= kept.keys()
            self._take_in(self._by_ticket | kept)

    def _forget(self, ticket: int) -> None:
        message = self._by_ticket.pop(ticket, None)
        self.bare.discard(ticket)
        if message is not None:
            same = self._by_id[message.id]
            same.remove(ticket)
            if not same:
                del self._by_id[message.id]

    def took_ticket(self, ticket: int) -> None:
        """This holder took a ticket for itself. Where others came in between, a yield has to look at them first."""
        self._gone.add(ticket)
        if ticket == self.last_ticket + 1:
            self.last_ticket = ticket
            self.is_due = True
            self.account = settle(self.account, ticket, self._by_ticket.keys() | self._gone, self.account.gap_at)
