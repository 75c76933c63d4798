"""When sleepers are woken, on a virtual clock: how late, never early, and in how many wakes.

The decisions are the product's; the services around them are as late as AWS says they may be. SQS, while it is healthy,
delivers a delayed message within half a second of its time; EventBridge Scheduler fires up to a minute late.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from typing import TYPE_CHECKING, Any

import pytest

from adapters.alarms import Alarms, schedule_ms
from adapters.dynamodb.model.limits import WORKER_POLL_INTERVAL_S
from adapters.scheduler import Scheduler
from adapters.sqs import Wake, WakeQueue, read_wake
from engine.errors import StoreUnavailableError
from engine.memory.clock import VirtualClock
from handlers.sweeper import PATIENCE_MS
from infra.place import TEMPLATE
from tests.tidy.template import read_template

if TYPE_CHECKING:
    from collections.abc import Callable

DAY_S = 86_400
START = 1_800_000_000_123
SLEEPS_S = {"1 s": 1, "30 s": 30, "15 min": 900, "1 h": 3600, "7 days": 7 * DAY_S, "400 days": 400 * DAY_S}
WAKES_MAX = {"1 s": 1, "30 s": 1, "15 min": 1, "1 h": 2, "7 days": 2, "400 days": 3}
"""Wakes that a sleep of that length costs at most, the one at its end included."""

SWEEP_MS = 60_000
QUEUE_LATE_S = 0.5
SCHEDULE_LATE_S = 60.0
SEEDS = 300


class World:
    """One sleeper, the queue and the scheduler that are to wake it, and the sweeper."""

    def __init__(self, seed: int, *, queue_works: bool = True, scheduler_works: bool = True) -> None:
        self.clock = VirtualClock(START)
        self.chance = random.Random(seed)
        self.queue_works = queue_works
        self.scheduler_works = scheduler_works
        self.wakes = 0
        self._numbers = itertools.count()
        self._coming: list[tuple[float, int, Wake | None]] = []
        queue = WakeQueue(self, "url")
        self.alarms = Alarms(queue, Scheduler(self, "group", "role", "arn", "stack"), self.clock)  # type: ignore[arg-type]
        # The first sweep is anywhere in the first minute.
        self._first_sweep_at = START + self.chance.randrange(SWEEP_MS)

    def _put(self, at_ms: float, what: Wake | None) -> None:
        heapq.heappush(self._coming, (at_ms, next(self._numbers), what))

    # --- the services ---------------------------------------------------------------------------------------------

    async def send_message(self, **arguments: Any) -> dict[str, Any]:
        if not self.queue_works:
            raise TimeoutError
        wake = read_wake(arguments["MessageBody"])
        late_s = arguments["DelaySeconds"] + self.chance.uniform(0, QUEUE_LATE_S)
        self._put(self.clock.now() + late_s * 1000, wake)
        return {}

    async def create_schedule(self, **arguments: Any) -> dict[str, Any]:
        if not self.scheduler_works:
            raise TimeoutError
        wake = read_wake(arguments["Target"]["Input"])
        assert wake is not None
        at_ms = schedule_ms(wake.alarm_at, self.clock.now())
        assert at_ms is not None
        self._put(at_ms + self.chance.uniform(0, SCHEDULE_LATE_S * 1000), wake)
        return {}

    # --- the sleeper ------------------------------------------------------------------------------------------------

    async def sleep(self, ahead_s: float) -> float:
        """Sleep so long; how late it went on, in milliseconds (early is below zero)."""
        wake_at = self.clock.now() + round(ahead_s * 1000)
        await self._arm(wake_at)
        # Of all sweeps only the first that finds it overdue matters. SQS is then there again, or the next one does it.
        sweeps = max(0, -((self._first_sweep_at - wake_at - PATIENCE_MS) // SWEEP_MS))
        self._put(self._first_sweep_at + sweeps * SWEEP_MS, None)
        while True:
            at_ms, _, _ = heapq.heappop(self._coming)
            self.clock.advance_to(math.ceil(at_ms))
            now = self.clock.now()
            self.wakes += 1
            if wake_at <= now + WORKER_POLL_INTERVAL_S * 1000:
                # The last second is waited for in memory, to the millisecond.
                return max(now, wake_at) - wake_at
            await self._arm(wake_at)

    async def _arm(self, wake_at: int) -> None:
        try:
            await self.alarms.arm("sleeper", wake_at)
        except StoreUnavailableError:
            # It is due in the table: the sweeper finds it.
            return


async def lateness(ahead_s: float, make: Callable[[int], World]) -> tuple[list[float], int]:
    """How late each of many sleepers was, in order, and the most wakes that one took."""
    found, wakes = [], 0
    for seed in range(SEEDS):
        world = make(seed)
        found.append(await world.sleep(ahead_s))
        wakes = max(wakes, world.wakes)
    return sorted(found), wakes


@pytest.mark.parametrize("length", SLEEPS_S)
async def test_a_sleeper_is_woken_in_time_and_in_few_wakes(length: str) -> None:
    late, wakes = await lateness(SLEEPS_S[length], World)
    assert late[0] >= 0, "never early"
    assert late[SEEDS // 2] < 500
    assert late[SEEDS * 99 // 100] < 1000
    assert wakes <= WAKES_MAX[length]


@pytest.mark.parametrize("length", SLEEPS_S)
@pytest.mark.parametrize("queue_works", [True, False])
async def test_where_the_fast_path_is_down_the_sweeper_is_less_than_two_sweeps_late(
    length: str, *, queue_works: bool
) -> None:
    late, _ = await lateness(SLEEPS_S[length], lambda seed: World(seed, queue_works=queue_works, scheduler_works=False))
    assert 0 <= late[0] <= late[-1] < 2 * SWEEP_MS


async def test_a_month_of_sleep_costs_two_wakes_at_most() -> None:
    _, wakes = await lateness(30 * DAY_S, World)
    assert wakes == 2


def test_a_delay_rounded_down_ends_within_what_is_waited_for_in_memory() -> None:
    assert WORKER_POLL_INTERVAL_S >= 1


def test_the_sweeper_runs_every_minute() -> None:
    template = read_template(TEMPLATE.read_text())
    [event] = template["Resources"]["Sweeper"]["Properties"]["Events"].values()
    assert event["Properties"]["Schedule"] == f"rate({SWEEP_MS // 60_000} minute)"
