"""Wakes and alarms that come twice, early, late or not at all, and time that runs out."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from engine.clock import SystemClock
from handlers.sweeper import PATIENCE_MS
from handlers.wake import NEEDLESS
from infra.ministack import wait
from tests.e2e.probe import sweep, until

if TYPE_CHECKING:
    from infra.local_stack import LocalStack
    from tests.e2e.conftest import Make
    from tests.e2e.probe import Probe


ALARM_EARLY_S = 1.0


def left_s(due_at: str) -> float:
    """Seconds until then."""
    return datetime.fromisoformat(due_at).timestamp() - SystemClock().now() / 1000


def test_the_same_wake_again_does_nothing(probe: Make) -> None:
    # On a busy machine the invocation may be over before a wake has come, and another one goes on.
    for number in range(3):
        busy = probe("lingering", f"woken-while-busy-{number}").started(linger_s=60)
        busy.mark_of("during")
        busy.wake(copies=3)
        until(lambda busy=busy: _reasons(busy), "one is dropped")  # type: ignore[misc]
        busy.release()
        output, runs = busy.output(), [run["state"] for run in busy.told("run ended")]
        if runs == ["completed"]:
            break
    assert (output, runs) == (1, ["completed"])
    assert "Held" in _reasons(busy)
    busy.wake(copies=3)
    until(lambda: _reasons(busy) >= {"Held", "Ended"}, "one is dropped now too")
    assert busy.counts() == {"before": 1, "during": 1, "after": 1}
    assert [run["state"] for run in busy.told("run ended")] == ["completed"]


def _reasons(probe: Probe) -> set[str]:
    return {record["reason"] for record in probe.records(NEEDLESS)}


def test_an_early_wake_changes_nothing(probe: Make) -> None:
    # What comes early for an idle machine may come late for a busy one, and then has told nothing.
    for sleep_s in (4, 60):
        asleep = probe("sleeping", f"woken-early-{sleep_s}").started(sleep_s=sleep_s)
        due_at = until(lambda asleep=asleep: asleep.known()["wake_at"], "it sleeps")  # type: ignore[misc]
        asleep.wake(copies=2)
        asleep.told(NEEDLESS)
        known, marks = asleep.known(), asleep.marks()
        if left_s(due_at) > ALARM_EARLY_S:
            break
    assert known["wake_at"] == due_at
    assert marks == []
    assert asleep.output() == 1
    assert datetime.fromisoformat(asleep.known()["ended_at"]) >= datetime.fromisoformat(due_at)
    assert asleep.counts() == {"woken": 1}


def _alarm_lost(stack: LocalStack, probe: Probe) -> str | None:
    """When it should have been woken; None where that may have been before its alarm was lost."""
    # By then its alarm is in the queue; that it sleeps the table says before.
    probe.told("run ended")
    due_at: str | None = probe.known()["wake_at"]
    stack.client("sqs").purge_queue(QueueUrl=stack.queue_url)
    return due_at if due_at is not None and left_s(due_at) > ALARM_EARLY_S else None


def test_a_lost_alarm_is_only_late(local_stack: LocalStack, probe: Make) -> None:
    for sleep_s in (3, 15, 60):
        asleep = probe("sleeping", f"alarm-lost-{sleep_s}").started(sleep_s=sleep_s)
        due_at = _alarm_lost(local_stack, asleep)
        if due_at is None:
            continue
        wait(left_s(due_at) + 2)
        marks = asleep.marks()
        # Later a sweep may have come that nobody here asked for.
        if left_s(due_at) > -PATIENCE_MS / 1000:
            break
    assert marks == []
    until(lambda: sweep(local_stack) and asleep.marks(), "the sweeper finds it")
    assert asleep.output() == 1


def test_a_far_alarm_is_a_schedule_until_it_is_not_needed(local_stack: LocalStack, probe: Make) -> None:
    schedules, group = local_stack.client("scheduler"), local_stack.outputs["ScheduleGroupName"]

    def names() -> set[str]:
        return {schedule["Name"] for schedule in schedules.list_schedules(GroupName=group)["Schedules"]}

    others = names()
    asleep = probe("sleeping", "far-asleep").started(sleep_s=7200)
    [name] = until(lambda: names() - others, "it is scheduled")
    schedule = schedules.get_schedule(GroupName=group, Name=name)
    assert schedule["Target"]["Arn"] == local_stack.outputs["QueueArn"]
    assert schedule["ActionAfterCompletion"] == "DELETE"
    assert asleep.call("POST", "/cancel").status == 200
    until(lambda: name not in names(), "it is cleared")
    assert asleep.known()["state"] == "cancelled"


def test_forty_sleeps_in_a_row_are_not_stopped(slow_ones: dict[str, Probe]) -> None:
    many_sleeps = slow_ones["many sleeps"]
    assert many_sleeps.output(within_s=300) == 40
    assert many_sleeps.counts() == {"woken": 1}
    # Lambda would stop a loop that it detects after some sixteen hops; a sleep that is nearly over is no hop.
    assert many_sleeps.known()["wakes"] > 16


def test_a_step_that_outlives_its_invocation_is_tried_again_at_once(slow_ones: dict[str, Probe]) -> None:
    overlong = slow_ones["overlong"]
    assert overlong.output() == 2
    steps = [(step, attempt) for step, attempt, _ in overlong.marks()]
    assert steps == [("before", 1), ("during", 1), ("during", 2), ("after", 1)]
    first, second = overlong.told("run ended", 2)
    assert (first["outcome"], second["outcome"]) == ("handed on", "ended")
    assert first["duration_ms"] < 30_000
    assert second["deaths"] == 0
    handed_on = datetime.fromisoformat(first["timestamp"])
    began_again_after_s = (datetime.fromisoformat(second["timestamp"]) - handed_on).total_seconds()
    # By the wake that was sent at once, and not by a sweep that looks for who has died.
    assert began_again_after_s < 30
