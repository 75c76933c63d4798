"""Reaching into a workflow from outside, through the epoch, so that whoever runs it is fenced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.dynamodb.errors import ConditionFailedError
from adapters.dynamodb.model.conditions import HAS_FAILED, HAS_NOT_ENDED, IS_NOT_UNDONE, is_free_to_run
from adapters.dynamodb.model.expressions import Change
from adapters.dynamodb.model.items import HEAD, decode_head, due, key
from adapters.dynamodb.model.limits import LEASE_MS
from adapters.dynamodb.model.naming import check_id
from engine.commit import Alarm, Commit
from engine.errors import WorkflowEndedError, WorkflowNotFoundError
from engine.handle import recover_workflow, replay_workflow_from_step
from engine.keys import ERROR_KEY, STATE_KEY
from engine.lifecycle import ENDED, WorkflowState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from adapters.dynamodb.lease import Claims
    from adapters.dynamodb.table import Connection
    from engine.commit import Pruning
    from engine.history.hooks import HistorySnapshot


async def wake(connection: Connection, workflow_id: str) -> None:
    """Make a workflow due now, but for one whose start is put off.

    One that is running looks at everything anyway before it sleeps: nothing is written.

    Raises:
        WorkflowNotFoundError, WorkflowEndedError: there is nothing to wake.
    """
    check_id(workflow_id)
    now = connection.clock.now()
    try:
        await connection.table.update(key(workflow_id, HEAD), Change(sets=due(workflow_id, now)), is_free_to_run(now))
    except ConditionFailedError as failed:
        if not failed.item:
            raise WorkflowNotFoundError(f"no workflow has the id {workflow_id!r}") from None
        if decode_head(failed.item).state in ENDED:
            raise WorkflowEndedError(f"the workflow {workflow_id!r} has ended") from None


async def cancel(
    claims: Claims,
    workflow_id: str,
    *,
    pruning_of: Callable[[str], Pruning | None],
    on_due: Callable[[Collection[str]], None],
) -> bool:
    """End a workflow as cancelled; whoever runs it is fenced at its next commit. No rollback runs.

    ``on_due`` is called with the ids of workflows that waited for its end and are due now; ``pruning_of`` a type is
    what is to be forgotten of what ends here. Cancelling a cancelled workflow changes nothing. The answer is whether a
    schedule is left to be cleared.

    Raises:
        WorkflowNotFoundError: there is no such workflow.
        WorkflowEndedError: it has completed or failed.
    """
    try:
        async with claims.seized_blind(workflow_id, lease_ms=LEASE_MS, condition=HAS_NOT_ENDED) as driver:
            driver.on_due = on_due
            state = WorkflowState.CANCELLED
            puts, pruning = [(STATE_KEY, state.encode())], pruning_of(driver.type)
            await driver.commit(Commit(puts=puts, alarm=Alarm(None), state=state, pruning=pruning))
            return driver.has_stale_schedule
    except ConditionFailedError as refused:
        _refuse_unless(refused, workflow_id, WorkflowState.CANCELLED)
        return False


async def cancel_with_rollback(connection: Connection, claims: Claims, workflow_id: str) -> None:
    """Have a workflow undo what it has done and then end as cancelled; whoever runs it is fenced at its next commit.

    It is due at once. One that rolls back already goes on to the end it was going to have, and a cancelled one stays
    as it is: nothing is written. Its schedule, if any, is cleared by the run that ends it.

    Raises:
        WorkflowNotFoundError: there is no such workflow.
        WorkflowEndedError: it has completed or failed.
    """
    state = WorkflowState.ROLLING_BACK
    try:
        # Looking first would not do: a run that has begun to undo meanwhile would be fenced in the midst of it.
        async with claims.seized_blind(workflow_id, lease_ms=LEASE_MS, condition=IS_NOT_UNDONE) as driver:
            # Without a stored error the rollback is that of a cancellation, and ends as one.
            puts = [(STATE_KEY, state.encode())]
            await driver.commit(Commit(puts=puts, deletes=[ERROR_KEY], alarm=Alarm(None), state=state))
            await driver.release(wake_at=connection.clock.now())
    except ConditionFailedError as refused:
        _refuse_unless(refused, workflow_id, state, WorkflowState.CANCELLED)


def _refuse_unless(refused: ConditionFailedError, workflow_id: str, *states: WorkflowState) -> None:
    assert refused.item is not None
    state = decode_head(refused.item).state
    if state not in states:
        raise WorkflowEndedError(f"the workflow {workflow_id!r} is {state}") from None


async def recover(connection: Connection, claims: Claims, workflow_id: str) -> bool:
    """Let a failed workflow go on, due now; False, and nothing is written, where it has not failed.

    Raises:
        WorkflowNotFoundError: there is no such workflow.
    """
    try:
        # Looking first would not do: a run that goes on already would be fenced in the midst of a step.
        driver = await claims.seize(workflow_id, lease_ms=LEASE_MS, condition=HAS_FAILED)
    except ConditionFailedError:
        return False
    try:
        return await recover_workflow(workflow_id, driver)
    finally:
        await driver.release(wake_at=connection.clock.now())


async def replay(connection: Connection, claims: Claims, workflow_id: str, entry_id: str | None) -> HistorySnapshot:
    """Forget a step and everything created after it (None: all of it), due now; a running holder is fenced.

    The answer is the history that is left.

    Raises:
        WorkflowNotFoundError: there is no such workflow.
        InvalidReplayError: there is no such step, or something that would remain is running; nothing was forgotten.
    """
    driver = await claims.seize(workflow_id, lease_ms=LEASE_MS)
    try:
        return await replay_workflow_from_step(workflow_id, driver, entry_id)
    finally:
        await driver.release(wake_at=connection.clock.now())
