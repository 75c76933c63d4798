"""Claiming a workflow: one conditional write decides who may go on; clocks only decide when to try."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from adapters.dynamodb.driver import DynamoDriver
from adapters.dynamodb.ends import tell_waiters
from adapters.dynamodb.errors import ConditionFailedError
from adapters.dynamodb.hold import Hold
from adapters.dynamodb.inbox import take_back
from adapters.dynamodb.loading import blind_driver, inbox_of, load_driver
from adapters.dynamodb.model.conditions import IS_FREE, NOBODY_LIVING_HOLDS_IT, has_outlived
from adapters.dynamodb.model.expressions import Change, Condition, number, text
from adapters.dynamodb.model.items import DUE_ATTRIBUTES, HEAD, INBOX, PRUNE_ALL, Head, decode_head, due, key, place_of
from adapters.dynamodb.model.limits import PASSED_UNREAD_MIN, WORKER_POLL_INTERVAL_S
from adapters.dynamodb.model.naming import check_id
from adapters.dynamodb.model.plan import Lease
from adapters.dynamodb.passing import passed_by
from engine.errors import (
    CorruptHistoryError,
    FencedError,
    InboxMovedError,
    StoreUnavailableError,
    UnknownVersionError,
    WorkflowNotFoundError,
)
from engine.history.kept import UNREADABLE
from engine.lifecycle import ENDED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from adapters.dynamodb.table import Connection, Table


class Claimed(Struct, frozen=True):
    """The workflow is ours until the lease ends; ``driver`` is what a run needs."""

    driver: DynamoDriver


class Unreadable(Struct, frozen=True):
    """The workflow is ours and its history cannot be read: ``driver`` has no pairs, only to give it up or fail it."""

    driver: DynamoDriver
    error: CorruptHistoryError | UnknownVersionError


class Held(Struct, frozen=True):
    """Somebody else holds it, until ``until`` (milliseconds) unless renewed: drop the wake."""

    until: int


class NotDue(Struct, frozen=True):
    """Nothing to do before ``due_at`` (milliseconds; None: before a message comes): drop the wake.

    Where the wake was sent for the alarm at ``due_at`` it came too early, and the alarm has to be armed again. Where it
    ``awaits_sender`` it came ahead of the message that it was sent for, and somebody has to look again soon.
    """

    due_at: int | None
    awaits_sender: bool = False


class Ended(Struct, frozen=True):
    """It has ended and never runs again unless told to: drop the wake.

    ``told`` are workflows that waited for its end and are due now, because of this claim; to be woken.
    """

    told: tuple[str, ...] = ()


class Purging(Struct, frozen=True):
    """It has ended and is being deleted: somebody has to go on with that."""


class Outlived(Struct, frozen=True):
    """It has ended, and the while for which it was to be kept is over: somebody has to forget it.

    ``is_whole``: all of it; else its history alone.
    """

    is_whole: bool


class NotFound(Struct, frozen=True):
    """No workflow has this id: drop the wake."""


Claim = Claimed | Unreadable | Held | NotDue | Ended | Purging | Outlived | NotFound
"""What a try to claim a workflow comes to."""

_Gone = Ended | Purging | Outlived | NotFound

_EXISTS = Condition("attribute_exists(#pk) AND attribute_not_exists(#purging_at)")
_LOOKS_MAX = 5
"""How often an inbox is looked at that keeps moving. Design choice."""


class Claims:
    """Claims workflows of one table on behalf of ``owner``."""

    __slots__ = ("_connection", "_owner")

    def __init__(self, connection: Connection, *, owner: str) -> None:
        self._connection = connection
        self._owner = owner

    async def claim(self, workflow_id: str, *, lease_ms: int, deadline_ms: int | None) -> Claim:
        """Take the lease of a workflow that is free or whose holder has died, and load it.

        ``deadline_ms`` is when this invocation ends, in milliseconds since the epoch; no lease goes past it.
        """
        check_id(workflow_id)
        connection = self._connection.metered()
        lease = self._lease(lease_ms, deadline_ms)
        now = connection.clock.now()
        taken = await self._take(connection.table, workflow_id, lease, now)
        match taken:
            case _Taken():
                async with _or_given_back(connection, lease, taken):
                    return await _load(connection, lease, taken)
            case NotFound():
                await take_back(connection, workflow_id)
                return taken
            case _:
                return taken

    async def seize(self, workflow_id: str, *, lease_ms: int, condition: Condition = _EXISTS) -> DynamoDriver:
        """Take a workflow from whoever holds it, in whatever state it is, where ``condition`` holds of its HEAD.

        The holder, if any, is fenced at its next commit. This is not counted as a death.

        Raises:
            WorkflowNotFoundError: there is none; nothing was written.
            ConditionFailedError: the condition does not hold; nothing was written.
            CorruptHistoryError, UnknownVersionError: its history cannot be read.
        """
        connection = self._connection.metered()
        lease = self._lease(lease_ms, None)
        taken = await _seize(connection, workflow_id, lease, condition)
        async with _or_given_back(connection, lease, taken):
            driver = await load_driver(connection, lease, taken.head)
        if driver is None:
            raise FencedError(f"somebody else seized {workflow_id!r} at the same time")
        return driver

    async def seize_outlived(self, workflow_id: str, *, lease_ms: int) -> Claim:
        """As ``claim``, an ended workflow whose time is over; Ended, and nothing is written, where that is none."""
        connection = self._connection.metered()
        lease, now = self._lease(lease_ms, None), self._connection.clock.now()
        outlived = has_outlived(now)
        condition = Condition(f"{outlived.expression} AND attribute_not_exists(#purging_at)", outlived.values)
        try:
            taken = await _acquire(connection.table, workflow_id, lease, now, condition)
        except ConditionFailedError:
            return Ended()
        async with _or_given_back(connection, lease, taken):
            return await _load(connection, lease, replace(taken, is_due=True))

    @asynccontextmanager
    async def seized_blind(
        self, workflow_id: str, *, lease_ms: int, condition: Condition
    ) -> AsyncIterator[DynamoDriver]:
        """As ``seize``, without reading its history or inbox; where the block fails, the lease is given back."""
        connection = self._connection.metered()
        lease = self._lease(lease_ms, None)
        taken = await _seize(connection, workflow_id, lease, condition)
        async with _or_given_back(connection, lease, taken):
            yield blind_driver(connection, lease, taken.head)

    def _lease(self, lease_ms: int, deadline_ms: int | None) -> Lease:
        # Unique to this claim, so that a claim whose answer was lost is recognised as ours.
        return Lease(owner=f"{self._owner}/{self._connection.ids.new()}", length_ms=lease_ms, deadline_ms=deadline_ms)

    async def _take(self, table: Table, workflow_id: str, lease: Lease, now: int) -> _Taken | Held | _Gone:
        try:
            return await _acquire(table, workflow_id, lease, now, IS_FREE)
        except ConditionFailedError as failed:
            stored = failed.item
        if not stored:
            return NotFound()
        head = decode_head(stored)
        if head.owner == lease.owner:
            return _Taken(head=head, is_due=True)
        if head.state in ENDED:
            return await _gone(table, head, now)
        if head.owner is not None and (head.lease_until or 0) > now:
            return Held(head.lease_until or 0)
        return await self._take_over(table, head, lease, now)

    async def _take_over(self, table: Table, head: Head, lease: Lease, now: int) -> _Taken | Held | NotFound:
        """Take the lease of a holder that is taken for dead."""
        same = Condition(
            "#epoch = :epoch AND #lease_until <= :now", {":epoch": number(head.epoch), ":now": number(now)}
        )
        try:
            taken = await _acquire(table, head.workflow_id, lease, now, same, deaths=1)
        except ConditionFailedError as failed:
            if not failed.item:
                return NotFound()
            stored = decode_head(failed.item)
            if stored.owner == lease.owner:
                return _Taken(head=stored, is_due=True)
            # Somebody else came first, or the holder lives and has just renewed or released.
            return Held(stored.lease_until or now)
        return taken


@asynccontextmanager
async def _or_given_back(connection: Connection, lease: Lease, taken: _Taken) -> AsyncIterator[None]:
    """Within the block somebody becomes the holder; where that fails, the workflow is free and as due as it was.

    Its lease would run out else, and count as a death: steps would be charged with attempts that nobody made.
    """
    try:
        yield
    except (Exception, asyncio.CancelledError):
        now = connection.clock.now()
        hold = Hold(connection.table, connection.clock, taken.head, lease)
        # Where something was committed, or somebody else has come, this is refused, as it should be.
        with suppress(FencedError, StoreUnavailableError):
            await hold.release(now if taken.is_due else taken.due_at)
        raise


async def _load(connection: Connection, lease: Lease, taken: _Taken) -> Claim:
    if not taken.is_due and taken.head.unread >= PASSED_UNREAD_MIN:
        hold = Hold(connection.table, connection.clock, taken.head, lease)
        try:
            if await passed_by(connection, hold, inbox_of(taken.head, passed=taken.head.unread), taken.due_at):
                return NotDue(taken.due_at)
        except FencedError:
            return Held(hold.head.lease_until or 0)
    try:
        driver = await load_driver(connection, lease, taken.head)
    except UNREADABLE as error:
        return Unreadable(blind_driver(connection, lease, taken.head), error)
    if driver is None:
        return Held(taken.head.lease_until or 0)
    return Claimed(driver) if taken.is_due else await _run_or_park(driver, taken.due_at)


class _Taken(Struct, frozen=True, kw_only=True):
    """HEAD with our lease on it; when it was due before, and whether that is now, as where somebody had held it."""

    head: Head
    due_at: int | None = None
    is_due: bool


async def _acquire(
    table: Table, workflow_id: str, lease: Lease, now: int, condition: Condition, *, deaths: int = 0
) -> _Taken:
    until = lease.until(now)
    change = Change(
        sets={"owner": text(lease.owner), "lease_until": number(until), **due(workflow_id, until)},
        adds={"epoch": 1, "wakes": 1} | ({"deaths": deaths} if deaths else {}),
    )
    before = decode_head(await table.update(key(workflow_id, HEAD), change, condition, returns="ALL_OLD"))
    head = replace(
        before,
        owner=lease.owner,
        lease_until=until,
        due_at=until,
        epoch=before.epoch + 1,
        wakes=before.wakes + 1,
        deaths=before.deaths + deaths,
    )
    # What is due within the time that the engine waits in memory is due now: a wake may come a little early.
    soon = now + round(WORKER_POLL_INTERVAL_S * 1000)
    is_due = before.owner is not None or (before.due_at is not None and before.due_at <= soon)
    return _Taken(head=head, due_at=before.due_at, is_due=is_due)


async def _seize(connection: Connection, workflow_id: str, lease: Lease, condition: Condition) -> _Taken:
    check_id(workflow_id)
    try:
        return await _acquire(connection.table, workflow_id, lease, connection.clock.now(), condition)
    except ConditionFailedError as failed:
        if not failed.item:
            raise WorkflowNotFoundError(f"no workflow has the id {workflow_id!r}") from None
        if decode_head(failed.item).purging_at:
            raise WorkflowNotFoundError(f"the workflow {workflow_id!r} is being purged") from None
        raise


async def _run_or_park(driver: DynamoDriver, due_at: int | None) -> Claim:
    """A workflow that no alarm called: it runs if a message it waits for is there, else its lease is given back."""
    for _ in range(_LOOKS_MAX):
        if driver.has_news:
            return Claimed(driver)
        try:
            await driver.park(due_at=due_at)
        except InboxMovedError:
            await driver.refresh()
        except FencedError:
            return Held(driver.lease_until)
        else:
            return NotDue(due_at, awaits_sender=driver.awaits_sender)
    # Messages keep coming; running it without need is better than giving up on it.
    return Claimed(driver)


async def _gone(table: Table, head: Head, now: int) -> Ended | Purging | Outlived:
    """What has ended is nobody's to look at, but for one of which somebody must delete the rest, or begin to."""
    if head.purging_at:
        return Purging()
    if head.owner is not None and (head.lease_until or 0) > now:
        # An operator is about to let it go on, or to leave it as it was: then what was to be done still is, and due.
        return Ended()
    # Whoever waits for its end is told first.
    if not head.waited and head.prune_at is not None and head.prune_at <= now:
        return Outlived(is_whole=head.prune == PRUNE_ALL)
    told = await tell_waiters(table, head, now) if head.waited else []
    await _tidy_up(table, head, now)
    return Ended(tuple(told))


async def _tidy_up(table: Table, head: Head, now: int) -> None:
    """Take an ended workflow from what is due, and from an operator who died before telling it what to do."""
    # One who comes to let it go on counts on its being due; one whose lease is over is fenced first.
    is_left = Condition(
        f"#epoch = :epoch AND #seq = :seq AND attribute_exists(#due_at) AND {NOBODY_LIVING_HOLDS_IT}",
        {":epoch": number(head.epoch), ":seq": number(head.seq), ":now": number(now)},
    )
    fences = {} if head.owner is None else {"epoch": 1}
    place = place_of(replace(head, due_at=None))
    gone = tuple(name for name in DUE_ATTRIBUTES if name not in place)
    leave = Change(sets=place, removes=(*gone, "owner", "lease_until", "waited"), adds=fences)
    is_closed = Condition("attribute_exists(#closed) AND attribute_exists(#due_at)")
    if head.due_at is not None:
        with suppress(ConditionFailedError):
            await table.update(key(head.workflow_id, HEAD), leave, is_left)
    with suppress(ConditionFailedError):
        await table.update(key(head.workflow_id, INBOX), Change(removes=DUE_ATTRIBUTES), is_closed)
