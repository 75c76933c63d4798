"""A wake ahead of a workflow's time that has many unread messages: it is loaded only if a new one may concern it.

What it waits for is in HEAD, and when it yielded no message of those names was there: a run takes what it waits for. So
where HEAD says that nothing was committed since, only tickets given since matter. A sender that was slow, and put its
message under an older one, has taken a new one as well, which has no message; then, as whenever a ticket has none, all
messages have to be looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.dynamodb.reading import look_at_new
from engine.errors import InboxMovedError

if TYPE_CHECKING:
    from adapters.dynamodb.hold import Hold
    from adapters.dynamodb.model.tickets import Inbox
    from adapters.dynamodb.table import Connection

_LOOKS_MAX = 3
"""How often new messages are looked at that keep coming. Design choice."""


async def passed_by(connection: Connection, hold: Hold, inbox: Inbox, due_at: int | None) -> bool:
    """Whether nothing new concerns a workflow that is due at ``due_at`` (milliseconds): its lease is given up then.

    Raises:
        FencedError: somebody else holds the lease.
    """
    head = hold.head
    for _ in range(_LOOKS_MAX):
        await look_at_new(connection.table, inbox, head.workflow_id, connection.clock.now(), after=head.inbox_done)
        is_wanted = head.waiting is not None and inbox.has_any(head.waiting)
        if is_wanted or inbox.told or inbox.account.is_outstanding:
            return False
        try:
            await hold.park(inbox, due_at)
        except InboxMovedError:
            continue
        return True
    return False
