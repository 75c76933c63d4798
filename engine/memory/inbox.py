"""The inbox of a driver in memory."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from engine.driver import AbortSignal
    from engine.entry import Message


class MemoryInbox:
    """The inbox of a ``MemoryDriver``."""

    def __init__(self, call: Callable[[str], AbstractAsyncContextManager[None]]) -> None:
        """``call`` makes the context of each of its operations."""
        self._call = call
        self._snapshot: list[Message] = []
        self._waiters: set[asyncio.Event] = set()
        self._tickets = 0
        self._unseen: list[Message] = []
        self.ids: set[str] = set()
        self.messages: dict[int, Message] = {}
        self.replies: dict[str, bytes | None] = {}

    async def add(self, message: Message) -> bool:
        """Accept a message; False where its id was accepted before."""
        async with self._call("add"):
            if message.ticket:
                # It was here before, and has come back.
                self.put_back(message)
                return True
            return self.put(message)

    def reserve(self) -> int:
        """A place for a message that is put there later, as its ``ticket``."""
        self._tickets += 1
        return self._tickets

    def put(self, message: Message) -> bool:
        """As ``add``, at once; in the place of its ticket, where it has one."""
        if message.id in self.ids:
            return False
        self.ids.add(message.id)
        placed = msgspec.structs.replace(message, ticket=message.ticket or self.reserve())
        self._place(placed)
        self._unseen.append(placed)
        for waiter in self._waiters:
            waiter.set()
        return True

    def put_back(self, message: Message) -> None:
        """Put a message to its old place."""
        self._place(message)
        self._snapshot = list(self.messages.values())

    def _place(self, message: Message) -> None:
        is_behind_all = message.ticket > next(reversed(self.messages), 0)
        self.messages[message.ticket] = message
        if not is_behind_all:
            self.messages = dict(sorted(self.messages.items()))

    def remove(self, message_id: str) -> None:
        """Take a message out; no error where it is not there."""
        for ticket, message in self.messages.items():
            if message.id == message_id:
                del self.messages[ticket]
                break
        self._snapshot = [message for message in self._snapshot if message.id != message_id]

    @property
    def has_moved(self) -> bool:
        """Whether a message was accepted since the last refresh."""
        return bool(self._unseen)

    async def refresh(self) -> None:
        """Read the inbox anew."""
        async with self._call("refresh"):
            self._snapshot = list(self.messages.values())
            self._unseen.clear()

    async def receive(self, names: Sequence[str], count: int) -> list[Message]:
        """The oldest messages of ``names`` as of the last refresh."""
        async with self._call("receive"):
            wanted = (message for message in self._snapshot if not names or message.name in names)
            return list(itertools.islice(wanted, count))

    async def complete(self, message_id: str, response: bytes | None) -> None:
        """Remove a message and keep the reply."""
        async with self._call("complete"):
            self.answer(message_id, response)

    def answer(self, message_id: str, response: bytes | None) -> None:
        """As ``complete``, at once."""
        self.remove(message_id)
        if response is not None:
            self.replies[message_id] = response

    async def wait(self, names: Sequence[str], abort_signal: AbortSignal) -> None:
        """Return when a message of ``names`` was accepted since the last refresh, or ``abort_signal`` is set."""
        moved = asyncio.Event()
        self._waiters.add(moved)
        stop = asyncio.ensure_future(abort_signal.wait())
        try:
            while not stop.done() and not self._has_new(names):
                moved.clear()
                arrival = asyncio.ensure_future(moved.wait())
                try:
                    await asyncio.wait([arrival, stop], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    arrival.cancel()
        finally:
            self._waiters.discard(moved)
            stop.cancel()

    def _has_new(self, names: Sequence[str]) -> bool:
        return any(not names or message.name in names for message in self._unseen)
