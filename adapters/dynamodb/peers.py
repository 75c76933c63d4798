"""Other workflows, as one of them may ask after them: how one stands, and which have certain tags."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from adapters.dynamodb import query
from adapters.dynamodb.errors import LogIncompleteError
from adapters.dynamodb.inbox import take_ticket
from adapters.dynamodb.model.beginning import check_start
from adapters.dynamodb.model.expressions import text
from adapters.dynamodb.model.items import HEAD, decode_head, key
from adapters.dynamodb.model.limits import FIND_PAGE_ITEMS
from adapters.dynamodb.model.naming import check_id, check_tags, check_type
from adapters.dynamodb.model.schema import PARTITION_KEY, SORT_KEY
from adapters.dynamodb.model.tags import has_tags, tag_partition
from engine.driver import Peer
from engine.errors import InvalidIdError, WorkflowNotFoundError
from engine.history.kept import UNREADABLE
from engine.lifecycle import ENDED, WorkflowState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from adapters.dynamodb.ends import Waits
    from adapters.dynamodb.model.tickets import Inbox
    from adapters.dynamodb.table import Connection, Table
    from engine.commit import Child


HOPELESS = (*UNREADABLE, LogIncompleteError)
"""What reading a history raises that no further try would read."""


class DynamoPeers:
    """The ``Peers`` of a table, as the holder of one workflow sees them."""

    __slots__ = ("_clock", "_inbox", "_table", "_taken_for_granted", "_waits")

    def __init__(self, connection: Connection, waits: Waits, inbox: Inbox) -> None:
        self._table = connection.table
        self._clock = connection.clock
        self._waits = waits
        self._inbox = inbox
        self._taken_for_granted: dict[str, int] = {}

    async def peek(self, workflow_id: str) -> Peer | None:
        """How a workflow stands, strongly consistent; None where there is none.

        More than HEAD is read only where it has ended, and nothing where this one would have been told: then it is
        said to be running, without its type.
        """
        if self._takes_for_granted(workflow_id):
            return Peer(workflow_id=workflow_id, workflow_type="", state=WorkflowState.RUNNING)
        return await self._asked(workflow_id) if _is_possible(check_id, workflow_id) else None

    async def _asked(self, workflow_id: str) -> Peer | None:
        stored = await self._table.get(key(workflow_id, HEAD))
        head = None if stored is None else decode_head(stored)
        if head is None or head.purging_at:
            return None
        if head.state not in ENDED:
            return Peer(workflow_id=workflow_id, workflow_type=head.type, state=head.state)
        try:
            ending = await query.outcome(self._table, workflow_id)
        except WorkflowNotFoundError:
            return None
        except HOPELESS:
            if head.state is not WorkflowState.FAILED:
                raise
            # It was set aside because of that.
            return Peer(workflow_id=workflow_id, workflow_type=head.type, state=head.state)
        return Peer(
            workflow_id=workflow_id,
            workflow_type=head.type,
            state=ending.state,
            output=ending.output,
            error=ending.error,
        )

    def _takes_for_granted(self, workflow_id: str) -> bool:
        """Whether an awaited workflow need not be asked again, so that a thousand who end one by one cost a thousand.

        Should it have ended without our having been told, a yield is refused or the inbox is due once we are. Whoever
        asks twice between two looks at the inbox does not wait for that, and is given a true answer.
        """
        looks = self._inbox.looks
        if not self._waits.is_noted(workflow_id, self._inbox.told):
            return False
        if self._taken_for_granted.get(workflow_id) == looks:
            return False
        self._taken_for_granted[workflow_id] = looks
        return True

    async def find(self, workflow_type: str, tags: Mapping[str, str], limit: int) -> list[str]:
        """Ids of workflows of a type that have not ended and have at least ``tags``, in the order of ids.

        Strongly consistent, and read is what has the first of ``tags``. Without tags it is the oldest workflows of the
        type, by an index that is a moment late.
        """
        if not (_is_possible(check_type, workflow_type) and _is_possible(check_tags, tags)):
            return []
        return await find(self._table, workflow_type, tags, limit)

    def check_start(self, child: Child) -> None:
        """Raise where no commit could ever start ``child``, whatever else is there.

        Raises:
            InvalidIdError, ValueTooLargeError: its id, type, tags or input are none that a workflow can have.
        """
        check_start(child.workflow_id, child.workflow_type, child.workflow_input, child.tags)

    async def reserve(self, workflow_id: str) -> int:
        """A place in the inbox of another workflow; one that stays empty is given up after a minute.

        Raises:
            WorkflowNotFoundError, WorkflowEndedError: it is not there, or takes no more.
        """
        if not _is_possible(check_id, workflow_id):
            raise WorkflowNotFoundError(f"no workflow has the id {workflow_id!r}")
        return await take_ticket(self._table, workflow_id, self._clock.now())


def _is_possible(check: Callable[[Any], None], value: object) -> bool:
    """Whether there can be a workflow with this id, type or tags."""
    try:
        check(value)
    except InvalidIdError:
        return False
    return True


async def find(table: Table, workflow_type: str, tags: Mapping[str, str], limit: int, after: str = "") -> list[str]:
    """As ``DynamoPeers.find``, beginning after the id ``after`` where there are tags."""
    if not tags:
        return sorted(await query.oldest_active(table, workflow_type, limit))
    found: list[str] = []
    async for item in table.query(_query_of(workflow_type, tags, after), page=_page(tags, limit)):
        if has_tags(item, tags):
            found.append(item[SORT_KEY]["S"])
        if len(found) == limit:
            break
    return found


async def find_page(
    table: Table, workflow_type: str, tags: Mapping[str, str], *, limit: int, cursor: str | None, now: int
) -> query.Page:
    """What ``find`` finds with at least one tag, as a page of descriptions as of ``now`` (milliseconds).

    Raises:
        InvalidIdError: the cursor is none of ours.
    """
    after = "" if cursor is None else _parse_cursor(cursor)
    found = await find(table, workflow_type, tags, limit + 1, after)
    more = base64.urlsafe_b64encode(found[limit - 1].encode()).decode() if len(found) > limit else None
    return query.Page(items=await query.describe_all(table, found[:limit], now), cursor=more)


def _parse_cursor(cursor: str) -> str:
    try:
        after = base64.urlsafe_b64decode(cursor.encode()).decode()
        check_id(after)
    except (ValueError, InvalidIdError) as error:
        raise InvalidIdError(f"{cursor!r} is no cursor of such a listing") from error
    return after


def _page(tags: Mapping[str, str], limit: int) -> int:
    # Of those with one tag every one counts; of those with more nobody knows how many have to be read.
    return min(limit, FIND_PAGE_ITEMS) if len(tags) == 1 else FIND_PAGE_ITEMS


def _query_of(workflow_type: str, tags: Mapping[str, str], after: str) -> dict[str, Any]:
    name, value = next(iter(tags.items()))
    arguments: dict[str, Any] = {
        "KeyConditionExpression": "#pk = :pk",
        "ExpressionAttributeNames": {"#pk": PARTITION_KEY},
        "ExpressionAttributeValues": {":pk": text(tag_partition(workflow_type, name, value))},
        "ConsistentRead": True,
    }
    if after:
        arguments["KeyConditionExpression"] += " AND #sk > :after"
        arguments["ExpressionAttributeNames"]["#sk"] = SORT_KEY
        arguments["ExpressionAttributeValues"][":after"] = text(after)
    return arguments
