"""What an author holds of the inbox: the queue's operations, and the messages they answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from engine import limits
from engine.author.operating import Operating
from engine.durations import Duration, timeout_milliseconds, to_datetime
from engine.entry import MessageEntry
from engine.errors import QueueTimeoutError
from engine.ops import queue

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from datetime import datetime

T = TypeVar("T")


class Message(Generic[T]):
    """A message from the queue.

    Attributes:
        id: its id; unique in its workflow.
        name: its name.
        body: its body, as plain values.
        created_at: when it was sent, an aware datetime in UTC.
    """

    __slots__ = ("_received", "body", "created_at", "id", "name")

    def __init__(self, received: queue.Received) -> None:
        record = received.record
        self._received = received
        self.id: str = record.id
        self.name: str = record.name
        self.body: T = record.body
        self.created_at: datetime = to_datetime(record.created_at)

    def __repr__(self) -> str:
        return f"Message(id={self.id!r}, name={self.name!r}, body={self.body!r})"

    async def complete(self, response: Any = None) -> None:
        """Answer a message received with ``completable=True``: its sender gets ``response``, the inbox lets go of it.

        Does nothing for other messages, and on replay of one that was completed.
        """
        if self._received.complete is not None:
            await self._received.complete(response)


class Queue(Operating):
    """The workflow's inbox: messages that others, or the workflow itself, have sent to it."""

    __slots__ = ()

    def next(
        self,
        name: str | None = None,
        names: Sequence[str] | str | None = None,
        *,
        timeout: Duration | None = None,
        completable: bool = False,
    ) -> Coroutine[Any, Any, Message[Any]]:
        """The oldest message of ``names`` (of any name where None or empty), waiting for one if need be.

        Args:
            name: this operation's name, unique in its scope; left out in a scope without names.
            names: the message names wanted.
            timeout: how long to wait, a timedelta or seconds; None waits for ever.
            completable: the message stays in the inbox until ``await message.complete(response)``.

        Raises:
            QueueTimeoutError: the timeout passed without a message.
            MessageNotCompletedError: an earlier completable message of this context is open.
        """
        return self._perform(
            name, MessageEntry.kind, lambda used: self._next(used, names, timeout, completable=completable)
        )

    async def _next(
        self, name: str, names: Sequence[str] | str | None, timeout: Duration | None, *, completable: bool
    ) -> Message[Any]:
        received = await self._receive(name, names, 1, timeout, completable=completable)
        if not received:
            raise QueueTimeoutError(
                f"no message came before the timeout of queue.next({name!r}); use queue.next_batch for optional reads"
            )
        return received[0]

    def next_batch(
        self,
        name: str | None = None,
        names: Sequence[str] | str | None = None,
        *,
        count: int = 1,
        timeout: Duration | None = None,
        completable: bool = False,
    ) -> Coroutine[Any, Any, list[Message[Any]]]:
        """The oldest messages of ``names``, one to ``count`` of them; ``[]`` where the timeout passed first.

        Raises:
            ValueError: ``count`` is no integer from 1 on.
        """
        if type(count) is not int or count < 1:
            raise ValueError(f"queue.next_batch: count must be an integer from 1 on, not {count!r}")
        most = min(count, limits.U32_MAX)
        return self._perform(
            name, MessageEntry.kind, lambda used: self._receive(used, names, most, timeout, completable=completable)
        )

    async def _receive(
        self, name: str, names: Sequence[str] | str | None, count: int, timeout: Duration | None, *, completable: bool
    ) -> list[Message[Any]]:
        wanted = (names,) if isinstance(names, str) else tuple(dict.fromkeys(names or ()))
        timeout_ms = timeout_milliseconds(timeout)
        received = await queue.receive(self._scope, name, wanted, count, timeout_ms, is_completable=completable)
        return [Message(one) for one in received]

    def send(self, name: str, body: Any = None) -> Coroutine[Any, Any, None]:
        """Put a message into this workflow's own inbox, once however often the workflow is replayed."""
        self._refuse_version(f"send:{name}")
        return self._scope.operation(f"send:{name}", queue.send(self._scope, name, body))
