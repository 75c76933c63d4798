"""A message that comes while a step is under way, over DynamoDB: the holder sees it, whose wake was dropped."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from adapters.dynamodb.store import Held
from engine import Context, run_workflow
from engine.values import encode

if TYPE_CHECKING:
    from tests.contract.aws import Place

WORK_S = 600


async def test_a_message_calls_off_a_step_of_the_one_who_holds_the_workflow(place: Place) -> None:
    begun, has_looked = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await asyncio.sleep(WORK_S)

    async def called_off(ctx: Context, _given: Any) -> list[Any]:
        async def working(ctx: Context) -> None:
            await ctx.step("work", work, timeout=0)

        async def listening(ctx: Context) -> Any:
            return (await ctx.queue.next("wait", "stop")).body

        race = await ctx.race("race", {"working": working, "listening": listening})
        return [race.winner, race.value]

    driver = await place.started()
    running = asyncio.ensure_future(run_workflow("w", called_off, None, driver).result)
    await begun.wait()
    # It may not be over before somebody has looked.
    place.client.plan["transact_write_items"] = [has_looked.wait]
    await place.store.send("w", name="stop", body=encode("enough"))
    # Whoever is woken by it can do nothing.
    assert isinstance(await place.store.claim("w"), Held)
    has_looked.set()
    result = await asyncio.wait_for(running, timeout=WORK_S / 10)
    assert result.output == ["listening", "enough"]


async def test_looking_reads_one_item_where_nothing_came(place: Place) -> None:
    driver = await place.started()
    await driver.refresh()
    place.client.calls.clear()
    await driver.refresh()
    assert [name for name, _ in place.client.calls] == ["get_item"]
    await place.store.send("w", name="go", body=b"\x01")
    place.client.calls.clear()
    await driver.refresh()
    assert [name for name, _ in place.client.calls] == ["get_item", "query"]
    assert [message.body for message in await driver.message_driver.receive((), 9)] == [b"\x01"]


async def until_asked(place: Place, operation: str) -> None:
    for _ in range(6000):
        if not place.client.plan[operation]:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{operation} is not called")


async def test_a_message_that_two_looks_cross_is_not_slept_over(place: Place) -> None:
    driver = await place.started()
    is_put, is_answered = asyncio.Event(), asyncio.Event()
    place.client.plan["put_item"] = [is_put.wait]
    sending = asyncio.ensure_future(place.store.send("w", name="go", body=b"\x01"))
    await until_asked(place, "put_item")
    # The ticket is given and the message is not there yet. A look reads so, and its answer is long in coming.
    place.client.plan["query"] = [("held", is_answered)]
    looks = [asyncio.ensure_future(driver.refresh())]
    await until_asked(place, "query")
    is_put.set()
    await sending
    looks.append(asyncio.ensure_future(driver.refresh()))
    await asyncio.sleep(0.3)
    is_answered.set()
    await asyncio.gather(*looks)
    assert [message.body for message in await driver.message_driver.receive(("go",), 9)] == [b"\x01"]
