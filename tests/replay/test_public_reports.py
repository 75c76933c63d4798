"""Wakes, messages and timers.

Faults that others have had in public, each as a test by the number of its case; those that the engine alone can show.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import random
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from engine import (
    Break,
    Context,
    Continue,
    EvictedError,
    WorkflowFailedError,
    WorkflowState,
)
from engine.entry import SleepEntry
from engine.errors import StoreUnavailableError
from tests.unit.bench import Bench

DAY_S = 86400


async def receive_go(ctx: Context) -> Any:
    return (await ctx.queue.next("wait", "go")).body


@pytest.mark.parametrize("operation", ["list", "refresh", "receive", "commit"])
@pytest.mark.parametrize("phase", ["before", "after"])
@pytest.mark.parametrize("occasion", [1, 2])
async def test_b01_a_message_between_looking_and_sleeping_wakes_the_run(
    operation: str, phase: str, occasion: int
) -> None:
    bench = Bench()
    calls = 0

    def interfere(called: str, when: str) -> None:
        nonlocal calls
        calls += (called, when) == (operation, phase)
        if (called, when) == (operation, phase) and calls == occasion:
            bench.send("go", "x")

    bench.driver.on_call = interfere
    result = await bench.once(receive_go)
    if result.state is WorkflowState.SLEEPING:
        # It came after the yield was stored: whoever sent it sees the sleeping state, and wakes the workflow.
        assert bench.state() == "sleeping"
        bench.driver.on_call = None
        if not bench.driver.messages:
            bench.send("go", "x")
        result = await bench.once(receive_go)
    assert result.output == "x"


async def test_b02_the_alarm_of_a_timeout_finds_a_message_that_nobody_told_of() -> None:
    bench = Bench()

    async def wait(ctx: Context) -> Any:
        return [one.body for one in await ctx.queue.next_batch("wait", "x", timeout=3600)]

    await bench.once(wait)
    bench.send("x", "stored")
    bench.clock.advance(3600)
    assert (await bench.once(wait)).output == ["stored"]


async def test_b03_a_deadline_that_has_passed_means_now_and_later_ones_still_arm() -> None:
    bench = Bench()

    async def overdue(ctx: Context) -> str:
        await ctx.sleep("zero", 0)
        await ctx.sleep("negative", -1)
        await ctx.sleep_until("past", dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
        await ctx.sleep("before the epoch", -(10**10))
        await ctx.step("soon", bench.raising("soon", ValueError("no"), times=1), retry_backoff_base=0.0001)
        await ctx.sleep("later", 60)
        return "done"

    result = await bench.once(overdue)
    if result.sleep_until == bench.clock.now():
        result = await bench.once(overdue)
    assert result.sleep_until is not None
    assert bench.alarm == result.sleep_until >= bench.clock.now()
    assert (await bench.through(overdue)).output == "done"


async def test_b04_any_one_of_several_waits_resumes_the_run() -> None:
    bench = Bench()

    async def join(ctx: Context) -> Any:
        async def a(inner: Context) -> None:
            await inner.queue.next("n", "a")
            # While the run that took "a" works, "b" comes.
            await inner.step("work", send_b)

        async def b(inner: Context) -> None:
            await inner.queue.next("n", "b")
            await inner.step("b's step", bench.giving("b's step"))

        async def c(inner: Context) -> None:
            await inner.sleep("s", 660)

        await ctx.join("j", {"a": a, "b": b, "c": c})

    async def send_b() -> None:
        bench.send("b")

    await bench.once(join)
    bench.send("a")
    await bench.once(join)
    assert bench.runs == {"b's step": 1}


@pytest.mark.parametrize("ending", ["completed", "failed", "cancelled"])
async def test_b09_a_late_wake_finds_an_ended_workflow_as_it_is(ending: str) -> None:
    bench = Bench()

    async def work(ctx: Context) -> str:
        await ctx.rollback_checkpoint("cp")
        await ctx.step("s", bench.giving("s", 1), rollback=lambda _ctx, _output: bench.runs.update(["undo"]))
        if ending == "failed":
            raise ValueError("no")
        if ending == "cancelled":
            await ctx.sleep("long", 600)
        return "output"

    handle = bench.start(work)
    with contextlib.suppress(ValueError):
        await handle.result
    if ending == "cancelled":
        await handle.cancel()
    before, runs, commits = bench.driver.dump(), dict(bench.runs), len(bench.driver.commits)
    bench.send("late")
    for given in (None, "another start"):
        late = bench.start(work, given)
        if ending == "completed":
            assert (await late.result).output == "output"
        else:
            with pytest.raises((WorkflowFailedError, EvictedError)):
                await late.result
    assert (bench.driver.dump(), dict(bench.runs), len(bench.driver.commits)) == (before, runs, commits)
    assert (bench.state(), bench.alarm) == (ending, None)


@pytest.mark.parametrize("seed", range(25))
async def test_b11_no_message_is_lost_or_doubled_where_history_is_cut(seed: int) -> None:
    rng = random.Random(seed)
    bench = Bench()
    seen: list[int] = []

    async def body(ctx: Context, n: int) -> Any:
        number = (await ctx.queue.next("n", "n")).body
        await ctx.step("append", lambda: seen.append(number) if number not in seen else None)
        return Break(n) if n == 59 else Continue(n + 1)

    def sometimes(_operation: str, _phase: str) -> None:
        if rng.random() < 0.04:
            raise StoreUnavailableError("a crash")

    bench.driver.on_call = sometimes
    sent = 0
    while bench.state() != "completed":
        burst = rng.randint(0, 9)
        for number in range(sent, min(60, sent + burst)):
            bench.send("n", number)
        sent = min(60, sent + burst)
        with contextlib.suppress(StoreUnavailableError):
            await bench.once(lambda ctx: ctx.loop("l", body, 0, history_prune_interval=20))
        bench.driver.deaths = 0
    assert seen == list(range(60))
    assert bench.driver.messages == []


async def test_b12_a_wait_that_timed_out_eats_nothing_and_its_alarm_ends_no_later_one() -> None:
    bench = Bench()

    async def work(ctx: Context) -> Any:
        first = await ctx.queue.next_batch("a", "x", timeout=1)
        second = await ctx.queue.next_batch("b", "x", timeout=60)
        return [len(first), [one.body for one in second]]

    await bench.once(work)
    bench.clock.advance(1)
    assert (await bench.once(work)).sleep_until == bench.clock.now() + 60_000
    bench.clock.advance(2)
    assert (await bench.once(work)).state is WorkflowState.SLEEPING
    bench.send("x", "for b")
    assert (await bench.once(work)).output == [0, ["for b"]]


async def test_b13_a_timeout_is_history_and_a_late_message_stays_in_the_inbox() -> None:
    bench = Bench()

    async def work(ctx: Context) -> Any:
        found = await ctx.queue.next_batch("a", "x", timeout=1)
        await ctx.step("after", bench.giving("after"))
        await ctx.sleep("s", 5)
        return len(found)

    await bench.once(work)
    bench.clock.advance(1)
    await bench.once(work)
    bench.send("x")
    assert (await bench.through(work)).output == 0
    assert len(bench.driver.messages) == 1
    assert bench.runs == {"after": 1}


@pytest.mark.parametrize("seconds", [899, 900, 901, 960, 7 * DAY_S, 31 * DAY_S, 400 * DAY_S])
async def test_b16_long_sleeps_end_at_their_time_and_an_early_wake_does_not_end_them(seconds: int) -> None:
    bench = Bench()
    start = bench.clock.now()
    work = lambda ctx: ctx.sleep("s", seconds)  # noqa: E731
    assert (await bench.once(work)).sleep_until == start + seconds * 1000
    bench.clock.advance(seconds / 2)
    assert (await bench.once(work)).sleep_until == start + seconds * 1000
    assert (await bench.through(work)).state is WorkflowState.COMPLETED
    assert bench.clock.now() == start + seconds * 1000
    live = Bench()
    handle = live.start(work, mode="live")
    assert (await live.finish(handle)).state is WorkflowState.COMPLETED
    assert live.clock.now() >= start + seconds * 1000


async def test_b16_beyond_a_hundred_years_is_a_mistake_of_units() -> None:
    with pytest.raises(ValueError, match="a hundred years"):
        await Bench().once(lambda ctx: ctx.sleep("s", 101 * 366 * DAY_S))
    with pytest.raises(ValueError, match="not possible"):
        await Bench().once(lambda ctx: ctx.sleep("s", math.nan))


async def test_b17_an_instant_is_the_same_in_every_zone_and_a_naive_one_is_refused() -> None:
    deadlines = set()
    instant = dt.datetime(2026, 7, 1, 12, tzinfo=dt.UTC)
    for zone in (dt.UTC, dt.timezone(dt.timedelta(hours=5, minutes=30)), ZoneInfo("America/New_York")):
        bench = Bench()
        result = await bench.once(lambda ctx, zone=zone: ctx.sleep_until("s", instant.astimezone(zone)))
        deadlines.add(result.sleep_until)
        assert bench.entries()["s"].kind == SleepEntry(deadline=int(instant.timestamp() * 1000))
    assert deadlines == {int(instant.timestamp() * 1000)}

    async def careful(ctx: Context) -> str:
        with pytest.raises(ValueError, match="needs an aware datetime"):
            await ctx.sleep_until("s", dt.datetime(2026, 7, 1))  # noqa: DTZ001 - what it is about
        await ctx.sleep("s", 0)
        return "went on"

    assert (await Bench().once(careful)).output == "went on"


async def test_b19_an_alarm_that_comes_early_arms_again_and_one_that_comes_late_ends_once() -> None:
    bench = Bench()
    retried = bench.raising("s", ValueError("no"), times=1)

    async def work(ctx: Context) -> None:
        await ctx.sleep("s1", 2)
        await ctx.step("s", retried, retry_backoff_base=2)

    result = await bench.once(work)
    bench.clock.advance(1.7)
    early = await bench.once(work)
    assert early.sleep_until == result.sleep_until == bench.alarm
    bench.clock.advance(59)
    backing_off = await bench.once(work)
    assert bench.runs == {"s": 1}
    bench.clock.advance(3.9)
    assert (await bench.once(work)).sleep_until == backing_off.sleep_until
    assert bench.runs == {"s": 1}
    bench.clock.advance(0.1)
    assert (await bench.once(work)).state is WorkflowState.COMPLETED
