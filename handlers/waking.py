"""Waking others: who was made due by a commit is woken at once, while the one that made it goes on.

A wake is a hint. What fails here costs a delay and nothing else: who is due is found by the sweeper.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from handlers import failures

if TYPE_CHECKING:
    from collections.abc import Collection

    from adapters.sqs import WakeQueue

logger = logging.getLogger(__name__)

WAKES_AT_ONCE = 10
"""Wakes that are sent at a time. Design choice: a commit may start dozens of workflows, and each wake is a request."""


class Waker:
    """Sends wakes to ``queue``, beside whatever goes on."""

    def __init__(self, queue: WakeQueue) -> None:
        self._queue = queue
        # As a dict it keeps its order, and has each only once however often it was made due before its turn came.
        self._waiting: dict[str, None] = {}
        self._work: asyncio.Task[None] | None = None

    def wake(self, workflow_ids: Collection[str]) -> None:
        """Wake workflows soon, without waiting for it."""
        self._waiting.update(dict.fromkeys(workflow_ids))
        if self._waiting and (self._work is None or self._work.done()):
            self._work = asyncio.get_running_loop().create_task(self._wake_all())

    async def settle(self) -> None:
        """Return when every wake has been sent or has failed."""
        if self._work is not None:
            await asyncio.wait({self._work})

    async def _wake_all(self) -> None:
        while self._waiting:
            some = list(self._waiting)[:WAKES_AT_ONCE]
            for workflow_id in some:
                del self._waiting[workflow_id]
            await asyncio.gather(*map(self._wake, some))

    async def _wake(self, workflow_id: str) -> None:
        try:
            with failures.losing_nothing("wake lost", workflow_id):
                await self._queue.wake(workflow_id, 0)
        except Exception:
            # A bug of ours; what made it due is written, and goes on being right.
            logger.exception("wake lost", extra={"workflow_id": workflow_id})


async def wake_all(queue: WakeQueue, workflow_ids: Collection[str]) -> None:
    """Wake workflows now, and return when every wake has been sent or has failed."""
    waker = Waker(queue)
    waker.wake(workflow_ids)
    await waker.settle()
