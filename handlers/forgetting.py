"""What a wake does for a workflow that has ended: whatever is to be forgotten of it, as far as there is time."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from adapters.dynamodb.store import Outlived, Purging
from engine.errors import CallerError, FencedError, OperatorError
from handlers import failures

if TYPE_CHECKING:
    from collections.abc import Collection

    from adapters.alarms import Alarms
    from adapters.dynamodb.store import Store

logger = logging.getLogger(__name__)


async def forget(
    store: Store, alarms: Alarms, workflow_id: str, claim: Purging | Outlived, *, until: int
) -> Collection[str]:
    """Delete the history of a workflow, or all of it, that was kept long enough, or go on with a purge.

    ``until`` is when to be back, in milliseconds since the epoch. Nothing is raised: what could not be done stays due.
    The answer are workflows that waited for its end and are due now, to be woken.
    """
    try:
        if isinstance(claim, Outlived) and not claim.is_whole:
            is_done = await store.forget_history(workflow_id)
            logger.info("history forgotten", extra={"workflow_id": workflow_id, "is_done": is_done})
        else:
            return await _purge(store, alarms, workflow_id, claim, until=until)
    except (OperatorError, CallerError, FencedError) as error:
        # It stays due, or somebody else is at it.
        logger.warning("purge cut short", extra={"workflow_id": workflow_id, **failures.told(error)})
    return ()


async def _purge(
    store: Store, alarms: Alarms, workflow_id: str, claim: Purging | Outlived, *, until: int
) -> Collection[str]:
    # What was claimed may be gone by now, and another workflow be there under its id.
    is_outlived = isinstance(claim, Outlived)
    progress = await store.purge(workflow_id, until=until, is_outlived=is_outlived, is_begun=not is_outlived)
    if progress.again_at is not None:
        with failures.losing_nothing("alarm not armed", workflow_id):
            await alarms.arm(workflow_id, progress.again_at)
    logger.info("purged", extra={"workflow_id": workflow_id, "again_at": progress.again_at})
    return progress.told
