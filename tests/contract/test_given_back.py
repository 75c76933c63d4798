"""A holder that fails before it has begun gives the lease back: nobody waits for it, and nothing counts as a death."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from adapters.dynamodb.model.limits import ATTEMPTS_MAX
from adapters.dynamodb.store import Claimed, NotDue
from engine import values
from engine.commit import Alarm, Commit
from engine.errors import CorruptHistoryError, FencedError, StoreUnavailableError
from engine.handle import run_workflow
from engine.lifecycle import WorkflowState
from tests.contract.aws import Answer

if TYPE_CHECKING:
    from engine.author.context import Context
    from tests.contract.aws import Place

AWAY = [Answer("ProvisionedThroughputExceededException")] * ATTEMPTS_MAX


async def test_a_claim_that_cannot_load_leaves_it_to_the_next(place: Place) -> None:
    await place.store.start(workflow_id="w", type="order", input=b"")
    place.client.plan["query"] = [*AWAY]
    with pytest.raises(StoreUnavailableError):
        await place.store.claim("w")
    assert await place.due() == {"w"}
    assert (await place.claimed(store=place.another("two"))).deaths == 0


async def test_one_that_took_over_from_a_dead_one_counts_that_death_alone(place: Place) -> None:
    await place.started()
    place.clock.shift_ms += 120_000
    for _ in range(3):
        place.client.plan["query"] = [*AWAY]
        with pytest.raises(StoreUnavailableError):
            await place.store.claim("w")
        assert await place.due() == {"w"}
    assert (await place.claimed()).deaths == 1


async def test_a_step_is_not_charged_with_an_attempt_that_nobody_made(moto_place: Place) -> None:
    place = moto_place
    tries: list[int] = []

    def pay() -> None:
        tries.append(len(tries) + 1)
        if len(tries) == 1:
            raise ConnectionError("away for a moment")

    async def order(ctx: Context, _given: Any) -> None:
        await ctx.step("pay", pay, max_retries=1, retry_backoff_base=60.0, retry_backoff_max=60.0)

    await place.store.start(workflow_id="w", type="order", input=values.encode(None))
    await run_workflow("w", order, None, await place.claimed(), clock=place.clock).result
    place.clock.shift_ms += 60_000
    place.client.plan["query"] = [*AWAY]
    with pytest.raises(StoreUnavailableError):
        await place.store.claim("w")
    place.clock.shift_ms += 60_000
    result = await run_workflow("w", order, None, await place.claimed(), clock=place.clock).result
    assert (result.state, tries) == (WorkflowState.COMPLETED, [1, 2])


@pytest.mark.parametrize("ahead_ms", [60_000, None])
async def test_what_was_not_due_is_due_as_before(place: Place, ahead_ms: int | None) -> None:
    driver = await place.started()
    wake_at = None if ahead_ms is None else place.clock.now() + ahead_ms
    await driver.commit(Commit(alarm=Alarm(wake_at), names=("go",), yields=True))
    place.client.plan["query"] = [*AWAY]
    with pytest.raises(StoreUnavailableError):
        await place.store.claim("w")
    assert await place.due() == set()
    assert await place.store.claim("w") == NotDue(wake_at)
    await place.store.send("w", name="go", body=b"")
    assert isinstance(await place.store.claim("w"), Claimed)


async def test_a_claim_that_is_called_off_is_given_back(place: Place) -> None:
    await place.store.start(workflow_id="w", type="order", input=b"")
    is_reading = asyncio.Event()

    async def hang() -> None:
        is_reading.set()
        await asyncio.Event().wait()

    place.client.plan["query"] = [hang]
    claiming = asyncio.ensure_future(place.store.claim("w"))
    await is_reading.wait()
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    assert (await place.claimed()).deaths == 0


async def test_a_replay_that_cannot_load_leaves_it_due(place: Place) -> None:
    holder = await place.started()
    place.client.plan["query"] = [*AWAY]
    with pytest.raises(StoreUnavailableError):
        await place.store.replay("w")
    with pytest.raises(FencedError):
        await holder.commit(Commit(puts=[(b"k", b"v")]))
    assert await place.due() == {"w"}
    assert (await place.claimed()).deaths == 0


async def test_a_replay_of_what_cannot_be_read_leaves_it_as_it_was(place: Place) -> None:
    driver = await place.started()
    wake_at = place.clock.now() + 60_000
    await driver.commit(Commit(alarm=Alarm(wake_at), yields=True))
    log = (await place.items())["LOG#000000000001"]
    await place.client.put_item(TableName=place.table, Item={**log, "b": {"B": b"\xff"}})
    with pytest.raises(CorruptHistoryError):
        await place.store.replay("w")
    head = (await place.items())["HEAD"]
    assert "owner" not in head
    assert head["due_at"] == {"N": str(wake_at)}


@pytest.mark.parametrize("rollback", [False, True])
async def test_a_cancellation_that_cannot_be_written_leaves_it_due(place: Place, *, rollback: bool) -> None:
    await place.started()
    place.client.plan["transact_write_items"] = [*AWAY]
    with pytest.raises(StoreUnavailableError):
        await place.store.cancel("w", rollback=rollback)
    assert await place.due() == {"w"}
    driver = await place.claimed()
    assert (driver.deaths, driver.head.state) == (0, WorkflowState.PENDING)


async def test_a_cancellation_that_cannot_be_written_does_not_wake_who_sleeps(place: Place) -> None:
    start_at = place.clock.now() + 60_000
    await place.store.start(workflow_id="w", type="order", input=b"", start_at=start_at)
    place.client.plan["transact_write_items"] = [*AWAY]
    with pytest.raises(StoreUnavailableError):
        await place.store.cancel("w")
    assert await place.store.claim("w") == NotDue(start_at)
    await place.store.cancel("w")
    assert await place.due(ahead_ms=10**9) == set()
