"""A start under the id of a workflow that is being purged, before that is over: HEAD is replaced, INBOX counts on.

A purge keeps both for a minute, lest a sender that is slow puts the message of an earlier life under a ticket that is
given again. Here no ticket is: INBOX stays. A message that comes so late was not acknowledged before it came, so it may
as well have been sent to the later life, and is one of that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from adapters.dynamodb.model.items import INBOX, integer, key
from adapters.dynamodb.model.limits import SUCCESSION_MS
from adapters.dynamodb.purge import vacate
from engine.errors import FencedError, WorkflowNotEndedError, WorkflowNotFoundError

if TYPE_CHECKING:
    from adapters.dynamodb.model.beginning import Beginning
    from adapters.dynamodb.table import Connection


async def succeed(connection: Connection, beginning: Beginning) -> Beginning | None:
    """The start that takes the place of the workflow whose purge was in its way; None where much is left of that.

    Where somebody else was faster it is the one that was refused: what is in the way now, a further look shows.
    """
    new, now = beginning.head, connection.clock.now()
    try:
        former = await vacate(connection, new.workflow_id, until=now + SUCCESSION_MS)
    except (FencedError, WorkflowNotEndedError, WorkflowNotFoundError):
        return replace(beginning, former=None)
    if former is None:
        return None
    last_ticket = integer(await connection.table.get(key(new.workflow_id, INBOX)) or {}, "n")
    has_gap = last_ticket > former.inbox_done
    head = replace(
        new,
        # Beyond every epoch that a holder of the earlier life can have.
        epoch=max(new.epoch, former.epoch + 1),
        inbox_done=former.inbox_done,
        gap_n=last_ticket if has_gap else 0,
        gap_at=(former.ended_at or former.updated_at) if has_gap else 0,
    )
    return replace(beginning, head=head, former=former)
