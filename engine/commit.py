"""One atomic value that carries everything a turn learned; a driver takes it whole or refuses it whole."""

from __future__ import annotations

from msgspec import Struct

from engine.entry import Message
from engine.lifecycle import WorkflowState


class Alarm(Struct, frozen=True):
    """A change of the alarm of ``workflow_id``: ``at`` is integer milliseconds since the epoch, or None to clear it.

    A driver of one workflow alone needs no ``workflow_id``.
    """

    at: int | None
    workflow_id: str = ""


class Reply(Struct, frozen=True, kw_only=True):
    """The answer to a completable message: the driver removes that and keeps the CBOR ``body`` for its sender."""

    message_id: str
    body: bytes


class Outgoing(Struct, frozen=True, kw_only=True):
    """A message to be put into an inbox with this commit: the workflow's own where ``workflow_id`` is None."""

    workflow_id: str | None = None
    message: Message


class Commit(Struct, frozen=True, kw_only=True):
    """One indivisible change of a workflow.

    Deletions (``deletes``, ``prefixes``, ``ranges``) apply to what was stored *before* this commit, ``puts`` after
    them, so that a key both deleted and put ends up with its new value.

    Attributes:
        puts: key-value pairs to store.
        deletes: keys to remove.
        prefixes: every key that starts with one of these is removed.
        ranges: every key with ``start <= key < end`` is removed.
        consumed: ids of messages that leave the inbox.
        replies: answers to completable messages, which leave the inbox too.
        returned: messages that go back to the inbox, to their old place (their ``ticket``).
        outgoing: messages to send.
        alarm: the new alarm, or None to leave it as it is.
        state: the workflow's state after this commit, or None where it did not change.
        yields: the holder gives up its turn with this commit. The driver refuses it with ``InboxMovedError``, and
            writes nothing, when a message was accepted since the inbox was last refreshed.
        names: with ``yields``: the message names waited for, ``()`` for any; None where none is waited for.
    """

    puts: list[tuple[bytes, bytes]] = []
    deletes: list[bytes] = []
    prefixes: list[bytes] = []
    ranges: list[tuple[bytes, bytes]] = []
    consumed: list[str] = []
    replies: list[Reply] = []
    returned: list[Message] = []
    outgoing: list[Outgoing] = []
    alarm: Alarm | None = None
    state: WorkflowState | None = None
    yields: bool = False
    names: tuple[str, ...] | None = None
