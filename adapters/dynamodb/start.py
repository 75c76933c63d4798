"""Starting a workflow: one transaction that puts HEAD and the input, and that counts once."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from adapters.dynamodb import log
from adapters.dynamodb.errors import ConditionFailedError, TransactionRefusedError
from adapters.dynamodb.expressions import Change, Condition, binary, put_action
from adapters.dynamodb.items import (
    HEAD,
    TYPES_KEY,
    Head,
    check_id,
    check_tags,
    check_type,
    decode_head,
    digest,
    encode_head,
    key,
    log_key,
)
from adapters.dynamodb.limits import VALUE_BYTES_MAX
from engine.errors import StartConflictError, StoreUnavailableError, ValueTooLargeError
from engine.keys import INPUT_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adapters.dynamodb.table import Connection


class Started(Struct, frozen=True, kw_only=True):
    """A workflow runs; ``created`` says whether this call started it."""

    workflow_id: str
    created: bool


class Starts:
    """Starts workflows in one table."""

    __slots__ = ("_clock", "_ids", "_known_types", "_table")

    def __init__(self, connection: Connection) -> None:
        self._table = connection.table
        self._clock = connection.clock
        self._ids = connection.ids
        self._known_types: set[str] = set()

    async def start(
        self,
        *,
        workflow_id: str,
        workflow_type: str,
        workflow_input: bytes,
        tags: Mapping[str, str],
        start_at: int | None,
    ) -> Started:
        """Start a workflow, due at once or at ``start_at`` (milliseconds since the epoch); the input is CBOR.

        Raises:
            StartConflictError: the id is taken by another type or input, or is being purged.
            InvalidIdError, ValueTooLargeError: nothing was written.
        """
        check_id(workflow_id)
        check_type(workflow_type)
        check_tags(tags)
        if len(workflow_input) > VALUE_BYTES_MAX:
            raise ValueTooLargeError(f"the input has {len(workflow_input)} bytes; {VALUE_BYTES_MAX} is the most")
        await self._know(workflow_type)
        now = self._clock.now()
        is_later = start_at is not None and start_at > now
        head = Head(
            workflow_id=workflow_id,
            type=workflow_type,
            tags=dict(tags),
            # Not 0: a holder that slept through the purge of an earlier life must never meet its own epoch again.
            epoch=now,
            seq=1,
            wake_at=start_at if is_later else None,
            due_at=start_at if is_later else now,
            created_at=now,
            updated_at=now,
            input_digest=digest(workflow_input),
        )
        return await self._write(head, workflow_input)

    async def _write(self, head: Head, workflow_input: bytes) -> Started:
        parts = log.cut(log.encode(log.Record(puts=[(INPUT_KEY, workflow_input)])))
        head = replace(head, log_items=len(parts))
        actions = [put_action(encode_head(head), Condition("attribute_not_exists(#pk)"))]
        actions += [
            put_action({**key(head.workflow_id, log_key(head.seq, part)), "b": binary(data)})
            for part, data in enumerate(parts)
        ]
        try:
            await self._table.transact(actions, f"start {self._ids.new()}")
        except TransactionRefusedError as refused:
            return await self._compare(head, refused)
        return Started(workflow_id=head.workflow_id, created=True)

    async def _compare(self, head: Head, refused: TransactionRefusedError) -> Started:
        stored = await self._table.get(key(head.workflow_id, HEAD))
        if stored is None:
            raise StoreUnavailableError(f"{head.workflow_id!r} was there and is gone") from refused
        there = decode_head(stored)
        if there.purging_at:
            raise StartConflictError(f"a workflow {head.workflow_id!r} is being purged; start it again once it is gone")
        if (there.type, there.input_digest) != (head.type, head.input_digest):
            raise StartConflictError(
                f"a workflow {head.workflow_id!r} exists already with another "
                f"{'input' if there.type == head.type else 'type'}"
            )
        # Only a try of ours whose answer was lost can have been refused by itself.
        is_ours = refused.is_ambiguous and there.created_at == head.created_at
        return Started(workflow_id=head.workflow_id, created=is_ours)

    async def _know(self, workflow_type: str) -> None:
        """Remember the type, so that a listing of all types finds it; once a process, before the first such start."""
        if workflow_type in self._known_types:
            return
        is_new = Condition("NOT contains(#types, :type)", {":type": {"S": workflow_type}})
        change = Change(unions={"types": [workflow_type]})
        with suppress(ConditionFailedError):
            await self._table.update(TYPES_KEY, change, is_new)
        self._known_types.add(workflow_type)
