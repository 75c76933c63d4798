"""The sweeper as a Lambda function: every minute it wakes whoever is overdue, whatever was lost or died."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import TYPE_CHECKING, Any

from engine.errors import DriverError
from handlers import bootstrap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adapters.dynamodb.store import Store
    from adapters.sqs import WakeQueue
    from engine.driver import Clock
    from handlers.bootstrap import Wiring

logger = logging.getLogger(__name__)

OVERDUE_PER_SHARD_MAX = 500
"""Workflows of one shard of the index that one sweep looks at. Design choice: 8,000 in all, which the rest of a minute
is enough to wake; who is left is the longest overdue of the next sweep."""

OUTLIVED_MAX = 2_000
"""Ended workflows whose time is over that one sweep has somebody forget: those of one shard, a different one each
minute, so that each is looked at every 16 minutes. Design choice: three million a day, for one query a minute."""

_SHARD_MS = 60_000

PATIENCE_MS = 5_000
"""Milliseconds for which an overdue workflow is left to the fast path: its wake is on its way. Design choice."""

SWEPT = "swept"
"""The log message from whose numbers the template makes metrics."""

CONCURRENT_WAKES_MAX = 40
"""Wakes in flight at once. Design choice: fewer than the client has connections."""


class SweeperFunction:
    """The Lambda function, bound to a process and its adapters."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring

    def __call__(self, _event: Mapping[str, Any], _context: Any) -> dict[str, int]:
        """Sweep once; the answer says how many were overdue and how many of them were woken."""
        return self._wiring.process.run(self._sweep())

    async def _sweep(self) -> dict[str, int]:
        wiring = self._wiring
        return await sweep(await wiring.store(), await wiring.queue(), wiring.clock)


async def sweep(store: Store, queue: WakeQueue, clock: Clock) -> dict[str, int]:
    """Wake every workflow that somebody should have looked at by now.

    Raises:
        StoreUnavailableError: nobody could be found; the next sweep will.
    """
    now = clock.now()
    room = asyncio.Semaphore(CONCURRENT_WAKES_MAX)

    async def wake(workflow_id: str) -> bool:
        async with room:
            try:
                await queue.wake(workflow_id, 0)
            except DriverError:
                return False
        return True

    overdue = await store.overdue(now=now - PATIENCE_MS, limit_per_shard=OVERDUE_PER_SHARD_MAX)
    woken = sum(await asyncio.gather(*(wake(entry.workflow_id) for entry in overdue)))
    told = {"overdue": len(overdue), "woken": woken}
    longest_ms = now - overdue[0].due_at if overdue else 0
    level = logging.INFO if woken == len(overdue) else logging.ERROR
    logger.log(level, SWEPT, extra={**told, "longest_ms": longest_ms})
    # Behind what is late, and told apart from it: nobody waits for these.
    outlived = await store.outlived(now // _SHARD_MS, now=now, limit=OUTLIVED_MAX)
    if outlived:
        woken = sum(await asyncio.gather(*map(wake, outlived)))
        logger.info("outlived", extra={"outlived": len(outlived), "woken": woken})
    return told


@functools.cache
def _function() -> SweeperFunction:
    return SweeperFunction(bootstrap.wiring())


def handler(event: dict[str, Any], context: Any) -> dict[str, int]:
    """Lambda's entry point."""
    return _function()(event, context)
