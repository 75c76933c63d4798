"""The law of schedules that obey: 20, none occurs while it is paused or once it is deleted; overlaps are kept to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.durations import to_datetime
from engine.schedules.identity import run_id
from tests.simulation.schedule_books import ScheduleLaw
from tests.simulation.timetables import occurrences

if TYPE_CHECKING:
    from tests.simulation.http import HttpAnswer, HttpCall
    from tests.simulation.schedule_books import Book, Run, State, Told

WAITING_MAX = 100


class SchedulesObey(ScheduleLaw):
    """20: a schedule begins nothing while it is paused or once it is deleted, and runs overlap as it says."""

    number = 20

    def began(self, book: Book, run: Run) -> None:
        """Whether this one may begin now, beside what is under way."""
        what = run.view.life
        if book.view.has_ended:
            raise self.breach(f"{what} was begun, and its schedule is {book.view.state}")
        if run.is_regular:
            if book.is_paused():
                raise self.breach(f"{what} was begun, and its schedule is paused")
            if any(since_ms < run.at_ms < until_ms for since_ms, until_ms in self._pauses(book)):
                raise self.breach(f"{what} was begun, for a time when its schedule was paused")
            if any(one.is_regular and one.at_ms > run.at_ms for one in book.runs):
                raise self.breach(f"{what} was begun after a later one")
        beside = [one.view.life for one in book.runs if one.is_watched and not one.view.has_ended]
        if run.is_watched and beside and not run.is_triggered:
            raise self.breach(f"{what} was begun beside {beside}")

    def _pauses(self, book: Book) -> list[tuple[int, int]]:
        """When it was surely paused: clocks differ, so that it may have gone on a little earlier than it seems."""
        found = []
        since_ms: int | None = None
        for order in book.orders():
            if order.command == "pause" and since_ms is None:
                since_ms = order.at_ms
            elif order.command == "resume" and since_ms is not None:
                found.append((since_ms + self.world.weather.skew_ms, order.at_ms - 2 * self.world.weather.skew_ms))
                since_ms = None
        return found

    def turned(self, book: Book, before: State, after: State, told: list[Told]) -> None:
        """What was left out had a run of the schedule in its way; of those that wait the oldest is first."""
        gone = set(before["waiting"]) - set(after["waiting"])
        passed_over = [at_ms for at_ms in after["waiting"] if gone and at_ms < max(gone)]
        if passed_over:
            raise self.breach(f"{book.asked.name} has {to_datetime(max(gone))} wait no more, and earlier ones do")
        overlap = book.asked.body["overlap"]
        skipped = after["counts"]["skipped"] - before["counts"]["skipped"]
        if not skipped:
            return
        if overlap == "allow" or (overlap == "queue" and len(after["waiting"]) < WAITING_MAX):
            raise self.breach(f"{book.asked.name} has left out {skipped}, and {overlap}s overlaps")
        if before["is_paused"] or any(order.command in ("resume", "update") for order in told):
            return
        due = occurrences(before["spec"]["timing"], before["after_ms"], after["after_ms"])
        # The oldest may have been too late for anything.
        left = [at_ms for at_ms in due if run_id(book.asked.name, at_ms) not in self.world.views][-skipped:]
        for at_ms in left:
            if not any(run.is_watched and self._is_under_way(run, at_ms) for run in book.runs):
                raise self.breach(f"{book.asked.name} has left out {to_datetime(at_ms)}, and nothing was in its way")

    def _is_under_way(self, run: Run, at_ms: int) -> bool:
        ended_us = run.view.ended_us
        return ended_us is None or self.world.at_ms(ended_us) >= at_ms - 2 * self.world.weather.skew_ms

    def answered(self, call: HttpCall, answer: HttpAnswer) -> None:
        """What is said to be deleted has ended."""
        if call.method == "DELETE" and call.path.startswith("/schedules/") and answer.status in (200, 202):
            view = self.world.lives[call.life]
            if not view.has_ended:
                raise self.breach(f"{call.life} is said to be deleted, and is {view.state}")
