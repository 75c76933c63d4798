"""Looking at workflows from outside, without a lease: one, many, and those that are overdue."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from adapters.dynamodb.errors import LogIncompleteError
from adapters.dynamodb.model.expressions import number, text
from adapters.dynamodb.model.items import (
    ACTIVE,
    DUE_SHARD_NAMES,
    HEAD,
    KEPT_PREFIX,
    LIST_GROUPS,
    TYPES_KEY,
    WAITS,
    Head,
    decode_head,
    key,
    list_group,
    list_types,
)
from adapters.dynamodb.model.limits import KEY_INSTANT_MS_MAX
from adapters.dynamodb.model.naming import check_id
from adapters.dynamodb.model.schema import DUE_AT, DUE_INDEX, DUE_SHARD, LIST_AT, LIST_INDEX, LIST_TYPE, PARTITION_KEY
from adapters.dynamodb.reading import read_partition
from adapters.dynamodb.together import together
from engine.commit import Retrying
from engine.errors import InvalidIdError, WorkflowNotFoundError
from engine.keys import ERROR_KEY, OUTPUT_KEY
from engine.lifecycle import WorkflowState
from engine.origin import Origin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from adapters.dynamodb.model.expressions import Item
    from adapters.dynamodb.model.log import Fold
    from adapters.dynamodb.table import Table

_READS_MAX = 5
"""How often a history is read that was not whole, with pauses in between. Design choice: a transaction settles in
milliseconds."""


class Description(Struct, frozen=True, kw_only=True):
    """What HEAD says of a workflow; times are milliseconds since the epoch.

    ``origin`` is who began it. ``prune_at`` is when its history, or all of it, is to be forgotten, ``pruned_at`` when
    the history was.
    ``waiting_for`` are the message names waited for, ``()`` for any and None for none; ``awaits_others`` says that it
    waits for ends of other workflows, which ``awaited`` tells. ``is_running`` says that somebody holds the lease, and
    it has not run out. ``retrying`` are the first of the steps that waited for another attempt when it last yielded.
    """

    workflow_id: str
    type: str
    state: WorkflowState
    tags: dict[str, str]
    created_at: int
    updated_at: int
    ended_at: int | None
    wake_at: int | None
    waiting_for: tuple[str, ...] | None
    awaits_others: bool
    retrying: tuple[Retrying, ...]
    wakes: int
    deaths: int
    seq: int
    is_running: bool
    origin: Origin
    prune_at: int | None
    pruned_at: int | None


class Outcome(Struct, frozen=True, kw_only=True):
    """How far a workflow has come: its state, and its CBOR output or CBOR error map where it has one."""

    state: WorkflowState
    output: bytes | None
    error: bytes | None


class Page(Struct, frozen=True, kw_only=True):
    """Some workflows of a listing, in its order; ``cursor`` asks for the next ones, None says that there are none."""

    items: list[Description]
    cursor: str | None


class Overdue(Struct, frozen=True, kw_only=True):
    """A workflow that someone should have looked at by ``due_at`` (milliseconds)."""

    workflow_id: str
    due_at: int


def describe_head(head: Head, now: int) -> Description:
    """HEAD as the outside sees it at ``now`` (milliseconds)."""
    return Description(
        workflow_id=head.workflow_id,
        type=head.type,
        state=head.state,
        tags=head.tags,
        created_at=head.created_at,
        updated_at=head.updated_at,
        ended_at=head.ended_at,
        wake_at=head.wake_at,
        waiting_for=head.waiting,
        awaits_others=head.waits_seq > 0,
        retrying=head.retrying,
        wakes=head.wakes,
        deaths=head.deaths,
        seq=head.seq,
        # Who died has left its name behind.
        is_running=head.owner is not None and (head.lease_until or 0) > now,
        origin=head.origin,
        prune_at=head.prune_at,
        pruned_at=head.pruned_at,
    )


async def describe(table: Table, workflow_id: str, now: int) -> Description | None:
    """What HEAD says at ``now`` (milliseconds), or None where there is no such workflow, or it is being purged."""
    check_id(workflow_id)
    stored = await table.get(key(workflow_id, HEAD))
    head = None if stored is None else decode_head(stored)
    return None if head is None or head.purging_at else describe_head(head, now)


async def awaited(table: Table, workflow_id: str) -> list[str]:
    """Ids of the workflows for whose ends one waited when it last went to sleep, sorted: one item is read."""
    check_id(workflow_id)
    stored = await table.get(key(workflow_id, WAITS))
    return [] if stored is None else sorted(stored["ids"]["SS"])


async def describe_all(table: Table, workflow_ids: Sequence[str], now: int) -> list[Description]:
    """What HEAD says of each of these workflows at ``now`` (milliseconds), in their order; those that are gone are not.

    Eventually consistent.
    """
    heads = map(decode_head, await table.batch_get([key(workflow_id, HEAD) for workflow_id in workflow_ids]))
    found = {head.workflow_id: describe_head(head, now) for head in heads if not head.purging_at}
    return [found[workflow_id] for workflow_id in workflow_ids if workflow_id in found]


async def read_history(table: Table, workflow_id: str) -> tuple[Head, Fold]:
    """HEAD and the pairs as of its ``seq``.

    Raises:
        WorkflowNotFoundError: there is no such workflow.
    """
    check_id(workflow_id)
    for look in range(_READS_MAX):
        if look:
            await table.pause(look)
        partition = await read_partition(table, workflow_id)
        if partition.head is None or partition.head.purging_at:
            raise WorkflowNotFoundError(f"no workflow has the id {workflow_id!r}")
        stored = await table.get(key(workflow_id, HEAD))
        # A Query is no snapshot: where the log was folded while we read it, what we have may have holes.
        is_same = stored is not None and decode_head(stored).snapshot_seq == partition.head.snapshot_seq
        if is_same and partition.is_whole(partition.head):
            return partition.head, partition.fold(partition.head)
    raise LogIncompleteError(f"the log of {workflow_id!r} was not whole any time it was read")


async def outcome(table: Table, workflow_id: str) -> Outcome:
    """State, output and error, as of one commit; ``WorkflowNotFoundError`` where there is no such workflow."""
    head, fold = await read_history(table, workflow_id)
    return Outcome(state=head.state, output=fold.get(OUTPUT_KEY), error=fold.get(ERROR_KEY))


async def list_workflows(
    table: Table, *, now: int, workflow_type: str | None, state: WorkflowState | None, limit: int, cursor: str | None
) -> Page:
    """At most ``limit`` workflows of a type and state (None: of all) as of ``now``, the youngest first.

    Raises:
        InvalidIdError: the cursor is none of ours.
    """
    types = [workflow_type] if workflow_type is not None else await known_types(table)
    groups = LIST_GROUPS if state is None else (list_group(state),)
    before = None if cursor is None else _parse_cursor(cursor)
    queries = [
        _list_some(table, partition, group, before, limit + 1)
        for known in types
        for partition in list_types(known)
        for group in groups
    ]
    # One that ends just now may be found in two groups, and one that is started anew in two lives: the younger counts.
    oldest_first = sorted(place for places in await together(queries) for place in places)
    found = sorted({workflow_id: (at, workflow_id) for at, workflow_id in oldest_first}.values(), reverse=True)
    page = found[:limit]
    stored = [decode_head(item) for item in await table.batch_get([key(place[1], HEAD) for place in page])]
    heads = [head for head in stored if not head.purging_at]
    items = sorted(
        (describe_head(head, now) for head in heads if state is None or head.state is state),
        key=lambda item: (item.created_at, item.workflow_id),
        reverse=True,
    )
    return Page(items=items, cursor=_cursor(page[-1]) if len(found) > limit else None)


async def oldest_active(table: Table, workflow_type: str, limit: int) -> list[str]:
    """Ids of the ``limit`` oldest workflows of a type that have not ended, the oldest first; eventually consistent."""
    queries = [_list_some(table, part, ACTIVE, None, limit, is_forward=True) for part in list_types(workflow_type)]
    found = sorted(place for places in await together(queries) for place in places)
    return [workflow_id for _, workflow_id in found[:limit]]


async def known_types(table: Table) -> list[str]:
    """Every workflow type that was ever started, sorted."""
    stored = await table.get(TYPES_KEY)
    return sorted(stored["types"]["SS"]) if stored else []


_Place = tuple[int, str]
"""When a workflow was created, and its id: where it stands in a listing."""


async def _list_some(
    table: Table, partition: str, group: str, before: _Place | None, limit: int, *, is_forward: bool = False
) -> list[_Place]:
    # In UTF-8 a digit is below "~"; between "group#" and "group#~" lies exactly the group.
    last = f"{group}#~" if before is None else f"{group}#{before[0]:015d}#{before[1]}"
    arguments: dict[str, Any] = {
        "IndexName": LIST_INDEX,
        "KeyConditionExpression": "#type = :type AND #at BETWEEN :first AND :last",
        "ExpressionAttributeNames": {"#type": LIST_TYPE, "#at": LIST_AT},
        "ExpressionAttributeValues": {":type": text(partition), ":first": text(f"{group}#"), ":last": text(last)},
        "ScanIndexForward": is_forward,
    }
    # The end of the range is the last workflow of the page before, which is not wanted again.
    places = [_place(item) async for item in table.query(arguments, limit=limit + 1)]
    return [place for place in places if place != before][:limit]


def _place(item: Item) -> _Place:
    created_at = item[LIST_AT]["S"].split("#", 2)[1]
    return int(created_at), item[PARTITION_KEY]["S"]


def _cursor(place: _Place) -> str:
    return base64.urlsafe_b64encode(f"{place[0]}#{place[1]}".encode()).decode()


def _parse_cursor(cursor: str) -> _Place:
    try:
        created_at, workflow_id = base64.urlsafe_b64decode(cursor.encode()).decode().split("#", 1)
        place = int(created_at), workflow_id
        # It becomes part of a key, and the table refuses one that is too long.
        check_id(workflow_id)
    except (ValueError, binascii.Error, InvalidIdError) as error:
        raise InvalidIdError(f"{cursor!r} is no cursor of a listing") from error
    if not 0 <= place[0] <= KEY_INSTANT_MS_MAX:
        raise InvalidIdError(f"{cursor!r} is no cursor of a listing")
    return place


async def overdue(table: Table, *, now: int, limit_per_shard: int) -> list[Overdue]:
    """Workflows due before ``now`` (milliseconds), the longest overdue first, each once."""
    found: dict[str, int] = {}
    shards = await together(_overdue_in(table, shard, now, limit_per_shard) for shard in DUE_SHARD_NAMES)
    for entry in (entry for shard in shards for entry in shard):
        found[entry.workflow_id] = min(entry.due_at, found.get(entry.workflow_id, entry.due_at))
    due = [Overdue(workflow_id=workflow_id, due_at=due_at) for workflow_id, due_at in found.items()]
    return sorted(due, key=lambda entry: (entry.due_at, entry.workflow_id))


async def outlived(table: Table, shard: int, *, now: int, limit: int) -> list[str]:
    """Ids of ended workflows of a shard, whose numbers go round, that were to be kept until ``now`` (milliseconds)."""
    name = KEPT_PREFIX + DUE_SHARD_NAMES[shard % len(DUE_SHARD_NAMES)]
    return [found.workflow_id for found in await _overdue_in(table, name, now, limit)]


async def _overdue_in(table: Table, shard: str, now: int, limit: int) -> list[Overdue]:
    arguments: dict[str, Any] = {
        "IndexName": DUE_INDEX,
        "KeyConditionExpression": "#shard = :shard AND #at <= :now",
        "ExpressionAttributeNames": {"#shard": DUE_SHARD, "#at": DUE_AT},
        "ExpressionAttributeValues": {":shard": text(shard), ":now": number(now)},
    }
    return [
        Overdue(workflow_id=item[PARTITION_KEY]["S"], due_at=int(item[DUE_AT]["N"]))
        async for item in table.query(arguments, limit=limit)
    ]
