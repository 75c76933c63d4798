"""The schedule as a workflow: one run for each occurrence, whatever happens."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from engine import bare, inspect, keys, values
from engine.entry import LoopEntry
from engine.errors import InvalidScheduleError, StoreUnavailableError
from engine.lifecycle import WorkflowState
from engine.ops import output
from engine.schedules import limits
from engine.schedules.identity import instant_text, run_id, schedule_id, scheduled_at
from engine.schedules.record import Fate, Overlap, Schedule, Spec
from engine.schedules.timing import At, Cron, Every, upcoming
from engine.schedules.zones import zone_of
from tests.unit.schedules.world import FAILING, REPORT, ScheduleWorld, ms

if TYPE_CHECKING:
    from datetime import tzinfo

    from engine.schedules.timing import Timing

BERLIN = Cron(expression="30 2 * * *", zone="Europe/Berlin")
MINUTELY = Cron(expression="* * * * *")


def spec(timing: Timing, **more: Any) -> Spec:
    return Spec(timing=timing, type=REPORT, **more)


def expected(timing: Timing, start: str, end: str) -> list[str]:
    return [instant_text(at) for at in upcoming(timing, ms(start), ms(end))]


# --- occurring ----------------------------------------------------------------------------------------------------


async def test_a_year_of_nights_has_one_run_each_across_the_changes_of_the_clock() -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z")
    world.create(spec(BERLIN))
    await world.until("2027-01-01T00:00:00Z")
    assert world.runs == expected(BERLIN, "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z")
    assert len(world.runs) == 365
    assert [at - ms(run) for run, at in ((each.removeprefix("daily/"), at) for each, at in world.started)] == [0] * 365
    assert world.status.counts.started == 365
    # However long it lives, its history stays short.
    assert len(world.world.drivers[schedule_id("daily")].dump()) < 100


async def test_an_interval_is_aligned_to_the_beginning_of_its_schedule() -> None:
    world = ScheduleWorld("2026-01-01T00:00:07.250Z")
    world.create(spec(Every(interval_s=900)))
    await world.until("2026-01-01T00:40:00Z")
    assert world.runs == ["2026-01-01T00:15:07Z", "2026-01-01T00:30:07Z"]


async def test_a_single_time_occurs_and_the_schedule_ends() -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z")
    world.create(spec(At(at_ms=ms("2028-02-29T12:00:00Z"))))
    await world.until("2030-01-01T00:00:00Z")
    assert world.runs == ["2028-02-29T12:00:00Z"]
    assert world.is_over
    assert world.status.counts.started == 1
    assert world.status.recent[0].run_id == "daily/2028-02-29T12:00:00Z"


async def test_a_single_time_that_passed_before_the_schedule_ran_is_made_up_for() -> None:
    world = ScheduleWorld("2026-01-05T00:00:00Z")
    world.create(spec(At(at_ms=ms("2026-01-01T00:00:00Z"))))
    await world.until("2026-01-05T00:00:01Z")
    assert world.runs == ["2026-01-01T00:00:00Z"]


async def test_a_run_knows_its_occurrence() -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z")
    world.create(spec(BERLIN, input=values.encode({"to": "Ada"}), tags={"team": "sales"}))
    await world.until("2026-01-02T00:00:00Z")
    [(workflow_id, _)] = world.started
    assert world.inputs == [{"to": "Ada"}]
    moment = scheduled_at(workflow_id)
    assert moment is not None
    assert moment.isoformat() == "2026-01-01T01:30:00+00:00"
    found = world.world.find(REPORT, {"schedule": "daily", "scheduled_at": "2026-01-01T01:30:00Z", "team": "sales"}, 5)
    assert found == []  # it has ended
    assert world.world.peek(workflow_id) is not None


@pytest.mark.parametrize(
    "workflow_id", ["daily", "daily/", "daily/x", "a/b/2026-01-01T00:00:00Z", "-x/2026-01-01T00:00:00Z"]
)
def test_other_workflows_are_no_occurrences(workflow_id: str) -> None:
    assert scheduled_at(workflow_id) is None


# --- crashes ------------------------------------------------------------------------------------------------------


async def test_a_crash_at_any_call_neither_loses_nor_doubles_an_occurrence() -> None:
    start, end = "2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z"
    calls = 0
    crash_at = 0

    def crash(_operation: str, _phase: str) -> None:
        nonlocal calls
        calls += 1
        if calls == crash_at:
            raise StoreUnavailableError("the process died")

    async def play() -> ScheduleWorld:
        nonlocal calls
        calls = 0
        world = ScheduleWorld(start, work_s=600)
        world.on_call = crash
        world.create(spec(BERLIN))
        await world.until(end)
        return world

    await play()
    total, wanted = calls, expected(BERLIN, start, end)
    assert total > 50
    for crash_at in range(1, total + 1):
        world = await play()
        # The step that tells of a run may be done again by a crash; the run itself is one workflow.
        assert sorted(set(world.runs)) == wanted, crash_at
        assert {each for each in world.world.drivers if each != schedule_id("daily")} == {
            f"daily/{at}" for at in wanted
        }
        assert world.status.counts.started == len(wanted), crash_at


# --- overlaps -----------------------------------------------------------------------------------------------------


async def test_skip_leaves_out_what_comes_while_a_run_is_under_way() -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z", work_s=150)
    world.create(spec(MINUTELY))
    await world.until("2026-01-01T00:08:30Z")
    assert world.runs == [f"2026-01-01T00:0{minute}:00Z" for minute in (1, 4, 7)]
    assert world.status.counts.skipped == 5
    skipped = [each for each in world.status.recent if each.fate is Fate.SKIPPED]
    assert skipped[-1].reason == "daily/2026-01-01T00:07:00Z is under way"


async def test_nothing_is_left_out_for_a_run_that_has_ended_before_the_schedule_hears_of_it() -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z", work_s=20)
    world.create(spec(MINUTELY))
    await world.until("2026-01-01T00:01:10Z")
    # The schedule is cut off: the run's end and the next occurrence find it together.
    await world.until("2026-01-01T00:02:10Z", without="schedule:daily")
    await world.until("2026-01-01T00:02:30Z")
    assert world.runs == ["2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"]
    assert world.status.counts.skipped == 0


async def test_nothing_is_left_out_for_a_run_that_ends_while_the_schedule_is_frozen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z", work_s=30)
    world.create(spec(MINUTELY))
    await world.until("2026-01-01T00:01:10Z")
    driver = world.world.drivers[schedule_id("daily")]

    async def frozen(commit: Any) -> None:
        monkeypatch.undo()
        await driver.commit(commit)
        world.clock.advance_to(ms("2026-01-01T00:02:05Z"))
        await world.world.run("daily/2026-01-01T00:01:00Z")

    monkeypatch.setattr(driver, "commit", frozen)
    world.tell("resume")
    await world.until("2026-01-01T00:02:30Z")
    assert world.runs == ["2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"]


async def test_a_look_that_takes_long_or_is_cut_short_does_not_end_the_schedule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z", work_s=150)
    world.create(spec(MINUTELY))
    has_ended = output.has_ended
    looks = 0

    async def slow(scope: Any, workflow_id: str) -> bool:
        nonlocal looks
        looks += 1
        if looks <= 6:
            scope.turn.stop()
        await asyncio.sleep(0)
        world.clock.advance(40)
        await asyncio.sleep(0)
        return await has_ended(scope, workflow_id)

    monkeypatch.setattr(output, "has_ended", slow)
    await world.until("2026-01-01T00:20:00Z")
    for _ in range(10):
        await world.world.run(schedule_id("daily"))
    assert looks > 6
    assert world.world.state(schedule_id("daily")) is WorkflowState.SLEEPING
    assert len(world.runs) > 1


async def test_queue_begins_each_when_the_one_before_has_ended() -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z", work_s=150)
    world.create(spec(MINUTELY, overlap=Overlap.QUEUE))
    await world.until("2026-01-01T00:08:00Z")
    assert world.started == [
        ("daily/2026-01-01T00:01:00Z", ms("2026-01-01T00:01:00Z")),
        ("daily/2026-01-01T00:02:00Z", ms("2026-01-01T00:03:30Z")),
        ("daily/2026-01-01T00:03:00Z", ms("2026-01-01T00:06:00Z")),
    ]
    assert [instant_text(at) for at in world.status.waiting] == [
        f"2026-01-01T00:0{each}:00Z" for each in (4, 5, 6, 7, 8)
    ]
    assert world.status.running == ["daily/2026-01-01T00:03:00Z"]


async def test_the_queue_is_bounded() -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z", work_s=86400)
    world.create(spec(MINUTELY, overlap=Overlap.QUEUE))
    await world.until("2026-01-01T02:00:30Z")
    assert len(world.status.waiting) == limits.WAITING_MAX
    assert world.status.counts.skipped == 120 - 1 - limits.WAITING_MAX
    assert world.status.recent[-1].reason == "100 occurrences wait already"


async def test_allow_begins_each_at_its_time() -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z", work_s=150)
    world.create(spec(MINUTELY, overlap=Overlap.ALLOW))
    await world.until("2026-01-01T00:05:00Z")
    assert [at - ms(each.removeprefix("daily/")) for each, at in world.started] == [0] * 5
    assert world.status.running == []


async def test_a_run_that_fails_is_over() -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z", work_s=30)
    world.create(Spec(timing=MINUTELY, type=FAILING))
    await world.until("2026-01-01T00:03:00Z")
    assert len(world.runs) == 3
    assert world.status.counts.skipped == 0


# --- late ---------------------------------------------------------------------------------------------------------


async def outage(world: ScheduleWorld, until: str) -> None:
    """Nobody runs anything until then."""
    world.clock.advance_to(ms(until))


async def test_after_an_outage_what_was_missed_is_made_up_for() -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z")
    world.create(spec(Every(interval_s=3600), overlap=Overlap.ALLOW))
    await world.until("2026-01-01T01:30:00Z")
    await outage(world, "2026-01-01T05:10:00Z")
    await world.until("2026-01-01T06:00:00Z")
    assert world.runs == [f"2026-01-01T0{hour}:00:00Z" for hour in range(1, 7)]
    assert Counter(at for _, at in world.started)[ms("2026-01-01T05:10:00Z")] == 4


async def test_of_what_was_missed_the_first_runs_where_runs_do_not_overlap() -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z")
    world.create(spec(Every(interval_s=3600)))
    await world.until("2026-01-01T00:30:00Z")
    await outage(world, "2026-01-01T03:10:00Z")
    await world.until("2026-01-01T04:00:00Z")
    assert world.runs == ["2026-01-01T01:00:00Z", "2026-01-01T04:00:00Z"]
    assert world.status.counts.skipped == 2


async def test_what_was_missed_by_more_than_is_made_up_for_is_counted() -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z")
    world.create(spec(Every(interval_s=3600), catch_up_s=3600, overlap=Overlap.ALLOW))
    await world.until("2026-01-01T01:30:00Z")
    await outage(world, "2026-01-01T05:00:00Z")
    await world.until("2026-01-01T05:30:00Z")
    assert world.runs == [f"2026-01-01T0{hour}:00:00Z" for hour in (1, 4, 5)]
    assert world.status.counts.missed == 2
    missed = [each for each in world.status.recent if each.fate is Fate.MISSED]
    assert [each.reason for each in missed] == ["2 from here on were more than 3600 s late"]


async def test_what_is_late_by_a_moment_is_not_missed_though_nothing_is_made_up_for() -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z")
    world.create(spec(Every(interval_s=3600), catch_up_s=0))
    await world.until("2026-01-01T00:30:00Z")
    await outage(world, "2026-01-01T01:00:00.250Z")
    await world.until("2026-01-01T01:30:00Z")
    await outage(world, "2026-01-01T02:00:11Z")
    await world.until("2026-01-01T02:30:00Z")
    assert world.runs == ["2026-01-01T01:00:00Z"]
    assert world.status.counts.missed == 1


async def test_a_year_of_missed_minutes_is_passed_over_at_once() -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z")
    world.create(spec(MINUTELY, catch_up_s=0))
    await world.until("2026-01-01T00:01:00Z")
    await outage(world, "2027-01-01T00:00:00Z")
    await world.until("2027-01-01T00:01:00Z")
    assert world.runs == ["2026-01-01T00:01:00Z", "2027-01-01T00:00:00Z", "2027-01-01T00:01:00Z"]
    assert world.status.counts.missed == limits.MISSED_COUNTED_MAX


# --- what it is told ----------------------------------------------------------------------------------------------


async def test_a_paused_schedule_does_not_occur_and_a_resumed_one_does_from_then_on() -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z")
    world.create(spec(MINUTELY))
    await world.until("2026-01-01T00:01:30Z")
    world.tell("pause", {"note": "the printer is away"})
    await world.until("2026-01-01T00:05:30Z")
    assert world.status.is_paused
    assert world.status.note == "the printer is away"
    world.tell("resume")
    await world.until("2026-01-01T00:07:00Z")
    assert world.runs == [f"2026-01-01T00:0{minute}:00Z" for minute in (1, 6, 7)]
    assert not world.status.is_paused


async def test_a_trigger_starts_a_run_now_paused_or_not_and_whatever_else_runs() -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z", work_s=3600)
    world.create(spec(BERLIN))
    world.tell("pause")
    world.tell("trigger")
    world.tell("trigger")
    await world.until("2026-01-01T00:00:10Z")
    assert world.runs == ["2026-01-01T00:00:00.001Z", "2026-01-01T00:00:00.002Z"]
    assert len(world.status.running) == 2
    await world.until("2026-01-01T01:00:10Z")
    assert world.status.running == []


async def test_a_backfill_makes_up_for_a_time_one_after_the_other_and_not_for_what_had_its_run() -> None:
    world = ScheduleWorld("2026-01-05T00:00:00Z", work_s=60)
    world.create(spec(BERLIN))
    await world.until("2026-01-05T12:00:00Z")
    world.tell("backfill", {"from_ms": ms("2026-01-01T01:30:00Z"), "until_ms": ms("2026-01-05T12:00:00Z")})
    await world.until("2026-01-05T13:00:00Z")
    assert Counter(world.runs) == {f"2026-01-0{day}T01:30:00Z": 1 for day in range(1, 6)}
    assert [at - ms("2026-01-05T12:00:00Z") for _, at in world.started[1:]] == [0, 60_000, 120_000, 180_000]
    assert world.status.backfills == []


async def test_a_backfill_does_not_start_what_is_still_to_come() -> None:
    world = ScheduleWorld("2026-01-05T00:00:00Z")
    world.create(spec(BERLIN))
    world.tell("backfill", {"from_ms": ms("2026-01-04T00:00:00Z"), "until_ms": ms("2026-01-09T00:00:00Z")})
    await world.until("2026-01-05T00:00:10Z")
    assert world.runs == ["2026-01-04T01:30:00Z"]


async def test_a_backfill_that_may_overlap_begins_at_once_in_several_turns() -> None:
    world = ScheduleWorld("2026-01-05T00:00:00Z", work_s=60)
    world.create(spec(BERLIN))
    backfill = {"from_ms": ms("2026-01-04T00:00:00Z"), "until_ms": ms("2026-01-04T23:00:00Z"), "overlap": "allow"}
    hourly = spec(Every(interval_s=3600, anchor_ms=ms("2026-01-01T00:00:00Z")))
    world.tell("update", values.decode(values.encode(hourly)))
    world.tell("backfill", backfill)
    await world.until("2026-01-05T00:00:01Z")
    assert len(world.runs) == 24 > 2 * limits.STARTS_A_TURN


async def test_an_update_holds_from_then_on() -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z")
    world.create(spec(Every(interval_s=60)))
    await world.until("2026-01-01T00:01:30Z")
    world.tell("update", values.decode(values.encode(spec(Every(interval_s=120), input=values.encode("new")))))
    await world.until("2026-01-01T00:04:00Z")
    # It stays aligned to its beginning.
    assert world.runs == ["2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z", "2026-01-01T00:04:00Z"]
    assert world.inputs == [None, "new", "new"]


@pytest.mark.parametrize("at", ["2025-12-31T00:00:00Z", "2026-01-01T06:00:00Z"])
async def test_an_update_to_a_single_time_that_has_passed_makes_up_for_it_as_a_beginning_does(at: str) -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z")
    world.create(spec(BERLIN))
    await world.until("2026-01-01T12:00:00Z")
    world.tell("update", values.decode(values.encode(spec(At(at_ms=ms(at))))))
    await world.until("2026-01-01T12:00:10Z")
    assert world.runs == ["2026-01-01T01:30:00Z", at]
    assert world.is_over


async def test_an_update_of_something_else_repeats_no_single_time() -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z", work_s=3600)
    once = spec(At(at_ms=ms("2026-01-01T00:00:10Z")), overlap=Overlap.QUEUE)
    world.create(once)
    world.tell("trigger")
    await world.until("2026-01-01T00:30:00Z")
    assert world.status.waiting == [ms("2026-01-01T00:00:10Z")]
    world.tell("update", values.decode(values.encode(replace(once, tags={"a": "b"}))))
    await world.until("2026-01-01T03:00:00Z")
    assert world.runs == ["2026-01-01T00:00:00.001Z", "2026-01-01T00:00:10Z"]
    assert world.status.counts.started == 2


async def test_a_single_time_that_passes_while_paused_is_not_made_up_for_and_can_be_triggered() -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z")
    world.create(spec(At(at_ms=ms("2026-01-02T00:00:00Z"))))
    world.tell("pause")
    await world.until("2026-01-03T00:00:00Z")
    assert not world.is_over
    world.tell("trigger")
    world.tell("resume")
    await world.until("2026-01-04T00:00:00Z")
    assert world.runs == ["2026-01-03T00:00:00.001Z"]
    assert world.is_over


async def test_a_backfill_keeps_to_the_occurrences_that_it_was_asked_for() -> None:
    world = ScheduleWorld("2026-01-05T00:00:00Z", work_s=60)
    world.create(spec(BERLIN))
    world.tell("backfill", {"from_ms": ms("2026-01-01T00:00:00Z"), "until_ms": ms("2026-01-04T23:00:00Z")})
    await world.until("2026-01-05T00:00:10Z")
    world.tell("update", values.decode(values.encode(spec(MINUTELY))))
    world.tell("pause")
    await world.until("2026-01-05T12:00:00Z")
    assert world.runs == [f"2026-01-0{day}T01:30:00Z" for day in range(1, 5)]


async def test_a_queue_is_held_while_paused() -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z", work_s=90)
    world.create(spec(MINUTELY, overlap=Overlap.QUEUE))
    await world.until("2026-01-01T00:02:10Z")
    world.tell("pause")
    await world.until("2026-01-01T00:10:10Z")
    assert world.runs == ["2026-01-01T00:01:00Z"]
    world.tell("resume")
    await world.until("2026-01-01T00:10:20Z")
    assert world.runs == ["2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("dance", None),
        ("pause", 7),
        ("pause", {"note": 7}),
        ("backfill", None),
        ("backfill", {"from_ms": 10**30, "until_ms": 10**31}),
        ("backfill", {"from_ms": -(10**18), "until_ms": 0}),
        ("backfill", {"from_ms": 0, "until_ms": 10**14}),
        ("backfill", {"from_ms": 10**20, "until_ms": 10**20 + 10**5}),
        ("backfill", {"from_ms": ms("2030-01-01T00:00:00Z"), "until_ms": ms("2030-01-01T00:05:00Z")}),
        ("update", "soon"),
        ("update", {"timing": {"type": "cron", "expression": "x", "zone": "UTC"}, "type": REPORT}),
        ("update", {"timing": {"type": "cron", "expression": "* * * * *", "zone": "Nowhere"}, "type": REPORT}),
        ("update", {"timing": {"type": "every", "interval_s": 0}, "type": REPORT}),
        ("update", {"timing": {"type": "at", "at_ms": 10**20}, "type": REPORT}),
        ("update", {"timing": {"type": "every", "interval_s": 60}, "type": REPORT, "input": b"\xff"}),
        ("update", {"timing": {"type": "every", "interval_s": 60}, "type": "", "tags": {"": ""}}),
    ],
)
async def test_nothing_that_it_is_told_ends_it(name: str, body: Any) -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z")
    world.create(spec(Every(interval_s=60)))
    world.tell(name, body)
    await world.until("2026-01-01T00:01:00Z")
    assert world.world.state(schedule_id("daily")) is WorkflowState.SLEEPING
    assert world.status.problem is not None
    world.tell("update", values.decode(values.encode(spec(Every(interval_s=60)))))
    await world.until("2026-01-01T00:02:00Z")
    assert world.runs[-1] == "2026-01-01T00:02:00Z"


async def test_a_time_zone_that_a_build_does_not_know_pauses_the_schedule_until_it_is_given_another() -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z")
    world.create(spec(Cron(expression="* * * * *", zone="Nowhere/Known")))
    await world.until("2026-01-01T00:05:00Z")
    assert world.world.state(schedule_id("daily")) is WorkflowState.SLEEPING
    world.tell("trigger")
    await world.until("2026-01-01T00:05:30Z")
    assert world.status.is_paused
    assert "Nowhere/Known" in (world.status.problem or "")
    world.tell("update", values.decode(values.encode(spec(MINUTELY))))
    world.tell("resume")
    await world.until("2026-01-01T00:07:00Z")
    assert world.runs[1:] == ["2026-01-01T00:06:00Z", "2026-01-01T00:07:00Z"]


async def test_a_schedule_outlives_a_time_zone_that_a_deploy_takes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z")
    world.create(spec(BERLIN))
    old = {"from_ms": ms("2025-12-20T00:00:00Z"), "until_ms": ms("2025-12-21T00:00:00Z")}
    await world.until("2026-01-01T12:00:00Z")

    def gone(name: str) -> tzinfo:
        if name == "Europe/Berlin":
            raise InvalidScheduleError(f"{name} is gone")
        return zone_of(name)

    monkeypatch.setattr("engine.schedules.timing.zone_of", gone)
    for command, body in (("backfill", old), ("resume", None)):
        await world.until("2026-01-03T12:00:00Z")
        assert world.runs == ["2026-01-01T01:30:00Z"]
        assert world.status.is_paused
        assert world.status.problem is not None
        world.tell(command, body)
    monkeypatch.undo()
    world.tell("resume")
    await world.until("2026-01-04T12:00:00Z")
    assert world.runs == ["2026-01-01T01:30:00Z", "2026-01-04T01:30:00Z"]


async def test_a_schedule_outlives_a_deploy_by_which_an_hour_has_come_to_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A country has moved its clocks back, and the build that knows of it comes after the day."""
    offset_h = 6
    monkeypatch.setattr("engine.schedules.timing.zone_of", lambda _name: timezone(timedelta(hours=offset_h)))
    world = ScheduleWorld("2024-03-03T00:00:00Z", work_s=2 * 3600)
    world.create(spec(Cron(expression="0 9 * * *", zone="Asia/Almaty"), overlap=Overlap.QUEUE))
    await world.until("2024-03-04T10:00:00Z")
    assert world.runs == ["2024-03-03T03:00:00Z", "2024-03-04T03:00:00Z"]
    offset_h = 5
    await world.until("2024-03-06T10:00:00Z")
    assert world.world.state(schedule_id("daily")) is WorkflowState.SLEEPING
    assert world.runs[-2:] == ["2024-03-05T04:00:00Z", "2024-03-06T04:00:00Z"]


async def test_a_schedule_that_an_older_build_has_put_to_sleep_goes_on() -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z")
    world.create(spec(BERLIN))
    await world.until("2026-01-01T12:00:00Z")
    driver = world.world.drivers[schedule_id("daily")]
    for key, value in await driver.list(b""):
        entry = bare.decode_entry(value) if key.startswith(keys.HISTORY_PREFIX) else None
        if entry is not None and isinstance(entry.kind, LoopEntry):
            older = {name: field for name, field in values.decode(entry.kind.state).items() if name != "ahead"}
            kind = replace(entry.kind, state=values.encode(older))
            await driver.set(key, bare.encode_entry(replace(entry, kind=kind)))
    assert world.status.ahead is None
    await world.until("2026-01-02T12:00:00Z")
    assert world.runs == ["2026-01-01T01:30:00Z", "2026-01-02T01:30:00Z"]


# --- deploys ------------------------------------------------------------------------------------------------------


async def test_the_names_in_its_history_are_those_that_deployed_schedules_have() -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z", work_s=150)
    world.create(spec(MINUTELY, overlap=Overlap.QUEUE))
    world.tell("trigger")
    hour = {"from_ms": ms("2025-12-31T00:00:00Z"), "until_ms": ms("2025-12-31T01:00:00Z"), "overlap": "allow"}
    world.tell("backfill", hour)
    await world.until("2026-01-01T00:10:00Z")
    driver = world.world.drivers[schedule_id("daily")]
    names = inspect.describe((bytes.fromhex(key), bytes.fromhex(value)) for key, value in driver.dump()).names
    # To take one away or to give it another meaning needs ctx.get_version: schedules live for years.
    assert set(names.values()) == {
        *("turns", "look", "wait", "told", "due", "next", "ended", "end"),
        *("messages:deadline", "messages:count", "messages:0", "messages:1"),
        *(f"start-{number}" for number in range(limits.STARTS_A_TURN)),
    }


def test_a_state_of_an_older_and_of_a_newer_build_is_read() -> None:
    state = Schedule.begun(spec(Every(interval_s=60)), ms("2026-01-01T00:00:00Z"))
    plain = values.decode(values.encode(state))
    for name in plain.keys() - {"spec", "after_ms"}:
        older = {key: value for key, value in plain.items() if key != name}
        assert values.decode(values.encode(older), Schedule) == state
    assert values.decode(values.encode({**plain, "something": "new"}), Schedule) == state


async def test_an_occurrence_whose_id_is_taken_by_something_else_has_failed() -> None:
    world = ScheduleWorld("2026-01-01T00:00:00Z")
    world.create(spec(MINUTELY))

    async def other(_ctx: Any, _given: Any) -> None: ...

    world.world.start(run_id("daily", ms("2026-01-01T00:01:00Z")), other)
    await world.until("2026-01-01T00:02:00Z")
    assert world.runs == ["2026-01-01T00:02:00Z"]
    assert world.status.counts.failed == 1
    assert world.status.recent[0].fate is Fate.FAILED
    assert "exists already with another type or input" in (world.status.recent[0].reason or "")
