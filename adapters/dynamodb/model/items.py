"""The items of a workflow's partition: their sort keys, their attributes, their sizes. Pure."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from msgspec import Struct

from adapters.dynamodb.model.expressions import Change, Item, binary, number, text
from adapters.dynamodb.model.limits import (
    DUE_SHARDS,
    LIST_SHARDS,
    TOKEN_BYTES,
)
from adapters.dynamodb.model.origins import decode_origin, encode_origin
from adapters.dynamodb.model.retrying import decode_retrying, encode_retrying
from adapters.dynamodb.model.schema import DUE_AT, DUE_SHARD, LIST_AT, LIST_TYPE, PARTITION_KEY, SORT_KEY, TTL
from engine.commit import Retrying
from engine.entry import Message
from engine.lifecycle import ENDED, WorkflowState
from engine.origin import UNKNOWN, Origin

if TYPE_CHECKING:
    from collections.abc import Sequence

HEAD = "HEAD"
INBOX = "INBOX"
LOG_PREFIX = "LOG#"
MESSAGE_PREFIX = "MSG#"
SNAPSHOT_PREFIX = "SNAP#"
DEDUP_PREFIX = "DEDUP#"
AWAIT_PREFIX = "AWAIT#"
"""Before the ids of those who wait for a workflow's end. As DEDUP it sorts before HEAD, so that no load reads it."""

WAITS = "WAITS"
"""The workflows whose ends a workflow was waiting for when it last yielded."""

KEPT_PREFIX = "kept#"
"""Before the shards of the index ``due`` that hold what has ended and is kept for a while."""

PRUNE_ALL, PRUNE_HISTORY = "all", "history"
"""What is forgotten when that while is over."""

ACTIVE = "active"
"""The list group of every workflow that has not ended; the ended states are groups of their own."""

_OPTIONAL_NUMBERS = ("lease_until", "wake_at", "schedule_at", "start_at", "ended_at", "prune_at", "pruned_at")
_COUNTERS = (
    "snapshot_seq",
    "snapshot_parts",
    "log_items",
    "folded_items",
    "deaths",
    "faults",
    "wakes",
    "inbox_done",
    "gap_n",
    "gap_at",
    "purging_at",
    "is_unique",
    "waited",
    "waits_seq",
    "unread",
)
_OPTIONAL_TEXTS = ("owner", "flush", "prune")

TYPES_KEY: Item = {PARTITION_KEY: text("\0"), SORT_KEY: text("TYPES")}
"""The one item that belongs to no workflow: the types ever started. No workflow id can hold a control character."""


class Head(Struct, frozen=True, kw_only=True):
    """The HEAD item: everything about a workflow but its history and inbox. Times are milliseconds since the epoch.

    Attributes:
        epoch: how often the lease changed hands; who holds another one may not write.
        owner: who holds the lease, or None; ``lease_until`` is until when.
        seq: number of the last commit; ``flush`` is that commit's id.
        snapshot_seq: commits up to this one are folded into ``snapshot_parts`` SNAP items; 0 where none are.
        log_items: how many LOG items were ever written; ``folded_items`` of them are folded into the snapshot.
        wake_at: the alarm, ``due_at`` when someone must look, ``schedule_at`` when a schedule was set to go off.
        start_at: when it begins that was put off when it was started; None where it was not.
        retrying: steps that had failed and waited for another attempt when it last yielded, the first ones.
        waiting: the message names waited for, ``()`` for any; None where none is.
        deaths: claims since the last commit whose holder never released.
        faults: releases since the last commit by holders that the store had failed.
        wakes: claims so far.
        inbox_done: every ticket up to this one is accounted for.
        gap_n: tickets up to this one were first missed at ``gap_at``; 0 where none is missed.
        input_digest: a hash of the input.
        origin: who began it, which whatever it starts and sends inherits.
        prune: what is to be forgotten at ``prune_at``, PRUNE_ALL or PRUNE_HISTORY; empty where nothing is.
        pruned_at: when the history was forgotten; None where it was not.
        purging_at: when somebody last began to delete the workflow; 0 where nobody has.
        is_unique: whether it was started as the only one of its type with exactly its tags.
        waited: once it has ended: how often others had begun to wait for that; 0 when all of them have been told.
        unread: messages left in the inbox when it last yielded, or was given back unrun; 0 after any other commit.
        waits_seq: the commit that wrote its item WAITS; 0 where there is none, because it waits for nobody's end.
    """

    workflow_id: str
    type: str
    tags: dict[str, str] = {}
    state: WorkflowState = WorkflowState.PENDING
    epoch: int = 0
    owner: str | None = None
    lease_until: int | None = None
    seq: int = 0
    flush: str = ""
    snapshot_seq: int = 0
    snapshot_parts: int = 0
    log_items: int = 0
    folded_items: int = 0
    wake_at: int | None = None
    schedule_at: int | None = None
    start_at: int | None = None
    due_at: int | None = None
    waiting: tuple[str, ...] | None = None
    retrying: tuple[Retrying, ...] = ()
    deaths: int = 0
    faults: int = 0
    wakes: int = 0
    created_at: int
    updated_at: int
    ended_at: int | None = None
    inbox_done: int = 0
    gap_n: int = 0
    gap_at: int = 0
    input_digest: bytes = b""
    origin: Origin = UNKNOWN
    prune: str = ""
    prune_at: int | None = None
    pruned_at: int | None = None
    purging_at: int = 0
    is_unique: bool = False
    waited: int = 0
    waits_seq: int = 0
    unread: int = 0


def key(workflow_id: str, sort_key: str) -> Item:
    """The key of one item of a workflow."""
    return {PARTITION_KEY: text(workflow_id), SORT_KEY: text(sort_key)}


def log_key(seq: int, part: int = 0) -> str:
    """The sort key of a commit, or of a further part of one too big for an item."""
    return f"{LOG_PREFIX}{seq:012d}#{part:03d}" if part else f"{LOG_PREFIX}{seq:012d}"


def log_items(
    workflow_id: str, seq: int, parts: Sequence[bytes], *, taken: Sequence[int] = (), returned: Sequence[int] = ()
) -> list[Item]:
    """The LOG items of a commit; the first says which tickets it took out of the inbox, and which it gave back."""
    items = [{**key(workflow_id, log_key(seq, part)), "b": binary(data)} for part, data in enumerate(parts)]
    for name, tickets in (("taken", taken), ("returned", returned)):
        if items and tickets:
            items[0][name] = {"L": [number(ticket) for ticket in tickets]}
    return items


def snapshot_key(seq: int, part: int) -> str:
    """The sort key of one part of the state as of ``seq``."""
    return f"{SNAPSHOT_PREFIX}{seq:012d}#{part:03d}"


def message_key(ticket: int) -> str:
    """The sort key of the message with this ticket."""
    return f"{MESSAGE_PREFIX}{ticket:012d}"


def dedup_key(message_id: str) -> str:
    """The sort key under which a message id is remembered."""
    return DEDUP_PREFIX + message_id


def await_key(waiter: str) -> str:
    """The sort key under which a waiter is noted with the workflow whose end it waits for."""
    return AWAIT_PREFIX + waiter


def shard_of(identifier: str, shards: int) -> int:
    """Which of ``shards`` partitions, from 0, an id belongs to."""
    return int.from_bytes(hashlib.blake2b(identifier.encode(), digest_size=4).digest(), "big") % shards


def due_shard(workflow_id: str) -> str:
    """The partition of the index ``due`` that a workflow belongs to."""
    return f"{shard_of(workflow_id, DUE_SHARDS):02d}"


DUE_SHARD_NAMES = tuple(f"{shard:02d}" for shard in range(DUE_SHARDS))
"""Every partition of the index ``due``."""


def due(workflow_id: str, at: int) -> Item:
    """The attributes that put an item into the index ``due``."""
    return {DUE_SHARD: text(due_shard(workflow_id)), DUE_AT: number(at)}


def kept(workflow_id: str, until: int) -> Item:
    """The attributes that put the HEAD of an ended workflow into the index ``due``, to be pruned at ``until``."""
    return {DUE_SHARD: text(KEPT_PREFIX + due_shard(workflow_id)), DUE_AT: number(until)}


def place_of(head: Head) -> Item:
    """The attributes by which a HEAD is where it belongs in the index ``due``."""
    if head.due_at is not None:
        return due(head.workflow_id, head.due_at)
    return {} if head.prune_at is None else kept(head.workflow_id, head.prune_at)


DUE_ATTRIBUTES = (DUE_SHARD, DUE_AT)
"""What to remove to take an item out of the index ``due``."""


def list_group(state: WorkflowState) -> str:
    """The list group of a state: listing pays for a workflow's start and end, not for its comings and goings."""
    return str(state) if state in ENDED else ACTIVE


LIST_GROUPS = (ACTIVE, *sorted(ENDED))
"""Every list group."""


def list_types(workflow_type: str) -> list[str]:
    """Every partition of the index ``list`` that holds workflows of a type."""
    return [f"{workflow_type}#{shard}" for shard in range(LIST_SHARDS)]


def listed(workflow_id: str, workflow_type: str, state: WorkflowState, created_at: int) -> Item:
    """The attributes that put a HEAD into the index ``list``, behind those of its group that were created earlier."""
    shard = shard_of(workflow_id, LIST_SHARDS)
    return {
        LIST_TYPE: text(f"{workflow_type}#{shard}"),
        LIST_AT: text(f"{list_group(state)}#{created_at:015d}#{workflow_id}"),
    }


def encode_head(head: Head) -> Item:
    """The whole HEAD item of a workflow; what is None, zero or empty is left out."""
    item: Item = {
        **key(head.workflow_id, HEAD),
        **listed(head.workflow_id, head.type, head.state, head.created_at),
        "type": text(head.type),
        "state": text(head.state),
        "epoch": number(head.epoch),
        "seq": number(head.seq),
        "created_at": number(head.created_at),
        "updated_at": number(head.updated_at),
        "input_digest": binary(head.input_digest),
        **encode_origin(head.origin),
    }
    for name in _OPTIONAL_NUMBERS:
        value = getattr(head, name)
        if value is not None:
            item[name] = number(value)
    for name in _COUNTERS:
        if getattr(head, name):
            item[name] = number(int(getattr(head, name)))
    for name in _OPTIONAL_TEXTS:
        if getattr(head, name):
            item[name] = text(getattr(head, name))
    item |= place_of(head)
    if head.tags:
        item["tags"] = {"M": {name: text(value) for name, value in head.tags.items()}}
    if head.waiting is not None:
        item["waiting"] = {"L": [text(name) for name in head.waiting]}
    if head.retrying:
        item["retrying"] = encode_retrying(head.retrying)
    return item


def head_change(old: Head, new: Head) -> Change:
    """What an update has to do to a stored ``old`` to make it ``new``."""
    before, after = encode_head(old), encode_head(new)
    return Change(
        sets={name: value for name, value in after.items() if before.get(name) != value},
        removes=tuple(name for name in before if name not in after),
    )


def decode_head(item: Item) -> Head:
    """A HEAD item as a record."""
    waiting = item.get("waiting")
    return Head(
        workflow_id=item[PARTITION_KEY]["S"],
        type=item["type"]["S"],
        tags={name: value["S"] for name, value in item.get("tags", {}).get("M", {}).items()},
        state=WorkflowState(item["state"]["S"]),
        epoch=integer(item, "epoch"),
        owner=item["owner"]["S"] if "owner" in item else None,
        lease_until=optional_integer(item, "lease_until"),
        seq=integer(item, "seq"),
        flush=item["flush"]["S"] if "flush" in item else "",
        snapshot_seq=integer(item, "snapshot_seq"),
        snapshot_parts=integer(item, "snapshot_parts"),
        log_items=integer(item, "log_items"),
        folded_items=integer(item, "folded_items"),
        wake_at=optional_integer(item, "wake_at"),
        schedule_at=optional_integer(item, "schedule_at"),
        start_at=optional_integer(item, "start_at"),
        due_at=None if _is_kept(item) else optional_integer(item, DUE_AT),
        waiting=None if waiting is None else tuple(name["S"] for name in waiting["L"]),
        retrying=decode_retrying(item.get("retrying")),
        deaths=integer(item, "deaths"),
        faults=integer(item, "faults"),
        wakes=integer(item, "wakes"),
        created_at=integer(item, "created_at"),
        updated_at=integer(item, "updated_at"),
        ended_at=optional_integer(item, "ended_at"),
        inbox_done=integer(item, "inbox_done"),
        gap_n=integer(item, "gap_n"),
        gap_at=integer(item, "gap_at"),
        origin=decode_origin(item),
        prune=item["prune"]["S"] if "prune" in item else "",
        prune_at=optional_integer(item, "prune_at"),
        pruned_at=optional_integer(item, "pruned_at"),
        purging_at=integer(item, "purging_at"),
        input_digest=bytes(item["input_digest"]["B"]) if "input_digest" in item else b"",
        is_unique="is_unique" in item,
        waited=integer(item, "waited"),
        waits_seq=integer(item, "waits_seq"),
        unread=integer(item, "unread"),
    )


def _is_kept(item: Item) -> bool:
    return DUE_SHARD in item and str(item[DUE_SHARD]["S"]).startswith(KEPT_PREFIX)


def encode_message(workflow_id: str, message: Message) -> Item:
    """The MSG item of a message that has its ticket."""
    return {
        **key(workflow_id, message_key(message.ticket)),
        "id": text(message.id),
        "name": text(message.name),
        "body": binary(message.body),
        "sent_at": number(message.sent_at),
        **encode_origin(message.origin),
    }


def decode_message(item: Item) -> Message:
    """A MSG item as a message."""
    return Message(
        id=item["id"]["S"],
        name=item["name"]["S"],
        body=bytes(item["body"]["B"]),
        sent_at=integer(item, "sent_at"),
        ticket=int(item[SORT_KEY]["S"].removeprefix(MESSAGE_PREFIX)),
        origin=decode_origin(item),
    )


def encode_dedup(workflow_id: str, message_id: str, ticket: int, forget_at_s: int) -> Item:
    """The DEDUP item of an accepted message; ``forget_at_s`` is whole seconds since the epoch."""
    return {
        **key(workflow_id, dedup_key(message_id)),
        "ticket": number(ticket),
        TTL: number(forget_at_s),
    }


def optional_integer(item: Item, name: str) -> int | None:
    """A number attribute, or None where it is not there."""
    return int(item[name]["N"]) if name in item else None


def integer(item: Item, name: str) -> int:
    """A number attribute, 0 where it is not there."""
    return int(item[name]["N"]) if name in item else 0


def token(*identity: str) -> str:
    """Text that is short enough for a ClientRequestToken, and the same for the same parts."""
    return hashlib.blake2b("\0".join(identity).encode(), digest_size=TOKEN_BYTES).hexdigest()
