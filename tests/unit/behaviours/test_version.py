"""get_version: pinned per place, 1 for what an earlier deployment has begun, the latest for what is new."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from engine import Break, Continue, HistoryDivergedError, TorporError

if TYPE_CHECKING:
    from engine import Context
    from tests.unit.behaviours.world import World


async def test_a_new_workflow_gets_the_latest_and_keeps_it(yielding: World) -> None:
    latest = iter([2, 3])

    async def workflow(ctx: Context, _given: Any) -> Any:
        version = await ctx.get_version("gate", next(latest))
        await ctx.sleep("nap", 60)
        return version

    assert (await yielding.through(workflow)).output == 2


async def test_what_an_earlier_deployment_began_stays_at_one(yielding: World) -> None:
    async def old(ctx: Context, _given: Any) -> Any:
        await ctx.step("work", lambda: "done before")
        await ctx.sleep("nap", 60)

    async def new(ctx: Context, _given: Any) -> Any:
        version = await ctx.get_version("gate", 2)
        done = await ctx.step("work", lambda: "done again")
        await ctx.sleep("nap", 60)
        return [version, done]

    await yielding.once(old)

    assert (await yielding.through(new)).output == [1, "done before"]


async def test_the_latest_counts_behind_other_operations_too(world: World) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        await ctx.step("before", lambda: None)
        return await ctx.get_version("gate", 3)

    assert (await world.through(workflow)).output == 3


async def test_a_gate_can_be_removed_when_it_has_served(yielding: World) -> None:
    async def gated(ctx: Context, _given: Any) -> Any:
        await ctx.get_version("gate", 2)
        await ctx.sleep("nap", 60)

    async def cleaned(ctx: Context, _given: Any) -> str:
        await ctx.removed("gate", "version_check")
        await ctx.sleep("nap", 60)
        return "cleaned"

    await yielding.once(gated)

    assert (await yielding.through(cleaned)).output == "cleaned"


async def test_a_gate_where_something_else_stood_diverges(yielding: World) -> None:
    async def step(ctx: Context, _given: Any) -> None:
        await ctx.step("gate", lambda: None)
        await ctx.sleep("nap", 60)

    async def gate(ctx: Context, _given: Any) -> None:
        await ctx.get_version("gate", 2)
        await ctx.sleep("nap", 60)

    await yielding.once(step)
    before = yielding.labels()

    with pytest.raises(HistoryDivergedError, match="gate"):
        await yielding.through(gate)
    assert yielding.labels() == before


@pytest.mark.parametrize("latest", [0, -1, True, 1.5])
async def test_a_version_is_a_whole_number_from_one(world: World, latest: Any) -> None:
    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.get_version("gate", latest)

    with pytest.raises(TorporError, match="latest must be an integer"):
        await world.through(workflow)


async def test_each_iteration_decides_for_itself(yielding: World) -> None:
    seen: dict[int, int] = {}

    def loop(*, gated: bool) -> Any:
        async def workflow(ctx: Context, _given: Any) -> Any:
            async def body(inner: Context, state: int) -> Any:
                if gated:
                    seen[state] = await inner.get_version("gate", 2)
                await inner.step("pre", lambda: None)
                await inner.queue.next("in", names=["work"])
                return Break(state) if state == 2 else Continue(state + 1)

            return await ctx.loop("consume", body, state=0)

        return workflow

    await yielding.send("work", 1)
    assert (await yielding.once(loop(gated=False))).state == "sleeping"
    await yielding.send("work", 2)
    assert (await yielding.once(loop(gated=True))).state == "sleeping"
    await yielding.send("work", 3)

    assert (await yielding.once(loop(gated=True))).output == 2
    assert seen == {1: 1, 2: 2}
