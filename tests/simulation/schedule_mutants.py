"""Mutants of the laws of schedules: 19 and 20."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from engine.durations import to_datetime
from engine.schedules import commands, deciding, limits, workflow
from engine.schedules.deciding import Turn
from engine.schedules.identity import run_id
from engine.schedules.record import Overlap, Schedule, Spec
from handlers import operations
from handlers.calls import Answer
from tests.simulation.mutant import Mutant

if TYPE_CHECKING:
    from tests.simulation.mutant import Patch

# --- 19: occurrences -------------------------------------------------------------------------------------------------


def _one_is_lost() -> list[Patch]:
    meet = Turn._meet

    def mutant(self: Turn, at_ms: int) -> None:
        if at_ms // 1000 % 3:
            meet(self, at_ms)

    return [(Turn, "_meet", mutant)]


def _begins_late() -> list[Patch]:
    begun = vars(Schedule)["begun"].__func__

    def mutant(kind: type[Schedule], spec: Spec, at_ms: int) -> Schedule:
        made: Schedule = begun(kind, spec, at_ms)
        return replace(made, after_ms=made.after_ms + 30_000)

    return [(Schedule, "begun", classmethod(mutant))]


def _too_early() -> list[Patch]:
    decide = Turn.decide

    def mutant(self: Turn) -> None:
        self._now_ms += 2000
        decide(self)

    return [(workflow, "to_datetime", lambda at_ms: to_datetime(at_ms - 2000)), (Turn, "decide", mutant)]


def _overslept() -> list[Patch]:
    return [(workflow, "to_datetime", lambda at_ms: to_datetime(at_ms + 200_000))]


def _named_after_the_moment() -> list[Patch]:
    return [(deciding, "run_id", lambda name, at_ms: run_id(name, at_ms + 1000))]


def _late_is_missed() -> list[Patch]:
    return [(limits, "ON_TIME_S", -5)]


def _not_triggered() -> list[Patch]:
    return [(commands, "_trigger", lambda *_: None)]


def _triggered_twice() -> list[Patch]:
    trigger = commands._trigger

    def mutant(turn: Turn, now_ms: int) -> None:
        trigger(turn, now_ms)
        trigger(turn, now_ms)

    return [(commands, "_trigger", mutant)]


def _last_is_not_made_up_for() -> list[Patch]:
    next_of = deciding.next_of
    return [(deciding, "next_of", lambda now, one: next_of(now, replace(one, until_ms=one.until_ms - 90_000_000)))]


def _by_local_time_alone() -> list[Patch]:
    return [(deciding, "next_of", lambda now, one: _naive(now, one.after_ms, one.until_ms))]


def _naive(schedule: Schedule, after_ms: int, until_ms: int) -> int | None:
    """A day has 24 hours."""
    day_ms = 86_400_000
    found = schedule.spec.timing.next_after(after_ms)
    if found is not None and found > after_ms + day_ms:
        found = after_ms + day_ms
    return None if found is None or found > until_ms else found


# --- 20: obeying -----------------------------------------------------------------------------------------------------


def _pause_is_not_minded() -> list[Patch]:
    return [(Schedule, "next_at", lambda self: self.spec.timing.next_after(self.after_ms))]


def _pause_is_made_up_for() -> list[Patch]:
    return [(commands, "_resumed_after", lambda schedule, _now_ms: schedule.after_ms)]


def _side_by_side() -> list[Patch]:
    return [(Turn, "_meet", lambda self, at_ms: self.start(at_ms, is_watched=True))]


def _nobody_waits() -> list[Patch]:
    return [(deciding, "is_waiting_free", lambda schedule: bool(schedule.waiting) and not schedule.is_paused)]


def _left_out_for_nothing() -> list[Patch]:
    meet = Turn._meet

    def mutant(self: Turn, at_ms: int) -> None:
        if self.schedule.spec.overlap is Overlap.SKIP and at_ms // 1000 % 3 == 0:
            self._leave_out(at_ms, "for nothing")
        else:
            meet(self, at_ms)

    return [(Turn, "_meet", mutant)]


def _ends_are_heard_of_late() -> list[Patch]:
    async def nobody(_ctx: Any, _state: Schedule) -> list[str]:
        return []

    return [(workflow, "_ended", nobody)]


def _newest_first() -> list[Patch]:
    decide = Turn.decide

    def mutant(self: Turn) -> None:
        self.schedule = replace(self.schedule, waiting=sorted(self.schedule.waiting, reverse=True))
        decide(self)

    return [(Turn, "decide", mutant)]


def _said_to_be_deleted() -> list[Patch]:
    async def cancel(*_: Any) -> None:
        return None

    async def purge(*_: Any) -> Answer:
        return Answer(value={"is_gone": False})

    return [(operations, "cancel", cancel), (operations, "purge", purge)]


SCHEDULE_MUTANTS = [
    Mutant(name="an occurrence is lost", law=19, patches=_one_is_lost),
    Mutant(name="a schedule minds nothing at first", law=19, patches=_begins_late),
    Mutant(name="an occurrence comes too early", law=19, patches=_too_early),
    Mutant(name="a schedule oversleeps", law=19, patches=_overslept),
    Mutant(name="a run is not named after its occurrence", law=19, patches=_named_after_the_moment),
    Mutant(name="what is late is missed", law=19, patches=_late_is_missed),
    Mutant(name="a trigger is forgotten", law=19, patches=_not_triggered),
    Mutant(name="a trigger counts twice", law=19, patches=_triggered_twice),
    Mutant(name="a backfill ends too soon", law=19, patches=_last_is_not_made_up_for),
    Mutant(name="a day has 24 hours", law=19, patches=_by_local_time_alone),
    Mutant(name="a pause is not minded", law=20, patches=_pause_is_not_minded),
    Mutant(name="what a pause left out is made up for", law=20, patches=_pause_is_made_up_for),
    Mutant(name="runs overlap that may not", law=20, patches=_side_by_side),
    Mutant(name="what waits begins at once", law=20, patches=_nobody_waits),
    Mutant(name="an occurrence is left out for nothing", law=20, patches=_left_out_for_nothing),
    Mutant(name="an end that is heard of late is none", law=20, patches=_ends_are_heard_of_late),
    Mutant(name="of those that wait the newest is first", law=20, patches=_newest_first),
    Mutant(name="a schedule is only said to be deleted", law=20, patches=_said_to_be_deleted),
]
