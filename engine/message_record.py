"""How a received message is written into history: the CBOR map that a queue part's entry holds."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from engine import values
from engine.entry import Message

MARKER = "__rivetWorkflowQueueMessage"
"""The key by which the reference engine knows such a map."""


class Recorded(Struct, frozen=True, kw_only=True):
    """A message as history has it; ``body`` is the plain value."""

    id: str
    name: str
    body: Any
    created_at: int
    is_completed: bool
    ticket: int


def encode(message: Message, *, is_completed: bool, keeps_ticket: bool) -> bytes:
    """The record of ``message``; ``keeps_ticket`` where it may have to return to its place in the inbox."""
    fields = [
        (MARKER, values.encode(1)),
        ("id", values.encode(message.id)),
        ("name", values.encode(message.name)),
        ("body", message.body),
        # As a float: beyond 2**32 the reference engine reads an integer as a BigInt, and then ignores it.
        ("createdAt", values.encode(float(message.sent_at))),
        ("completed", values.encode(is_completed)),
    ]
    if keeps_ticket:
        fields.append(("ticket", values.encode(message.ticket)))
    # The body is spliced in as the bytes it arrived in, so that it is never decoded on the way into history.
    return bytes([0xA0 + len(fields)]) + b"".join(values.encode(key) + value for key, value in fields)


def decode(name: str, data: bytes) -> Recorded:
    """What ``encode`` wrote, or the bare value that early versions of the reference engine stored under ``name``."""
    value = values.decode(data)
    if not (isinstance(value, dict) and value.get(MARKER) == 1):
        return Recorded(id="", name=name, body=value, created_at=0, is_completed=False, ticket=0)
    found_name, created_at, ticket = value.get("name"), value.get("createdAt"), value.get("ticket")
    return Recorded(
        id=value["id"] if isinstance(value.get("id"), str) else "",
        name=found_name if isinstance(found_name, str) else name,
        body=value.get("body"),
        created_at=int(created_at) if isinstance(created_at, (int, float)) else 0,
        is_completed=value.get("completed") is True,
        ticket=ticket if isinstance(ticket, int) else 0,
    )


def read_id(data: bytes) -> str | None:
    """The id of the message that an entry's ``data`` records, or None where it is a count or has none."""
    return decode("", data).id or None


def to_message(recorded: Recorded) -> Message:
    """The message as it was in the inbox, so that it can go back there."""
    return Message(
        id=recorded.id,
        name=recorded.name,
        body=values.encode(recorded.body),
        sent_at=recorded.created_at,
        ticket=recorded.ticket,
    )
