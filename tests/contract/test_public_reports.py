"""Faults that others have reported, tried on the store: who holds a workflow, what a transaction may be, new code."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from adapters.dynamodb.model.limits import LEASE_MS
from engine import values
from engine.commit import Commit
from engine.errors import FencedError, StoreUnavailableError
from engine.handle import run_workflow
from engine.lifecycle import WorkflowState
from tests.contract.aws import Answer

if TYPE_CHECKING:
    from engine.author.context import Context
    from tests.contract.aws import Place

LOST = TimeoutError("the answer did not come")
CONFLICT = Answer("TransactionCanceledException", ["None", "TransactionConflict"])
REFUSED = Answer("TransactionCanceledException", ["ConditionalCheckFailed", "None", "None"])


class Counted:
    """A workflow of two steps around a hook, and how often each body ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.during: Any = None

    async def first(self) -> str:
        self.ran.append("first")
        if self.during is not None:
            during, self.during = self.during, None
            await during()
        return "one"

    async def second(self) -> str:
        self.ran.append("second")
        return "two"

    async def workflow(self, ctx: Context, _given: Any) -> list[str]:
        return [await ctx.step("first", self.first), await ctx.step("second", self.second)]

    async def run(self, place: Place, **claimed: Any) -> Any:
        driver = await place.claimed(**claimed)
        return await run_workflow("w", self.workflow, None, driver).result


async def test_b06_a_second_delivery_during_a_long_step_starts_no_second_copy(moto_place: Place) -> None:
    counted = Counted()
    await moto_place.store.start(workflow_id="w", type="order", input=values.encode(None))
    seen: list[str] = []

    async def deliver_again() -> None:
        claims = [await moto_place.another("two").claim("w") for _ in range(3)]
        seen.extend(type(claim).__name__ for claim in claims)

    counted.during = deliver_again
    assert (await counted.run(moto_place)).output == ["one", "two"]
    assert (seen, counted.ran) == (["Held"] * 3, ["first", "second"])


async def test_b06_an_owner_whose_lease_was_taken_over_changes_nothing_any_more(moto_place: Place) -> None:
    counted, place = Counted(), moto_place
    await place.store.start(workflow_id="w", type="order", input=values.encode(None))

    async def be_taken_over() -> None:
        place.clock.shift_ms += 2 * LEASE_MS
        assert (await counted.run(place, store=place.another("two"))).state is WorkflowState.COMPLETED

    counted.during = be_taken_over
    with pytest.raises(FencedError):
        await counted.run(place)
    # The frozen one had begun its step; what the other one did and committed is what stands.
    assert counted.ran == ["first", "first", "second"]
    described = await place.store.describe("w")
    assert described is not None
    assert (described.state, described.deaths) == (WorkflowState.COMPLETED, 0)


async def test_b15_a_sender_that_tries_again_after_every_lost_answer_counts_once(moto_place: Place) -> None:
    await moto_place.store.start(workflow_id="w", type="order", input=b"\xf6")
    for operation in ("update_item", "transact_write_items"):
        for loss in (LOST, ("after", LOST)):
            moto_place.client.plan = {operation: [loss] * 12}
            with contextlib.suppress(StoreUnavailableError):
                await moto_place.store.send("w", name="go", body=b"\x01", message_id="key")
    moto_place.client.plan.clear()
    replies = [await moto_place.store.send("w", name="go", body=b"\x01", message_id="key") for _ in range(3)]
    assert {reply.message_id for reply in replies} == {"key"}
    driver = await moto_place.claimed()
    assert len(await driver.message_driver.receive((), 9)) == 1


async def test_b50_conflicts_and_throttles_in_any_number_are_one_applied_flush(moto_place: Place) -> None:
    counted = Counted()
    await moto_place.store.start(workflow_id="w", type="order", input=values.encode(None))
    moto_place.client.plan["transact_write_items"] = [
        *[CONFLICT] * 3,
        *[Answer("TransactionInProgressException")] * 2,
        *[Answer("ThrottlingException")] * 2,
    ]
    assert (await counted.run(moto_place)).output == ["one", "two"]
    assert counted.ran == ["first", "second"]


async def test_b51_ones_own_flush_is_recognised_when_the_retry_is_refused(moto_place: Place) -> None:
    counted = Counted()
    await moto_place.store.start(workflow_id="w", type="order", input=values.encode(None))
    # Applied, its answer lost, and the token long forgotten: the retry finds a HEAD that has moved.
    moto_place.client.plan["transact_write_items"] = [("after", LOST), REFUSED]
    assert (await counted.run(moto_place)).output == ["one", "two"]
    assert counted.ran == ["first", "second"]


@pytest.mark.parametrize("entries", [0, 1, 99, 100, 101, 250])
async def test_b53_any_number_of_entries_is_one_transaction_and_one_action_an_item(place: Place, entries: int) -> None:
    driver = await place.started()
    keys = [b"key%03d" % number for number in range(entries)]
    await driver.commit(Commit(puts=[(key, b"old") for key in keys]))
    # Set and deleted in one tick, as a loop that writes its state and prunes does.
    await driver.commit(Commit(deletes=keys, prefixes=[b"key"], puts=[(key, b"new") for key in keys]))
    assert await driver.list(b"key") == [(key, b"new") for key in keys]
    for request in place.client.sent("transact_write_items"):
        touched = [str(next(iter(action.values()))) for action in request["TransactItems"]]
        assert len(touched) == len(set(touched)) <= 100


async def test_b58_a_sleeper_goes_on_on_its_old_path_in_the_new_build(moto_place: Place) -> None:
    async def old(ctx: Context, _given: Any) -> list[str]:
        await ctx.step("charge", lambda: None)
        await ctx.sleep("nap", 60)
        return ["old build"]

    async def new(ctx: Context, _given: Any) -> list[str]:
        await ctx.step("charge", lambda: None)
        version = await ctx.get_version("with-check", 2)
        path = [f"version {version}"]
        if version >= 2:
            path.append(await ctx.step("check", lambda: "checked"))
        await ctx.sleep("nap", 60)
        return path

    async def run(workflow_id: str, build: Any) -> Any:
        return await run_workflow(workflow_id, build, None, await moto_place.claimed(workflow_id)).result

    for workflow_id, build in (("before", old), ("after", new)):
        await moto_place.store.start(workflow_id=workflow_id, type="order", input=values.encode(None))
        assert (await run(workflow_id, build)).state is WorkflowState.SLEEPING
    moto_place.clock.shift_ms += 61_000
    assert (await run("before", new)).output == ["version 1"]
    assert (await run("after", new)).output == ["version 2", "checked"]


async def test_b08_siblings_a_replayed_and_a_recovered_life_see_only_their_own(moto_place: Place) -> None:
    counted = Counted()
    await moto_place.store.start(workflow_id="w", type="order", input=values.encode(None))
    await counted.run(moto_place)
    for _ in range(3):
        await moto_place.store.replay("w")
        assert (await counted.run(moto_place)).output == ["one", "two"]
        await asyncio.sleep(0)
    assert counted.ran == ["first", "second"] * 4
