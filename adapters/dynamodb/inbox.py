"""Sending: a ticket first, then the message, so that messages stand in the order in which they were accepted."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from adapters.dynamodb.errors import AnswerLostError, ConditionFailedError, TransactionRefusedError
from adapters.dynamodb.model.conditions import IS_NOT_CLOSED, IS_OPEN, is_forgotten
from adapters.dynamodb.model.expressions import (
    Change,
    Condition,
    check_action,
    delete_action,
    put_action,
    update_action,
)
from adapters.dynamodb.model.items import (
    DEDUP_PREFIX,
    DUE_ATTRIBUTES,
    HEAD,
    INBOX,
    decode_head,
    dedup_key,
    due,
    encode_dedup,
    encode_message,
    integer,
    key,
    message_key,
)
from adapters.dynamodb.model.limits import DEDUP_TTL_S, MESSAGE_BYTES_MAX, SEND_SLOW_MS, SORT_KEY_BYTES_MAX
from adapters.dynamodb.model.naming import check_id
from adapters.dynamodb.model.origins import check_origin
from adapters.dynamodb.model.schema import TTL
from engine.entry import Message
from engine.errors import StoreUnavailableError, ValueTooLargeError, WorkflowEndedError, WorkflowNotFoundError
from engine.lifecycle import ENDED
from engine.limits import NAME_BYTES_MAX
from engine.origin import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from adapters.dynamodb.model.expressions import Item
    from adapters.dynamodb.table import Connection, Table
    from engine.origin import Origin

_OF_ONE_THAT_IS = ("n", "told", "told_n", *DUE_ATTRIBUTES)
"""What an inbox has only where there is a workflow."""

_MESSAGE_ID_BYTES_MAX = SORT_KEY_BYTES_MAX - len(DEDUP_PREFIX)


class Accepted(Struct, frozen=True, kw_only=True):
    """A message is in the inbox, or was once.

    Attributes:
        message_id: the caller's, or the one it was given.
        duplicate: whether a message with this id had been accepted before, so that this one does not count.
        reply: the CBOR answer to it, where there is one already.
    """

    message_id: str
    duplicate: bool = False
    reply: bytes | None = None


async def take_ticket(table: Table, workflow_id: str, now: int) -> int:
    """The next place in a workflow's inbox, which thereby becomes due.

    Raises:
        WorkflowNotFoundError: there is no such workflow; nothing was written.
        WorkflowEndedError: it takes no more messages; nothing was written.
    """
    try:
        return await _count_up(table, workflow_id, now, IS_OPEN)
    except ConditionFailedError as failed:
        if failed.item and "closed" in failed.item:
            raise _ended(workflow_id) from None
    # The first message of all: nothing but HEAD says whether there is such a workflow.
    stored = await table.get(key(workflow_id, HEAD))
    if stored is None:
        raise WorkflowNotFoundError(f"no workflow has the id {workflow_id!r}")
    if decode_head(stored).state in ENDED:
        raise _ended(workflow_id)
    try:
        ticket = await _count_up(table, workflow_id, now, IS_NOT_CLOSED)
    except ConditionFailedError:
        raise _ended(workflow_id) from None
    await check_owned(table, workflow_id, f"{ticket} {now}")
    return ticket


async def check_owned(table: Table, workflow_id: str, maker: str) -> None:
    """Take an inbox back that was made after its workflow had been purged, while its ``maker`` was stalled.

    An inbox without a HEAD would accept messages for nobody, for ever. With one, a purge deletes both at once.
    ``maker`` names who made it among all who ever did: each inbox begins with the same ticket.

    Raises:
        WorkflowNotFoundError: there is no such workflow.
    """
    if await table.get(key(workflow_id, HEAD)) is not None:
        return
    inbox = key(workflow_id, INBOX)
    is_still = check_action(key(workflow_id, HEAD), Condition("attribute_not_exists(#pk)"))
    whole = delete_action(inbox, Condition("attribute_not_exists(#waited)"))
    # Who has begun to wait counts on it, and takes the rest back, or is told by whoever begins that workflow.
    all_but_waits = update_action(inbox, Change(removes=_OF_ONE_THAT_IS), Condition("attribute_exists(#waited)"))
    for action in (whole, all_but_waits):
        try:
            await table.transact([is_still, action], f"unmake inbox {workflow_id} {maker} {'Update' in action}")
        except TransactionRefusedError as refused:
            if 0 in refused.failed:
                # Started anew by now: that workflow's inbox it is.
                return
        else:
            break
    raise WorkflowNotFoundError(f"no workflow has the id {workflow_id!r}")


async def take_back(connection: Connection, workflow_id: str) -> None:
    """Take back an inbox whose workflow is not there, and whose maker died before it could: it would stay due."""
    if await connection.table.get(key(workflow_id, INBOX)) is not None:
        with suppress(WorkflowNotFoundError):
            await check_owned(connection.table, workflow_id, connection.ids.new())


def _ended(workflow_id: str) -> WorkflowEndedError:
    return WorkflowEndedError(f"the workflow {workflow_id!r} has ended and takes no more messages")


async def _count_up(table: Table, workflow_id: str, now: int, condition: Condition) -> int:
    # It stays due since when it has been: moving it in the index would cost twice the ticket itself, each time.
    change = Change(defaults=due(workflow_id, now), adds={"n": 1})
    # A repeated try may take two tickets; the first then counts as one of a sender that died.
    answer = await table.update(key(workflow_id, INBOX), change, condition, returns="UPDATED_NEW")
    return integer(answer, "n")


async def find_reply(table: Table, workflow_id: str, message_id: str, now: int) -> Accepted | None:
    """What is remembered of a message id, or None where nothing is (any more)."""
    stored = await table.get(key(workflow_id, dedup_key(message_id)))
    if stored is None or integer(stored, TTL) <= now // 1000:
        return None
    return Accepted(message_id=message_id, duplicate=True, reply=_reply_in(stored))


def _reply_in(dedup: Item) -> bytes | None:
    return bytes(dedup["reply"]["B"]) if "reply" in dedup else None


def check_message(name: str, body: bytes, message_id: str | None, origin: Origin) -> None:
    """Raise ``InvalidIdError`` or ``ValueTooLargeError`` where no inbox takes such a message."""
    if message_id is not None:
        check_id(message_id, "message id", _MESSAGE_ID_BYTES_MAX)
    check_id(name, "message name", NAME_BYTES_MAX)
    check_origin(origin)
    if len(body) > MESSAGE_BYTES_MAX:
        raise ValueTooLargeError(f"the message {name!r} has {len(body)} bytes; {MESSAGE_BYTES_MAX} is the most")


async def send(
    connection: Connection,
    workflow_id: str,
    *,
    name: str,
    body: bytes,
    message_id: str | None = None,
    sent_at: int | None = None,
    origin: Origin = UNKNOWN,
    hint: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> Accepted:
    """Put a message into a workflow's inbox; ``body`` is CBOR, ``origin`` its sender's.

    ``hint`` has the workflow woken. It is called beside the last write, once the message has its place: a wake takes
    longer to get there than the message does, and whoever is woken too early knows by the place that one is coming.

    Acknowledged, it will be consumed once, or stay in the inbox. With a ``message_id`` sending again counts once.

    Raises:
        WorkflowNotFoundError, WorkflowEndedError, ValueTooLargeError, InvalidIdError: nothing was written.
        StoreUnavailableError: it may or may not have arrived.
    """
    check_id(workflow_id)
    check_message(name, body, message_id, origin)
    table, clock = connection.table, connection.clock
    began_at = clock.now()
    if message_id is not None:
        known = await find_reply(table, workflow_id, message_id, began_at)
        if known is not None:
            await _hinted(hint)
            return known
    ticket = await take_ticket(table, workflow_id, began_at)
    message = Message(
        id=connection.ids.new() if message_id is None else message_id,
        name=name,
        body=body,
        sent_at=began_at if sent_at is None else sent_at,
        ticket=ticket,
        origin=origin,
    )
    # The write is on its way first: tasks begin at the next chance, this coroutine goes on at once.
    hinting = asyncio.ensure_future(_hinted(hint))
    try:
        if message_id is None:
            accepted = await _put(table, workflow_id, message)
        else:
            accepted = await _put_once(connection, workflow_id, message)
    finally:
        await hinting
    if clock.now() - began_at > SEND_SLOW_MS:
        # The ticket may be taken for a dead sender's by now: another one makes somebody look again.
        await take_ticket(table, workflow_id, clock.now())
    return accepted


async def _hinted(hint: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
    if hint is not None:
        await hint()


async def _put(table: Table, workflow_id: str, message: Message) -> Accepted:
    accepted = Accepted(message_id=message.id)
    try:
        # Not repeated blindly: it may have arrived, been consumed and gone by then, and would arrive twice.
        await table.put(encode_message(workflow_id, message), repeats=False)
    except AnswerLostError:
        if await table.get(key(workflow_id, message_key(message.ticket))) is None:
            raise
    return accepted


async def _put_once(connection: Connection, workflow_id: str, message: Message) -> Accepted:
    now_s = connection.clock.now() // 1000
    dedup = encode_dedup(workflow_id, message.id, message.ticket, now_s + DEDUP_TTL_S)
    actions = [put_action(encode_message(workflow_id, message)), put_action(dedup, is_forgotten(now_s))]
    accepted = Accepted(message_id=message.id)
    try:
        await connection.table.transact(actions, f"send {connection.ids.new()}")
    except TransactionRefusedError as refused:
        return await _whose(connection.table, workflow_id, message, refused)
    return accepted


async def _whose(table: Table, workflow_id: str, message: Message, cause: Exception) -> Accepted:
    """Our own message, put by a try whose answer was lost, or one that was there before."""
    stored = await table.get(key(workflow_id, dedup_key(message.id)))
    if stored is None:
        raise StoreUnavailableError(f"the message id {message.id!r} was taken and is gone") from cause
    is_ours = integer(stored, "ticket") == message.ticket
    return Accepted(message_id=message.id, duplicate=not is_ours, reply=_reply_in(stored))
