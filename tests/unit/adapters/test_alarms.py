from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from adapters.alarms import SCHEDULE_AHEAD_S_MAX, Alarms, Delay, Schedule, decide, schedule_ms
from adapters.scheduler import NAME_LENGTH_MAX, Scheduler, at_expression, schedule_name
from adapters.sqs import Wake, WakeQueue, read_wake, wake_body
from engine.errors import StoreUnavailableError
from engine.memory.clock import VirtualClock

NOW = 1_800_000_000_000
DAY = 86_400


@pytest.mark.parametrize(
    ("ahead_ms", "decision"),
    [
        (-5000, Delay(0)),
        (0, Delay(0)),
        (1, Delay(0)),
        (999, Delay(0)),
        (1000, Delay(1)),
        (2000, Delay(2)),
        (899_000, Delay(899)),
        (900_000, Delay(900)),
        (900_999, Delay(900)),
        (901_000, Schedule(NOW // 1000 + 841)),
        (960_000, Schedule(NOW // 1000 + 900)),
        (7 * DAY * 1000, Schedule(NOW // 1000 + 7 * DAY - 60)),
        (31 * DAY * 1000, Schedule(NOW // 1000 + 31 * DAY - 60)),
        (400 * DAY * 1000, Schedule(NOW // 1000 + SCHEDULE_AHEAD_S_MAX)),
        (36_600 * DAY * 1000, Schedule(NOW // 1000 + SCHEDULE_AHEAD_S_MAX)),
    ],
)
def test_near_alarms_are_delays_and_far_ones_schedules(ahead_ms: int, decision: Delay | Schedule) -> None:
    assert decide(NOW + ahead_ms, NOW) == decision


@pytest.mark.parametrize("ahead_s", [899, 900, 901, 960, 7 * DAY, 31 * DAY, 400 * DAY])
def test_every_alarm_is_reached_in_few_hops_and_never_called_early_at_the_end(ahead_s: int) -> None:
    at_ms, now_ms, hops = NOW + ahead_s * 1000, NOW, 0
    while now_ms < at_ms:
        match decide(at_ms, now_ms):
            case Delay(delay_s):
                now_ms += delay_s * 1000
                assert now_ms >= at_ms
            case Schedule(at_s):
                assert at_s * 1000 > now_ms
                now_ms = at_s * 1000 + 59_000
        hops += 1
    assert hops <= 3
    assert now_ms - at_ms <= 1000


def test_when_a_schedule_goes_off() -> None:
    assert schedule_ms(None, NOW) is None
    assert schedule_ms(NOW + 900_000, NOW) is None
    assert schedule_ms(NOW + 960_000, NOW) == NOW + 900_000


# --- schedules ----------------------------------------------------------------------------------------------------

IDS = ["a", "x" * 200, "x" * 199 + "y", "a/b", "a#b", "a b", "ä€😀", "HEAD", "A", "<b\\u003c>"]


def test_every_id_has_a_name_of_its_own_within_the_rules() -> None:
    names = [schedule_name(stack, workflow_id) for stack in ("one", "two") for workflow_id in IDS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[0-9a-zA-Z\-_.]{1,64}", name) for name in names)
    assert max(map(len, names)) <= NAME_LENGTH_MAX


def test_an_expression_has_whole_seconds_of_utc() -> None:
    assert at_expression(0) == "at(1970-01-01T00:00:00)"
    instant = datetime(2031, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert at_expression(int(instant.timestamp())) == "at(2031-02-03T04:05:06)"


class Schedules:
    """EventBridge Scheduler with its real rules for names, times and what exists."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.stored: dict[tuple[str, str], dict[str, Any]] = {}
        self.deletes = 0
        self.gone_between = 0

    def _refuse(self, code: str) -> None:
        raise ClientError({"Error": {"Code": code, "Message": ""}}, "Schedule")

    def _check(self, arguments: dict[str, Any]) -> tuple[str, str]:
        if not re.fullmatch(r"[0-9a-zA-Z\-_.]{1,64}", arguments["Name"]):
            self._refuse("ValidationException")
        at = datetime.strptime(arguments["ScheduleExpression"], "at(%Y-%m-%dT%H:%M:%S)").replace(tzinfo=UTC)
        if at <= self.now:
            self._refuse("ValidationException")
        assert arguments["ActionAfterCompletion"] == "DELETE"
        assert arguments["FlexibleTimeWindow"] == {"Mode": "OFF"}
        return arguments["GroupName"], arguments["Name"]

    async def create_schedule(self, **arguments: Any) -> dict[str, Any]:
        key = self._check(arguments)
        if key in self.stored:
            if self.gone_between:
                self.gone_between -= 1
                del self.stored[key]
            self._refuse("ConflictException")
        self.stored[key] = arguments
        return {}

    async def update_schedule(self, **arguments: Any) -> dict[str, Any]:
        key = self._check(arguments)
        if key not in self.stored:
            self._refuse("ResourceNotFoundException")
        self.stored[key] = arguments
        return {}

    async def delete_schedule(self, **arguments: Any) -> dict[str, Any]:
        self.deletes += 1
        if self.stored.pop((arguments["GroupName"], arguments["Name"]), None) is None:
            self._refuse("ResourceNotFoundException")
        return {}


class Queue:
    """SQS, refusing what SQS refuses."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    async def send_message(self, **arguments: Any) -> dict[str, Any]:
        assert 0 <= arguments["DelaySeconds"] <= 900
        self.sent.append(arguments)
        return {}


def made(clock: VirtualClock) -> tuple[Alarms, Queue, Schedules]:
    queue, schedules = Queue(), Schedules(datetime.fromtimestamp(clock.now() / 1000, UTC))
    scheduler = Scheduler(schedules, "group", "role", "arn:queue", "stack")
    return Alarms(WakeQueue(queue, "url"), scheduler, clock), queue, schedules


async def test_arming_again_moves_the_alarm_and_clearing_removes_exactly_it() -> None:
    clock = VirtualClock(NOW)
    alarms, queue, schedules = made(clock)
    for workflow_id in IDS:
        await alarms.arm(workflow_id, NOW + DAY * 1000)
        await alarms.arm(workflow_id, NOW + 2 * DAY * 1000)
    assert len(schedules.stored) == len(IDS)
    assert queue.sent == []
    moved = at_expression(NOW // 1000 + 2 * DAY - 60)
    assert {arguments["ScheduleExpression"] for arguments in schedules.stored.values()} == {moved}
    await alarms.clear("a/b")
    await alarms.clear("a/b")
    targets = {read_wake(arguments["Target"]["Input"]) for arguments in schedules.stored.values()}
    alarm_at = NOW + 2 * DAY * 1000
    assert targets == {Wake(workflow_id=name, alarm_at=alarm_at) for name in IDS if name != "a/b"}


async def test_a_schedule_that_goes_off_while_it_is_moved_is_made_anew() -> None:
    alarms, _, schedules = made(VirtualClock(NOW))
    await alarms.arm("w", NOW + DAY * 1000)
    schedules.gone_between = 1
    await alarms.arm("w", NOW + 2 * DAY * 1000)
    [arguments] = schedules.stored.values()
    assert arguments["ScheduleExpression"] == at_expression(NOW // 1000 + 2 * DAY - 60)


async def test_near_alarms_never_touch_the_scheduler() -> None:
    alarms, queue, schedules = made(VirtualClock(NOW))
    await alarms.arm("w", NOW - 5)
    await alarms.arm("w", NOW + 2000)
    assert [sent["DelaySeconds"] for sent in queue.sent] == [0, 2]
    assert schedules.stored == {}
    assert read_wake(queue.sent[1]["MessageBody"]) == Wake(workflow_id="w", alarm_at=NOW + 2000)


# --- wakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workflow_id", IDS)
@pytest.mark.parametrize("alarm_at", [None, 0, NOW])
def test_a_wake_survives_its_body(workflow_id: str, alarm_at: int | None) -> None:
    wake = Wake(workflow_id=workflow_id, alarm_at=alarm_at)
    assert read_wake(wake_body(wake)) == wake


def test_a_body_has_no_word_that_scheduler_puts_another_in_place_of() -> None:
    wake = Wake(workflow_id="<aws.scheduler.execution-id>")
    assert "<" not in wake_body(wake)
    assert read_wake(wake_body(wake)) == wake


@pytest.mark.parametrize(
    "body", ["", "null", "[]", "{}", '{"workflow_id": 1}', "\x00", '{"workflow_id": null}', "[" * 100_000]
)
def test_what_is_no_wake_is_none(body: str) -> None:
    assert read_wake(body) is None


@pytest.mark.parametrize("delay_s", [-1, 901])
async def test_a_delay_that_sqs_does_not_take_is_refused_before_it_is_sent(delay_s: int) -> None:
    queue = Queue()
    with pytest.raises(ValueError, match="900"):
        await WakeQueue(queue, "url").wake("w", delay_s)
    assert queue.sent == []


async def test_an_outage_of_the_fast_path_is_the_engines_own_error() -> None:
    class Down:
        async def send_message(self, **_arguments: Any) -> dict[str, Any]:
            raise EndpointConnectionError(endpoint_url="x")

        async def create_schedule(self, **_arguments: Any) -> dict[str, Any]:
            raise ClientError({"Error": {"Code": "InternalServerException", "Message": ""}}, "CreateSchedule")

        update_schedule = delete_schedule = create_schedule

    clock = VirtualClock(NOW)
    alarms = Alarms(WakeQueue(Down(), "url"), Scheduler(Down(), "group", "role", "arn", "stack"), clock)
    for ahead in (timedelta(seconds=1), timedelta(days=1)):
        with pytest.raises(StoreUnavailableError):
            await alarms.arm("w", NOW + int(ahead.total_seconds() * 1000))
    with pytest.raises(StoreUnavailableError):
        await alarms.clear("w")
