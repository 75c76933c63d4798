"""One claimed workflow as the engine sees it: its pairs in memory, its commits in DynamoDB."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from adapters.dynamodb.compaction import compact
from adapters.dynamodb.errors import AnswerLostError, ConditionFailedError, TransactionRefusedError
from adapters.dynamodb.inbox import take_ticket
from adapters.dynamodb.items import HEAD, head_change, key
from adapters.dynamodb.limits import (
    COMMIT_BYTES_MAX,
    COMMIT_MESSAGES_MAX,
    SEND_SLOW_MS,
    VALUE_BYTES_MAX,
    WORKER_POLL_INTERVAL_S,
)
from adapters.dynamodb.messages import DynamoMessages
from adapters.dynamodb.plan import Posted, changes_nothing, is_mine, plan_commit
from adapters.dynamodb.table import sleep
from engine.commit import Alarm, Commit
from engine.errors import (
    CallerError,
    CommitInFlightError,
    InboxMovedError,
    StoreUnavailableError,
    WorkflowEndedError,
    WorkflowNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adapters.dynamodb.compaction import Keys
    from adapters.dynamodb.hold import Hold
    from adapters.dynamodb.items import Head
    from adapters.dynamodb.log import Fold
    from adapters.dynamodb.plan import Plan
    from adapters.dynamodb.table import Connection, Meter
    from adapters.dynamodb.tickets import Inbox
    from engine.commit import Outgoing, Publication
    from engine.driver import AbortSignal, Clock


class DynamoDriver:
    """An ``EngineDriver`` over one claimed workflow.

    It is good for as long as its lease is: once somebody else has taken over, or the outcome of a commit cannot be
    found out, every further call raises, and whoever claims the workflow next goes on from what was committed.

    Attributes:
        workflow_id: the workflow's id.
        meter: what this driver's calls have cost so far.
        wakes: how often the workflow was claimed, this time included.
        has_stale_schedule: whether a commit has made a schedule pointless that has not gone off; to be cleared.
        signalled: ids of workflows into whose inboxes commits have put messages, to be woken by the caller.
        on_published: called with what a commit publishes once that is written, and never for one that may not be.
    """

    def __init__(self, connection: Connection, *, hold: Hold, fold: Fold, inbox: Inbox, keys: Keys) -> None:
        self._table = connection.table
        self._clock = connection.clock
        self._hold = hold
        self._fold = fold
        self._inbox = inbox
        self._keys = keys
        self._commits = 0
        self._is_committing = False
        self.workflow_id = hold.head.workflow_id
        self.meter: Meter = connection.table.meter
        self.has_stale_schedule = False
        self.signalled: set[str] = set()
        self.on_published: Callable[[Sequence[Publication]], None] = _nobody
        self._messages = DynamoMessages(connection, self.workflow_id, inbox, self.commit)

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
    def commit_bytes_max(self) -> int:
        """Bytes of keys and values that one commit may carry; the engine divides what is more."""
        return COMMIT_BYTES_MAX

    @property
    def commit_messages_max(self) -> int:
        """Messages that one commit may move, where a reply counts twice; the engine divides what is more."""
        return COMMIT_MESSAGES_MAX

    @property
    def deaths(self) -> int:
        """Claims since the last commit whose holder never released."""
        return self._hold.head.deaths

    @property
    def started_at(self) -> int | None:
        """When the workflow was started, milliseconds since the epoch."""
        return self._hold.head.created_at

    @property
    def clock(self) -> Clock:
        """The clock of its store."""
        return self._clock

    @property
    def message_driver(self) -> DynamoMessages:
        """The inbox."""
        return self._messages

    @property
    def type(self) -> str:
        """The workflow's type."""
        return self._hold.head.type

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
        return None if self._hold.has_fired else self._hold.head.wake_at

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
        return self._commits == 0

    @property
    def has_outstanding_ticket(self) -> bool:
        """Whether a sender had a place in the inbox, at the last look, and had not put its message there yet."""
        return self._inbox.account.is_outstanding

    # --- commit -------------------------------------------------------------------------------------------------

    async def commit(self, commit: Commit) -> None:
        """Apply ``commit`` whole, in one transaction, or raise and apply nothing.

        Raises:
            CommitTooLarge, FencedError, InboxMovedError, CommitInFlightError, StoreUnavailableError: see the port.
            WorkflowNotFoundError, WorkflowEndedError: an outgoing message's target is not there, or takes no more.
        """
        if self._is_committing:
            raise CommitInFlightError(f"a commit of {self.workflow_id!r} is in flight; one at a time under one lease")
        self._is_committing = True
        try:
            async with self._hold.lock:
                self._hold.check()
                if changes_nothing(commit, self.alarm_at):
                    return
                await self._compact()
                await self._commit(commit)
        finally:
            self._is_committing = False

    async def _commit(self, commit: Commit) -> None:
        # Refuse what is too large before tickets are taken for it.
        plan = self._plan(commit, [self._posted(outgoing, 0) for outgoing in commit.outgoing])
        began_at = self._clock.now()
        if commit.outgoing:
            plan = self._plan(commit, [await self._take_ticket(outgoing) for outgoing in commit.outgoing])
        self._commits += 1
        try:
            await self._write(plan)
        except (ConditionFailedError, TransactionRefusedError) as refused:
            await self._judge(plan, refused)
        except AnswerLostError:
            await self._look_for(plan)
        except asyncio.CancelledError:
            self._hold.lost()
            raise
        self._accept(plan, commit)
        if commit.outgoing and self._clock.now() - began_at > SEND_SLOW_MS:
            await self._ask_to_be_looked_at(commit)

    async def _ask_to_be_looked_at(self, commit: Commit) -> None:
        """As a slow sender does: the tickets may be taken for a dead sender's by now."""
        targets = {outgoing.workflow_id for outgoing in commit.outgoing} - {None, self.workflow_id}
        for target in filter(None, targets):
            # The messages are there; that one has ended meanwhile, or cannot be reached, is no fault of this commit.
            with suppress(CallerError, StoreUnavailableError):
                await take_ticket(self._table, target, self._clock.now())

    def _plan(self, commit: Commit, posted: Sequence[Posted]) -> Plan:
        return plan_commit(self._hold.turn(self._inbox, self._commits), commit, posted)

    def _posted(self, outgoing: Outgoing, ticket: int) -> Posted:
        target = self.workflow_id if outgoing.workflow_id is None else outgoing.workflow_id
        return Posted(target, replace(outgoing.message, ticket=ticket))

    async def _take_ticket(self, outgoing: Outgoing) -> Posted:
        target = self.workflow_id if outgoing.workflow_id is None else outgoing.workflow_id
        try:
            ticket = await take_ticket(self._table, target, self._clock.now())
        except (WorkflowNotFoundError, WorkflowEndedError) as error:
            error.workflow_id = target
            raise
        if target == self.workflow_id:
            self._inbox.took_ticket(ticket)
        return self._posted(outgoing, ticket)

    async def _write(self, plan: Plan) -> None:
        if len(plan.actions) > 1:
            await self._table.transact(plan.actions, plan.head.flush)
            return
        # HEAD alone needs no transaction, which costs twice as much.
        before = self._hold.head
        await self._table.update(key(self.workflow_id, HEAD), head_change(before, plan.head), is_mine(before))

    async def _judge(self, plan: Plan, refused: ConditionFailedError | TransactionRefusedError) -> None:
        """Find out what a failed condition means: our own commit whose answer was lost, a fence, a moved inbox."""
        stored = await self._hold.stored_head()
        if stored is not None and stored.flush == plan.head.flush:
            return
        before = self._hold.head
        if stored is None or (stored.epoch, stored.seq) != (before.epoch, before.seq):
            self._hold.fenced()
        if isinstance(refused, TransactionRefusedError) and plan.inbox_index in refused.failed:
            raise InboxMovedError(f"a message came for {self.workflow_id!r}") from None
        self._hold.lost()
        raise StoreUnavailableError(f"a commit of {self.workflow_id!r} was refused for no reason") from refused

    async def _look_for(self, plan: Plan) -> None:
        """Return where a commit whose answer was lost is found stored; else nobody can say, and this holder stops."""
        try:
            stored = await self._hold.stored_head()
        except StoreUnavailableError:
            self._hold.lost()
            raise
        if stored is None or stored.flush != plan.head.flush:
            self._hold.lost()
            self._hold.check()

    def _accept(self, plan: Plan, commit: Commit) -> None:
        if self._hold.is_scheduled:
            self.has_stale_schedule = plan.head.schedule_at is None
        self._hold.head = plan.head
        self._hold.has_fired = False
        self._keys.live += plan.log_keys
        if plan.log_keys:
            self._fold.apply(plan.record, plan.record_bytes)
        self._inbox.apply(removed=plan.removed, added=plan.added)
        self.signalled |= {outgoing.workflow_id or self.workflow_id for outgoing in commit.outgoing}
        if commit.published:
            self.on_published(commit.published)

    async def _compact(self) -> None:
        if not self._fold.is_worth_compacting:
            return
        try:
            self._hold.head = await compact(self._table, self._hold.head, self._fold, self._keys)
        except ConditionFailedError:
            self._hold.fenced()
        except StoreUnavailableError:
            # The commit is what matters; whether the store is there at all, it will find out by itself.
            self._fold.postpone_compaction()

    # --- lease --------------------------------------------------------------------------------------------------

    async def renew(self, lease_ms: int | None = None) -> None:
        """Hold the lease for another ``lease_ms`` (by default its own length), never past the deadline.

        Raises:
            FencedError: somebody else holds it.
        """
        await self._hold.renew(lease_ms)

    async def release(self, *, wake_at: int) -> None:
        """Give the lease up with work left to do: the workflow is due at ``wake_at``.

        Raises:
            FencedError: somebody else holds it.
        """
        await self._hold.release(wake_at)

    async def park(self, *, due_at: int | None) -> None:
        """Give the lease up without having run, because nothing is due before ``due_at``.

        Raises:
            InboxMovedError: a message came since the inbox was last looked at; nothing was written.
            FencedError: somebody else holds the lease.
        """
        await self._hold.park(self._inbox, due_at)

    @property
    def has_wanted_message(self) -> bool:
        """Whether a message is there for which the workflow was last waiting."""
        waiting = self._hold.head.waiting
        return waiting is not None and self._inbox.has_any(waiting)


def _nobody(_published: Sequence[Publication]) -> None:
    """There is no bus here: what is published can be read from its tail alone."""
