"""Cancelling with a rollback, on the store: nobody writes over it, repeating it changes nothing, and it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from adapters.dynamodb.store import Ended
from engine import values
from engine.commit import Alarm, Commit
from engine.errors import FencedError, WorkflowEndedError, WorkflowNotFoundError
from engine.handle import run_workflow
from engine.keys import ERROR_KEY, OUTPUT_KEY, STATE_KEY
from engine.lifecycle import WorkflowState

if TYPE_CHECKING:
    from engine.author.context import Context
    from tests.contract.aws import Place


async def state_of(place: Place) -> WorkflowState:
    described = await place.store.describe("w")
    assert described is not None
    return described.state


async def test_it_fences_the_holder_and_is_due_at_once(place: Place) -> None:
    driver = await place.started()
    await driver.commit(Commit(puts=[(ERROR_KEY, b"\xa0")], alarm=Alarm(place.clock.now() + 10**8)))
    assert not await place.store.cancel("w", rollback=True)
    assert await state_of(place) is WorkflowState.ROLLING_BACK
    with pytest.raises(FencedError):
        await driver.commit(Commit(puts=[(OUTPUT_KEY, b"\x01")], state=WorkflowState.COMPLETED))
    stored = dict(await place.store.history("w"))
    assert stored[STATE_KEY] == b"rolling_back"
    assert not {ERROR_KEY, OUTPUT_KEY} & stored.keys()
    assert await place.due() == {"w"}
    before = await place.items()
    assert not await place.store.cancel("w", rollback=True)
    assert await place.items() == before


async def test_a_far_sleepers_schedule_is_cleared_by_the_run_that_ends_it(place: Place) -> None:
    driver = await place.started()
    await driver.commit(Commit(alarm=Alarm(place.clock.now() + 10**8), yields=True, state=WorkflowState.SLEEPING))
    assert not await place.store.cancel("w", rollback=True)
    driver = await place.claimed()
    await driver.commit(Commit(alarm=Alarm(None), state=WorkflowState.CANCELLED))
    assert driver.has_stale_schedule


@pytest.mark.parametrize("state", [WorkflowState.COMPLETED, WorkflowState.FAILED])
async def test_what_has_ended_is_refused(place: Place, state: WorkflowState) -> None:
    driver = await place.started()
    await driver.commit(Commit(state=state))
    before = await place.items()
    with pytest.raises(WorkflowEndedError):
        await place.store.cancel("w", rollback=True)
    with pytest.raises(WorkflowNotFoundError):
        await place.store.cancel("never", rollback=True)
    assert await place.items() == before


async def test_of_two_who_cancel_the_slower_does_not_fence_the_rollback(place: Place) -> None:
    await place.started()
    other, runs = place.another("two"), []

    async def the_other_is_faster() -> None:
        await other.cancel("w", rollback=True)
        runs.append(await place.claimed(store=other))

    place.client.plan["update_item"] = [the_other_is_faster]
    assert not await place.store.cancel("w", rollback=True)
    await runs[0].commit(Commit(puts=[(b"k", b"v")]))


async def test_a_rollback_of_a_failure_keeps_its_error(place: Place) -> None:
    driver = await place.started()
    await driver.commit(Commit(puts=[(ERROR_KEY, b"\xa0")], state=WorkflowState.ROLLING_BACK))
    before = await place.items()
    assert not await place.store.cancel("w", rollback=True)
    assert await place.items() == before


async def test_a_run_that_is_cut_off_in_a_step_is_undone_by_the_next_and_ends_cancelled(moto_place: Place) -> None:
    place = moto_place
    told: list[str] = []

    async def cancel() -> None:
        await place.store.cancel("w", rollback=True)

    async def undo(_ctx: Any, output: str) -> None:
        told.append(f"undo {output}")

    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.rollback_checkpoint("from here")
        await ctx.step("first", lambda: "one", rollback=undo)
        await ctx.step("second", cancel, rollback=undo)
        told.append("went on")

    await place.store.start(workflow_id="w", type="order", input=values.encode(None))
    with pytest.raises(FencedError):
        await run_workflow("w", workflow, None, await place.claimed()).result
    assert await state_of(place) is WorkflowState.ROLLING_BACK
    result = await run_workflow("w", workflow, None, await place.claimed()).result
    assert result.state is WorkflowState.CANCELLED
    assert [line for line in told if line != "went on"] == ["undo one"]
    assert await place.store.claim("w") == Ended()
    assert not await place.store.cancel("w", rollback=True)


async def test_a_cancellation_that_does_not_wait_ends_the_rollback_where_it_is(place: Place) -> None:
    await place.started()
    await place.store.cancel("w", rollback=True)
    await place.store.cancel("w")
    assert await state_of(place) is WorkflowState.CANCELLED
    assert await place.store.claim("w") == Ended()
