"""What is known of schedules from outside: how far they are, what they have been told, which runs they have begun."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from engine import keys, values
from engine.entry import LoopEntry
from engine.schedules.identity import SCHEDULE_TYPE
from tests.simulation.laws import Law
from tests.simulation.timetables import PAST_MS

if TYPE_CHECKING:
    from tests.simulation.expressions import Item
    from tests.simulation.timetables import Asked
    from tests.simulation.view import News, View
    from tests.simulation.world import World

State = dict[str, Any]
"""How far a schedule is, as its loop has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run that a schedule began: for which occurrence, and whether those after it wait for its end."""

    view: View
    at_ms: int
    is_watched: bool

    @property
    def is_triggered(self) -> bool:
        """Whether it was asked for by hand: such a run's instant lies between two seconds."""
        return self.at_ms % 1000 != 0

    @property
    def is_backfill(self) -> bool:
        """Whether it makes up for a time before all schedules."""
        return self.at_ms < PAST_MS

    @property
    def is_regular(self) -> bool:
        """Whether its time has just come."""
        return not self.is_triggered and not self.is_backfill


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An order that has left the inbox, when (milliseconds), and the orders before it."""

    ticket: int
    command: str
    body: Any
    at_ms: int


@dataclass(slots=True, kw_only=True)
class Book:
    """What is known of one schedule.

    Attributes:
        asked: what its owner wants.
        view: its workflow.
        state: how far it was at its last commit that said so.
        told: the orders that have left its inbox, by ticket.
        obeyed: the tickets of those that it had been told when its state was written last.
        timings: when it has ever been said to occur.
        runs: what it has begun.
    """

    asked: Asked
    view: View
    state: State | None = None
    told: dict[int, Told] = field(default_factory=dict)
    obeyed: set[int] = field(default_factory=set)
    timings: list[dict[str, Any]] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    def orders(self) -> list[Told]:
        """What it has been told, in order."""
        return [self.told[ticket] for ticket in sorted(self.told)]

    def is_paused(self) -> bool:
        """Whether it was told to pause, and not to go on."""
        states = [order.command == "pause" for order in self.orders() if order.command in ("pause", "resume")]
        return bool(states) and states[-1]


class ScheduleLaw(Law):
    """A law of schedules: it hears of turns and of runs, and may look at the books."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._books: dict[str, Book] = {}

    def is_at_stake(self) -> bool:
        """Somebody has a schedule."""
        return bool(self.world.plans)

    def begins(self, book: Book, state: State) -> None:
        """A schedule has a state for the first time."""

    def turned(self, book: Book, before: State, after: State, told: list[Told]) -> None:
        """A schedule has come from one state to another, and had been told this meanwhile."""

    def began(self, book: Book, run: Run) -> None:
        """A schedule has begun a run, which is not in its book yet."""

    def rests(self, book: Book, state: State) -> None:
        """Nobody is at work on a schedule that has not ended."""

    def wrote(self, view: View, news: News) -> None:
        """Keep the books."""
        if not self.is_at_stake():
            return
        if view.type == SCHEDULE_TYPE:
            self._schedule_wrote(view, news)
        elif news.head_before is None and news.head is not None and "schedule" in _tags(news.head):
            self._run_began(view)

    def _book(self, name: str) -> Book | None:
        if name not in self._books:
            asked = next((each for each in self.world.plans if each.name == name), None)
            view = self.world.views.get(f"schedule:{name}")
            if asked is None or view is None:
                return None
            self._books[name] = Book(asked=asked, view=view)
        return self._books[name]

    def _run_began(self, view: View) -> None:
        name, _, text = view.workflow_id.partition("/")
        book = self._book(name)
        if book is None or _tags(view.head) != {"schedule": name, "scheduled_at": text}:
            raise self.breach(f"{view.life} was begun with the tags {_tags(view.head)}")
        at_ms = round(datetime.fromisoformat(text).timestamp() * 1000)
        run = Run(view=view, at_ms=at_ms, is_watched=self._overlap(book, at_ms) != "allow")
        self.began(book, run)
        book.runs.append(run)

    @staticmethod
    def _overlap(book: Book, at_ms: int) -> str:
        own = str(book.asked.body["overlap"])
        given = [order.value.get("overlap") for order in book.asked.orders if order.command == "backfill"]
        return next(filter(None, given), own) if at_ms < PAST_MS else own

    def _schedule_wrote(self, view: View, news: News) -> None:
        book = self._book(view.workflow_id.partition(":")[2])
        if book is None or view.is_purged:
            return
        told_before = set(book.told)
        self._hear(book, news)
        for key, (_, value) in news.puts.items():
            if not key.startswith(keys.HISTORY_PREFIX):
                continue
            entry = view.entry(key, value)
            if isinstance(entry.kind, LoopEntry) and len(entry.location) == 1:
                self._turn(book, values.decode(entry.kind.state), told_before)
        is_free = news.head is not None and "owner" not in news.head and not view.has_ended
        if is_free and book.state is not None:
            self.rests(book, book.state)

    def _hear(self, book: Book, news: News) -> None:
        for change in news.changes:
            if not change.sk.startswith("MSG#"):
                continue
            ticket = int(change.sk.removeprefix("MSG#"))
            if change.new is not None:
                # A branch that lost has given it back.
                book.told.pop(ticket, None)
            elif change.old is not None:
                body = values.decode(change.old["body"]["B"])
                command = change.old["name"]["S"]
                book.told[ticket] = Told(ticket=ticket, command=command, body=body, at_ms=self.world.now_ms)

    def _turn(self, book: Book, after: State, told_before: set[int]) -> None:
        before, book.state = book.state, after
        if after["spec"]["timing"] not in book.timings:
            book.timings.append(after["spec"]["timing"])
        told = [order for order in book.orders() if order.ticket not in book.obeyed]
        if before is None:
            self.begins(book, after)
        elif before != after:
            self.turned(book, before, after, told)
            # What leaves the inbox with this write may be for the next turn.
            book.obeyed |= told_before


def _tags(head: Item | None) -> dict[str, str]:
    return {name: value["S"] for name, value in (head or {}).get("tags", {"M": {}})["M"].items()}
