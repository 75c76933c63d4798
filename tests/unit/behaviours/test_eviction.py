"""Eviction and cancellation: a run stops where it is and goes on later, or never again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from engine import EvictedError

if TYPE_CHECKING:
    from engine import Context
    from tests.unit.behaviours.world import Counter, World


async def test_an_evicted_run_sees_it_and_may_finish(world: World) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        await ctx.abort_signal.wait()
        return ctx.is_evicted() and ctx.abort_signal.is_set()

    handle = world.start(workflow)
    await world.settle()
    handle.evict()

    result = await handle.result
    assert (result.state, result.output) == ("completed", True)


async def test_an_evicted_run_stops_at_its_next_operation(world: World, count: Counter) -> None:
    gate = asyncio.Event()

    async def workflow(ctx: Context, _given: Any) -> Any:
        first = await ctx.step("first", gate.wait)
        return [first, await ctx.step("second", count.giving("second", 2))]

    handle = world.start(workflow)
    await world.settle()
    handle.evict()
    gate.set()
    result = await handle.result

    assert result.state == "running"
    assert count["second"] == 0
    assert world.alarm is None
    assert (await world.through(workflow)).output == [True, 2]


@pytest.mark.parametrize("wait", ["sleep", "message"])
async def test_a_live_run_that_waits_can_be_evicted(living: World, wait: str) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        if wait == "sleep":
            await ctx.sleep("wait", 600)
        else:
            await ctx.queue.next("wait", names=["go"])
        return "done"

    handle = living.start(workflow)
    await living.settle()
    handle.evict()

    assert (await asyncio.wait_for(handle.result, 60)).state == "sleeping"


async def test_after_its_grace_what_still_runs_is_stopped_and_counts_as_an_attempt(
    yielding: World, count: Counter
) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        await ctx.step("first", count.giving("first", 1))
        return await ctx.step("long", count.blocking("long", times=1, then="done"), timeout=600)

    handle = yielding.start(workflow)
    await yielding.settle()
    handle.evict(grace=2)
    yielding.clock.advance(3)
    await asyncio.wait_for(handle.result, 60)

    assert count["long"] == 1
    _, metadata = yielding.step("long")
    assert metadata.attempts == 1
    assert (await yielding.through(workflow)).output == "done"
    assert (count["first"], count["long"]) == (1, 2)


async def test_a_cancelled_workflow_never_runs_again(world: World, count: Counter) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        await ctx.step("first", count.giving("first", 1))
        await ctx.sleep("nap", 600)
        await ctx.step("second", count.giving("second", 2))

    handle = world.start(workflow)
    await world.settle()
    await handle.cancel()

    assert (await handle.result).state in {"cancelled", "sleeping"}
    assert await handle.get_state() == "cancelled"
    assert world.alarm is None
    with pytest.raises(EvictedError):
        await world.through(workflow)
    assert (count["first"], count["second"]) == (1, 0)


async def test_a_run_in_progress_ends_as_cancelled(world: World, count: Counter) -> None:
    gate = asyncio.Event()

    async def workflow(ctx: Context, _given: Any) -> Any:
        await ctx.step("first", gate.wait)
        await ctx.step("second", count.giving("second", 2))
        return "done"

    handle = world.start(workflow)
    await world.settle()
    await handle.cancel()
    gate.set()
    result = await asyncio.wait_for(handle.result, 60)

    assert result.state == "cancelled"
    assert await world.state() == "cancelled"
    assert count["second"] == 0


async def test_except_exception_does_not_swallow_a_yield(yielding: World) -> None:
    caught: list[BaseException] = []

    async def workflow(ctx: Context, _given: Any) -> Any:
        try:
            await ctx.sleep("nap", 60)
        except Exception as error:  # noqa: BLE001 - what authors write
            caught.append(error)
        return "done"

    assert (await yielding.once(workflow)).state == "sleeping"
    assert (await yielding.through(workflow)).output == "done"
    assert caught == []
