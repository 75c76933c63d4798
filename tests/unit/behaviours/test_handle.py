"""The handle of a run: messages, wakes, state, output, recovery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from engine import NO_OUTPUT

if TYPE_CHECKING:
    from engine import Context
    from tests.unit.behaviours.world import Counter, World


async def returns(_ctx: Context, given: Any) -> Any:
    return given


async def takes(ctx: Context, _given: Any) -> Any:
    return (await ctx.queue.next("take", names=["go"])).body


async def naps(ctx: Context, _given: Any) -> str:
    await ctx.sleep("nap", 600)
    return "rested"


async def test_a_message_reaches_the_workflow(world: World) -> None:
    handle = world.start(takes)
    await world.settle()
    await handle.message("go", "payload")

    assert (await world.drive(handle, takes)).output == "payload"


async def test_waking_means_now(yielding: World) -> None:
    handle = yielding.start(naps)
    await handle.result

    await handle.wake()

    assert yielding.alarm == yielding.clock.now()


async def test_waking_a_live_run_early_does_not_end_its_sleep(living: World) -> None:
    handle = living.start(naps)
    await living.settle()
    await handle.wake()
    await living.settle()
    assert not living.is_over(handle)

    started = living.clock.now()
    assert (await living.drive(handle, naps)).output == "rested"
    assert living.clock.now() == started + 600_000


@pytest.mark.parametrize("value", ["finished", None, 0])
async def test_state_and_output_can_be_read(world: World, value: Any) -> None:
    async def workflow(ctx: Context, given: Any) -> Any:
        await ctx.sleep("nap", 60)
        return given

    handle = world.start(workflow, value)
    await world.settle()
    assert await handle.get_state() == "sleeping"
    assert await handle.get_output() is NO_OUTPUT
    await world.drive(handle, workflow)

    assert await handle.get_state() == "completed"
    assert await handle.get_output() == value


async def test_a_completed_workflow_runs_nothing_and_gives_its_output(world: World, count: Counter) -> None:
    """The reference runs a completed workflow again; to ours it is over."""

    async def workflow(_ctx: Context, given: Any) -> Any:
        count.note("workflow")
        return given

    await world.through(workflow, 7)
    before = world.driver.dump()

    assert (await world.through(workflow, 8)).output == 7
    assert count["workflow"] == 1
    assert world.driver.dump() == before
    assert world.alarm is None


async def test_recover_acts_on_failed_workflows_only(world: World) -> None:
    handle = world.start(returns, 1)
    await world.drive(handle, returns)
    before = world.driver.dump()

    await handle.recover()

    assert world.driver.dump() == before
