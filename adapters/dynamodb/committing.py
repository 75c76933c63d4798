"""How a holder's commits are written: one at a time, each once, and what a refusal means."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from adapters.dynamodb.children import Births
from adapters.dynamodb.compaction import compact
from adapters.dynamodb.ends import have_told, note, tell_waiters, waited_for
from adapters.dynamodb.errors import AnswerLostError, ConditionFailedError, TransactionRefusedError
from adapters.dynamodb.inbox import take_ticket
from adapters.dynamodb.model.items import HEAD, head_change, key
from adapters.dynamodb.model.limits import REPLANS_MAX, SEND_SLOW_MS
from adapters.dynamodb.model.plan import Posted, changes_nothing, is_mine, plan_commit
from engine.errors import (
    CallerError,
    CommitInFlightError,
    InboxMovedError,
    StartConflictError,
    StoreUnavailableError,
    WorkflowEndedError,
    WorkflowNotFoundError,
)
from engine.lifecycle import ENDED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from adapters.dynamodb.compaction import Keys
    from adapters.dynamodb.ends import Waits
    from adapters.dynamodb.hold import Hold
    from adapters.dynamodb.model.log import Fold
    from adapters.dynamodb.model.plan import Plan
    from adapters.dynamodb.model.tickets import Inbox
    from adapters.dynamodb.table import Connection
    from engine.commit import Commit, Outgoing, Publication


class Committer:
    """Writes the commits of one holder.

    As soon as one is written, ``on_due`` is called with the ids of other workflows that it has made due, and
    ``on_published`` with what it publishes; neither may raise.

    Attributes:
        tries: how many transactions were tried.
        has_stale_schedule: whether a commit has made a schedule pointless that has not gone off; to be cleared.
        made_due: ids of workflows that commits have made due.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        hold: Hold,
        fold: Fold,
        inbox: Inbox,
        keys: Keys,
        waits: Waits,
    ) -> None:
        self._connection = connection
        self._table = connection.table
        self._clock = connection.clock
        self._workflow_id = hold.head.workflow_id
        self._hold = hold
        self._fold = fold
        self._inbox = inbox
        self._keys = keys
        self._waits = waits
        self._is_committing = False
        # The last of the places that were taken anew, by target.
        self._late: dict[str, int] = {}
        self.tries = 0
        self.has_stale_schedule = False
        self.made_due: set[str] = set()
        # Set from outside: who made this and gave it calls of its own would be held by it, with all that is loaded.
        self.on_due: Callable[[Collection[str]], None] = _nobody
        self.on_published: Callable[[Sequence[Publication]], None] = _nobody

    async def commit(self, commit: Commit) -> None:
        """Apply ``commit`` whole, in one transaction, or raise and apply nothing.

        Raises:
            CommitTooLarge, FencedError, InboxMovedError, CommitInFlightError, StoreUnavailableError: see the port.
            ChildRefusedError: a child cannot be started.
            StartConflictError: it is unique, has ended and was to go on, and another one has its place.
        """
        if self._is_committing:
            raise CommitInFlightError(f"a commit of {self._workflow_id!r} is in flight; one at a time under one lease")
        self._is_committing = True
        try:
            self._hold.check()
            if changes_nothing(commit, self._hold.alarm_at):
                return
            await self._compact()
            async with self._hold.lock:
                self._hold.check()
                await self._commit(commit)
        finally:
            self._is_committing = False

    async def _commit(self, commit: Commit) -> None:
        births = Births(self._connection, self._hold.head, commit.children)
        began_at = self._clock.now()
        if commit.children or commit.awaited or any(self._is_own(outgoing) for outgoing in commit.outgoing):
            # Refuse what is too large before anything is written for it: types, notes, tickets of its own inbox.
            self._plan(commit, [self._posted(one, one.message.ticket) for one in commit.outgoing], births)
        await births.prepare()
        posted = [await self._placed(outgoing, began_at) for outgoing in commit.outgoing]
        if commit.yields and commit.awaited:
            await self._note_waits(commit.awaited)
        plan = await self._written(commit, posted, births)
        self._accept(plan, commit)
        if plan.head.state in ENDED and plan.head.waited:
            await self._tell_waiters()
        if commit.outgoing and self._clock.now() - began_at > SEND_SLOW_MS:
            await self._ask_to_be_looked_at(commit)

    async def _note_waits(self, awaited: Sequence[str]) -> None:
        """See that whoever ends one of these workflows knows that this one waits; the yield may then come or not."""
        # Its own end it would wait for in vain.
        others = [one for one in awaited if one != self._workflow_id]
        missing = self._waits.missing(others, self._inbox.told)
        await note(self._connection, self._workflow_id, missing)
        self._waits.early.update(missing)

    async def _tell_waiters(self) -> None:
        """Tell whoever waits for the end that was just written. Where that fails it stays due, and is gone on with."""
        head = self._hold.head
        with suppress(StoreUnavailableError):
            self._tell_due(await tell_waiters(self._table, head, self._clock.now()))
            self._hold.head = await have_told(self._table, head)

    async def _written(self, commit: Commit, posted: Sequence[Posted], births: Births) -> Plan:
        """The plan that was written: planned anew where what it stands on has changed, and is none of its business."""
        for _ in range(REPLANS_MAX):
            plan = self._plan(commit, posted, births)
            self.tries += 1
            try:
                if await self._is_written(plan, births):
                    return plan
            except asyncio.CancelledError:
                # Called off in the midst of it, or while looking what became of it.
                self._hold.lost()
                raise
        raise StoreUnavailableError(f"a commit of {self._workflow_id!r} met something else each time it was planned")

    async def _is_written(self, plan: Plan, births: Births) -> bool:
        """Write a plan; False where it has to be planned anew."""
        try:
            await self._write(plan)
        except (ConditionFailedError, TransactionRefusedError) as refused:
            return await self._was_mine(plan, refused, births)
        except AnswerLostError:
            await self._look_for(plan)
        return True

    async def _ask_to_be_looked_at(self, commit: Commit) -> None:
        """As a slow sender does: the tickets may be taken for a dead sender's by now."""
        targets = {outgoing.workflow_id for outgoing in commit.outgoing} - {None, self._workflow_id}
        for target in filter(None, targets):
            # The messages are there; that one has ended meanwhile, or cannot be reached, is no fault of this commit.
            with suppress(CallerError, StoreUnavailableError):
                await take_ticket(self._table, target, self._clock.now())

    def _plan(self, commit: Commit, posted: Sequence[Posted], births: Births) -> Plan:
        turn = self._hold.turn(self._inbox, self.tries, self._waits.stored)
        return plan_commit(turn, commit, posted, births.beginnings)

    def _is_own(self, outgoing: Outgoing) -> bool:
        return outgoing.workflow_id in (None, self._workflow_id)

    def _posted(self, outgoing: Outgoing, ticket: int) -> Posted:
        return Posted(outgoing.workflow_id or self._workflow_id, replace(outgoing.message, ticket=ticket))

    async def _placed(self, outgoing: Outgoing, now: int) -> Posted:
        """The message with its place: its own inbox cannot refuse one, in another's one was taken before."""
        target = outgoing.workflow_id or self._workflow_id
        if self._is_own(outgoing):
            ticket = await take_ticket(self._table, target, now)
            self._inbox.took_ticket(ticket)
        elif now - outgoing.message.sent_at > SEND_SLOW_MS or outgoing.message.ticket < self._late.get(target, 0):
            # Those that were called after one that came so late stay behind it, too.
            ticket = self._late[target] = await self._place_again(target, now)
        else:
            ticket = outgoing.message.ticket
        return self._posted(outgoing, ticket)

    async def _place_again(self, target: str, now: int) -> int:
        """Another place for one that may be taken for a dead sender's by now; where there is none, nobody goes on."""
        try:
            return await take_ticket(self._table, target, now)
        except (WorkflowNotFoundError, WorkflowEndedError) as refused:
            # Whoever runs this workflow next asks anew, and is told.
            raise StoreUnavailableError(f"what {self._workflow_id!r} sends came too late for {target!r}") from refused

    async def _write(self, plan: Plan) -> None:
        if len(plan.actions) > 1:
            await self._table.transact(plan.actions, plan.head.flush)
            return
        # HEAD alone needs no transaction, which costs twice as much.
        before = self._hold.head
        await self._table.update(key(self._workflow_id, HEAD), head_change(before, plan.head), is_mine(before))

    async def _was_mine(
        self, plan: Plan, refused: ConditionFailedError | TransactionRefusedError, births: Births
    ) -> bool:
        """What a failed condition means: True, our own commit whose answer was lost; False, it has to be planned anew.

        Else it raises: a fence, a moved inbox, a child or a place that cannot be had.
        """
        stored = await self._hold.stored_head()
        if stored is not None and stored.flush == plan.head.flush:
            return True
        before = self._hold.head
        if stored is None or (stored.epoch, stored.seq) != (before.epoch, before.seq):
            self._hold.fenced()
        failed = refused.failed if isinstance(refused, TransactionRefusedError) else ()
        if plan.inbox_index in failed and plan.head.state in ENDED:
            # Somebody has begun to wait for the end that this commit is.
            self._inbox.waited = await waited_for(self._table, self._workflow_id)
            return False
        if plan.inbox_index in failed:
            raise InboxMovedError(f"{self._workflow_id!r} got a message, or was told of an end") from None
        if any(index in plan.place_at for index in failed):
            self._lose_place(plan)
            return False
        children = sorted({plan.child_at[index] for index in failed if index in plan.child_at})
        if children:
            await births.look(children)
            return False
        self._hold.lost()
        raise StoreUnavailableError(f"a commit of {self._workflow_id!r} was refused for no reason") from refused

    def _lose_place(self, plan: Plan) -> None:
        if plan.head.state not in ENDED:
            raise StartConflictError(
                f"{self._workflow_id!r} is unique and cannot go on: another workflow of its type and tags has its place"
            ) from None
        # It cannot be that somebody else has the place of one that runs; but if it were, that one must not keep this
        # one from ending.
        self._hold.head = replace(self._hold.head, is_unique=False)

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
        self._waits.stored = plan.waits
        self._tell_due([outgoing.workflow_id or self._workflow_id for outgoing in commit.outgoing])
        self._tell_due([child.workflow_id for child in commit.children])
        if commit.published:
            self.on_published(commit.published)

    def _tell_due(self, workflow_ids: Collection[str]) -> None:
        self.made_due.update(workflow_ids)
        others = dict.fromkeys(one for one in workflow_ids if one != self._workflow_id)
        if others:
            self.on_due(list(others))

    async def compact(self) -> None:
        """Fold the log now, whether that pays or not, and leave nothing of what the snapshot replaces.

        Raises:
            FencedError, StoreUnavailableError: something is left; done again, it goes too.
        """
        self._hold.check()
        await self._fold_log()
        if self._keys.stale:
            raise StoreUnavailableError(f"what the log of {self._workflow_id!r} was could not be deleted")

    async def _compact(self) -> None:
        if not self._fold.is_worth_compacting:
            return
        try:
            await self._fold_log()
        except StoreUnavailableError:
            # The commit is what matters; whether the store is there at all, it will find out by itself.
            self._fold.postpone_compaction()

    async def _fold_log(self) -> None:
        try:
            await compact(self._table, self._hold, self._fold, self._keys)
        except ConditionFailedError:
            self._hold.fenced()


def _nobody(_told: object) -> None:
    """Nobody wants to know: who is due is found by the sweeper, and what is published can be read from its tail."""
