"""Removing an ended workflow for good, HEAD last: whoever is cut short at any page is gone on from, by anyone.

Every deletion is held to the epoch in HEAD. Two who purge at once, or one that was frozen halfway, therefore never
delete what belongs to a later workflow of the same id: HEAD of that one has another epoch, and the transaction fails.

What it costs: each item's kilobytes twice (a transaction), two write units for each hundred items, and about ten for
HEAD, INBOX and their places in the indexes; reading is the bytes over 4 KB.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from adapters.dynamodb.ends import is_to_be_seen, tell_waiters
from adapters.dynamodb.errors import ConditionFailedError, TransactionRefusedError
from adapters.dynamodb.model.conditions import HAS_ENDED, has_outlived
from adapters.dynamodb.model.expressions import (
    Change,
    Condition,
    check_action,
    delete_action,
    item_bytes,
    number,
)
from adapters.dynamodb.model.items import HEAD, INBOX, decode_head, due, kept, key
from adapters.dynamodb.model.limits import (
    ALARM_EARLY_MS,
    OUTSTANDING_MAX_MS,
    PURGE_LOOK_MS,
    SEEN_LOOK_MS,
    TRANSACTION_ACTIONS_MAX,
    TRANSACTION_BYTES_MAX,
    TRANSACTION_RESERVE_BYTES,
)
from adapters.dynamodb.model.naming import check_id
from adapters.dynamodb.model.partition import whole_query_of
from adapters.dynamodb.model.schema import LIST_AT, LIST_TYPE, SORT_KEY
from adapters.dynamodb.model.tags import leave_place
from engine.errors import FencedError, WorkflowNotEndedError, WorkflowNotFoundError
from engine.lifecycle import WorkflowState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from adapters.dynamodb.model.expressions import Item
    from adapters.dynamodb.model.items import Head
    from adapters.dynamodb.table import Connection

_IS_BEGUN = Condition(f"{HAS_ENDED.expression} AND attribute_exists(#purging_at)", HAS_ENDED.values)
_BATCH_ITEMS = TRANSACTION_ACTIONS_MAX - 1
_BATCH_BYTES = TRANSACTION_BYTES_MAX - TRANSACTION_RESERVE_BYTES


class Purge(Struct, frozen=True):
    """How far a purge has come.

    ``again_at`` is when to go on (milliseconds since the epoch), None when all is gone; ``told`` are workflows that
    waited for its end and are due now, because of this call; to be woken.
    """

    again_at: int | None = None
    told: tuple[str, ...] = ()


async def purge(
    connection: Connection,
    workflow_id: str,
    *,
    until: int | None,
    is_outlived: bool = False,
    is_begun: bool = False,
) -> Purge:
    """Delete everything of an ended workflow; to be called again at the answer's ``again_at`` until that is None.

    From the first call on the workflow is as good as gone, but that its id cannot be started anew before all is
    deleted. That takes until a minute after its end: so long a sender that took a ticket may still put its message.
    ``until`` (milliseconds) is when this call has to come back. ``is_outlived``: only where the while for which it was
    to be kept is over, no operator has it, and whoever has waited for its end has looked at it. ``is_begun``: only
    where a purge was begun before; whoever goes on with one may have been stalled until there is a later workflow of
    the same id, which has ended too.

    Raises:
        WorkflowNotFoundError: there is no such workflow, or nothing is left of it.
        WorkflowNotEndedError: it has not ended, or not for so long, or is waited for, or nobody has begun; nothing was
            written.
        FencedError: somebody else purges it.
    """
    check_id(workflow_id)
    if is_outlived and await is_to_be_seen(connection.table, workflow_id):
        await _look_later(connection, workflow_id)
        raise WorkflowNotEndedError(f"somebody who has waited for the end of {workflow_id!r} has yet to look at it")
    condition = has_outlived(connection.clock.now()) if is_outlived else _IS_BEGUN if is_begun else HAS_ENDED
    head = await _mark(connection, workflow_id, condition)
    told, is_empty = await _empty(connection, head, until)
    if not is_empty:
        return Purge(connection.clock.now(), told)
    last_word_at = (head.ended_at or head.updated_at) + OUTSTANDING_MAX_MS
    if connection.clock.now() < last_word_at:
        # An alarm may come a little early; then the mark would be written again and again until the time is there.
        return Purge(last_word_at + ALARM_EARLY_MS, told)
    await _delete_head(connection, head)
    return Purge(None, told)


async def vacate(connection: Connection, workflow_id: str, *, until: int) -> Head | None:
    """Go on with a purge until HEAD and INBOX are all that is left; HEAD then, None where ``until`` came first.

    Whoever takes the id over is held to that HEAD: nobody else has gone on with the purge, or taken it over, since.

    Raises:
        WorkflowNotFoundError, WorkflowNotEndedError: it is gone, or another one has the id; nothing was written.
        FencedError: somebody else purges it.
    """
    head = await _mark(connection, workflow_id, _IS_BEGUN)
    _, is_empty = await _empty(connection, head, until)
    return head if is_empty else None


async def _empty(connection: Connection, head: Head, until: int | None) -> tuple[tuple[str, ...], bool]:
    """Delete all but HEAD and INBOX: who is due because of it, and whether that came to its end before ``until``."""
    if head.is_unique and head.state is WorkflowState.FAILED:
        await _leave_place(connection, head)
    # Before their notes go with everything else.
    told = tuple(await tell_waiters(connection.table, head, connection.clock.now()) if head.waited else ())
    async for batch in _batches(connection, head.workflow_id):
        await _delete(connection, head, batch)
        if until is not None and connection.clock.now() >= until:
            return told, False
    return told, True


async def _look_later(connection: Connection, workflow_id: str) -> None:
    """Have a sweep find it again in a while: who never looks must not keep the others from being found."""
    now = connection.clock.now()
    with suppress(ConditionFailedError):
        later = Change(sets=kept(workflow_id, now + SEEN_LOOK_MS))
        await connection.table.update(key(workflow_id, HEAD), later, has_outlived(now))


async def _mark(connection: Connection, workflow_id: str, condition: Condition) -> Head:
    """Say in HEAD that the workflow is being purged, by us; it is due, lest nobody goes on."""
    now = connection.clock.now()
    change = Change(
        sets={"purging_at": number(now), **due(workflow_id, now + PURGE_LOOK_MS)},
        removes=("owner", "lease_until", LIST_TYPE, LIST_AT),
        adds={"epoch": 1},
    )
    try:
        marked = await connection.table.update(key(workflow_id, HEAD), change, condition, returns="ALL_NEW")
    except ConditionFailedError as failed:
        if not failed.item:
            raise WorkflowNotFoundError(f"no workflow has the id {workflow_id!r}") from None
        raise WorkflowNotEndedError(f"{workflow_id!r} has not ended: cancel it first, or let it end") from None
    return decode_head(marked)


async def _leave_place(connection: Connection, head: Head) -> None:
    """Free the place of a unique workflow that has failed, unless another one has taken it."""
    actions = [check_action(key(head.workflow_id, HEAD), _is_ours(head)), leave_place(head)]
    try:
        await connection.table.transact(actions, f"purge {connection.ids.new()}")
    except TransactionRefusedError as refused:
        if 0 in refused.failed:
            raise FencedError(f"somebody else purges {head.workflow_id!r}") from None


async def _batches(connection: Connection, workflow_id: str) -> AsyncIterator[list[Item]]:
    """The keys of everything but HEAD and INBOX, as many at a time as one transaction can delete."""
    batch: list[Item] = []
    size = 0
    async for item in connection.table.query(whole_query_of(workflow_id)):
        sort_key = item[SORT_KEY]["S"]
        if sort_key in (HEAD, INBOX):
            continue
        if len(batch) == _BATCH_ITEMS or size + item_bytes(item) > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(key(workflow_id, sort_key))
        size += item_bytes(item)
    if batch:
        yield batch


def _is_ours(head: Head) -> Condition:
    return Condition("#epoch = :epoch AND attribute_exists(#purging_at)", {":epoch": number(head.epoch)})


async def _delete(connection: Connection, head: Head, batch: list[Item]) -> None:
    check = check_action(key(head.workflow_id, HEAD), _is_ours(head))
    try:
        await connection.table.transact([check, *map(delete_action, batch)], f"purge {connection.ids.new()}")
    except TransactionRefusedError:
        raise FencedError(f"somebody else purges {head.workflow_id!r}") from None


async def _delete_head(connection: Connection, head: Head) -> None:
    last = [delete_action(key(head.workflow_id, HEAD), _is_ours(head)), delete_action(key(head.workflow_id, INBOX))]
    try:
        await connection.table.transact(last, f"purge {connection.ids.new()}")
    except TransactionRefusedError as refused:
        # A first try, its answer lost, may have been applied; then the workflow is gone, as it should be.
        if refused.is_ambiguous:
            return
        raise FencedError(f"somebody else purges {head.workflow_id!r}") from None
