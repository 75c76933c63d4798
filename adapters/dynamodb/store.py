"""All workflows of one table: what handlers and the command line call. Each call is one line of another room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adapters.dynamodb import control, inbox, peers, query, signalling
from adapters.dynamodb.forgetting import forget_history
from adapters.dynamodb.inbox import Accepted
from adapters.dynamodb.lease import Claim, Claimed, Claims, Ended, Held, NotDue, NotFound, Outlived, Purging, Unreadable
from adapters.dynamodb.model.limits import LEASE_MS
from adapters.dynamodb.model.naming import check_id, check_tags, check_type
from adapters.dynamodb.model.publications import Told
from adapters.dynamodb.purge import Purge, purge
from adapters.dynamodb.query import Description, Outcome, Overdue, Page
from adapters.dynamodb.reading import Unread, read_unread
from adapters.dynamodb.start import Started, Starts
from adapters.dynamodb.table import Client, Connection, Meter, Table
from adapters.dynamodb.tail import Tail, read_tail
from engine.origin import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping

    from adapters.dynamodb.driver import DynamoDriver
    from adapters.dynamodb.signalling import Signalled
    from engine.commit import Pruning
    from engine.driver import Clock
    from engine.history.hooks import HistorySnapshot
    from engine.ids import Ids
    from engine.lifecycle import WorkflowState
    from engine.origin import Origin

# Within the class below, ``list`` is its method of that name.
Pairs = list[tuple[bytes, bytes]]
OverdueWorkflows = list[Overdue]
WorkflowIds = list[str]

__all__ = [
    "Accepted",
    "Claim",
    "Claimed",
    "Description",
    "Ended",
    "Held",
    "NotDue",
    "NotFound",
    "Outcome",
    "Outlived",
    "Overdue",
    "Page",
    "Purge",
    "Purging",
    "Started",
    "Store",
    "Tail",
    "Told",
    "Unreadable",
]


def _keep(_type: str) -> None:
    """Nothing is forgotten."""


def _tell_nobody(_workflow_ids: Collection[str]) -> None:
    """Who is due is found by the sweeper."""


class Store:
    """Workflows in the DynamoDB table ``table_name``.

    ``owner`` names this process in leases; ``random`` gives numbers from 0 to 1 for the jitter of retries. Every call
    may raise ``StoreUnavailableError``; workflow ids that break their rule raise ``InvalidIdError``.
    """

    __slots__ = ("_claims", "_connection", "_starts")

    def __init__(
        self,
        client: Client,
        table_name: str,
        clock: Clock,
        ids: Ids,
        *,
        owner: str,
        random: Callable[[], float],
    ) -> None:
        self._connection = Connection(Table(client, table_name, clock, random=random), clock, ids)
        self._claims = Claims(self._connection, owner=owner)
        self._starts = Starts(self._connection)

    @property
    def meter(self) -> Meter:
        """What every call but those of drivers has cost so far."""
        return self._connection.table.meter

    async def start(
        self,
        *,
        workflow_id: str,
        type: str,  # noqa: A002 - the word of the interface
        input: bytes,  # noqa: A002
        tags: Mapping[str, str] | None = None,
        start_at: int | None = None,
        unique: bool = False,
        replace_failed: bool = False,
        origin: Origin = UNKNOWN,
        may_follow: bool = False,
    ) -> Started:
        """Start a workflow, due at once or at ``start_at`` (milliseconds since the epoch); ``input`` is CBOR.

        The same id, type and input again changes nothing and says so. So does a ``unique`` start while another unique
        one of the same type, with exactly these tags, has neither completed nor been cancelled: the answer is that one.
        With ``replace_failed`` one that has failed does not count. An ``origin`` without a ray id gets a new one.

        Where it ``may_follow`` one that is being purged it need not wait for the end of that: it takes over its inbox,
        so that what is sent to it meanwhile is for the later one.

        Raises:
            StartConflictError: the id is taken by another type or input, or is being purged.
            InvalidIdError, ValueTooLargeError: nothing was written.
        """
        return await self._starts.start(
            workflow_id=workflow_id,
            workflow_type=type,
            workflow_input=input,
            tags=tags or {},
            start_at=start_at,
            is_unique=unique,
            may_replace=replace_failed,
            origin=origin,
            may_follow=may_follow,
        )

    async def claim(self, workflow_id: str, *, lease_ms: int = LEASE_MS, deadline_ms: int | None = None) -> Claim:
        """Try to become the one who runs a workflow; ``deadline_ms`` is when this invocation ends."""
        return await self._claims.claim(workflow_id, lease_ms=lease_ms, deadline_ms=deadline_ms)

    async def seize(self, workflow_id: str) -> DynamoDriver:
        """Take a workflow from whoever holds it, in whatever state; ``WorkflowNotFoundError`` where there is none."""
        return await self._claims.seize(workflow_id, lease_ms=LEASE_MS)

    async def send(
        self,
        workflow_id: str,
        *,
        name: str,
        body: bytes,
        message_id: str | None = None,
        sent_at: int | None = None,
        origin: Origin = UNKNOWN,
        hint: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> Accepted:
        """Put a message (CBOR ``body``) into a workflow's inbox; the same ``message_id`` again counts once.

        ``origin`` is its sender's. ``hint`` has the workflow woken, beside the last write.

        Raises:
            WorkflowNotFoundError, WorkflowEndedError, ValueTooLargeError: nothing was written.
        """
        return await inbox.send(
            self._connection,
            workflow_id,
            name=name,
            body=body,
            message_id=message_id,
            sent_at=sent_at,
            origin=origin,
            hint=hint,
        )

    async def signal(
        self,
        type: str,  # noqa: A002 - the word of the interface
        tags: Mapping[str, str],
        *,
        name: str,
        body: bytes,
        message_id: str | None = None,
        sent_at: int | None = None,
        origin: Origin = UNKNOWN,
    ) -> Signalled:
        """As ``send``, to the first workflow of a type that has at least ``tags`` and has not ended.

        The same ``message_id`` again goes where it went before, and counts once.

        Raises:
            WorkflowNotFoundError: there is none.
            InvalidIdError, ValueTooLargeError: nothing was written.
        """
        return await signalling.signal(
            self._connection,
            type,
            tags,
            name=name,
            body=body,
            message_id=message_id,
            sent_at=sent_at,
            origin=origin,
        )

    async def reply_of(self, workflow_id: str, message_id: str) -> bytes | None:
        """The CBOR answer to a completable message, or None while there is none."""
        check_id(workflow_id)
        found = await inbox.find_reply(self._connection.table, workflow_id, message_id, self._connection.clock.now())
        return None if found is None else found.reply

    async def unread(self, workflow_id: str, *, limit: int, cursor: str | None = None) -> Unread:
        """At most ``limit`` messages that wait in an inbox, the oldest first; none where there is no such workflow."""
        check_id(workflow_id)
        return await read_unread(self._connection.table, workflow_id, limit=limit, cursor=cursor)

    async def describe(self, workflow_id: str) -> Description | None:
        """What is known of a workflow without its history; None where there is none."""
        return await query.describe(self._connection.table, workflow_id, self._connection.clock.now())

    async def awaited(self, workflow_id: str) -> WorkflowIds:
        """Ids of the workflows for whose ends one waited when it last went to sleep, sorted.

        That costs one read, and is worth it where its ``Description`` says that there are some.
        """
        return await query.awaited(self._connection.table, workflow_id)

    async def history(self, workflow_id: str) -> Pairs:
        """Every stored pair, sorted by key bytes; ``WorkflowNotFoundError`` where there is no such workflow."""
        _, fold = await query.read_history(self._connection.table, workflow_id)
        return fold.under(b"")

    async def look(self, workflow_id: str) -> tuple[Description, Pairs]:
        """What is known of a workflow, and every stored pair as of the same commit, sorted by key bytes.

        Raises:
            WorkflowNotFoundError: there is no such workflow.
        """
        head, fold = await query.read_history(self._connection.table, workflow_id)
        return query.describe_head(head, self._connection.clock.now()), fold.under(b"")

    async def outcome(self, workflow_id: str) -> Outcome:
        """State, output and error as of one commit; ``WorkflowNotFoundError`` where there is no such workflow."""
        return await query.outcome(self._connection.table, workflow_id)

    async def output(self, workflow_id: str) -> bytes | None:
        """The CBOR output, or None while there is none; ``WorkflowNotFoundError`` where there is no such workflow."""
        return (await self.outcome(workflow_id)).output

    async def list(
        self,
        *,
        type: str | None = None,  # noqa: A002 - the word of the interface
        state: WorkflowState | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """At most ``limit`` workflows, the youngest first; a page may be short where a state was asked for."""
        return await query.list_workflows(
            self._connection.table,
            now=self._connection.clock.now(),
            workflow_type=type,
            state=state,
            limit=limit,
            cursor=cursor,
        )

    async def messages(self, name: str, *, topic: str | None, after: str | None, limit: int) -> Tail:
        """What was lately published as ``name``, on any topic where None: the last ``limit``, or those after a cursor.

        Raises:
            InvalidIdError: the name, the topic or the cursor is not valid.
        """
        now = self._connection.clock.now()
        return await read_tail(self._connection.table, name, topic, after=after, limit=limit, now=now)

    async def find(
        self,
        type: str,  # noqa: A002 - the word of the interface
        tags: Mapping[str, str],
        *,
        limit: int = 50,
        after: str = "",
    ) -> WorkflowIds:
        """Ids of workflows of a type that have not ended and have at least ``tags``, in the order of ids.

        Beginning with what comes after the id ``after``. Strongly consistent; without tags see ``DynamoPeers.find``.
        """
        check_type(type)
        check_tags(tags)
        return await peers.find(self._connection.table, type, tags, limit, after)

    async def tagged(
        self,
        type: str,  # noqa: A002 - the word of the interface
        tags: Mapping[str, str],
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """At most ``limit`` workflows of a type that have not ended and have at least ``tags``, in the order of ids.

        At least one tag is asked for. What is read is what has the first one.
        """
        check_type(type)
        check_tags(tags)
        return await peers.find_page(
            self._connection.table, type, tags, limit=limit, cursor=cursor, now=self._connection.clock.now()
        )

    async def outlived(self, shard: int, *, now: int, limit: int) -> WorkflowIds:
        """Ids of at most ``limit`` ended workflows of a shard that were to be kept until ``now`` (milliseconds)."""
        return await query.outlived(self._connection.table, shard, now=now, limit=limit)

    async def overdue(self, *, now: int, limit_per_shard: int) -> OverdueWorkflows:
        """Workflows that someone should have looked at by ``now`` (milliseconds), each once."""
        return await query.overdue(self._connection.table, now=now, limit_per_shard=limit_per_shard)

    async def wake(self, workflow_id: str) -> None:
        """Make a workflow due now, unless its start is put off.

        Raises:
            WorkflowNotFoundError, WorkflowEndedError: there is nothing to wake.
        """
        await control.wake(self._connection, workflow_id)

    async def cancel(
        self,
        workflow_id: str,
        *,
        rollback: bool = False,
        pruning_of: Callable[[str], Pruning | None] = _keep,
        on_due: Callable[[Collection[str]], None] = _tell_nobody,
    ) -> bool:
        """End a workflow as cancelled; a running holder is fenced at its next commit.

        ``pruning_of`` a type is what is to be forgotten of what ends here; ``on_due`` is called with the ids of
        workflows that waited for its end and are due now. With ``rollback`` what it has done is undone first, by its
        next run, which is due at once. The answer is whether a schedule is left to be cleared.

        Raises:
            WorkflowNotFoundError: there is no such workflow.
            WorkflowEndedError: it has completed or failed.
        """
        if not rollback:
            return await control.cancel(self._claims, workflow_id, pruning_of=pruning_of, on_due=on_due)
        await control.cancel_with_rollback(self._connection, self._claims, workflow_id)
        return False

    async def purge(
        self, workflow_id: str, *, until: int | None = None, is_outlived: bool = False, is_begun: bool = False
    ) -> Purge:
        """Delete everything of an ended workflow; to be called again at the answer's ``again_at`` until that is None.

        ``until`` (milliseconds) is when this call has to come back. ``is_outlived``: only where the while for which it
        was to be kept is over. ``is_begun``: only where a purge was begun before.

        Raises:
            WorkflowNotFoundError: there is no such workflow, or nothing is left of it.
            WorkflowNotEndedError: it has not ended, or not for so long, or nobody has begun; nothing was written.
        """
        return await purge(self._connection, workflow_id, until=until, is_outlived=is_outlived, is_begun=is_begun)

    async def forget_history(self, workflow_id: str) -> bool:
        """Forget the history of an ended workflow whose time is over; False, and nothing is written, where it is not.

        Raises:
            FencedError: somebody else is at it, or lets it go on.
            CorruptHistoryError, UnknownVersionError: it cannot be read, and stays as it is.
        """
        return await forget_history(self._connection, self._claims, workflow_id)

    async def recover(self, workflow_id: str) -> bool:
        """Let a failed workflow go on, due now; False, and nothing is written, where it has not failed.

        Raises:
            WorkflowNotFoundError: there is no such workflow.
        """
        return await control.recover(self._connection, self._claims, workflow_id)

    async def replay(self, workflow_id: str, entry_id: str | None = None) -> HistorySnapshot:
        """Forget a step and everything created after it (None: all of it), due now; a running holder is fenced.

        The answer is the history that is left.

        Raises:
            WorkflowNotFoundError: there is no such workflow.
            InvalidReplayError: there is no such step, or something that would remain is running.
        """
        return await control.replay(self._connection, self._claims, workflow_id, entry_id)
