"""What a schedule takes no more of: runs started by hand that hold up those after them, and backfills."""

from __future__ import annotations

import pytest

from engine.schedules import limits
from engine.schedules.commands import Command, why_full
from engine.schedules.identity import schedule_id
from engine.schedules.record import Backfill, Overlap, Schedule, Spec
from engine.schedules.timing import Cron, Every
from tests.unit.schedules.world import REPORT, ScheduleWorld

YEARLY = Cron(expression="0 0 1 1 *")


async def test_triggers_beyond_the_bound_are_refused_and_told_of_until_runs_have_ended() -> None:
    world = ScheduleWorld("2026-03-01T00:00:00Z", work_s=3600)
    world.create(Spec(timing=YEARLY, type=REPORT))
    for _ in range(limits.RUNNING_MAX + 30):
        world.tell("trigger")
    await world.until("2026-03-01T00:01:00Z")
    assert len(world.started) == len(world.status.running) == limits.RUNNING_MAX
    assert world.status.counts.started == limits.RUNNING_MAX
    assert world.status.problem is not None
    assert world.status.problem.startswith("the message 'trigger' was not obeyed: 100 of its runs are under way")
    await world.until("2026-03-01T02:00:00Z")
    assert world.status.running == []
    world.tell("trigger")
    await world.until("2026-03-01T02:01:00Z")
    assert len(world.started) == limits.RUNNING_MAX + 1


async def test_runs_that_have_ended_are_not_counted_though_the_oldest_goes_on() -> None:
    world = ScheduleWorld("2026-03-01T00:00:00Z", work_s=86400)
    world.create(Spec(timing=YEARLY, type=REPORT))
    world.tell("trigger")
    await world.until("2026-03-01T00:01:00Z")
    oldest = world.status.running
    world.work_s = 3600
    for _ in range(limits.RUNNING_MAX - 1):
        world.tell("trigger")
    await world.until("2026-03-01T00:59:00Z")
    assert len(world.status.running) == limits.RUNNING_MAX
    await world.until("2026-03-01T01:02:00Z")
    assert world.status.running == oldest
    world.tell("trigger")
    await world.until("2026-03-01T01:03:00Z")
    assert (len(world.status.running), world.status.problem) == (2, None)


async def test_triggers_of_a_schedule_that_lets_runs_overlap_have_no_bound() -> None:
    world = ScheduleWorld("2026-03-01T00:00:00Z", work_s=3600)
    world.create(Spec(timing=YEARLY, type=REPORT, overlap=Overlap.ALLOW))
    for _ in range(limits.RUNNING_MAX + 5):
        world.tell("trigger")
    await world.until("2026-03-01T00:01:00Z")
    assert len(world.started) == limits.RUNNING_MAX + 5
    assert (world.status.running, world.status.problem) == ([], None)


@pytest.mark.parametrize("command", list(Command))
def test_only_what_adds_to_it_is_refused_by_a_schedule_that_is_full(command: Command) -> None:
    runs = [f"daily/{number}" for number in range(limits.RUNNING_MAX)]
    filling = [Backfill(after_ms=0, until_ms=1, overlap=Overlap.SKIP)] * limits.BACKFILLS_MAX
    spec = Spec(timing=Every(interval_s=60), type=REPORT)
    full = Schedule(spec=spec, after_ms=0, running=runs, backfills=filling)
    less = Schedule(spec=spec, after_ms=0, running=runs[1:], backfills=filling[1:])
    assert why_full(less, command) is None
    assert (why_full(full, command) is not None) == (command in {Command.TRIGGER, Command.BACKFILL})


def test_the_ids_of_a_full_list_are_a_small_part_of_an_item() -> None:
    longest = f"{schedule_id('n' * 100)}/2026-03-01T00:00:00.001Z"
    assert limits.RUNNING_MAX * len(longest) < 20_000
