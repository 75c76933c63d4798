"""What was published in the last minute and a half: an item a publication, and how far a reader has come in them. Pure.

Items are ordered by their senders' clocks, and a commit may land after one that began later. So a reader goes back over
the last seconds at each look, and its cursor knows which of those messages it has been given.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from typing import TYPE_CHECKING

from msgspec import Struct

from adapters.dynamodb.model.expressions import Item, binary, number, text
from adapters.dynamodb.model.items import shard_of
from adapters.dynamodb.model.limits import (
    KEY_INSTANT_MS_MAX,
    TAIL_OVERLAP_MS,
    TAIL_SEEN_MAX,
    TAIL_SHARDS,
    TAIL_TTL_S,
)
from adapters.dynamodb.model.origins import decode_origin, encode_origin
from adapters.dynamodb.model.schema import PARTITION_KEY, SORT_KEY, TTL
from engine.errors import InvalidIdError
from engine.limits import U32_MAX
from engine.origin import UNKNOWN, Origin

if TYPE_CHECKING:
    from adapters.dynamodb.model.items import Head
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


# --- writing ----------------------------------------------------------------------------------------------------------


def tail_item(publisher: Head, publication: Publication) -> Item:
    """The item of what the workflow with this HEAD publishes."""
    return {
        PARTITION_KEY: text(partition_of(publication.name, shard_of(publication.topic, TAIL_SHARDS))),
        SORT_KEY: text(f"{publication.sent_at:015d}#{publication.id}"),
        "topic": text(publication.topic),
        "body": binary(publication.body),
        "workflow": text(publisher.workflow_id),
        **encode_origin(publisher.origin),
        TTL: number(publication.sent_at // 1000 + TAIL_TTL_S),
    }


def partition_of(name: str, shard: int) -> str:
    """The partition of what was published under ``name``; ``shard`` is one of ``TAIL_SHARDS``."""
    return f"{PARTITION_PREFIX}{shard}#{name}"


def told_of(name: str, item: Item) -> Told:
    """The message that an item of ``tail_item`` holds."""
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
