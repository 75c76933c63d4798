"""Loading a claimed workflow: a driver over everything that is stored of it, or one that has read nothing but HEAD."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.dynamodb.compaction import Keys
from adapters.dynamodb.driver import DynamoDriver
from adapters.dynamodb.ends import Waits
from adapters.dynamodb.hold import Hold
from adapters.dynamodb.model.log import Fold
from adapters.dynamodb.model.tickets import Account, Inbox
from adapters.dynamodb.reading import read_partition
from engine.clock import sleep
from engine.errors import CorruptHistoryError

if TYPE_CHECKING:
    from adapters.dynamodb.model.items import Head
    from adapters.dynamodb.model.partition import Partition
    from adapters.dynamodb.model.plan import Lease
    from adapters.dynamodb.table import Connection

_LOOKS_MAX = 5
_LOOK_AGAIN_S = 0.02
"""Seconds before what a load did not show is looked for again; doubled each time. Design choice: a transaction settles
in milliseconds."""


async def load_driver(connection: Connection, lease: Lease, head: Head) -> DynamoDriver | None:
    """A driver over what is stored; None where somebody took over in the meantime.

    Raises:
        CorruptHistoryError, UnknownVersionError: it cannot be read.
    """
    partition = await _read_whole(connection, head)
    if partition is None:
        return None
    inbox = inbox_of(head)
    inbox.apply(removed=partition.taken(head), added=())
    inbox.look(
        partition.counts,
        messages=partition.mail.messages,
        bare=partition.mail.bare,
        now=connection.clock.now(),
    )
    return DynamoDriver(
        connection,
        hold=Hold(connection.table, connection.clock, head, lease),
        fold=partition.fold(head),
        inbox=inbox,
        keys=Keys(live=partition.live_keys(head), stale=partition.stale_keys(head)),
        waits=Waits(partition.waits),
    )


async def _read_whole(connection: Connection, head: Head) -> Partition | None:
    """Everything that ``head`` stands on; None where somebody took over in the meantime.

    Raises:
        CorruptHistoryError: LOG items are missing, and do not appear.
    """
    for look in range(_LOOKS_MAX):
        if look:
            await sleep(connection.clock, _LOOK_AGAIN_S * 2 ** (look - 1))
        partition = await read_partition(connection.table, head.workflow_id)
        if partition.head is None or partition.head.epoch != head.epoch:
            return None
        if partition.is_whole(head):
            return partition
    raise CorruptHistoryError(f"{head.workflow_id!r} lacks items of its log: {head.log_items} were ever written")


def blind_driver(connection: Connection, lease: Lease, head: Head) -> DynamoDriver:
    """A driver that has read nothing but HEAD: it writes as any other, and knows no pairs and no messages."""
    hold = Hold(connection.table, connection.clock, head, lease)
    keys, waits = Keys(live=[], stale=[]), Waits()
    return DynamoDriver(connection, hold=hold, fold=Fold(), inbox=inbox_of(head), keys=keys, waits=waits)


def inbox_of(head: Head, *, passed: int = 0) -> Inbox:
    """An inbox that has not been looked at; ``passed`` messages of it will not be read."""
    return Inbox(Account(done=head.inbox_done, gap_n=head.gap_n, gap_at=head.gap_at), passed=passed)
