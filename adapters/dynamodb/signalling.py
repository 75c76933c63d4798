"""Sending to whoever has certain tags: the first workflow of a type that has them and has not ended.

A message with an id of its caller's goes to the same workflow whenever it is sent again, though others may be first by
then: which one that is, is remembered as long as the id itself. Only where that one has ended without it, it goes on to
the next; as where another one, without these tags, has its id by now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from adapters.dynamodb import inbox, peers
from adapters.dynamodb.errors import ConditionFailedError
from adapters.dynamodb.inbox import Accepted
from adapters.dynamodb.model.conditions import is_forgotten
from adapters.dynamodb.model.expressions import Change, Condition, number, text
from adapters.dynamodb.model.items import HEAD, decode_head, integer, key
from adapters.dynamodb.model.limits import DEDUP_TTL_S, START_TRIES_MAX
from adapters.dynamodb.model.naming import check_tags, check_type
from adapters.dynamodb.model.schema import PARTITION_KEY, SORT_KEY, TTL
from engine.errors import WorkflowEndedError, WorkflowNotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adapters.dynamodb.model.expressions import Item
    from adapters.dynamodb.table import Connection
    from engine.origin import Origin

SIGNAL_PREFIX = "\0SIGNAL\0"
TARGET = "TARGET"


class Signalled(Struct, frozen=True):
    """A message is in the inbox of ``workflow_id``, or was once."""

    workflow_id: str
    accepted: Accepted


async def signal(
    connection: Connection,
    workflow_type: str,
    tags: Mapping[str, str],
    *,
    name: str,
    body: bytes,
    message_id: str | None,
    sent_at: int | None,
    origin: Origin,
) -> Signalled:
    """Put a message into the inbox of the first workflow of a type that has ``tags``; the same id again counts once.

    Raises:
        WorkflowNotFoundError: there is none.
        InvalidIdError, ValueTooLargeError: nothing was written.
    """
    check_type(workflow_type)
    check_tags(tags)
    # Before it is remembered where the message goes.
    inbox.check_message(name, body, message_id, origin)
    ended: str | None = None
    # Without tags it is an index that is looked into, which goes on finding who has ended for a moment.
    passed: set[str] = set()
    for _ in range(START_TRIES_MAX):
        found = await peers.find(connection.table, workflow_type, tags, len(passed) + 1)
        first = target = next((one for one in found if one not in passed), None)
        if message_id is not None:
            target = await _target(connection, message_id, first, ended)
        if target is None:
            break
        if target != first and await _is_another(connection, target, workflow_type, tags):
            ended = target
            passed.add(target)
            continue
        try:
            accepted = await inbox.send(
                connection,
                target,
                name=name,
                body=body,
                message_id=message_id,
                sent_at=sent_at,
                origin=origin,
            )
        except (WorkflowEndedError, WorkflowNotFoundError):
            # It ended, or was even purged, after it was found; and it has not taken the message.
            ended = target
            passed.add(target)
            continue
        return Signalled(target, accepted)
    raise WorkflowNotFoundError(f"no workflow of the type {workflow_type!r} that has not ended has these tags")


async def _is_another(connection: Connection, workflow_id: str, workflow_type: str, tags: Mapping[str, str]) -> bool:
    """Whether by now there is another workflow under the id of one that was found by its type and tags."""
    stored = await connection.table.get(key(workflow_id, HEAD))
    if stored is None:
        return False
    head = decode_head(stored)
    return head.type != workflow_type or not tags.items() <= head.tags.items()


async def _target(connection: Connection, message_id: str, found: str | None, ended: str | None) -> str | None:
    """Where the message of this id goes: where it went before, unless that is ``ended``; else to ``found``."""
    now_s = connection.clock.now() // 1000
    row: Item = {PARTITION_KEY: text(SIGNAL_PREFIX + message_id), SORT_KEY: text(TARGET)}
    if found is None:
        stored = await connection.table.get(row)
        known = None if stored is None or integer(stored, TTL) <= now_s else str(stored["workflow_id"]["S"])
        return None if known == ended else known
    sets = {"workflow_id": text(found), TTL: number(now_s + DEDUP_TTL_S)}
    is_new = is_forgotten(now_s)
    if ended is not None:
        is_new = Condition(f"{is_new.expression} OR #workflow_id = :ended", {**is_new.values, ":ended": text(ended)})
    try:
        await connection.table.update(row, Change(sets=sets), is_new)
    except ConditionFailedError as failed:
        return found if failed.item is None else str(failed.item["workflow_id"]["S"])
    return found
