"""Reading a workflow: its whole partition in one Query, or only its inbox."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from adapters.dynamodb.model.items import INBOX, MESSAGE_PREFIX, decode_message, key, message_key
from adapters.dynamodb.model.limits import UNREAD_PAGE_BYTES
from adapters.dynamodb.model.partition import Mail, Partition, counts_of, items_query_of, later_query_of, query_of
from engine.entry import Message
from engine.errors import InvalidIdError

if TYPE_CHECKING:
    from adapters.dynamodb.model.tickets import Inbox
    from adapters.dynamodb.table import Table

_TICKET_DIGITS = len(message_key(0)) - len(MESSAGE_PREFIX)


async def read_partition(table: Table, workflow_id: str) -> Partition:
    """Everything of a workflow but the message ids it remembers; strongly consistent."""
    partition = Partition()
    async for item in table.query(query_of(workflow_id)):
        partition.take(item)
    return partition


async def look_at_inbox(table: Table, inbox: Inbox, workflow_id: str, now: int) -> None:
    """Bring ``inbox`` up to date with what is stored."""
    # INBOX first: a ticket given after this read changes what a yield is conditioned on, so no message slips through.
    counts = counts_of(await table.get(key(workflow_id, INBOX)) or {})
    if inbox.glance(counts):
        return
    mail = await _read_mail(table, items_query_of(workflow_id, MESSAGE_PREFIX))
    inbox.look(counts, messages=mail.messages, bare=mail.bare, now=now)


async def look_at_new(table: Table, inbox: Inbox, workflow_id: str, now: int, *, after: int) -> None:
    """As ``look_at_inbox``, but for the messages with tickets up to ``after``, which are passed over."""
    counts = counts_of(await table.get(key(workflow_id, INBOX)) or {})
    mail = await _read_mail(table, later_query_of(workflow_id, message_key(after + 1), MESSAGE_PREFIX))
    inbox.look(counts, messages=mail.messages, bare=mail.bare, now=now)


async def _read_mail(table: Table, query: dict[str, Any]) -> Mail:
    mail = Mail()
    async for item in table.query(query):
        mail.take(item)
    return mail


async def read_message(table: Table, workflow_id: str, ticket: int) -> Message | None:
    """One message, whole; None where it is gone."""
    item = await table.get(key(workflow_id, message_key(ticket)))
    return None if item is None else decode_message(item)


class Unread(Struct, frozen=True, kw_only=True):
    """Messages that no commit has taken out of an inbox yet, the oldest first; ``cursor`` asks for those behind them.

    ``cursor`` is None where there were none behind.
    """

    messages: list[Message]
    cursor: str | None


async def read_unread(table: Table, workflow_id: str, *, limit: int, cursor: str | None) -> Unread:
    """At most ``limit`` of the messages in an inbox, fewer where they are large: one at least, if there are any.

    Raises:
        InvalidIdError: the cursor is none of ours.
    """
    query = later_query_of(workflow_id, message_key(_after(cursor) + 1), MESSAGE_PREFIX)
    found: list[Message] = []
    left = UNREAD_PAGE_BYTES
    # One more than is given says whether there are more, and no other is read.
    async with aclosing(table.query(query, limit=limit + 1)) as items:
        async for item in items:
            message = decode_message(item)
            left -= len(message.body)
            if found and (left < 0 or len(found) == limit):
                return Unread(messages=found, cursor=str(found[-1].ticket))
            found.append(message)
    return Unread(messages=found, cursor=None)


def _after(cursor: str | None) -> int:
    """The ticket of the last message of the page before."""
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= _TICKET_DIGITS):
        raise InvalidIdError(f"{cursor!r} is no cursor of an inbox")
    return int(cursor)
