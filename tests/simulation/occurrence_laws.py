"""The law of occurrences: 19, each is begun once, at its time, or left out for a reason; what is asked for is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.durations import to_datetime
from engine.schedules.identity import run_id
from tests.simulation.going_on_laws import SOON_MS
from tests.simulation.schedule_books import ScheduleLaw
from tests.simulation.timetables import next_occurrence, occurrences
from tests.simulation.view import integer

if TYPE_CHECKING:
    from tests.simulation.schedule_books import Book, Run, State, Told

ON_TIME_S = 10
"""What is no later than that is never missed."""

CATCH_UPS_S = {0: 0, "30s": 30, "1d": 86_400, None: 86_400}


class OccurrencesOnce(ScheduleLaw):
    """19: an occurrence has one run, no earlier than its time; none is lost that is promised, and no order either."""

    number = 19

    def began(self, book: Book, run: Run) -> None:
        """A run is for an occurrence of its schedule, whose time has come, or for what somebody has asked for."""
        what = run.view.life
        if run.view.number:
            raise self.breach(f"{what} was begun again")
        if run.at_ms > self.world.now_ms + self.world.weather.skew_ms:
            raise self.breach(f"{what} was begun at {to_datetime(self.world.now_ms)}")
        if run.is_triggered:
            asked = sum(order.command == "trigger" for order in book.orders())
            if sum(one.is_triggered for one in book.runs) >= asked:
                raise self.breach(f"{what} was begun, and asked for {asked} times in all")
        elif run.is_backfill:
            if not any(run.at_ms in self._window(book, order) for order in book.orders()):
                raise self.breach(f"{what} was begun, which nobody has asked for")
        elif not any(run.at_ms in occurrences(timing, run.at_ms - 1, run.at_ms) for timing in self._timings(book)):
            raise self.breach(f"{what} was begun, where no occurrence is")

    def _timings(self, book: Book) -> list[Any]:
        """The forms that it may occur by: what it was, and what an update makes of it that has left the inbox."""
        anchor_ms = book.timings[0].get("anchor_ms")
        updates = [order.body["timing"] for order in book.orders() if order.command == "update"]
        return [*book.timings, *({**update, "anchor_ms": anchor_ms} for update in updates)]

    def _window(self, book: Book, order: Told) -> list[int]:
        if order.command != "backfill":
            return []
        first_ms, last_ms = order.body["from_ms"] - 1, order.body["until_ms"]
        return [at_ms for timing in self._timings(book) for at_ms in occurrences(timing, first_ms, last_ms)]

    def begins(self, book: Book, state: State) -> None:
        """It minds every occurrence from its creation on."""
        created_ms = integer(book.view.head, "created_at") or 0
        lost = occurrences(state["spec"]["timing"], created_ms, state["after_ms"])
        if lost:
            raise self.breach(f"{book.asked.name} was created at {_told([created_ms])}, and has lost {_told(lost)}")

    def turned(self, book: Book, before: State, after: State, told: list[Told]) -> None:
        """Account for every occurrence that the schedule has gone past, and for all that it was told."""
        name = book.asked.name
        is_changed = before["is_paused"] or any(order.command in ("resume", "update") for order in told)
        due = occurrences(before["spec"]["timing"], before["after_ms"], after["after_ms"])
        left = [at_ms for at_ms in due if not self._has_begun(book, at_ms) and at_ms not in after["waiting"]]
        counts = {fate: after["counts"][fate] - before["counts"][fate] for fate in after["counts"]}
        if not is_changed:
            if len(left) != counts["skipped"] + counts["missed"] + counts["failed"]:
                raise self.breach(f"{name} has gone past {_told(left)}, of which it counts {counts}")
            late_ms = self.world.now_ms + self.world.weather.skew_ms - self._catch_up_ms(book)
            missed = [at_ms for at_ms in left if at_ms < late_ms and before["spec"]["timing"]["type"] != "at"]
            if counts["missed"] > len(missed):
                raise self.breach(f"{name} counts {counts['missed']} missed, and only {_told(missed)} are so late")
        if counts["failed"]:
            raise self.breach(f"{name} could not begin a run: {after['problem']}")
        for at_ms in set(before["waiting"]) - set(after["waiting"]):
            if not self._has_begun(book, at_ms):
                raise self.breach(f"{name} has lost {_told([at_ms])}, which had to wait")
        self._check_orders(book, before, after, told)

    def _has_begun(self, book: Book, at_ms: int) -> bool:
        return run_id(book.asked.name, at_ms) in self.world.views

    def _catch_up_ms(self, book: Book) -> int:
        return max(ON_TIME_S, CATCH_UPS_S[book.asked.body.get("catch_up")]) * 1000

    def _check_orders(self, book: Book, before: State, after: State, told: list[Told]) -> None:
        name = book.asked.name
        # What has left the inbox in the same write may be for the next turn.
        triggers = [order for order in book.orders() if order.command == "trigger" and order.at_ms < self.world.now_ms]
        begun = sum(run.is_triggered for run in book.runs)
        if begun < len(triggers):
            raise self.breach(f"{name} was triggered {len(triggers)} times, and has begun {begun} runs for that")
        left = {backfill["until_ms"]: backfill["after_ms"] for backfill in after["backfills"]}
        asked = [(each["timing"], each["after_ms"], each["until_ms"]) for each in before["backfills"]]
        # Which form holds for one that was told together with an update is left open.
        if before["spec"]["timing"] == after["spec"]["timing"]:
            asked += [
                (before["spec"]["timing"], order.body["from_ms"] - 1, order.body["until_ms"])
                for order in told
                if order.command == "backfill" and order.at_ms < self.world.now_ms
            ]
        for timing, after_ms, until_ms in asked:
            done = occurrences(timing, after_ms, left.get(until_ms, until_ms))
            lost = [at_ms for at_ms in done if not self._has_begun(book, at_ms)]
            if lost:
                raise self.breach(f"{name} has not made up for {_told(lost)}")
        if after["problem"] is not None:
            raise self.breach(f"{name} has not done what it was told: {after['problem']}")

    def rests(self, book: Book, state: State) -> None:
        """It is looked at when its next occurrence comes."""
        if state["is_paused"] or book.is_paused():
            return
        next_ms = next_occurrence(state["spec"]["timing"], state["after_ms"])
        due_at = integer(book.view.head, "due_at")
        if next_ms is not None and (due_at is None or due_at > max(next_ms, self.world.now_ms + SOON_MS)):
            raise self.breach(f"{book.view.life} occurs at {_told([next_ms])}, and is due at {due_at}")

    def ended(self) -> None:
        """None has failed, nor ended before its time."""
        for book in self._books.values():
            view, state = book.view, book.state
            if view.state == "failed":
                raise self.breach(f"{view.life} has failed: {view.stored_error()}")
            if view.state == "completed" and state is not None:
                next_ms = next_occurrence(state["spec"]["timing"], state["after_ms"])
                if next_ms is not None:
                    raise self.breach(f"{view.life} has ended, and occurs at {_told([next_ms])}")


def _told(found: list[int]) -> str:
    return ", ".join(str(to_datetime(at_ms)) for at_ms in found) or "nothing"
