"""Workflows and their children, many and together with other waits, through crashes at every call."""

from __future__ import annotations

from typing import Any

import pytest

from engine import Break, Context, Continue, WorkflowResult, WorkflowState, keys
from engine.testing import MemoryWorld
from tests.unit.bench import Bench
from tests.unit.test_output import OWN, Calls, Parcel, failing, output, ship, waiter, world_of

# --- together with other waits ---------------------------------------------------------------------------------------


async def test_a_join_of_fifty_children() -> None:
    async def parent(ctx: Context, _given: Any) -> list[str]:
        async def branch(ctx: Context, number: int) -> str:
            return (await ctx.output(await ctx.dispatch(ship, Parcel(number)))).text

        return await ctx.map("all", range(50), branch, concurrency=50)

    world = world_of(parent)
    calls = Calls(world.drivers["parent"])
    await world.drive()
    assert output(world) == [f"{number} kg" for number in range(50)]
    # All are started at once and slept for at once, and all have ended when their parent is woken.
    assert [len(commit.children) for commit in world.drivers["parent"].commits] == [50, 0, 0]
    assert [len(commit.awaited) for commit in world.drivers["parent"].commits] == [0, 50, 0]
    assert calls.counts["peek"] == 100


@pytest.mark.parametrize(("limit_s", "winner"), [(1800, "late"), (7200, "shipped")])
async def test_a_race_of_an_output_against_a_sleep(limit_s: int, winner: str) -> None:
    async def parent(ctx: Context, _given: Any) -> Any:
        child = await ctx.dispatch(ship, Parcel(3))

        async def shipped(ctx: Context) -> str:
            return (await ctx.output(child)).text

        async def late(ctx: Context) -> str:
            await ctx.sleep("limit", limit_s)
            return "late"

        first = await ctx.race("first", {"shipped": shipped, "late": late})
        await ctx.sleep("after", 10_000)
        return [first.winner, first.value]

    world = world_of(parent)
    await world.run("parent")
    result = world.results["parent"]
    assert isinstance(result, WorkflowResult)
    assert result.sleep_until == world.clock.now() + limit_s * 1000
    assert result.waiting_for_workflows is not None
    await world.drive()
    assert output(world) == [winner, "3 kg" if winner == "shipped" else "late"]
    assert not any(
        name.startswith("first/") and name.split("/")[1] != winner for name in Bench(world.drivers["parent"]).entries()
    )


async def test_messages_and_outputs_are_waited_for_together() -> None:
    async def parent(ctx: Context, child: str) -> Any:
        async def told(ctx: Context) -> Any:
            return (await ctx.queue.next("told", "stop")).body

        async def ended(ctx: Context) -> Any:
            return await ctx.output(child)

        return await ctx.join("both", {"told": told, "ended": ended})

    world = world_of(parent, "other")
    world.start("other", waiter, 1)
    await world.drive()
    result = world.results["parent"]
    assert isinstance(result, WorkflowResult)
    assert (result.waiting_for_messages, result.waiting_for_workflows) == (["stop"], ["other"])
    world.send("other", "go", 2)
    await world.drive()
    assert world.state("parent") is WorkflowState.SLEEPING
    world.send("parent", "stop", "now")
    await world.drive()
    assert output(world) == {"told": "now", "ended": [1, 2]}


async def test_children_one_after_the_other_in_a_loop_leave_no_names_behind() -> None:
    async def parent(ctx: Context, _given: Any) -> int:
        async def body(ctx: Context, count: int) -> Continue[int] | Break[int]:
            child = await ctx.dispatch(ship, Parcel(count))
            await ctx.output(child)
            return Continue(count + 1) if count < 60 else Break(count)

        return await ctx.loop("loop", body, 0)

    world = world_of(parent)
    await world.drive()
    assert output(world) == 60
    stored = Bench(world.drivers["parent"]).stored()
    assert len([key for key in stored if key.startswith(keys.NAMES_PREFIX)]) == 3
    assert len(world.drivers["parent"].commits) <= 3 * 61 + 2


# --- crashes ---------------------------------------------------------------------------------------------------------


async def family(ctx: Context, _given: Any) -> list[Any]:
    async def shipping(ctx: Context, number: int) -> str:
        child = await ctx.dispatch(ship, Parcel(number))
        return (await ctx.output(child)).text

    async def caring(ctx: Context) -> None:
        await ctx.output(await ctx.dispatch(failing, "bad", id="bad"))

    texts = await ctx.map("all", range(3), shipping)
    result = await ctx.try_block("care", caring)
    assert result.failure is not None
    one = await ctx.dispatch(waiter, "go", tags={"shop": "7"}, unique=True)
    await ctx.signal("go", "on", type="waiter", tags={"shop": "7"})
    return [texts, result.failure.error.message, await ctx.output(one)]


class CrashError(ConnectionError):
    """A process dies at the call number ``at`` of all, before or after it."""


async def lived(world: MemoryWorld, at: int, phase: str) -> int:
    """Drive a world through a crash to its end; how many calls there were."""
    calls = [0]

    def count(_operation: str, when: str) -> None:
        calls[0] += when == phase
        if calls[0] == at and when == phase:
            raise CrashError

    world.on_call = count
    world.start("parent", family)
    await world.drive()
    for workflow_id, result in list(world.results.items()):
        if isinstance(result, CrashError):
            await world.run(workflow_id)
    await world.drive()
    return calls[0]


@pytest.mark.parametrize("phase", ["before", "after"])
async def test_a_crash_at_every_call_loses_and_doubles_nothing(phase: str) -> None:
    count = await lived(MemoryWorld(registry=OWN), 0, phase)
    assert count > 50
    for at in range(1, count + 1):
        world = MemoryWorld(registry=OWN)
        await lived(world, at, phase)
        assert output(world) == [["0 kg", "1 kg", "2 kg"], "because of bad", ["go", "on"]], at
        assert len(world.drivers) == 6
        assert not any(driver.messages for driver in world.drivers.values())


# --- many ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [100, 1000])
async def test_many_children_cost_what_each_costs(count: int) -> None:
    async def parent(ctx: Context, _given: Any) -> int:
        async def branch(ctx: Context, number: int) -> str:
            return (await ctx.output(await ctx.dispatch(ship, Parcel(number)))).text

        return len(await ctx.map("all", range(count), branch, concurrency=count))

    world = world_of(parent)
    driver = world.drivers["parent"]
    driver.commit_messages_max = 60  # type: ignore[attr-defined]  # as a store with a limit declares it
    calls = Calls(driver)
    await world.drive()
    assert output(world) == count
    assert len(world.drivers) == count + 1
    assert sum(len(commit.children) for commit in driver.commits) == count
    # Twenty starts a commit, then one to sleep and one to end.
    assert len(driver.commits) == count // 20 + 2
    assert calls.counts["peek"] == 2 * count
    assert all(len(child.commits) == 2 for name, child in world.drivers.items() if name != "parent")
