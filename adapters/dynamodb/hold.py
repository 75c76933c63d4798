"""The lease that a driver holds: HEAD as this holder knows it, renewing, giving up, and being fenced."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from adapters.alarms import schedule_ms
from adapters.dynamodb.errors import AnswerLostError, ConditionFailedError, TransactionRefusedError
from adapters.dynamodb.model.expressions import Condition, update_action
from adapters.dynamodb.model.items import HEAD, decode_head, head_change, key
from adapters.dynamodb.model.limits import SCHEDULE_SKEW_MS
from adapters.dynamodb.model.plan import Turn, inbox_action, is_mine
from engine.errors import FencedError, InboxMovedError, StoreUnavailableError
from engine.lifecycle import ENDED

if TYPE_CHECKING:
    from typing import NoReturn

    from adapters.dynamodb.model.items import Head
    from adapters.dynamodb.model.plan import Lease
    from adapters.dynamodb.model.tickets import Inbox
    from adapters.dynamodb.table import Table
    from engine.driver import Clock


class Hold:
    """One holder's view of HEAD, and what it may still do.

    Attributes:
        head: HEAD as last written by this holder.
        lock: held around every write of HEAD; commits and the heartbeat side by side would only conflict.
        has_fired: whether HEAD's alarm had gone off when the workflow was claimed; the next commit forgets it.
    """

    __slots__ = ("_clock", "_ending", "_lease", "_parks", "_table", "has_fired", "head", "lock")

    def __init__(self, table: Table, clock: Clock, head: Head, lease: Lease) -> None:
        self._table = table
        self._clock = clock
        self._lease = lease
        self._parks = 0
        self._ending: type[FencedError | StoreUnavailableError] | None = None
        self.head = head
        self.lock = asyncio.Lock()
        self.has_fired = head.wake_at is not None and head.wake_at <= clock.now()

    def turn(self, inbox: Inbox, ordinal: int, waits: frozenset[str] = frozenset()) -> Turn:
        """Where this holder stands now."""
        return Turn(
            head=self.head,
            inbox=inbox,
            lease=self._lease,
            ordinal=ordinal,
            now=self._clock.now(),
            has_fired=self.has_fired,
            waits=waits,
        )

    @property
    def alarm_at(self) -> int | None:
        """When the workflow must be woken next, milliseconds since the epoch."""
        return None if self.has_fired else self.head.wake_at

    @property
    def is_scheduled(self) -> bool:
        """Whether a schedule was set that has not gone off yet."""
        schedule_at = self.head.schedule_at
        return schedule_at is not None and schedule_at > self._clock.now() + SCHEDULE_SKEW_MS

    async def renew(self, lease_ms: int | None) -> None:
        """Hold the lease for another ``lease_ms`` (None: its own length), never past the deadline."""
        async with self.lock:
            self.check()
            lease = self._lease if lease_ms is None else replace(self._lease, length_ms=lease_ms)
            until = lease.until(self._clock.now())
            if self.head.owner is not None and until > (self.head.lease_until or 0):
                await self._change(replace(self.head, lease_until=until, due_at=until))

    async def release(self, wake_at: int | None, *, is_fault: bool = False) -> None:
        """Give the lease up for good, with work left to do: it is due at ``wake_at``, unless it has ended.

        None: nothing but its inbox makes it due. ``is_fault``: because the store failed it, which HEAD then counts.
        """
        async with self.lock:
            self.check()
            if self.head.owner is not None:
                # Whoever waits for an end has yet to be told of it.
                after_end = self._clock.now() if self.head.waited else None
                due_at = after_end if self.head.state in ENDED else wake_at
                faults = self.head.faults + int(is_fault)
                await self._change(replace(self.head, owner=None, lease_until=None, due_at=due_at, faults=faults))
                # What is left running, because it hears of no end, must not take the lease again for nobody.
                self._ending = FencedError

    async def park(self, inbox: Inbox, due_at: int | None) -> None:
        """Give the lease up without having run: the workflow is due at ``due_at`` again, as it was.

        Raises:
            InboxMovedError: a message came since ``inbox`` was looked at; nothing was written.
            FencedError: somebody else holds the lease.
        """
        async with self.lock:
            self.check()
            account = inbox.account
            after = replace(
                self.head,
                owner=None,
                lease_until=None,
                due_at=due_at,
                schedule_at=self.head.schedule_at if self.is_scheduled else schedule_ms(due_at, self._clock.now()),
                inbox_done=account.done,
                gap_n=account.gap_n,
                gap_at=account.gap_at,
                unread=inbox.unread,
            )
            head_key = key(after.workflow_id, HEAD)
            actions = [update_action(head_key, head_change(self.head, after), is_mine(self.head))]
            on_inbox = inbox_action(self.turn(inbox, 0), after, yields=True, posts=False)
            actions += [] if on_inbox is None else [on_inbox]
            self._parks += 1
            # Another look in the same claim may have its own count: what it saw tells them apart.
            identity = f"{self._lease.owner} parks {self._parks} at {inbox.last_ticket} {inbox.told_n}"
            try:
                await self._table.transact(actions, identity)
            except TransactionRefusedError as refused:
                if 0 not in refused.failed:
                    raise InboxMovedError(f"a message came for {after.workflow_id!r}") from None
                self.fenced()
            self.head = after

    async def _change(self, after: Head) -> None:
        change = head_change(self.head, after)
        fence = is_mine(self.head)
        # A try that was lost on its way must not arrive after a later commit or release of this holder.
        mine = Condition(f"{fence.expression} AND attribute_exists(#owner)", fence.values)
        try:
            await self._table.update(key(after.workflow_id, HEAD), change, mine)
        except AnswerLostError:
            # Whatever is stored, the next write then says both in full; 1 is in the past, and no lease ends there.
            self.head = replace(self.head, lease_until=1, due_at=1)
            raise
        except ConditionFailedError as failed:
            # Giving up a lease that a first try, its answer lost, gave up, and that somebody took since: no failure.
            if failed.is_ambiguous and after.owner is None:
                self._ending = FencedError
                return
            self.fenced()
        self.head = after

    async def stored_head(self) -> Head | None:
        """HEAD as it is stored."""
        stored = await self._table.get(key(self.head.workflow_id, HEAD))
        return None if stored is None else decode_head(stored)

    def check(self) -> None:
        """Raise what every further call has to, where this holder has come to its end."""
        if self._ending is FencedError:
            self.fenced()
        if self._ending is not None:
            raise StoreUnavailableError(f"the outcome of a commit of {self.head.workflow_id!r} is unknown")

    def fenced(self) -> NoReturn:
        """Stop for good: the lease is somebody else's, or nobody's."""
        self._ending = FencedError
        raise FencedError(f"somebody else holds the lease of {self.head.workflow_id!r}, or it was given up")

    def lost(self) -> None:
        """Stop for good: whether a commit was applied cannot be found out. The next holder will see."""
        self._ending = StoreUnavailableError
