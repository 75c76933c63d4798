"""Waiting for the end of other workflows: who waits is noted with those, and told once they have ended.

A waiter notes itself in the partition of the one it waits for, and counts up ``waited`` in that one's HEAD on the
condition that it has not ended. An end is written on the condition that HEAD's count is the one that its writer knows.
So either the end comes first, and the waiter is refused; or the note does, and the end leaves HEAD due until every
waiter has been told. What a waiter is told is a count and an id in its INBOX, which is due from then on; a yield is
conditioned on that count as on the number of messages. Which notes of its own stand, a waiter knows from its item
WAITS: those of its last yield, less those it was told of since.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from adapters.dynamodb.errors import ConditionFailedError, TransactionRefusedError
from adapters.dynamodb.expressions import Change, Condition, number, put_action, text, update_action
from adapters.dynamodb.items import (
    AWAIT_PREFIX,
    HEAD,
    INBOX,
    await_key,
    decode_head,
    due,
    head_change,
    key,
)
from adapters.dynamodb.limits import TELL_AT_ONCE, WAITS_PER_TRANSACTION
from adapters.dynamodb.partition import items_query_of
from adapters.dynamodb.schema import SORT_KEY
from engine.errors import InboxMovedError
from engine.lifecycle import ENDED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from adapters.dynamodb.expressions import Action
    from adapters.dynamodb.items import Head
    from adapters.dynamodb.table import Connection, Table

_ENDED_VALUES = {f":{state}": text(state) for state in sorted(ENDED)}
_CAN_BE_AWAITED = Condition(
    f"attribute_exists(#pk) AND NOT #state IN ({', '.join(_ENDED_VALUES)})",
    _ENDED_VALUES,
)


class Waits:
    """Which workflows a holder is noted with as one who waits for their ends.

    Attributes:
        stored: those of WAITS.
        early: those with which this holder has noted itself ahead of its yield.
    """

    __slots__ = ("early", "stored")

    def __init__(self, stored: Iterable[str] = ()) -> None:
        self.stored = frozenset(stored)
        self.early: set[str] = set()

    def missing(self, awaited: Iterable[str], told: Collection[str]) -> list[str]:
        """Those of ``awaited`` with which a note has yet to be left, where the ends of ``told`` have been told of."""
        standing = (self.stored | self.early) - set(told)
        return [workflow_id for workflow_id in dict.fromkeys(awaited) if workflow_id not in standing]


def note_actions(waiter: str, awaited: Iterable[str]) -> tuple[list[Action], list[Action]]:
    """The actions that note a waiter: those refused where a workflow has ended or is not there, and the rest."""
    guarded, rest = [], []
    for workflow_id in awaited:
        guarded.append(update_action(key(workflow_id, HEAD), Change(adds={"waited": 1}), _CAN_BE_AWAITED))
        rest.append(put_action(key(workflow_id, await_key(waiter))))
    return guarded, rest


async def note_early(connection: Connection, waiter: str, awaited: Sequence[str]) -> None:
    """Note a waiter with many workflows before it yields, as many at a time as are likely not to be disturbed.

    That is harmless where the yield does not come: it costs a wake for nothing.

    Raises:
        InboxMovedError: one of them has ended, or is not there.
    """
    for first in range(0, len(awaited), WAITS_PER_TRANSACTION):
        guarded, rest = note_actions(waiter, awaited[first : first + WAITS_PER_TRANSACTION])
        try:
            await connection.table.transact([*guarded, *rest], f"await {connection.ids.new()}")
        except TransactionRefusedError:
            raise InboxMovedError(f"a workflow that {waiter!r} waits for has ended") from None


async def tell_waiters(table: Table, ended: Head, now: int) -> list[str]:
    """Tell everybody who waits for the end of a workflow; those that are due now because of it.

    Whoever has gone or ended itself is left out. What is told twice costs a wake.
    """
    waiters = [
        item[SORT_KEY]["S"].removeprefix(AWAIT_PREFIX)
        async for item in table.query(items_query_of(ended.workflow_id, AWAIT_PREFIX))
    ]
    told: list[str] = []
    for first in range(0, len(waiters), TELL_AT_ONCE):
        some = waiters[first : first + TELL_AT_ONCE]
        answers = await asyncio.gather(*(_tell(table, waiter, ended.workflow_id, now) for waiter in some))
        told += [waiter for waiter, is_told in zip(some, answers, strict=True) if is_told]
    return told


async def _tell(table: Table, waiter: str, ended: str, now: int) -> bool:
    try:
        await _count_up(table, waiter, ended, now, "attribute_exists(#n) AND attribute_not_exists(#closed)")
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
        await _count_up(table, waiter, ended, now, "attribute_not_exists(#closed)")
    except ConditionFailedError:
        return False
    return True


async def _count_up(table: Table, waiter: str, ended: str, now: int, condition: str) -> None:
    change = Change(sets=due(waiter, now), adds={"told_n": 1}, unions={"told": [ended]})
    await table.update(key(waiter, INBOX), change, Condition(condition))


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
