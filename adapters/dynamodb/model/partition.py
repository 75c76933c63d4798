"""A workflow's whole partition as a Query returns it, put back together. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from adapters.dynamodb.model import log
from adapters.dynamodb.model.expressions import text
from adapters.dynamodb.model.items import (
    HEAD,
    INBOX,
    LOG_PREFIX,
    MESSAGE_PREFIX,
    SNAPSHOT_PREFIX,
    WAITS,
    decode_head,
    decode_message,
    integer,
    log_key,
)
from adapters.dynamodb.model.limits import INBOX_BYTES_MAX
from adapters.dynamodb.model.schema import DUE_AT, PARTITION_KEY, SORT_KEY
from adapters.dynamodb.model.tickets import Counts
from engine.errors import CorruptHistoryError

if TYPE_CHECKING:
    from typing import Any

    from adapters.dynamodb.model.expressions import Item
    from adapters.dynamodb.model.items import Head
    from engine.entry import Message


def query_of(workflow_id: str) -> dict[str, Any]:
    """The arguments of the one Query that loads a workflow: all but the DEDUP items, which sort before HEAD."""
    return {
        "KeyConditionExpression": "#pk = :pk AND #sk >= :first",
        "ExpressionAttributeNames": {"#pk": PARTITION_KEY, "#sk": SORT_KEY},
        "ExpressionAttributeValues": {":pk": text(workflow_id), ":first": text(HEAD)},
        "ConsistentRead": True,
    }


def whole_query_of(workflow_id: str) -> dict[str, Any]:
    """The arguments of a Query for all that there is of a workflow, the message ids it remembers included."""
    return {
        "KeyConditionExpression": "#pk = :pk",
        "ExpressionAttributeNames": {"#pk": PARTITION_KEY},
        "ExpressionAttributeValues": {":pk": text(workflow_id)},
        "ConsistentRead": True,
    }


def items_query_of(workflow_id: str, prefix: str) -> dict[str, Any]:
    """The arguments of a Query for those items of a workflow whose sort keys begin with ``prefix``."""
    return {
        "KeyConditionExpression": "#pk = :pk AND begins_with(#sk, :prefix)",
        "ExpressionAttributeNames": {"#pk": PARTITION_KEY, "#sk": SORT_KEY},
        "ExpressionAttributeValues": {":pk": text(workflow_id), ":prefix": text(prefix)},
        "ConsistentRead": True,
    }


def later_query_of(workflow_id: str, first: str, prefix: str) -> dict[str, Any]:
    """The arguments of a Query for those items from the sort key ``first`` on whose keys begin with ``prefix``."""
    return {
        "KeyConditionExpression": "#pk = :pk AND #sk BETWEEN :first AND :last",
        "ExpressionAttributeNames": {"#pk": PARTITION_KEY, "#sk": SORT_KEY},
        "ExpressionAttributeValues": {":pk": text(workflow_id), ":first": text(first), ":last": text(f"{prefix}~")},
        "ConsistentRead": True,
    }


def counts_of(item: Item) -> Counts:
    """What an INBOX item says."""
    return Counts(
        last_ticket=integer(item, "n"),
        is_due=DUE_AT in item,
        told_n=integer(item, "told_n"),
        told=frozenset(item["told"]["SS"]) if "told" in item else frozenset(),
        waited=integer(item, "waited"),
    )


class Mail:
    """The messages of an inbox, taken in one by one in the order of tickets, without ever filling the memory.

    Attributes:
        messages: all of them; from the first that no longer fits ``INBOX_BYTES_MAX`` on, without their bodies.
        bare: the tickets of those.
    """

    __slots__ = ("_left", "bare", "messages")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.bare: set[int] = set()
        self._left = INBOX_BYTES_MAX

    def take(self, item: Item) -> None:
        """Take in the next MSG item."""
        message = decode_message(item)
        self._left -= len(message.body)
        if self._left < 0:
            self.bare.add(message.ticket)
            message = replace(message, body=b"")
        self.messages.append(message)


class Partition:
    """The items of one workflow, taken in one by one in the order of their sort keys.

    Attributes:
        head: the HEAD item as read, or None.
        counts: what INBOX says.
        mail: the inbox.
        waits: the workflows whose ends it was waiting for when it last yielded.
    """

    __slots__ = ("_logs", "_returned", "_snapshots", "_taken", "_waits_seq", "counts", "head", "mail", "waits")

    def __init__(self) -> None:
        self.head: Head | None = None
        self.counts = Counts()
        self.mail = Mail()
        self.waits: frozenset[str] = frozenset()
        self._waits_seq = 0
        # Sort key -> payload.
        self._logs: dict[str, bytes] = {}
        self._snapshots: dict[str, bytes] = {}
        # Sort key of a LOG item -> the tickets that its commit took out of the inbox, and gave back.
        self._taken: dict[str, list[int]] = {}
        self._returned: dict[str, list[int]] = {}

    def take(self, item: Item) -> None:
        """Take in the next item."""
        sort_key = item[SORT_KEY]["S"]
        if sort_key == HEAD:
            self.head = decode_head(item)
        elif sort_key == INBOX:
            self.counts = counts_of(item)
        elif sort_key.startswith(LOG_PREFIX):
            self._logs[sort_key] = bytes(item["b"]["B"])
            self._taken[sort_key] = _tickets(item, "taken")
            self._returned[sort_key] = _tickets(item, "returned")
        elif sort_key.startswith(MESSAGE_PREFIX):
            self.mail.take(item)
        elif sort_key.startswith(SNAPSHOT_PREFIX):
            self._snapshots[sort_key] = bytes(item["b"]["B"])
        elif sort_key == WAITS:
            self.waits = frozenset(item["ids"]["SS"])
            self._waits_seq = integer(item, "seq")

    def fold(self, head: Head) -> log.Fold:
        """The pairs as of ``head.seq``: its snapshot, and the commits after it.

        Raises:
            CorruptHistoryError: a part of the snapshot is missing.
        """
        folded = log.Fold()
        if head.snapshot_seq:
            data = self._snapshot(head)
            folded.apply(log.decode(data, f"the snapshot {head.snapshot_seq} of {head.workflow_id!r}"), len(data))
        for seq, parts in self._commits().items():
            if head.snapshot_seq < seq <= head.seq:
                data = b"".join(parts)
                folded.apply(log.decode(data, f"the commit {seq} of {head.workflow_id!r}"), len(data))
        return folded

    def is_whole(self, head: Head) -> bool:
        """Whether every LOG item that ``head`` stands on was read, its WAITS, and the messages that it gave back.

        A Query is no snapshot: it may show a transaction's HEAD and not yet its LOG.
        """
        if self._waits_seq != head.waits_seq:
            return False
        returned = self._returned.get(log_key(head.seq))
        if returned and not {message.ticket for message in self.mail.messages}.issuperset(returned):
            return False
        found = sum(head.snapshot_seq < _seq_of(name) <= head.seq for name in self._logs)
        return found >= head.log_items - head.folded_items

    def taken(self, head: Head) -> list[int]:
        """The tickets that the last commit took out of the inbox: a Query may show their messages for a moment yet.

        Those of earlier commits are out: their answers had come before the last one was written.
        """
        return self._taken.get(log_key(head.seq), [])

    def live_keys(self, head: Head) -> list[str]:
        """The sort keys of the log and snapshot that ``head`` stands on: what the next snapshot replaces."""
        live = [key for key in self._logs if head.snapshot_seq < _seq_of(key)]
        return live + [key for key in self._snapshots if _seq_of(key) == head.snapshot_seq]

    def stale_keys(self, head: Head) -> list[str]:
        """The sort keys that an earlier snapshot has replaced, and that its writer did not come to delete."""
        stale = [key for key in self._logs if _seq_of(key) <= head.snapshot_seq]
        return stale + [key for key in self._snapshots if _seq_of(key) < head.snapshot_seq]

    def _commits(self) -> dict[int, list[bytes]]:
        commits: dict[int, list[bytes]] = {}
        for key, data in self._logs.items():
            commits.setdefault(_seq_of(key), []).append(data)
        return commits

    def _snapshot(self, head: Head) -> bytes:
        parts = [data for key, data in self._snapshots.items() if _seq_of(key) == head.snapshot_seq]
        if len(parts) < head.snapshot_parts:
            raise CorruptHistoryError(
                f"{head.workflow_id!r} lacks a part of its snapshot {head.snapshot_seq}: "
                f"{len(parts)} of {head.snapshot_parts} are there"
            )
        return b"".join(parts[: head.snapshot_parts])


def _tickets(item: Item, name: str) -> list[int]:
    return [int(ticket["N"]) for ticket in item[name]["L"]] if name in item else []


def _seq_of(sort_key: str) -> int:
    return int(sort_key.split("#", 2)[1])
