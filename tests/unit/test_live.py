"""Live mode and waits in memory: they end in time, can be woken and evicted, and leave nothing behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine import Break, Context, Continue, EvictedError, HistoryDivergedError, WorkflowState
from engine.entry import SleepEntry
from tests.unit.bench import WORKFLOW_ID, Bench


async def test_fifty_cycles_leave_no_task_timer_or_listener() -> None:
    bench = Bench()
    counts: list[tuple[int, int, int]] = []

    async def body(ctx: Context, n: int) -> Any:
        async def wait(inner: Context) -> Any:
            return (await inner.queue.next("m", "go")).body

        async def nap(inner: Context) -> Any:
            await inner.sleep("nap", 3600)

        await ctx.race("r", {"wait": wait, "nap": nap})
        await ctx.sleep("s", 5)
        return Break(n) if n == 49 else Continue(n + 1)

    handle = bench.start(lambda ctx: ctx.loop("l", body, 0), mode="live")
    for _ in range(50):
        await bench.idle(handle)
        timers = sum(not timer.is_cancelled for _, _, timer in bench.clock._timers)
        counts.append((len(asyncio.all_tasks()), timers, len(bench.driver.message_driver._waiters)))
        bench.send("go")
        await bench.idle(handle)
        bench.clock.advance(5)
    assert (await bench.finish(handle)).output == 49
    assert len(set(counts[2:])) == 1, counts
    assert bench.clock.next_timer() is None
    assert bench.driver.message_driver._waiters == set()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_live_sleep_is_stored_while_it_lasts_and_ends_by_itself() -> None:
    bench = Bench()
    handle = bench.start(lambda ctx: ctx.sleep("s", 3600), mode="live")
    await bench.idle(handle)
    assert bench.state() == "sleeping"
    assert bench.alarm == bench.clock.now() + 3_600_000
    bench.clock.advance(3600)
    assert (await bench.finish(handle)).state is WorkflowState.COMPLETED
    assert bench.alarm is None


async def test_waking_lets_everybody_look_again_without_ending_a_sleep() -> None:
    bench = Bench()

    async def work(ctx: Context) -> Any:
        async def receive(inner: Context) -> Any:
            return (await inner.queue.next("n", "a")).body

        async def sleep(inner: Context) -> Any:
            await inner.sleep("s", 100)

        return await ctx.join("j", {"receive": receive, "sleep": sleep})

    handle = bench.start(work, mode="live")
    await bench.idle(handle)
    await handle.wake()
    await bench.idle(handle)
    assert not handle._task.done()
    await handle.message("a", 5)
    await bench.idle(handle)
    bench.clock.advance(99)
    await bench.idle(handle)
    assert not handle._task.done()
    bench.clock.advance(1)
    assert (await bench.finish(handle)).output == {"receive": 5, "sleep": None}


@pytest.mark.parametrize("mode", ["yield", "live"])
async def test_an_evicted_wait_ends_at_once_and_leaves_history_and_alarm(mode: Any) -> None:
    bench = Bench(worker_poll_interval=10)
    handle = bench.start(lambda ctx: ctx.sleep("s", 5), mode=mode)
    await bench.idle(handle)
    handle.evict()
    result = await bench.finish(handle)
    assert result.state is not WorkflowState.COMPLETED
    assert (await bench.through(lambda ctx: ctx.sleep("s", 5))).state is WorkflowState.COMPLETED


async def test_a_cancelled_live_workflow_is_cancelled_and_never_runs_again() -> None:
    bench = Bench()
    handle = bench.start(lambda ctx: ctx.sleep("s", 500), mode="live")
    await bench.idle(handle)
    await handle.cancel()
    assert (await handle.result).state is WorkflowState.CANCELLED
    assert (bench.state(), bench.alarm) == ("cancelled", None)
    with pytest.raises(EvictedError):
        await bench.once(lambda ctx: ctx.sleep("s", 500))


async def test_a_short_sleep_waits_in_memory_without_an_alarm_and_its_deadline_is_stored() -> None:
    bench = Bench(worker_poll_interval=1)
    handle = bench.start(lambda ctx: ctx.sleep("s", 0.5))
    await bench.idle(handle)
    assert not handle._task.done()
    assert bench.alarm is None
    assert bench.entries()["s"].kind == SleepEntry(deadline=bench.clock.now() + 500)
    assert (await bench.finish(handle)).state is WorkflowState.COMPLETED


async def receive(ctx: Context) -> Any:
    return (await ctx.queue.next("n", "go", timeout=60)).body


async def test_a_message_that_comes_between_looking_and_sleeping_is_not_missed() -> None:
    for mode in ("before", "after"):
        bench = Bench()
        sent: list[int] = []

        def interfere(
            operation: str, phase: str, mode: str = mode, bench: Bench = bench, sent: list[int] = sent
        ) -> None:
            if (operation, phase) == ("receive", mode) and not sent:
                sent.append(1)
                bench.send("go", "x")

        bench.driver.on_call = interfere
        assert (await bench.once(receive)).output == "x"


async def test_an_error_of_the_store_while_it_waits_ends_a_live_run_without_failing_the_workflow() -> None:
    bench = Bench()
    handle = bench.start(lambda ctx: ctx.queue.next_batch("n", "go"), mode="live")
    await bench.idle(handle)

    def fail(operation: str, _phase: str) -> None:
        if operation == "refresh":
            raise OSError("the network")

    bench.driver.on_call = fail
    bench.send("go")
    with pytest.raises(OSError, match="the network"):
        await bench.finish(handle)
    assert bench.state() == "sleeping"
    assert WORKFLOW_ID not in bench.driver.alarms


async def test_an_eviction_without_news_writes_nothing() -> None:
    bench = Bench()
    await bench.once(lambda ctx: ctx.sleep("s", 60))
    before, commits = bench.driver.dump(), len(bench.driver.commits)
    handle = bench.start(lambda ctx: ctx.sleep("s", 60))
    handle.evict()
    await bench.finish(handle)
    assert (bench.driver.dump(), len(bench.driver.commits)) == (before, commits)
    assert bench.state() == "sleeping"


async def test_a_hook_is_told_of_history_and_not_of_states_alone() -> None:
    bench = Bench()
    snapshots: list[int] = []
    handle = bench.start(
        lambda ctx: ctx.queue.next_batch("n", "go"), on_history_updated=lambda one: snapshots.append(len(one.entries))
    )
    await handle.result
    assert snapshots == [0]


async def test_nobody_goes_on_waiting_in_a_run_whose_store_has_failed() -> None:
    bench = Bench()

    async def waits(ctx: Context) -> None:
        await ctx.sleep("s", 10**6)

    async def works(ctx: Context) -> None:
        await ctx.step("a", bench.giving("a", takes_s=1))
        await ctx.step("b", bench.giving("b"))

    def fail(operation: str, phase: str) -> None:
        if (operation, phase) == ("commit", "before") and bench.runs["a"] and bench.clock.now() > start:
            raise OSError("the network")

    start = bench.clock.now()
    bench.driver.on_call = fail
    handle = bench.start(lambda ctx: ctx.join("j", {"waits": waits, "works": works}), mode="live")
    with pytest.raises(OSError, match="the network"):
        await bench.finish(handle)
    assert bench.clock.now() < start + 10_000


async def test_nobody_goes_on_waiting_in_a_run_that_has_diverged() -> None:
    bench = Bench()

    async def waits(ctx: Context) -> None:
        await ctx.sleep("s", 10**6)

    async def diverges(ctx: Context) -> None:
        await ctx.step("a", bench.giving("a", takes_s=1))
        await ctx.step("a", bench.giving("a"))

    start = bench.clock.now()
    handle = bench.start(lambda ctx: ctx.join("j", {"waits": waits, "diverges": diverges}), mode="live")
    with pytest.raises(HistoryDivergedError, match="used twice"):
        await bench.finish(handle)
    assert bench.clock.now() < start + 10_000
    assert bench.state() == "failed"


async def test_who_listens_does_not_keep_the_results_of_others_from_being_stored() -> None:
    bench = Bench()

    async def work(ctx: Context) -> None:
        async def listening(ctx: Context) -> None:
            await ctx.queue.next("wait", "go")

        async def working(ctx: Context) -> None:
            await ctx.step("first", bench.giving("first"))
            # The author's own waiting is no operation: nothing goes on that would store the result.
            await bench.clock.sleep(0.1)
            stored.append(list(bench.entries()))

        await ctx.join("both", {"listening": listening, "working": working})

    stored: list[list[str]] = []
    handle = bench.start(work, mode="live")
    await bench.idle(handle)
    while not stored:
        bench.clock.advance(0.01)
        await bench.idle(handle)
    assert "both/working/first" in stored[0]
    handle.evict()
    await bench.finish(handle)
