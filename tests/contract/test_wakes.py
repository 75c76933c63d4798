"""Alarms on the emulators: what SQS and EventBridge Scheduler take from us, and what they hand back."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from adapters.alarms import Alarms
from adapters.scheduler import Scheduler, schedule_name
from adapters.sqs import Wake, WakeQueue, read_wake
from tests.contract.aws import client_of
from tests.contract.conftest import EMULATORS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from engine.driver import Timer

NUMBERS = itertools.count(1)
IDS = ["a", "x" * 200, "a/b", "a#b c", "ä€😀"]


class FixedClock:
    """A clock that stands still, well ahead of the emulators' own."""

    def __init__(self) -> None:
        self.at_ms = 2_000_000_000_000

    def now(self) -> int:
        return self.at_ms

    def call_later(self, delay_s: float, callback: Any) -> Timer:
        raise AssertionError((delay_s, callback))


class Fast:
    """The fast path on an emulator: alarms, and what is stored of them."""

    def __init__(self, sqs: Any, scheduler: Any, queue_url: str, group: str) -> None:
        self.sqs = sqs
        self.scheduler = scheduler
        self.queue_url = queue_url
        self.group = group
        self.clock = FixedClock()
        queue_arn = "arn:aws:sqs:eu-west-1:000000000000:wakes"
        role_arn = "arn:aws:iam::000000000000:role/scheduler"
        self.queue = WakeQueue(sqs, queue_url)
        self.alarms = Alarms(self.queue, Scheduler(scheduler, group, role_arn, queue_arn, "stack"), self.clock)

    async def wakes(self) -> list[Wake | None]:
        answer = await self.sqs.receive_message(QueueUrl=self.queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
        return [read_wake(message["Body"]) for message in answer.get("Messages", [])]

    async def schedules(self) -> list[str]:
        answer = await self.scheduler.list_schedules(GroupName=self.group)
        return [schedule["Name"] for schedule in answer["Schedules"]]


@pytest.fixture(params=EMULATORS)
async def fast(request: pytest.FixtureRequest) -> AsyncIterator[Fast]:
    endpoint = request.getfixturevalue(request.param)
    number = next(NUMBERS)
    async with client_of("sqs", endpoint) as sqs, client_of("scheduler", endpoint) as scheduler:
        queue_url = (await sqs.create_queue(QueueName=f"wakes-{number}"))["QueueUrl"]
        await scheduler.create_schedule_group(Name=f"group-{number}")
        yield Fast(sqs, scheduler, queue_url, f"group-{number}")


async def test_wakes_arrive_as_they_were_sent(fast: Fast) -> None:
    await fast.queue.wake("ä/😀 #")
    await fast.alarms.arm("w", fast.clock.now() - 5)
    found = await fast.wakes()
    expected = [Wake(workflow_id="ä/😀 #"), Wake(workflow_id="w", alarm_at=fast.clock.now() - 5)]
    assert sorted(map(str, found)) == sorted(map(str, expected))


async def test_a_delayed_wake_is_taken_and_not_seen_yet(fast: Fast) -> None:
    await fast.alarms.arm("w", fast.clock.now() + 900_000)
    assert await fast.wakes() == []
    assert await fast.schedules() == []


async def test_a_far_alarm_is_a_schedule_that_moves_and_goes(fast: Fast) -> None:
    for workflow_id in IDS:
        await fast.alarms.arm(workflow_id, fast.clock.now() + 3_600_000)
        await fast.alarms.arm(workflow_id, fast.clock.now() + 7_200_000)
    assert sorted(await fast.schedules()) == sorted(schedule_name("stack", workflow_id) for workflow_id in IDS)
    stored = await fast.scheduler.get_schedule(Name=schedule_name("stack", "a"), GroupName=fast.group)
    assert stored["ScheduleExpression"] == "at(2033-05-18T05:32:20)"
    assert stored["ActionAfterCompletion"] == "DELETE"
    assert read_wake(stored["Target"]["Input"]) == Wake(workflow_id="a", alarm_at=fast.clock.now() + 7_200_000)
    for workflow_id in IDS:
        await fast.alarms.clear(workflow_id)
        await fast.alarms.clear(workflow_id)
    assert await fast.schedules() == []
