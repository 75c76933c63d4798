"""Reading what was published in the last minute and a half, as late subscribers do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from adapters.dynamodb.model.expressions import text
from adapters.dynamodb.model.items import shard_of
from adapters.dynamodb.model.limits import TAIL_ANSWER_BYTES_MAX, TAIL_PAGE_ITEMS, TAIL_SHARDS, TAIL_TTL_S
from adapters.dynamodb.model.publications import Position, Told, partition_of, read_cursor, told_of, write_cursor
from adapters.dynamodb.model.schema import PARTITION_KEY, SORT_KEY
from adapters.dynamodb.together import together
from engine.location import EVERYTHING, check_publication

if TYPE_CHECKING:
    from adapters.dynamodb.table import Table


class Tail(Struct, frozen=True, kw_only=True):
    """Messages, the oldest first; ``cursor`` asks for those that come after.

    ``has_gap``: the cursor was so old that messages after it may be gone.
    """

    messages: list[Told]
    cursor: str
    has_gap: bool


async def read_tail(table: Table, name: str, topic: str | None, *, after: str | None, limit: int, now: int) -> Tail:
    """At most ``limit`` messages of a name, on exactly ``topic`` (None: on any): those after a cursor, else the last.

    Raises:
        InvalidIdError: the name, the topic or the cursor is not valid.
    """
    check_publication(name, EVERYTHING if topic is None else topic)
    horizon = now - TAIL_TTL_S * 1000
    if after is None:
        position = Position(floor=horizon)
        found = await _of_all(table, name, topic, position, horizon, limit + 1, is_forward=False)
        given = _that_fit(found[::-1][:limit])[::-1]
        older = found[: len(found) - len(given)]
        skipped = older[-1].sent_at + 1 if older else horizon
        moved = position.moved(given, skipped=skipped, left=None, now=now)
    else:
        position = read_cursor(name, topic, after)
        found = await _of_all(table, name, topic, position, horizon, limit + 1, is_forward=True)
        given = _that_fit(found[:limit])
        left = found[len(given)].sent_at if len(found) > len(given) else None
        moved = position.moved(given, skipped=horizon, left=left, now=now)
    return Tail(messages=given, cursor=write_cursor(name, topic, moved), has_gap=position.floor < horizon)


def _that_fit(messages: list[Told]) -> list[Told]:
    """The first of ``messages`` whose bodies one answer can hold; at least one."""
    size = 0
    for count, message in enumerate(messages):
        size += len(message.body)
        if count and size > TAIL_ANSWER_BYTES_MAX:
            return messages[:count]
    return messages


async def _of_all(
    table: Table, name: str, topic: str | None, position: Position, horizon: int, limit: int, *, is_forward: bool
) -> list[Told]:
    """The first (or last) ``limit`` messages that are wanted, the oldest first; fewer where an answer holds no more."""
    shards = range(TAIL_SHARDS) if topic is None else (shard_of(topic, TAIL_SHARDS),)
    first = max(position.floor, horizon)
    reads = [_of_shard(table, name, shard, topic, position, first, limit, is_forward=is_forward) for shard in shards]
    found = [message for messages in await together(reads) for message in messages]
    found.sort(key=lambda message: (message.sent_at, message.id))
    return found[:limit] if is_forward else found[-limit:]


async def _of_shard(
    table: Table,
    name: str,
    shard: int,
    topic: str | None,
    position: Position,
    first: int,
    limit: int,
    *,
    is_forward: bool,
) -> list[Told]:
    arguments: dict[str, Any] = {
        "KeyConditionExpression": "#pk = :pk AND #sk >= :first",
        "ExpressionAttributeNames": {"#pk": PARTITION_KEY, "#sk": SORT_KEY},
        "ExpressionAttributeValues": {":pk": text(partition_of(name, shard)), ":first": text(f"{first:015d}")},
        "ConsistentRead": True,
        "ScanIndexForward": is_forward,
    }
    found: list[Told] = []
    size = 0
    async for item in table.query(arguments, page=TAIL_PAGE_ITEMS):
        message = told_of(name, item)
        if topic in (None, message.topic) and position.wants(message):
            found.append(message)
            size += len(message.body)
            # With the last of these an answer is full already, whatever the other partitions have.
            if len(found) == limit or (len(found) > 1 and size > TAIL_ANSWER_BYTES_MAX):
                break
    return found
