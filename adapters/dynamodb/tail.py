"""What was published in the last minute and a half: an item a publication, and how late subscribers read them.

Items are ordered by their senders' clocks, and a commit may land after one that began later. So a reader goes back over
the last seconds at each look, and its cursor knows which of those messages it has been given.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from adapters.dynamodb.expressions import Item, binary, number, text
from adapters.dynamodb.items import shard_of
from adapters.dynamodb.limits import (
    KEY_INSTANT_MS_MAX,
    TAIL_ANSWER_BYTES_MAX,
    TAIL_OVERLAP_MS,
    TAIL_PAGE_ITEMS,
    TAIL_SEEN_MAX,
    TAIL_SHARDS,
    TAIL_TTL_S,
)
from adapters.dynamodb.origins import decode_origin, encode_origin
from adapters.dynamodb.schema import PARTITION_KEY, SORT_KEY, TTL
from adapters.dynamodb.together import together
from engine.errors import InvalidIdError
from engine.limits import U32_MAX
from engine.location import EVERYTHING, check_publication
from engine.origin import UNKNOWN, Origin

if TYPE_CHECKING:
    from adapters.dynamodb.items import Head
    from adapters.dynamodb.table import Table
    from engine.commit import Publication

PARTITION_PREFIX = "\0MESSAGE#"
"""No workflow id can hold a control character, so no workflow is in such a partition."""

_SCOPE = struct.Struct(">4sQ")
_SEEN = struct.Struct(">I6s")


class Told(Struct, frozen=True, kw_only=True):
    """A message that was published.

    Attributes:
        id: unique to it; ``name`` and ``topic`` are what it was published as.
        body: CBOR.
        sent_at: integer milliseconds since the epoch, by the sender's clock.
        workflow_id: who published it; ``origin`` is that one's.
    """

    id: str
    name: str
    topic: str
    body: bytes
    sent_at: int
    workflow_id: str
    origin: Origin = UNKNOWN


class Tail(Struct, frozen=True, kw_only=True):
    """Messages, the oldest first; ``cursor`` asks for those that come after.

    ``has_gap``: the cursor was so old that messages after it may be gone.
    """

    messages: list[Told]
    cursor: str
    has_gap: bool


# --- writing ----------------------------------------------------------------------------------------------------------


def tail_item(publisher: Head, publication: Publication) -> Item:
    """The item of what the workflow with this HEAD publishes."""
    return {
        PARTITION_KEY: text(_partition(publication.name, shard_of(publication.topic, TAIL_SHARDS))),
        SORT_KEY: text(f"{publication.sent_at:015d}#{publication.id}"),
        "topic": text(publication.topic),
        "body": binary(publication.body),
        "workflow": text(publisher.workflow_id),
        **encode_origin(publisher.origin),
        TTL: number(publication.sent_at // 1000 + TAIL_TTL_S),
    }


def _partition(name: str, shard: int) -> str:
    return f"{PARTITION_PREFIX}{shard}#{name}"


def _told(name: str, item: Item) -> Told:
    sent_at, message_id = item[SORT_KEY]["S"].split("#", 1)
    return Told(
        id=message_id,
        name=name,
        topic=item["topic"]["S"],
        body=bytes(item["body"]["B"]),
        sent_at=int(sent_at),
        workflow_id=item["workflow"]["S"],
        origin=decode_origin(item),
    )


# --- where a reader is ------------------------------------------------------------------------------------------------


class Position(Struct, frozen=True, kw_only=True):
    """How far a reader has come: it wants what was sent at ``floor`` (milliseconds) or later and is not ``seen``.

    ``seen`` has the instant and the digest of each message that it was given and that was sent then.
    """

    floor: int
    seen: frozenset[tuple[int, bytes]] = frozenset()

    def wants(self, message: Told) -> bool:
        """Whether the reader has not been given ``message``."""
        return _mark(message) not in self.seen

    def moved(self, given: list[Told], *, skipped: int, left: int | None, now: int) -> Position:
        """The position after ``given``.

        ``skipped`` is an instant (milliseconds) below which nothing is wanted any more, ``left`` that of the first
        message that is still to be given.
        """
        seen = sorted({*self.seen, *map(_mark, given)})
        floor = max(self.floor, skipped, now - TAIL_OVERLAP_MS)
        if len(seen) > TAIL_SEEN_MAX:
            # No cursor holds that many: what is not known to be given counts as given from here on.
            floor = max(floor, seen[-TAIL_SEEN_MAX - 1][0] + 1)
        if left is not None:
            floor = min(floor, left)
        return Position(floor=floor, seen=frozenset(mark for mark in seen[-TAIL_SEEN_MAX:] if mark[0] >= floor))


def _mark(message: Told) -> tuple[int, bytes]:
    return message.sent_at, hashlib.blake2b(message.id.encode(), digest_size=6).digest()


def _scope(name: str, topic: str | None) -> bytes:
    return hashlib.blake2b(repr((name, topic)).encode(), digest_size=4).digest()


def write_cursor(name: str, topic: str | None, position: Position) -> str:
    """``position`` as text that is safe in an address."""
    marks = sorted(mark for mark in position.seen if mark[0] - position.floor <= U32_MAX)
    packed = [_SEEN.pack(sent_at - position.floor, digest) for sent_at, digest in marks]
    packed.insert(0, _SCOPE.pack(_scope(name, topic), position.floor))
    return base64.urlsafe_b64encode(b"".join(packed)).decode().rstrip("=")


def read_cursor(name: str, topic: str | None, cursor: str) -> Position:
    """The position that ``write_cursor`` wrote.

    Raises:
        InvalidIdError: the cursor is none of ours, or that of another name or topic.
    """
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        scope, floor = _SCOPE.unpack_from(data)
        marks = [(floor + after, digest) for after, digest in _SEEN.iter_unpack(data[_SCOPE.size :])]
    except (ValueError, binascii.Error, struct.error) as error:
        raise InvalidIdError("this is no cursor of published messages") from error
    if scope != _scope(name, topic) or floor > KEY_INSTANT_MS_MAX or len(marks) > TAIL_SEEN_MAX:
        raise InvalidIdError(f"this is no cursor of the messages {name!r} on the topic asked for")
    return Position(floor=floor, seen=frozenset(marks))


# --- reading ----------------------------------------------------------------------------------------------------------


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
        "ExpressionAttributeValues": {":pk": text(_partition(name, shard)), ":first": text(f"{first:015d}")},
        "ConsistentRead": True,
        "ScanIndexForward": is_forward,
    }
    found: list[Told] = []
    size = 0
    async for item in table.query(arguments, page=TAIL_PAGE_ITEMS):
        message = _told(name, item)
        if topic in (None, message.topic) and position.wants(message):
            found.append(message)
            size += len(message.body)
            # With the last of these an answer is full already, whatever the other partitions have.
            if len(found) == limit or (len(found) > 1 and size > TAIL_ANSWER_BYTES_MAX):
                break
    return found
