"""One claimed workflow as the engine sees it: its pairs in memory, its commits in DynamoDB."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from adapters.dynamodb.committing import Committer
from adapters.dynamodb.messages import DynamoMessages
from adapters.dynamodb.model.limits import (
    COMMIT_BYTES_MAX,
    COMMIT_MESSAGES_MAX,
    MESSAGE_BYTES_MAX,
    SENDER_LATE_MS,
    VALUE_BYTES_MAX,
    WORKER_POLL_INTERVAL_S,
)
from adapters.dynamodb.model.plan import names_size
from adapters.dynamodb.peers import DynamoPeers
from engine.clock import sleep
from engine.commit import Alarm, Commit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from adapters.dynamodb.compaction import Keys
    from adapters.dynamodb.ends import Waits
    from adapters.dynamodb.hold import Hold
    from adapters.dynamodb.model.items import Head
    from adapters.dynamodb.model.log import Fold
    from adapters.dynamodb.model.tickets import Inbox
    from adapters.dynamodb.table import Connection, Meter
    from engine.commit import Publication
    from engine.driver import AbortSignal, Clock
    from engine.origin import Origin


class DynamoDriver:
    """An ``EngineDriver`` over one claimed workflow.

    It is good for as long as its lease is: once somebody else has taken over, or the outcome of a commit cannot be
    found out, every further call raises, and whoever claims the workflow next goes on from what was committed.

    Attributes:
        workflow_id: the workflow's id.
        meter: what this driver's calls have cost so far.
        wakes: how often the workflow was claimed, this time included.
        on_due: called with the ids of other workflows that a commit has made due, as soon as that is written.
        on_published: called with what a commit publishes once that is written, and never for one that may not be.
    """

    def __init__(
        self, connection: Connection, *, hold: Hold, fold: Fold, inbox: Inbox, keys: Keys, waits: Waits
    ) -> None:
        self._clock = connection.clock
        self._hold = hold
        self._fold = fold
        self._inbox = inbox
        self._waits = waits
        self._committer = Committer(
            connection,
            hold=hold,
            fold=fold,
            inbox=inbox,
            keys=keys,
            waits=waits,
        )
        self._peers = DynamoPeers(connection, waits, inbox)
        self.workflow_id = hold.head.workflow_id
        self.meter: Meter = connection.table.meter
        self._messages = DynamoMessages(connection, self.workflow_id, inbox, self._committer.commit)

    # --- facts --------------------------------------------------------------------------------------------------

    @property
    def atomic_batch(self) -> bool:
        """True: a commit is one transaction."""
        return True

    @property
    def worker_poll_interval(self) -> float:
        """Seconds; shorter sleeps are waited for in memory."""
        return WORKER_POLL_INTERVAL_S

    @property
    def wakes_early(self) -> bool:
        """True: SQS delays are whole seconds, so an alarm may come up to one second before its time."""
        return True

    @property
    def value_bytes_max(self) -> int:
        """Largest user value, in bytes of CBOR."""
        return VALUE_BYTES_MAX

    @property
    def message_bytes_max(self) -> int:
        """Largest body of a message, a reply or a publication: each is one item."""
        return MESSAGE_BYTES_MAX

    @property
    def commit_bytes_max(self) -> int:
        """Bytes of keys and values that one commit may carry; the engine divides what is more."""
        return COMMIT_BYTES_MAX - names_size(self._hold.head.waiting)

    @property
    def commit_messages_max(self) -> int:
        """Messages that one commit may move; the engine divides what is more. One that ends it also takes its tags."""
        return COMMIT_MESSAGES_MAX - len(self._hold.head.tags) - int(self._hold.head.is_unique)

    @property
    def deaths(self) -> int:
        """Claims since the last commit whose holder never released."""
        return self._hold.head.deaths

    @property
    def faults(self) -> int:
        """Runs since the last commit that the store failed, and that gave the lease up because of it."""
        return self._hold.head.faults

    @property
    def started_at(self) -> int | None:
        """When the workflow was started, milliseconds since the epoch; where that was put off, until when."""
        return self.put_off_until or self._hold.head.created_at

    @property
    def put_off_until(self) -> int | None:
        """Before when it does not begin, milliseconds since the epoch; None where it was not put off."""
        return self._hold.head.start_at

    @property
    def clock(self) -> Clock:
        """The clock of its store."""
        return self._clock

    @property
    def message_driver(self) -> DynamoMessages:
        """The inbox."""
        return self._messages

    @property
    def peers(self) -> DynamoPeers:
        """The other workflows of its store."""
        return self._peers

    @property
    def type(self) -> str:
        """The workflow's type."""
        return self._hold.head.type

    @property
    def origin(self) -> Origin:
        """Who began the workflow, which all that it starts and sends inherits."""
        return self._hold.head.origin

    @property
    def tags(self) -> dict[str, str]:
        """The workflow's tags."""
        return self._hold.head.tags

    @property
    def wakes(self) -> int:
        """How often the workflow was claimed, this time included."""
        return self._hold.head.wakes

    @property
    def head(self) -> Head:
        """HEAD as last committed by this driver."""
        return self._hold.head

    @property
    def alarm_at(self) -> int | None:
        """When the workflow must be woken next, milliseconds since the epoch; to be armed after a yield."""
        return self._hold.alarm_at

    @property
    def lease_until(self) -> int:
        """Until when the lease is good, milliseconds since the epoch; 0 once it was given up."""
        return self._hold.head.lease_until or 0

    # --- pairs --------------------------------------------------------------------------------------------------

    async def get(self, key: bytes) -> bytes | None:
        """The value of ``key``, or None."""
        return self._fold.get(key)

    async def list(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Every pair whose key starts with ``prefix``, sorted by key bytes."""
        return self._fold.under(prefix)

    async def set(self, key: bytes, value: bytes) -> None:
        """Store one pair, in a commit of its own."""
        await self.commit(Commit(puts=[(key, value)]))

    async def delete(self, key: bytes) -> None:
        """Remove one key, in a commit of its own."""
        await self.commit(Commit(deletes=[key]))

    async def delete_prefix(self, prefix: bytes) -> None:
        """Remove every key that starts with ``prefix``, in a commit of its own."""
        await self.commit(Commit(prefixes=[prefix]))

    async def delete_range(self, start: bytes, end: bytes) -> None:
        """Remove every key with ``start <= key < end``, in a commit of its own."""
        await self.commit(Commit(ranges=[(start, end)]))

    async def batch(self, writes: Sequence[tuple[bytes, bytes]]) -> None:
        """Store several pairs, in one commit."""
        await self.commit(Commit(puts=list(writes)))

    async def batch_delete(self, keys: Sequence[bytes]) -> None:
        """Remove several keys, in one commit."""
        await self.commit(Commit(deletes=list(keys)))

    # --- alarm --------------------------------------------------------------------------------------------------

    async def set_alarm(self, workflow_id: str, wake_at_ms: int) -> None:
        """Wake the workflow at ``wake_at_ms``, once this holder has yielded."""
        assert workflow_id == self.workflow_id
        await self.commit(Commit(alarm=Alarm(wake_at_ms)))

    async def clear_alarm(self, workflow_id: str) -> None:
        """Forget the alarm."""
        assert workflow_id == self.workflow_id
        if self.alarm_at is not None:
            await self.commit(Commit(alarm=Alarm(None)))

    async def wait_for_messages(self, names: Sequence[str], abort_signal: AbortSignal) -> None:
        """Return when a message of ``names`` (any where empty) is in the inbox, or ``abort_signal`` is set."""
        while not abort_signal.is_set():
            await self.refresh()
            if self._inbox.has_any(names):
                return
            aborted = asyncio.ensure_future(abort_signal.wait())
            paused = asyncio.ensure_future(sleep(self._clock, self.worker_poll_interval))
            try:
                await asyncio.wait([aborted, paused], return_when=asyncio.FIRST_COMPLETED)
            finally:
                aborted.cancel()
                paused.cancel()
                await asyncio.gather(aborted, paused, return_exceptions=True)

    async def refresh(self) -> None:
        """Read the inbox anew."""
        await self._messages.refresh()

    @property
    def is_inbox_fresh(self) -> bool:
        """Whether the inbox is as the claim has read it; a yield is refused where a message came since."""
        return self._committer.tries == 0

    @property
    def awaits_sender(self) -> bool:
        """Whether a sender had a place in the inbox, at the last look, and was about to put its message there."""
        account = self._inbox.account
        return account.is_outstanding and self._clock.now() - account.gap_at < SENDER_LATE_MS

    # --- commit -------------------------------------------------------------------------------------------------

    async def commit(self, commit: Commit) -> None:
        """Apply ``commit`` whole, in one transaction, or raise and apply nothing.

        Raises:
            CommitTooLarge, FencedError, InboxMovedError, CommitInFlightError, StoreUnavailableError: see the port.
            ChildRefusedError: a child cannot be started.
            StartConflictError: it is unique, has ended and was to go on, and another one has its place.
        """
        await self._committer.commit(commit)

    async def compact(self) -> None:
        """Fold the log now, whether that pays or not, and leave nothing of what it was.

        Raises:
            FencedError, StoreUnavailableError: something is left; done again, it goes too.
        """
        await self._committer.compact()

    @property
    def has_stale_schedule(self) -> bool:
        """Whether a commit has made a schedule pointless that has not gone off; to be cleared."""
        return self._committer.has_stale_schedule

    @property
    def made_due(self) -> Collection[str]:
        """Ids of workflows that commits have made due: they got a message, were started, or were told of an end."""
        return self._committer.made_due

    @property
    def on_due(self) -> Callable[[Collection[str]], None]:
        """What is called with the ids of other workflows that a commit has made due."""
        return self._committer.on_due

    @on_due.setter
    def on_due(self, told: Callable[[Collection[str]], None]) -> None:
        self._committer.on_due = told

    @property
    def on_published(self) -> Callable[[Sequence[Publication]], None]:
        """What is called with what a commit publishes."""
        return self._committer.on_published

    @on_published.setter
    def on_published(self, told: Callable[[Sequence[Publication]], None]) -> None:
        self._committer.on_published = told

    # --- lease --------------------------------------------------------------------------------------------------

    async def renew(self, lease_ms: int | None = None) -> None:
        """Hold the lease for another ``lease_ms`` (by default its own length), never past the deadline.

        Raises:
            FencedError: somebody else holds it.
        """
        await self._hold.renew(lease_ms)

    async def release(self, *, wake_at: int, is_fault: bool = False) -> None:
        """Give the lease up with work left to do: the workflow is due at ``wake_at``.

        ``is_fault``: because the store failed the run, which ``faults`` then counts.

        Raises:
            FencedError: somebody else holds it.
        """
        await self._hold.release(wake_at, is_fault=is_fault)

    async def park(self, *, due_at: int | None) -> None:
        """Give the lease up without having run, because nothing is due before ``due_at``.

        Raises:
            InboxMovedError: a message came since the inbox was last looked at; nothing was written.
            FencedError: somebody else holds the lease.
        """
        await self._hold.park(self._inbox, due_at)

    @property
    def has_news(self) -> bool:
        """Whether a message is there, or the end of a workflow was told, for which it was last waiting."""
        waiting = self._hold.head.waiting
        has_message = waiting is not None and self._inbox.has_any(waiting)
        return has_message or not self._waits.stored.isdisjoint(self._inbox.told)
