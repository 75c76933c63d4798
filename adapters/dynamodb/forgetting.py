"""Forgetting the history of a workflow that has ended and was to be kept a while: its input and outcome stay.

The history goes in one commit, the document's last version stays in it, and then the log is folded, so that nothing is
left of what it was. Whoever is cut short leaves HEAD where it stands in the index, and whoever comes next does the same
again: each part may be done twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.dynamodb.errors import ConditionFailedError
from adapters.dynamodb.lease import Claimed, Unreadable
from adapters.dynamodb.model.expressions import Change, number
from adapters.dynamodb.model.items import DUE_ATTRIBUTES, HEAD, key
from adapters.dynamodb.model.limits import LEASE_MS
from adapters.dynamodb.model.plan import is_mine
from engine import keys
from engine.commit import Commit
from engine.errors import FencedError
from engine.history.documents import OF_ALL, encode
from engine.history.storage import Storage

if TYPE_CHECKING:
    from adapters.dynamodb.driver import DynamoDriver
    from adapters.dynamodb.lease import Claims
    from adapters.dynamodb.model.items import Head
    from adapters.dynamodb.table import Connection

_FORGOTTEN = (keys.NAMES_PREFIX, keys.HISTORY_PREFIX, keys.METADATA_PREFIX, keys.DOCUMENT_PREFIX)
_NO_LONGER_KEPT = ("prune", "prune_at", *DUE_ATTRIBUTES)


async def forget_history(connection: Connection, claims: Claims, workflow_id: str) -> bool:
    """Forget the history of a workflow whose time is over; False, and nothing is written, where it is not.

    Raises:
        FencedError: somebody else is at it, or lets it go on.
        CorruptHistoryError, UnknownVersionError: it cannot be read. It stays as it is, and is not tried again.
    """
    match await claims.seize_outlived(workflow_id, lease_ms=LEASE_MS):
        case Claimed(driver):
            await _forget(driver)
            await _settle(connection, driver.head, Change(sets={"pruned_at": number(connection.clock.now())}))
            return True
        case Unreadable(driver, error):
            # What cannot be read is nothing that a further try would read.
            await _settle(connection, driver.head, Change())
            raise error
    return False


async def _forget(driver: DynamoDriver) -> None:
    pairs = await driver.list(b"")
    if any(name.startswith(_FORGOTTEN) and name != keys.document_key(OF_ALL) for name, _ in pairs):
        document = Storage.load(pairs).documents.current
        kept = [(keys.document_key(OF_ALL), encode(document))] if document.version else []
        await driver.commit(Commit(prefixes=list(_FORGOTTEN), puts=kept))
    await driver.compact()


async def _settle(connection: Connection, head: Head, change: Change) -> None:
    """HEAD leaves the index, and whoever has held it lets it go."""
    done = Change(sets=change.sets, removes=(*_NO_LONGER_KEPT, "owner", "lease_until"))
    try:
        await connection.table.update(key(head.workflow_id, HEAD), done, is_mine(head))
    except ConditionFailedError as failed:
        # A first try, its answer lost, may have been applied.
        if not failed.is_ambiguous:
            raise FencedError(f"somebody else has taken {head.workflow_id!r}") from None
