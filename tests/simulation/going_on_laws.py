"""The laws of going on: 3, messages; 4, whoever can go on is due; 8, everything ends as it would have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine import keys, values
from engine.entry import Entry, EntryStatus, LoopEntry, SleepEntry, SleepState
from engine.location import LoopIteration
from tests.simulation.expectation import FAILURE
from tests.simulation.laws import Law
from tests.simulation.view import integer, is_answered, message_of, string

if TYPE_CHECKING:
    from tests.simulation.view import News, View
    from tests.simulation.world import Story, World

SOON_MS = 90_000
"""How far ahead of now a workflow may be due that has something to do: an outstanding ticket, skewed clocks."""

SLOW_SENDER_US = 25_000_000
"""A sender slower than this asks to be looked at anew; until then its message may lie there without a sign."""

DEATHS_MAX = 5

A_DAY_US = 86_300 * 1_000_000
"""For at least so long a message's id is remembered."""


class MessagesOnce(Law):
    """3: an acknowledged message is consumed once, in its sender's order, or is still in the inbox."""

    number = 3

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._tickets: dict[tuple[str, str], str] = {}
        self._came_us: dict[tuple[str, str], int] = {}
        self._recorded: dict[tuple[str, str], bytes] = {}
        self._consumed: set[tuple[str, str]] = set()
        self._latest: dict[tuple[str, str, str], list[int]] = {}

    def wrote(self, view: View, news: News) -> None:
        """Follow each message from the inbox into history."""
        inbox = [change for change in news.changes if change.sk.startswith("MSG#")]
        replied = {
            change.sk.removeprefix("DEDUP#")
            for change in news.changes
            if change.sk.startswith("DEDUP#") and "reply" in (change.new or {})
        }
        for change in inbox:
            if change.new is not None and change.old is None:
                self._came(view, change.new["id"]["S"], change.sk, news)
        for key, (_, value) in news.puts.items():
            if key.startswith(keys.HISTORY_PREFIX):
                self._recorded_in(view, view.entry(key, value), key)
        for key, value in news.removed.items():
            if key.startswith(keys.HISTORY_PREFIX):
                entry = view.entry(key, value)
                is_told = news.write.request.sandbox.role == "api"
                if not is_told and not _was_finished(view, news, entry):
                    self._forgotten(view, entry, key)
        for change in inbox:
            if change.new is None and change.old is not None and not view.is_purged:
                # One that a race's loser had completed is answered, and its record gone with the loser.
                message_id = change.old["id"]["S"]
                self._went(view, message_id, is_recorded=message_id in replied)

    def _came(self, view: View, message_id: str, ticket: str, news: News) -> None:
        mark = (view.life, message_id)
        if view.is_purged:
            # Its ids are forgotten, and what is late goes with the rest.
            self._tickets.setdefault(mark, ticket)
            return
        now_us = news.write.at_us
        is_another = self._tickets.get(mark, ticket) != ticket
        if is_another and now_us - self._came_us.get(mark, now_us) > A_DAY_US:
            # So long an id is remembered; after that it is another message.
            self._tickets.pop(mark, None)
            self._recorded.pop(mark, None)
            self._consumed.discard(mark)
        if mark not in self._tickets:
            self._came_us[mark] = now_us
        if mark in self._consumed:
            # A commit gives back what a race's loser had taken: to its old place.
            self._consumed.discard(mark)
        if self._tickets.setdefault(mark, ticket) != ticket:
            raise self.breach(
                f"{message_id} was accepted by {view.workflow_id} as {self._tickets[mark]} and as {ticket}"
            )

    def _recorded_in(self, view: View, entry: Entry, key: bytes) -> None:
        message_id = message_of(entry)
        if message_id is None:
            return
        mark = (view.life, message_id)
        known = self._recorded.get(mark)
        if known is None:
            self._recorded[mark] = key
            self._check_order(view, message_id)
        elif known != key:
            raise self.breach(f"{message_id} was taken twice by {view.workflow_id}, now at {view.path(entry)}")

    def _forgotten(self, view: View, entry: Entry, key: bytes) -> None:
        message_id = message_of(entry)
        if message_id is None or self._recorded.get((view.life, message_id)) != key:
            return
        # Pruned with its iteration it stays consumed; back in the inbox it may be taken again.
        is_back = any(item["id"]["S"] == message_id for item in view.messages().values())
        if not is_back and view.why_gone(entry) == "lost" and not is_answered(entry):
            raise self.breach(f"{message_id} went with the branch of {view.workflow_id} that had taken it")
        if is_back:
            del self._recorded[view.life, message_id]
            sent = self.world.ledger.sent.get((view.life, message_id))
            taken = [] if sent is None else self._latest.get((view.life, sent.sender, sent.name), [])
            if sent is not None and sent.index in taken:
                taken.remove(sent.index)

    def _check_order(self, view: View, message_id: str) -> None:
        sent = self.world.ledger.sent.get((view.life, message_id))
        if sent is None:
            return
        taken = self._latest.setdefault((view.life, sent.sender, sent.name), [])
        if any(index > sent.index for index in taken):
            raise self.breach(f"{message_id} was taken by {view.workflow_id} after a later one of its sender")
        taken.append(sent.index)

    def _went(self, view: View, message_id: str, *, is_recorded: bool) -> None:
        mark = (view.life, message_id)
        if mark not in self._recorded and not is_recorded:
            raise self.breach(f"{message_id} left the inbox of {view.workflow_id}, and history does not have it")
        if mark in self._consumed:
            raise self.breach(f"{message_id} left the inbox of {view.workflow_id} twice")
        self._consumed.add(mark)

    def acknowledged(self, view: View, message_id: str) -> None:
        """What is acknowledged is there, or was."""
        if (view.life, message_id) not in self._tickets:
            raise self.breach(f"{message_id} was acknowledged, and never was in the inbox of {view.workflow_id}")

    def ended(self) -> None:
        """Nothing is both taken and still there, or neither."""
        for mark, sent in self.world.ledger.sent.items():
            view, message_id = self.world.lives[sent.life], mark[1]
            if view.is_purged:
                continue
            is_there = any(item["id"]["S"] == message_id for item in view.messages().values())
            if sent.is_acknowledged and not is_there and mark not in self._consumed:
                raise self.breach(f"{message_id} of {sent.life} is lost")
            if is_there and mark in self._recorded and view.state == "completed":
                raise self.breach(f"{message_id} was taken by {sent.life}, and is still in its inbox")


def _was_finished(view: View, news: News, entry: Entry) -> bool:
    """Whether an entry lay in an iteration that was over: pruned just before its branch lost, it stays consumed."""
    for depth, segment in enumerate(entry.location):
        if not isinstance(segment, LoopIteration):
            continue
        key = keys.entry_key(entry.location[:depth])
        value = news.removed.get(key)
        loop = view.entries().get(key) if value is None else view.entry(key, value)
        if loop is not None and isinstance(loop.kind, LoopEntry) and segment.iteration < loop.kind.iteration:
            return not any(item["id"]["S"] == message_of(entry) for item in view.messages().values())
    return False


class DueWhenReady(Law):
    """4: whoever can go on is in the index ``due``."""

    number = 4

    def wrote(self, view: View, news: News) -> None:
        """Look at HEAD, INBOX, the waits in history and the inbox after every write."""
        head = news.head
        if head is None or view.has_ended:
            return
        due_at, inbox_due_at = integer(head, "due_at"), integer(view.inbox, "due_at")
        where = f"{view.workflow_id} ({view.state})"
        if "owner" in head:
            until = integer(head, "lease_until")
            if due_at is None or until is None or due_at > until:
                raise self.breach(f"{where} is held until {until}, and due at {due_at}")
            return
        waiting = head.get("waiting")
        if due_at is None and waiting is None and "waits_seq" not in head:
            raise self.breach(f"{where} waits for nothing, and is not due")
        for alarm in (integer(head, "wake_at"), self._earliest_deadline(view)):
            if alarm is not None and (due_at is None or due_at > max(alarm, self.world.now_ms + SOON_MS)):
                raise self.breach(f"{where} has an alarm at {alarm}, and is due at {due_at}")
        if waiting is not None:
            self._check_wanted(view, [name["S"] for name in waiting["L"]], [due_at, inbox_due_at])

    def _earliest_deadline(self, view: View) -> int | None:
        deadlines = [
            entry.kind.deadline
            for entry in view.entries().values()
            if isinstance(entry.kind, SleepEntry) and entry.kind.state is SleepState.PENDING
        ]
        return min(deadlines, default=None)

    def _check_wanted(self, view: View, names: list[str], due: list[int | None]) -> None:
        soon = self.world.now_ms + SOON_MS
        if any(at_ms is not None and at_ms <= soon for at_ms in due):
            return
        held = {message_of(entry) for entry in view.entries().values()}
        for ticket, item in view.messages().items():
            is_wanted = not names or item["name"]["S"] in names
            if not is_wanted or item["id"]["S"] in held:
                continue
            sent = self.world.ledger.sent.get((view.life, item["id"]["S"]))
            given_us = view.ticket_us.get(ticket, 0)
            if (sent is None or not sent.is_acknowledged) and self.world.timeline.now_us - given_us > SLOW_SENDER_US:
                continue
            raise self.breach(f"{item['id']['S']} waits for {view.workflow_id}, which is due at {due}")

    def acknowledged(self, view: View, message_id: str) -> None:  # noqa: ARG002 - every wanted one is looked at
        """From here on it must be looked at."""
        waiting = (view.head or {}).get("waiting")
        if view.has_ended or waiting is None or "owner" in (view.head or {}):
            return
        names = [name["S"] for name in waiting["L"]]
        self._check_wanted(view, names, [integer(view.head, "due_at"), integer(view.inbox, "due_at")])


class EndsAsItWould(Law):
    """8: whatever happened, a workflow ends as it would have."""

    number = 8

    def wrote(self, view: View, news: News) -> None:
        """Whoever is taken for stalled must have died often enough."""
        if not news.is_commit or view.state != "failed":
            return
        error = view.stored_error() or {}
        if error.get("name") == "StalledError" and view.deaths_max < DEATHS_MAX:
            raise self.breach(f"{view.workflow_id} is said to have stalled after {view.deaths_max} deaths")

    def ended(self) -> None:
        """Compare each workflow with what its program comes to."""
        for story in self.world.stories.values():
            lives = [view for view in self.world.lives.values() if view.workflow_id == story.workflow_id]
            if not lives:
                raise self.breach(f"{story.workflow_id} was never started")
            for view in lives:
                self._check(view, story)

    def _check(self, view: View, story: Story) -> None:
        name = view.life
        expected = story.expected
        if view.is_purged and (view.stored_error() or {}).get("name") == "StalledError":
            return
        if name in self.world.ledger.cancelled and view.state == "cancelled":
            self._check_undone(view, story)
            return
        if expected.is_failing:
            error = view.stored_error() or {}
            if view.state != "failed" or error.get("name") != FAILURE:
                raise self.breach(f"{name} is {view.state} with {error}, and should have failed with {FAILURE}")
            undone = self.world.ledger.undo_order.get(name, [])
            if set(undone) != set(expected.undone):
                raise self.breach(f"{name} undid {undone}, and should have undone {expected.undone}")
            return
        if view.state != "completed":
            waiting = string(view.head, "owner") or (view.head or {}).get("waiting")
            raise self.breach(f"{name} is {view.state} ({waiting}, {view.stored_error()}), and should have completed")
        if name in self.world.ledger.undoing:
            raise self.breach(f"{name} was to be undone, and has completed")
        output = values.decode(view.pairs[keys.OUTPUT_KEY])
        if output != ["given", expected.output]:
            raise self.breach(f"{name} came to {output}, and should have come to {expected.output}")

    def _check_undone(self, view: View, story: Story) -> None:
        """What was cancelled and undone has nothing left of what it could undo."""
        if view.life not in self.world.ledger.undoing:
            return
        for entry in view.entries().values():
            metadata = view.metadata(entry.id)
            if metadata is None or metadata.status is not EntryStatus.COMPLETED:
                continue
            if view.path(entry) in story.expected.undone and metadata.rollback_completed_at is None:
                raise self.breach(f"{view.path(entry)} of {story.workflow_id} was not undone")
