"""One atomic value that carries everything a turn learned; a driver takes it whole or refuses it whole."""

from __future__ import annotations

from msgspec import Struct

from engine.entry import Message
from engine.lifecycle import WorkflowState
from engine.location import EVERYTHING


class Retrying(Struct, frozen=True, kw_only=True):
    """A step that has failed and will be tried again.

    Attributes:
        entry_id: where history has it.
        location: its place in the workflow, such as ``orders/~3/charge``.
        attempts: how many it has had, of ``attempts_max`` that it may have.
        error: the text ``Name: message`` of the latest failure.
        retry_at: when it is tried again, in integer milliseconds since the epoch.
    """

    entry_id: str
    location: str
    attempts: int
    attempts_max: int
    error: str
    retry_at: int


class Alarm(Struct, frozen=True):
    """A change of the alarm of ``workflow_id``: ``at`` is integer milliseconds since the epoch, or None to clear it.

    A driver of one workflow alone needs no ``workflow_id``. ``retrying`` are steps that it is set for, too: for people
    to look at, and a driver may keep none of them.
    """

    at: int | None
    workflow_id: str = ""
    retrying: tuple[Retrying, ...] = ()


class Reply(Struct, frozen=True, kw_only=True):
    """The answer to a completable message: the driver removes that and keeps the CBOR ``body`` for its sender."""

    message_id: str
    body: bytes


class Outgoing(Struct, frozen=True, kw_only=True):
    """A message to be put into an inbox with this commit: the workflow's own where ``workflow_id`` is None.

    To another one's it goes in the place that ``Peers.reserve`` gave, which is its ``ticket``, no earlier than its
    ``sent_at``; whatever has become of that workflow since, the message is there.
    """

    workflow_id: str | None = None
    message: Message


class Child(Struct, frozen=True, kw_only=True):
    """A workflow to be started with this commit, as a start from outside would.

    Attributes:
        workflow_id: its id.
        workflow_type: its type.
        workflow_input: its input, CBOR.
        tags: what it can be found by, beside its type; fixed.
        unique: there may be only one of its type with exactly these tags that has not ended.
        replace_failed: with ``unique``: one that has failed does not stand in the way.
    """

    workflow_id: str
    workflow_type: str
    workflow_input: bytes
    tags: dict[str, str] = {}
    unique: bool = False
    replace_failed: bool = False


class Publication(Struct, frozen=True, kw_only=True):
    """A message to whoever listens now: recorded with this commit, then published at most once.

    Attributes:
        id: unique to it.
        name: of the message; ``topic`` is what it is about, EVERYTHING where that is nothing in particular.
        body: CBOR.
        sent_at: integer milliseconds since the epoch.
    """

    id: str
    name: str
    topic: str = EVERYTHING
    body: bytes
    sent_at: int


class Pruning(Struct, frozen=True, kw_only=True):
    """What is to be forgotten of a workflow that has ended, and how many milliseconds after its end.

    ``is_whole``: everything; else its history alone, so that its input, output, error and document stay.
    """

    is_whole: bool
    after_ms: int


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
        children: workflows to start. The driver refuses the commit with ``ChildRefusedError``, and writes nothing,
            where one of them cannot be started.
        published: messages to publish, once the commit is written.
        alarm: the new alarm, or None to leave it as it is.
        state: the workflow's state after this commit, or None where it did not change.
        yields: the holder gives up its turn with this commit. The driver refuses it with ``InboxMovedError``, and
            writes nothing, when a message was accepted since the inbox was last refreshed.
        names: with ``yields``: the message names waited for, ``()`` for any; None where none is waited for.
        awaited: with ``yields``: ids of other workflows, of which one's end is waited for too. The driver refuses the
            commit with ``InboxMovedError``, and writes nothing, when one of them has ended already or is not there.
        pruning: with a ``state`` that has ended: what is to be forgotten later; None where nothing is.
    """

    puts: list[tuple[bytes, bytes]] = []
    deletes: list[bytes] = []
    prefixes: list[bytes] = []
    ranges: list[tuple[bytes, bytes]] = []
    consumed: list[str] = []
    replies: list[Reply] = []
    returned: list[Message] = []
    outgoing: list[Outgoing] = []
    children: list[Child] = []
    published: list[Publication] = []
    alarm: Alarm | None = None
    state: WorkflowState | None = None
    yields: bool = False
    names: tuple[str, ...] | None = None
    awaited: tuple[str, ...] = ()
    pruning: Pruning | None = None
