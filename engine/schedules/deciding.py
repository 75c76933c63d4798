"""What a schedule starts, leaves out and puts off at an instant: decided here, done by its workflow."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from engine.schedules import limits
from engine.schedules.identity import run_id
from engine.schedules.record import Ahead, Backfill, Fate, Occurrence, Overlap, Schedule
from engine.schedules.timing import At


class Start(Struct, frozen=True, kw_only=True):
    """A run to be started: for which occurrence, under which id."""

    at_ms: int
    run_id: str


class Turn:
    """One look at a schedule: what it was, what it becomes, what is to be started.

    Attributes:
        schedule: what it becomes.
        starts: what is to be started, in order.
    """

    def __init__(self, schedule: Schedule, name: str, now_ms: int) -> None:
        self.schedule = replace(schedule, decided_ms=now_ms)
        self.starts: list[Start] = []
        self._name = name
        self._now_ms = now_ms

    def decide(self) -> None:
        """Decide on all that is due, up to the bounds of one turn."""
        self._leave_missed()
        for _ in range(limits.OCCURRENCES_A_TURN):
            at_ms = self.schedule.next_at()
            if at_ms is None or at_ms > self._now_ms or self._is_full:
                break
            self.schedule = replace(self.schedule, after_ms=at_ms)
            self._meet(at_ms)
        if is_waiting_free(self.schedule) and not self._is_full:
            first, *rest = self.schedule.waiting
            self.schedule = replace(self.schedule, waiting=rest)
            self.start(first, is_watched=True)
        self._fill_back()

    def start(self, at_ms: int, *, is_watched: bool) -> None:
        """Have the run for ``at_ms`` started; one that is watched holds up those after it."""
        made = Start(at_ms=at_ms, run_id=run_id(self._name, at_ms))
        self.starts.append(made)
        if is_watched:
            self.schedule = replace(self.schedule, running=[*self.schedule.running, made.run_id])

    @property
    def _is_full(self) -> bool:
        return len(self.starts) >= limits.STARTS_A_TURN

    def _meet(self, at_ms: int) -> None:
        """Decide on one occurrence that is due."""
        schedule = self.schedule
        overlap = schedule.spec.overlap
        is_held_up = bool(schedule.running or schedule.waiting)
        if overlap is Overlap.ALLOW or not is_held_up:
            self.start(at_ms, is_watched=overlap is not Overlap.ALLOW)
        elif overlap is Overlap.SKIP:
            self._leave_out(at_ms, f"{(schedule.running or ['the one before'])[0]} is under way")
        elif len(schedule.waiting) < limits.WAITING_MAX:
            self.schedule = replace(schedule, waiting=[*schedule.waiting, at_ms])
        else:
            self._leave_out(at_ms, f"{limits.WAITING_MAX} occurrences wait already")

    def _leave_out(self, at_ms: int, reason: str) -> None:
        occurrence = Occurrence(at_ms=at_ms, decided_ms=self._now_ms, fate=Fate.SKIPPED, reason=reason)
        self.schedule = self.schedule.with_fate(occurrence)

    def _leave_missed(self) -> None:
        """Leave out what is later than may be made up for; a single time is always made up for."""
        spec = self.schedule.spec
        oldest_ms = self._now_ms - max(spec.catch_up_s, limits.ON_TIME_S) * 1000
        missed: list[int] = []
        at_ms = None if isinstance(spec.timing, At) else self.schedule.next_at()
        while at_ms is not None and at_ms < oldest_ms and len(missed) < limits.MISSED_COUNTED_MAX:
            missed.append(at_ms)
            at_ms = spec.timing.next_after(at_ms)
        if missed:
            more = " and more" if len(missed) == limits.MISSED_COUNTED_MAX else ""
            reason = f"{len(missed)}{more} from here on were more than {spec.catch_up_s} s late"
            occurrence = Occurrence(at_ms=missed[0], decided_ms=self._now_ms, fate=Fate.MISSED, reason=reason)
            self.schedule = replace(self.schedule, after_ms=oldest_ms - 1).with_fate(occurrence, len(missed))

    def _fill_back(self) -> None:
        while self.schedule.backfills and not self._is_full:
            first, *rest = self.schedule.backfills
            at_ms = next_of(self.schedule, first)
            if at_ms is None:
                self.schedule = replace(self.schedule, backfills=rest)
            elif is_backfill_free(self.schedule):
                self.schedule = replace(self.schedule, backfills=[replace(first, after_ms=at_ms), *rest])
                self.start(at_ms, is_watched=first.overlap is not Overlap.ALLOW)
            else:
                return


def next_of(schedule: Schedule, backfill: Backfill) -> int | None:
    """The next occurrence that ``backfill`` makes up for (milliseconds since the epoch), None where it is done."""
    at_ms = (backfill.timing or schedule.spec.timing).next_after(backfill.after_ms)
    return None if at_ms is None or at_ms > backfill.until_ms else at_ms


def is_waiting_free(schedule: Schedule) -> bool:
    """Whether an occurrence waits that need not."""
    return bool(schedule.waiting) and not schedule.running and not schedule.is_paused


def is_backfill_free(schedule: Schedule) -> bool:
    """Whether the first backfill can go on: beside everything, or when nothing else runs or is about to."""
    first = schedule.backfills[0]
    is_held_up = schedule.running or (schedule.waiting and not schedule.is_paused)
    return first.overlap is Overlap.ALLOW or not is_held_up


def look_ahead(schedule: Schedule) -> Ahead:
    """What the schedule does next."""
    next_ms = schedule.next_at()
    is_empty = not schedule.is_paused and not schedule.waiting and not schedule.backfills
    # More than the bounds of the last turn let through.
    is_due = next_ms is not None and next_ms <= schedule.decided_ms
    has_more = is_due or is_waiting_free(schedule) or (bool(schedule.backfills) and is_backfill_free(schedule))
    return Ahead(is_over=is_empty and next_ms is None, has_more=has_more, next_ms=next_ms)
