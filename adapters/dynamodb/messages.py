"""The inbox of a claimed workflow as the engine sees it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from adapters.dynamodb.inbox import send
from adapters.dynamodb.reading import look_at_inbox, read_message
from engine.commit import Commit, Reply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from adapters.dynamodb.model.tickets import Inbox
    from adapters.dynamodb.table import Connection
    from engine.entry import Message


class DynamoMessages:
    """The ``MessageDriver`` of a claimed workflow."""

    __slots__ = ("_commit", "_connection", "_inbox", "_looking", "_workflow_id")

    def __init__(
        self,
        connection: Connection,
        workflow_id: str,
        inbox: Inbox,
        commit: Callable[[Commit], Awaitable[None]],
    ) -> None:
        self._connection = connection
        self._workflow_id = workflow_id
        self._inbox = inbox
        self._commit = commit
        self._looking = asyncio.Lock()

    async def add(self, message: Message) -> bool:
        """Accept a message; False where its id was accepted before."""
        accepted = await send(
            self._connection,
            self._workflow_id,
            name=message.name,
            body=message.body,
            message_id=message.id,
            sent_at=message.sent_at,
            origin=message.origin,
        )
        return not accepted.duplicate

    async def refresh(self) -> None:
        """Read the inbox anew."""
        # Branches look when they please. Of two looks side by side the one that began first may end last, and would
        # take out again what the other one has seen, whose ticket is accounted for by then.
        async with self._looking:
            await look_at_inbox(self._connection.table, self._inbox, self._workflow_id, self._connection.clock.now())

    async def receive(self, names: Sequence[str], count: int) -> list[Message]:
        """The oldest ``count`` messages of ``names`` (all where empty) as of the last refresh."""
        found = [await self._whole(message) for message in self._inbox.receive(names, count)]
        return [message for message in found if message is not None]

    async def _whole(self, message: Message) -> Message | None:
        """The message with its body, which a full inbox does not keep in memory."""
        if message.ticket not in self._inbox.bare:
            return message
        return await read_message(self._connection.table, self._workflow_id, message.ticket)

    async def complete(self, message_id: str, response: bytes | None) -> None:
        """Remove a message and keep ``response`` for its sender, in a commit of its own."""
        if response is None:
            await self._commit(Commit(consumed=[message_id]))
        else:
            await self._commit(Commit(replies=[Reply(message_id=message_id, body=response)]))
