"""Waiting for the end of other workflows: who waits is noted with those, and told once they have ended.

A waiter puts a note into the partition of the one it waits for, then counts up ``waited`` in that one's INBOX on the
condition that it has not been closed, then sees that the workflow is there. An end closes INBOX on the condition that
the count is the one that its writer knows. So either the end comes first, and the waiter is refused; or the count does,
and the end leaves HEAD due until every waiter has been told. None of that is a transaction with HEAD, which a workflow
at work writes all the time. What a waiter is told is a count and an id in its own INBOX, which is due from then on; a
yield is conditioned on that count as on the number of messages. Which notes of its own stand, a waiter knows from its
item WAITS: those of its last yield, less those it was told of since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from adapters.dynamodb.errors import ConditionFailedError, TransactionRefusedError
from adapters.dynamodb.inbox import check_owned
from adapters.dynamodb.model.conditions import IS_NOT_CLOSED, IS_OPEN
from adapters.dynamodb.model.expressions import Change, Condition, check_action, delete_action, number, update_action
from adapters.dynamodb.model.items import (
    AWAIT_PREFIX,
    HEAD,
    INBOX,
    await_key,
    decode_head,
    due,
    head_change,
    integer,
    key,
)
from adapters.dynamodb.model.limits import NOTES_AT_ONCE, TELL_AT_ONCE
from adapters.dynamodb.model.partition import items_query_of
from adapters.dynamodb.model.schema import SORT_KEY
from adapters.dynamodb.together import batches, together
from engine.errors import InboxMovedError, StoreUnavailableError, WorkflowNotFoundError
from engine.lifecycle import ENDED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from adapters.dynamodb.model.items import Head
    from adapters.dynamodb.table import Connection, Table


class Waits:
    """Which workflows a holder is noted with as one who waits for their ends.

    Attributes:
        stored: those of WAITS.
        early: those with which this holder has noted itself since.
    """

    __slots__ = ("early", "stored")

    def __init__(self, stored: Iterable[str] = ()) -> None:
        self.stored = frozenset(stored)
        self.early: set[str] = set()

    def missing(self, awaited: Iterable[str], told: Collection[str]) -> list[str]:
        """Those of ``awaited`` with which a note has yet to be left, where the ends of ``told`` have been told of."""
        return [workflow_id for workflow_id in dict.fromkeys(awaited) if not self.is_noted(workflow_id, told)]

    def is_noted(self, awaited: str, told: Collection[str]) -> bool:
        """Whether the end of ``awaited`` will be told of, and has not been by the time of a look that saw ``told``."""
        return (awaited in self.stored or awaited in self.early) and awaited not in told


async def note(connection: Connection, waiter: str, awaited: Sequence[str]) -> None:
    """Note a waiter with every one of these workflows. Where it then does not sleep, that costs a wake for nothing.

    Raises:
        InboxMovedError: one of them has ended, or is not there.
    """
    for some in batches(awaited, NOTES_AT_ONCE):
        if not all(await together(_note(connection, waiter, one) for one in some)):
            raise InboxMovedError(f"a workflow that {waiter!r} waits for has ended")


async def _note(connection: Connection, waiter: str, awaited: str) -> bool:
    """Note a waiter; False where the workflow has ended, or is not there."""
    table, inbox = connection.table, key(awaited, INBOX)
    await table.put(key(awaited, await_key(waiter)))
    try:
        # Counted twice, where an answer was lost, it is a count all the same.
        await table.update(inbox, Change(adds={"waited": 1}), IS_NOT_CLOSED)
    except ConditionFailedError:
        return False
    if await table.get(key(awaited, HEAD)) is not None:
        # Should it end from here on, whoever writes that has seen the count.
        return True
    await _take_back(connection, waiter, awaited)
    return False


async def _take_back(connection: Connection, waiter: str, awaited: str) -> None:
    """Leave nothing of a note with one that is not there, or was purged a moment ago, as long as nobody begins it.

    The inbox goes with the last who has counted there. Whoever has not looked for HEAD yet counts on it: it may be
    there by then, and its end is told if INBOX says that somebody waits.
    """
    inbox = key(awaited, INBOX)
    is_gone = check_action(key(awaited, HEAD), Condition("attribute_not_exists(#pk)"))
    one = {":one": number(1)}
    is_alone = Condition("attribute_not_exists(#n) AND #waited = :one", one)
    alone = [is_gone, delete_action(inbox, is_alone), delete_action(key(awaited, await_key(waiter)))]
    # The note stays, as another holder of the same waiter may be among the others: it costs a wake for nothing.
    among_others = [is_gone, update_action(inbox, Change(adds={"waited": -1}), Condition("#waited > :one", one))]
    for actions in (alone, among_others):
        try:
            await connection.table.transact(actions, f"forget {connection.ids.new()}")
        except TransactionRefusedError as refused:
            if 0 in refused.failed:
                return
        else:
            return


async def waited_for(table: Table, workflow_id: str) -> int:
    """How often others have begun to wait for a workflow's end, as of now."""
    item = await table.get(key(workflow_id, INBOX))
    return 0 if item is None else integer(item, "waited")


async def tell_waiters(table: Table, ended: Head, now: int) -> list[str]:
    """Tell everybody who waits for the end of a workflow; those that are due now because of it.

    Whoever has gone or ended itself is left out. What is told twice costs a wake.

    Raises:
        StoreUnavailableError: somebody could not be told; everybody else has been.
    """
    waiters = await _waiters(table, ended.workflow_id)
    told: list[str] = []
    failures: list[StoreUnavailableError] = []

    async def tell(waiter: str) -> bool:
        try:
            return await _tell(table, waiter, ended.workflow_id, now)
        except StoreUnavailableError as error:
            failures.append(error)
            return False

    for some in batches(waiters, TELL_AT_ONCE):
        answers = await together(map(tell, some))
        told += [waiter for waiter, is_told in zip(some, answers, strict=True) if is_told]
    if failures:
        raise failures[0]
    return told


async def is_to_be_seen(table: Table, workflow_id: str) -> bool:
    """Whether somebody was told of the end of a workflow, and has not been asleep or ended since: it has yet to look.

    Once all have been told it can only become false.
    """
    waiters = await _waiters(table, workflow_id)
    for some in batches(waiters, TELL_AT_ONCE):
        if any(await together(_has_to_look(table, one, workflow_id) for one in some)):
            return True
    return False


async def _has_to_look(table: Table, waiter: str, ended: str) -> bool:
    inbox = await table.get(key(waiter, INBOX))
    return inbox is not None and "closed" not in inbox and ended in inbox.get("told", {}).get("SS", ())


async def _waiters(table: Table, workflow_id: str) -> list[str]:
    query = items_query_of(workflow_id, AWAIT_PREFIX)
    return [item[SORT_KEY]["S"].removeprefix(AWAIT_PREFIX) async for item in table.query(query)]


async def _tell(table: Table, waiter: str, ended: str, now: int) -> bool:
    try:
        await _count_up(table, waiter, ended, now, IS_OPEN)
    except ConditionFailedError as failed:
        if failed.item and "closed" in failed.item:
            return False
    else:
        return True
    # One that noted itself ahead of its first yield has no INBOX yet; nothing but HEAD says whether it is there.
    stored = await table.get(key(waiter, HEAD))
    if stored is None or decode_head(stored).state in ENDED:
        return False
    try:
        await _count_up(table, waiter, ended, now, IS_NOT_CLOSED)
        await check_owned(table, waiter, f"{ended} {now}")
    except (ConditionFailedError, WorkflowNotFoundError):
        return False
    return True


async def _count_up(table: Table, waiter: str, ended: str, now: int, condition: Condition) -> None:
    # Due since when it has been, as a message leaves it too.
    change = Change(defaults=due(waiter, now), adds={"told_n": 1}, unions={"told": [ended]})
    await table.update(key(waiter, INBOX), change, condition)


async def have_told(table: Table, ended: Head) -> Head:
    """Write that all waiters know of an end, unless somebody has changed HEAD meanwhile; HEAD as it is then."""
    after = replace(ended, waited=0, due_at=None)
    same = Condition(
        "#epoch = :epoch AND #seq = :seq AND attribute_not_exists(#owner)",
        {":epoch": number(ended.epoch), ":seq": number(ended.seq)},
    )
    try:
        await table.update(key(ended.workflow_id, HEAD), head_change(ended, after), same)
    except ConditionFailedError:
        return ended
    return after
