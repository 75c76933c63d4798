"""Families of workflows run by the engine over DynamoDB: what the limits of a transaction must not be felt at."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from engine import Context, WorkflowState, run_workflow
from engine.values import encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contract.aws import Place

CHILDREN = 200


async def child(_ctx: Context, given: int) -> int:
    return given * 2


async def parent(ctx: Context, given: dict[str, str]) -> int:
    async def one(ctx: Context, number: int) -> int:
        started = await ctx.dispatch("child", number, tags=given)
        return int(await ctx.output(started))

    return sum(await ctx.map("all", list(range(CHILDREN)), one, concurrency=CHILDREN))


async def signaller(ctx: Context, _given: Any) -> int:
    async def one(ctx: Context, _number: int) -> bool:
        return bool(await ctx.signal("news", "x" * 100, to="target"))

    return sum(await ctx.map("all", list(range(CHILDREN)), one, concurrency=CHILDREN))


async def run(place: Place, workflow_id: str, fn: Callable[..., Any]) -> Any:
    driver = await place.claimed(workflow_id)
    return await run_workflow(workflow_id, fn, None, driver).result


async def test_a_join_of_hundreds_of_children(ministack_place: Place) -> None:
    place = ministack_place
    for number, tags in enumerate(({}, {"of": "all"})):
        name = f"parent-{number}"
        await place.store.start(workflow_id=name, type="parent", input=encode(tags))
        place.client.calls.clear()
        driver = await place.claimed(name)
        assert (await run_workflow(name, parent, None, driver).result).state is WorkflowState.SLEEPING
        assert len(driver.made_due) == CHILDREN
        sizes = [len(sent["TransactItems"]) for sent in place.client.sent("transact_write_items")]
        assert max(sizes) <= 100
        # Some thirty children a commit, a dozen notes a transaction, and the yield.
        assert len(sizes) < 40
        started = sorted(driver.made_due)
        for workflow_id in started[:-1]:
            assert (await run(place, workflow_id, child)).state is WorkflowState.COMPLETED
        place.client.calls.clear()
        assert (await run(place, name, parent)).state is WorkflowState.SLEEPING
        assert len(place.client.sent("transact_write_items")) < 20
        await run(place, started[-1], child)
        assert (await run(place, name, parent)).output == sum(range(CHILDREN)) * 2


async def test_hundreds_of_signals_at_once(ministack_place: Place) -> None:
    for workflow_id in ("signaller", "target"):
        await ministack_place.store.start(workflow_id=workflow_id, type="order", input=encode(None))
    assert (await run(ministack_place, "signaller", signaller)).output == CHILDREN
    messages = [name for name in await ministack_place.items("target") if name.startswith("MSG#")]
    assert len(messages) == CHILDREN


async def test_fifty_at_once_have_one_child_where_it_is_unique(ministack_place: Place) -> None:
    """Each has its message in the inbox of the one that is there, whoever started it."""

    async def asks(ctx: Context, _given: Any) -> str:
        shared = await ctx.dispatch("keeper", tags={"shop": "7"}, unique=True)
        await ctx.signal("here I am", ctx.workflow_id, to=shared)
        return str(shared)

    place = ministack_place
    names = [f"asks-{number}" for number in range(50)]
    for workflow_id in names:
        await place.store.start(workflow_id=workflow_id, type="order", input=encode(None))
    results = await asyncio.gather(*(run(place, workflow_id, asks) for workflow_id in names))
    [keeper] = {result.output for result in results}
    messages = [name for name in await place.items(keeper) if name.startswith("MSG#")]
    assert len(messages) == len(names)


async def test_each_of_hundreds_of_targets_gets_its_signal_once(ministack_place: Place) -> None:
    async def tells(ctx: Context, _given: Any) -> int:
        async def one(ctx: Context, number: int) -> bool:
            return await ctx.signal("news", number, to=f"target-{number}")

        return sum(await ctx.map("all", range(CHILDREN), one, concurrency=CHILDREN))

    place = ministack_place
    await place.store.start(workflow_id="tells", type="order", input=encode(None))
    for number in range(CHILDREN):
        await place.store.start(workflow_id=f"target-{number}", type="order", input=encode(None))
    place.client.calls.clear()
    assert (await run(place, "tells", tells)).output == CHILDREN
    sizes = [len(sent["TransactItems"]) for sent in place.client.sent("transact_write_items")]
    assert max(sizes) <= 100
    assert len(sizes) < 20
    for number in range(CHILDREN):
        items = await place.items(f"target-{number}")
        assert len([name for name in items if name.startswith("MSG#")]) == 1
