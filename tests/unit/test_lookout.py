"""What comes for one branch while another one works: a message, or a workflow's end, is seen before that is done."""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from typing import Any

import pytest

from engine import Context, WorkflowResult, WorkflowState, workflow
from engine.author.registry import Registry
from engine.errors import MessageWaitError, SleepError, StoreUnavailableError, WorkflowWaitError
from engine.limits import LOOKOUT_WORKFLOWS_MAX
from engine.testing import MemoryWorld
from engine.waits import Wait, Waits
from tests.unit.bench import Bench

WORK_S = 600


def send(bench: Bench, body: str) -> None:
    """Somebody outside calls the work off."""
    bench.send("stop", body)


async def called_off(ctx: Context, work: Any) -> dict[str, Any]:
    async def working(ctx: Context) -> str:
        return str(await ctx.step("work", work, timeout=0))

    async def listening(ctx: Context) -> Any:
        return (await ctx.queue.next("wait", "stop")).body

    race = await ctx.race("race", {"working": working, "listening": listening})
    return {"winner": race.winner, "value": race.value}


async def test_a_message_calls_off_a_step_under_way() -> None:
    bench = Bench()
    began_at = bench.clock.now()
    ended: list[str] = []

    async def work() -> str:
        try:
            await bench.clock.sleep(WORK_S)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return "done"

    handle = bench.start(lambda ctx, _given: called_off(ctx, work))
    bench.clock.call_later(30, functools.partial(send, bench, "enough"))
    result = await bench.finish(handle)
    assert result.output == {"winner": "listening", "value": "enough"}
    assert ended == ["cancelled"]
    assert bench.clock.now() - began_at < 31_000


async def test_a_workflows_end_is_seen_too() -> None:
    registry = Registry()

    @workflow("child", registry=registry)
    async def child(ctx: Context) -> Any:
        return (await ctx.queue.next("wait", "go")).body

    @workflow("parent", registry=registry)
    async def parent(ctx: Context) -> list[Any]:
        async def working(ctx: Context) -> int:
            await ctx.step("work", work, timeout=0)
            return world.clock.now()

        async def awaiting(ctx: Context) -> int:
            await ctx.output(started)
            return world.clock.now()

        started = await ctx.dispatch(child)
        seen = await ctx.join("both", {"working": working, "awaiting": awaiting})
        return [seen["working"] - began_at, seen["awaiting"] - began_at]

    async def work() -> None:
        await world.clock.sleep(30)
        [child_id] = [one for one in world.drivers if one != "parent"]
        await world.run(child_id)
        world.send(child_id, "go")
        await world.run(child_id)
        await world.clock.sleep(WORK_S)

    world = MemoryWorld(registry=registry)
    began_at = world.clock.now()
    world.start("parent", parent)
    await world.drive()
    result = world.results["parent"]
    assert isinstance(result, WorkflowResult)
    working, awaiting = result.output or (0, 0)
    assert working >= WORK_S * 1000
    assert awaiting < 31_000


@pytest.mark.parametrize("listens", [True, False])
async def test_nobody_looks_where_nobody_listens(*, listens: bool) -> None:
    bench = Bench()
    calls: list[str] = []
    bench.driver.on_call = lambda operation, phase: calls.append(operation) if phase == "before" else None

    async def parent(ctx: Context, _given: Any) -> None:
        async def working(ctx: Context) -> None:
            await ctx.step("work", bench.clock.sleep, 10)

        async def waiting(ctx: Context) -> None:
            if listens:
                await ctx.queue.next_batch("wait", "stop", timeout=5)
            else:
                await ctx.sleep("wait", 5)

        await ctx.join("both", {"working": working, "waiting": waiting})

    await bench.through(parent)
    looks = calls.count("refresh")
    # Ten a second, as this driver says, for five seconds.
    assert (looks > 45) is listens
    assert looks < 60


async def test_a_message_that_comes_as_the_work_ends_is_not_slept_over() -> None:
    """A look is under way when the last branch that worked comes to wait: the run must not yield beside a message."""
    bench = Bench()

    async def take_long(operation: str, phase: str) -> None:
        if (operation, phase) == ("refresh", "before") and bench.clock.now() > began_at:
            await bench.clock.sleep(0.1)

    began_at = bench.clock.now()
    bench.driver.on_call = take_long

    async def parent(ctx: Context, _given: Any) -> list[Any]:
        async def working(ctx: Context) -> None:
            await ctx.step("work", bench.clock.sleep, 0.15)
            await ctx.sleep("long", 3600)

        async def listening(ctx: Context) -> Any:
            return (await ctx.queue.next("wait", "stop")).body

        both = await ctx.join("both", {"working": working, "listening": listening})
        return [both["listening"]]

    handle = bench.start(parent)
    bench.clock.call_later(0.18, functools.partial(send, bench, "seen"))
    result = await bench.finish(handle)
    assert result.state is WorkflowState.SLEEPING
    assert result.waiting_for_messages is None
    assert bench.driver.messages == []


@pytest.mark.parametrize("short_wait", ["as the other comes to listen", "as it is looked"])
async def test_work_after_a_wait_in_memory_is_called_off_too(short_wait: str) -> None:
    bench = Bench()
    began_at = bench.clock.now()
    is_listened_to = short_wait == "as it is looked"

    async def parent(ctx: Context, _given: Any) -> list[Any]:
        async def working(ctx: Context) -> None:
            if is_listened_to:
                await ctx.step("begin", bench.clock.sleep, 0.05)
            await ctx.sleep("short", 0.09)
            await ctx.step("work", bench.clock.sleep, WORK_S, timeout=0)

        async def listening(ctx: Context) -> Any:
            if not is_listened_to:
                await ctx.step("begin", bench.clock.sleep, 0.02)
            return (await ctx.queue.next("wait", "stop")).body

        race = await ctx.race("race", {"working": working, "listening": listening})
        return [race.winner, race.value]

    handle = bench.start(parent)
    bench.clock.call_later(30, functools.partial(send, bench, "enough"))
    assert (await bench.finish(handle)).output == ["listening", "enough"]
    assert bench.clock.now() - began_at < 31_000


async def test_work_is_not_lost_to_a_look_that_fails() -> None:
    bench = Bench()
    failures: list[int] = []

    async def fail(operation: str, phase: str) -> None:
        if (operation, phase) == ("refresh", "before") and began_at + 5_000 < bench.clock.now() < began_at + 20_000:
            failures.append(bench.clock.now())
            raise StoreUnavailableError("throttled again and again")

    async def work() -> str:
        bench.runs["work"] += 1
        await bench.clock.sleep(WORK_S)
        return "done"

    began_at = bench.clock.now()
    bench.driver.on_call = fail
    result = await bench.finish(bench.start(lambda ctx, _given: called_off(ctx, work)))
    assert result.output == {"winner": "working", "value": "done"}
    assert len(failures) > 100
    assert bench.runs["work"] == 1


async def test_a_slow_store_is_asked_one_look_at_a_time() -> None:
    bench = Bench()
    under_way: list[int] = [0, 0]

    async def take_long(operation: str, phase: str) -> None:
        if operation == "refresh" and bench.clock.now() > began_at:
            under_way[0] += 1 if phase == "before" else -1
            under_way[1] = max(under_way)
            if phase == "before":
                await bench.clock.sleep(5)

    began_at = bench.clock.now()
    bench.driver.on_call = take_long

    async def parent(ctx: Context, _given: Any) -> None:
        async def listening(ctx: Context, name: str, after_s: float) -> None:
            await ctx.step("begin", bench.clock.sleep, after_s)
            await ctx.queue.next("wait", name)

        async def working(ctx: Context) -> None:
            await ctx.step("work", bench.clock.sleep, 60, timeout=0)

        others = {f"at-{second}": functools.partial(listening, name="stop", after_s=second) for second in range(1, 9)}
        await ctx.join("both", {"working": working, **others})

    await bench.finish(bench.start(parent))
    assert under_way[1] == 1


async def test_many_are_asked_after_in_turn_while_somebody_works() -> None:
    registry = Registry()
    count, rounds = 250, 6
    asked: Counter[int] = Counter()
    seen: set[str] = set()

    @workflow("child", registry=registry)
    async def child(ctx: Context) -> Any:
        return (await ctx.queue.next("wait", "go")).body

    @workflow("parent", registry=registry)
    async def parent(ctx: Context) -> None:
        async def working(ctx: Context) -> None:
            await ctx.step("work", work, timeout=0)

        async def awaiting(ctx: Context, child_id: str) -> Any:
            seen.add(await ctx.output(child_id))

        started = [await ctx.dispatch(child) for _ in range(count)]
        await ctx.join(
            "all", {"working": working} | {one: functools.partial(awaiting, child_id=one) for one in started}
        )

    async def work() -> None:
        await world.clock.sleep(0.05)
        for child_id in [one for one in world.drivers if one != "parent"]:
            await world.run(child_id)
            world.send(child_id, "go", child_id)
            await world.run(child_id)
        asked.clear()
        for _ in range(rounds):
            await world.clock.sleep(0.1)

    def count_asked(operation: str, phase: str) -> None:
        if (operation, phase) == ("peek", "before"):
            asked[world.clock.now()] += 1

    world = MemoryWorld(registry=registry)
    world.start("parent", parent)
    world.drivers["parent"].on_call = count_asked
    await world.drive()
    assert len(seen) == count
    assert max(asked.values()) <= LOOKOUT_WORKFLOWS_MAX
    assert sum(asked.values()) <= count + LOOKOUT_WORKFLOWS_MAX


async def test_asking_after_many_takes_long_and_is_no_work_beside_which_they_are_asked_after_again() -> None:
    registry = Registry()
    count, asked = 40, 0
    store = asyncio.Lock()

    @workflow("child", registry=registry)
    async def child(ctx: Context) -> Any:
        return (await ctx.queue.next("wait", "go")).body

    @workflow("parent", registry=registry)
    async def parent(ctx: Context) -> None:
        async def awaiting(ctx: Context, child_id: str) -> Any:
            return await ctx.output(child_id)

        started = [await ctx.dispatch(child) for _ in range(count)]
        await ctx.join("all", {one: functools.partial(awaiting, child_id=one) for one in started})

    async def take_long(operation: str, phase: str) -> None:
        nonlocal asked
        if (operation, phase) == ("peek", "before"):
            asked += 1
            assert asked < 100 * count, "it never comes to wait"
            async with store:
                await world.clock.sleep(0.01)

    world = MemoryWorld(registry=registry)
    world.start("parent", parent)
    world.drivers["parent"].on_call = take_long
    await world.run("parent")
    result = world.results["parent"]
    assert isinstance(result, WorkflowResult), result
    assert result.state is WorkflowState.SLEEPING
    assert asked == count


async def test_somebody_listens_as_long_as_one_wait_is_for_what_others_bring() -> None:
    waits = Waits()
    message, end = (Wait(signal, is_short=False) for signal in (MessageWaitError(("go",)), WorkflowWaitError(("w",))))
    waits.add(Wait(SleepError(60_000), is_short=False))
    assert not waits.is_listening()
    for wait in (message, end):
        waits.add(wait)
    waits.discard(message)
    waits.discard(message)
    assert waits.is_listening()
    waits.discard(end)
    assert waits
    assert not waits.is_listening()
