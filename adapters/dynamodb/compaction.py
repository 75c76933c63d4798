"""Folding a log into a snapshot: first the snapshot, then HEAD points at it, then what it replaces goes.

Wherever this stops, HEAD tells which items count, so nothing is lost and what is left over is only in the way.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from adapters.dynamodb.model import log
from adapters.dynamodb.model.expressions import Change, Condition, binary, number
from adapters.dynamodb.model.items import HEAD, key, snapshot_key
from engine.errors import StoreUnavailableError

if TYPE_CHECKING:
    from adapters.dynamodb.hold import Hold
    from adapters.dynamodb.table import Table


class Keys:
    """The sort keys of a stored log.

    Attributes:
        live: those that HEAD stands on.
        stale: those that a snapshot has replaced, and that could not be deleted yet.
    """

    __slots__ = ("live", "stale")

    def __init__(self, live: list[str], stale: list[str]) -> None:
        self.live = live
        self.stale = stale


async def compact(table: Table, hold: Hold, fold: log.Fold, keys: Keys) -> None:
    """Replace the log up to the last commit by a snapshot, on which HEAD then stands.

    HEAD is locked only while it is itself written: much may take longer than a lease, which is renewed meanwhile.

    Raises:
        ConditionFailedError, FencedError: somebody else holds the lease.
        StoreUnavailableError: the log stays as it was, or HEAD points at the snapshot nevertheless, which is as good.
    """
    head = hold.head
    data = log.encode(log.Record(puts=fold.under(b"")))
    parts = log.cut(data)
    names = [snapshot_key(head.seq, part) for part in range(len(parts))]
    # As of one seq the pairs are what they are: a fenced holder that writes this snapshot too writes the same bytes.
    items = [{**key(head.workflow_id, name), "b": binary(part)} for name, part in zip(names, parts, strict=True)]
    await table.batch_write(items, [])
    # The second half keeps a try that was lost on its way, and arrives after a later folding, from undoing that one.
    mine = Condition(
        "#epoch = :epoch AND (attribute_not_exists(#snapshot_seq) OR #snapshot_seq <= :seq)",
        {":epoch": number(head.epoch), ":seq": number(head.seq)},
    )
    # Both in full, not as a difference: a pointer whose answer was lost may be stored, and ``head`` not know of it.
    sets = {
        "snapshot_seq": number(head.seq),
        "snapshot_parts": number(len(parts)),
        "folded_items": number(head.log_items),
    }
    async with hold.lock:
        hold.check()
        await table.update(key(head.workflow_id, HEAD), Change(sets=sets), mine)
        stands_on = {"snapshot_seq": head.seq, "snapshot_parts": len(parts), "folded_items": head.log_items}
        hold.head = replace(hold.head, **stands_on)
    fold.compacted(len(data))
    keys.stale = [name for name in (*keys.live, *keys.stale) if name not in names]
    keys.live = names
    # What cannot be deleted now is only in the way; the next snapshot tries again.
    with suppress(StoreUnavailableError):
        await table.batch_write([], [key(head.workflow_id, name) for name in keys.stale])
        keys.stale = []
