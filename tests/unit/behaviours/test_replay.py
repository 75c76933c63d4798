"""replay_workflow_from_step: a step and all that was created after it are forgotten, and the run goes on from there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from engine import Break, Continue, replay_workflow_from_step
from engine.errors import InvalidReplayError

if TYPE_CHECKING:
    from engine import Context
    from tests.unit.behaviours.world import Counter, World


def three(count: Counter) -> Any:
    async def workflow(ctx: Context, given: Any) -> Any:
        return [given, *[await ctx.step(name, lambda name=name: count.note(name)) for name in ("one", "two", "three")]]

    return workflow


async def test_a_step_and_those_after_it_run_again(world: World, count: Counter) -> None:
    await world.through(three(count), "given")

    snapshot = await replay_workflow_from_step(world.id, world.driver, world.step_id("two"))
    assert len(snapshot.entries) == 1
    assert (await world.state(), world.alarm) == ("sleeping", world.clock.now())
    result = await world.through(three(count), "another")

    assert (count["one"], count["two"], count["three"]) == (1, 2, 2)
    assert result.output == ["given", 1, 2, 2]


async def test_without_a_step_all_runs_again_with_the_same_input(world: World, count: Counter) -> None:
    await world.through(three(count), "given")

    await replay_workflow_from_step(world.id, world.driver)

    assert (await world.through(three(count), "another")).output == ["given", 2, 2, 2]


async def test_the_alarm_can_be_left_to_the_caller(world: World, count: Counter) -> None:
    await world.through(three(count))

    await replay_workflow_from_step(world.id, world.driver, schedule_alarm=False)

    assert (await world.state(), world.alarm) == ("sleeping", None)


def looping(count: Counter, *, sleeps: bool = False) -> Any:
    async def workflow(ctx: Context, _given: Any) -> None:
        async def outer(inner: Context, state: int) -> Any:
            async def body(innermost: Context, inner_state: int) -> Any:
                await innermost.step("deep", lambda: count.note(f"deep {state}.{inner_state}"))
                return Break(None) if inner_state else Continue(1)

            await inner.step("shallow", lambda: count.note(f"shallow {state}"))
            await inner.loop("inner", body, state=0)
            if sleeps and state:
                await inner.sleep("pause", 20)
            return Break(None) if state else Continue(1)

        await ctx.step("before", lambda: count.note("before"))
        await ctx.loop("outer", outer, state=0)
        await ctx.step("after", lambda: count.note("after"))

    return workflow


@pytest.mark.parametrize("label", ["outer/~1/shallow", "outer/~1/inner/~1/deep", "outer/~0/inner/~0/deep"])
async def test_a_step_in_loops_rewinds_the_outermost(world: World, count: Counter, label: str) -> None:
    """The reference rewinds the innermost loop, whose outer one has moved on; ours rewinds the outermost."""
    await world.through(looping(count))
    before = dict(count)

    await replay_workflow_from_step(world.id, world.driver, world.step_id(label))
    await world.through(looping(count))

    assert count["before"] == 1
    assert {name: number for name, number in count.items() if name != "before"} == {
        name: 2 for name in before if name != "before"
    }


async def test_a_loop_that_sleeps_can_be_rewound(yielding: World, count: Counter) -> None:
    assert (await yielding.once(looping(count, sleeps=True))).state == "sleeping"

    await replay_workflow_from_step(yielding.id, yielding.driver, yielding.step_id("outer/~1/shallow"))
    assert (await yielding.once(looping(count, sleeps=True))).state == "sleeping"
    await yielding.through(looping(count, sleeps=True))

    assert (count["before"], count["shallow 0"], count["shallow 1"], count["after"]) == (1, 2, 2, 1)


async def test_a_failed_workflow_can_be_replayed(world: World, count: Counter) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        await ctx.step("one", lambda: count.note("one"))
        return await ctx.step("two", count.failing("two", times=1, then="up"), max_retries=0)

    with pytest.raises(Exception, match="attempt 1 of two"):
        await world.through(workflow)

    await replay_workflow_from_step(world.id, world.driver, world.step_id("two"))

    assert (await world.through(workflow)).output == "up"
    assert (count["one"], count["two"]) == (1, 2)


@pytest.mark.parametrize("target", ["unknown", "nap"])
async def test_only_a_step_of_this_history_can_be_replayed(yielding: World, target: str) -> None:
    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.step("one", lambda: 1)
        await ctx.sleep("nap", 60)

    await yielding.once(workflow)
    ids = {label: entry.id for label, entry in yielding.by_label().items()}
    before = yielding.driver.dump()

    with pytest.raises(InvalidReplayError):
        await replay_workflow_from_step(yielding.id, yielding.driver, ids.get(target, target))
    assert yielding.driver.dump() == before
