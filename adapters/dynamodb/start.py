"""Starting a workflow: one transaction that counts once, and what it means where it is refused."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from adapters.dynamodb.errors import ConditionFailedError, TransactionRefusedError
from adapters.dynamodb.model.beginning import begin
from adapters.dynamodb.model.expressions import Change, Condition
from adapters.dynamodb.model.items import HEAD, TYPES_KEY, Head, decode_head, key
from adapters.dynamodb.model.limits import START_TRIES_MAX
from adapters.dynamodb.model.tags import holder_of, place_key
from adapters.dynamodb.succession import succeed
from engine.errors import StartConflictError, StoreUnavailableError
from engine.lifecycle import OVER, WorkflowState
from engine.origin import Origin
from engine.schedules.identity import SCHEDULE_TYPE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adapters.dynamodb.model.beginning import Beginning
    from adapters.dynamodb.table import Connection, Table


class Started(Struct, frozen=True, kw_only=True):
    """A workflow is there; ``created`` says whether this call started it, and ``origin`` is that of the one there.

    ``put_off_until`` is the alarm that it has not begun before, in milliseconds since the epoch; None where it has.
    """

    workflow_id: str
    created: bool
    origin: Origin
    put_off_until: int | None


class Existing(Struct, frozen=True):
    """A workflow that serves in place of the one that was to be started: the same, or the one that has its place."""

    head: Head


class Replaceable(Struct, frozen=True):
    """A failed workflow that may be replaced has the place."""

    workflow_id: str


class Gone(Struct, frozen=True):
    """Whatever was in the way is not there any more: the same start again may succeed."""


class Leaving(Struct, frozen=True):
    """A workflow that is being purged has the id or the place: the same start succeeds once that is over."""

    workflow_id: str

    def __str__(self) -> str:
        return f"a workflow {self.workflow_id!r} is being purged; start it again once it is gone"


Obstacle = Existing | Replaceable | Gone | Leaving
"""What a refused start met."""


class Starts:
    """Starts workflows in one table."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def start(
        self,
        *,
        workflow_id: str,
        workflow_type: str,
        workflow_input: bytes,
        tags: Mapping[str, str],
        start_at: int | None,
        is_unique: bool,
        may_replace: bool,
        origin: Origin,
        may_follow: bool = False,
    ) -> Started:
        """Start a workflow, due at once or at ``start_at`` (milliseconds since the epoch); the input is CBOR.

        One whose origin has no ray id gets a new one. Where it ``may_follow`` one that is being purged, it does so as
        soon as all of that but its inbox is gone; that inbox it takes over.

        Raises:
            StartConflictError: the id is taken by another type or input, or is being purged.
            InvalidIdError, ValueTooLargeError: nothing was written.
        """
        beginning = begin(
            workflow_id=workflow_id,
            workflow_type=workflow_type,
            workflow_input=workflow_input,
            tags=tags,
            now=self._connection.clock.now(),
            start_at=start_at,
            is_unique=is_unique,
            may_replace=may_replace,
            origin=origin if origin.ray_id else replace(origin, ray_id=self._connection.ids.new()),
        )
        await know(self._connection, workflow_type)
        return await self._write(beginning, may_follow=may_follow)

    async def _write(self, beginning: Beginning, *, may_follow: bool) -> Started:
        table, ids = self._connection.table, self._connection.ids
        was_ambiguous = False
        for attempt in range(START_TRIES_MAX):
            try:
                await table.transact([*beginning.guarded(), *beginning.rest()], f"start {ids.new()}")
            except TransactionRefusedError as refused:
                was_ambiguous = was_ambiguous or refused.is_ambiguous
                if attempt:
                    # Several who follow one that is being purged take it out of each other's hands.
                    await table.pause(attempt)
                obstacle = await look_at_obstacle(table, beginning)
            else:
                head = beginning.head
                return Started(
                    workflow_id=head.workflow_id, created=True, origin=head.origin, put_off_until=head.wake_at
                )
            if isinstance(obstacle, Leaving):
                beginning = await self._after(beginning, obstacle, may_follow=may_follow)
                continue
            if isinstance(obstacle, Existing):
                return _as_started(beginning, obstacle.head, was_ambiguous=was_ambiguous)
            beginning = past(beginning, obstacle)
        raise StoreUnavailableError(f"{beginning.head.workflow_id!r}: what was in the way of its start kept changing")

    async def _after(self, beginning: Beginning, leaving: Leaving, *, may_follow: bool) -> Beginning:
        is_own_id = leaving.workflow_id == beginning.head.workflow_id
        successor = await succeed(self._connection, beginning) if may_follow and is_own_id else None
        if successor is None:
            raise StartConflictError(str(leaving))
        return successor


def _as_started(beginning: Beginning, existing: Head, *, was_ambiguous: bool) -> Started:
    new = beginning.head
    # Only a try of ours whose answer was lost can have been refused by itself.
    is_ours = was_ambiguous and (existing.workflow_id, existing.created_at) == (new.workflow_id, new.created_at)
    # Later on its alarm is whatever it waits for, and not for a start to arm.
    put_off_until = existing.wake_at if existing.state is WorkflowState.PENDING else None
    return Started(
        workflow_id=existing.workflow_id, created=is_ours, origin=existing.origin, put_off_until=put_off_until
    )


async def look_at_obstacle(table: Table, beginning: Beginning) -> Obstacle:
    """What was in the way of a start that was refused.

    Raises:
        StartConflictError: a workflow that cannot serve in its place.
    """
    new = beginning.head
    there = await _find(table, new.workflow_id)
    if there is not None and there.purging_at:
        return Leaving(there.workflow_id)
    if there is not None:
        if (there.type, there.input_digest) == (new.type, new.input_digest):
            return Existing(there)
        raise StartConflictError(
            f"a workflow {new.workflow_id!r} exists already with another "
            f"{'input' if there.type == new.type else 'type'}"
        )
    place = await table.get(place_key(new.type, new.tags)) if new.is_unique else None
    holder = None if place is None else await _find(table, holder_of(place))
    if holder is None or holder.state in OVER:
        # It ended, or was purged, between these two looks or before the first.
        return Gone()
    if holder.purging_at:
        return Leaving(holder.workflow_id)
    if holder.state is WorkflowState.FAILED and beginning.may_replace:
        return Replaceable(holder.workflow_id)
    return Existing(holder)


def past(beginning: Beginning, obstacle: Replaceable | Gone) -> Beginning:
    """The start that may succeed where the one before was refused."""
    return replace(beginning, former=None, replaced=obstacle.workflow_id if isinstance(obstacle, Replaceable) else None)


async def _find(table: Table, workflow_id: str) -> Head | None:
    stored = await table.get(key(workflow_id, HEAD))
    return None if stored is None else decode_head(stored)


async def know(connection: Connection, workflow_type: str) -> None:
    """Remember a type, so that a listing of all types finds it; once a process, before the first such start."""
    # Schedules are torpor's own: they are listed where they are asked for.
    if workflow_type in connection.known_types or workflow_type == SCHEDULE_TYPE:
        return
    is_new = Condition("NOT contains(#types, :type)", {":type": {"S": workflow_type}})
    change = Change(unions={"types": [workflow_type]})
    with suppress(ConditionFailedError):
        await connection.table.update(TYPES_KEY, change, is_new)
    connection.known_types.add(workflow_type)
