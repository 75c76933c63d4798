"""A workflow that is to be started: what a start writes, from outside or within another workflow's commit. Pure."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from msgspec import Struct

from adapters.alarms import schedule_ms
from adapters.dynamodb.model import log
from adapters.dynamodb.model.expressions import Change, Condition, number, put_action, update_action
from adapters.dynamodb.model.items import INBOX, Head, encode_head, key, log_items
from adapters.dynamodb.model.limits import ALARM_EARLY_MS, VALUE_BYTES_MAX
from adapters.dynamodb.model.naming import check_id, check_tags, check_type
from adapters.dynamodb.model.origins import check_origin
from adapters.dynamodb.model.tags import tag_items, take_place
from engine.errors import ValueTooLargeError
from engine.keys import INPUT_KEY
from engine.lifecycle import WorkflowState
from engine.origin import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adapters.dynamodb.model.expressions import Action
    from engine.origin import Origin


class Beginning(Struct, frozen=True, kw_only=True):
    """One start, ready to be written.

    Attributes:
        head: HEAD of the new workflow.
        parts: its input, as the items of its log.
        may_replace: where it is unique: one that has failed does not stand in its way.
        former: the HEAD, left alone with its INBOX by a purge, that it takes the place of; None where the id is free.
        replaced: the workflow whose place it takes, because that one has failed; None where the place is free.
    """

    head: Head
    parts: list[bytes]
    may_replace: bool = False
    replaced: str | None = None
    former: Head | None = None

    @property
    def size(self) -> int:
        """Bytes of input and tags that it writes, at most a little less than of all its items."""
        tags = sum(len(name.encode()) + len(value.encode()) for name, value in self.head.tags.items())
        return sum(map(len, self.parts)) + tags * (1 + len(self.head.tags))

    def guarded(self) -> list[Action]:
        """The actions that may be refused: HEAD, whose key must be free, and its place where it is unique."""
        is_free = Condition("attribute_not_exists(#pk)")
        if self.former is not None:
            is_free = Condition(
                "#epoch = :former AND attribute_exists(#purging_at)", {":former": number(self.former.epoch)}
            )
        put = put_action(encode_head(self.head), is_free)
        return [put, *(take_place(self.head, self.replaced) if self.head.is_unique else [])]

    def rest(self) -> list[Action]:
        """The actions that are never refused: the input, an item for each tag, and an inbox that opens again."""
        workflow_id, seq = self.head.workflow_id, self.head.seq
        puts = [put_action(item) for item in (*log_items(workflow_id, seq, self.parts), *tag_items(self.head))]
        if self.former is None:
            return puts
        return [*puts, update_action(key(workflow_id, INBOX), Change(removes=("closed", "waited", "told")))]


def check_start(workflow_id: str, workflow_type: str, workflow_input: bytes, tags: Mapping[str, str]) -> None:
    """Raise where there can be no such workflow, whatever else is stored.

    Raises:
        InvalidIdError, ValueTooLargeError: what of it cannot be.
    """
    check_id(workflow_id)
    check_type(workflow_type)
    check_tags(tags)
    if len(workflow_input) > VALUE_BYTES_MAX:
        raise ValueTooLargeError(f"the input has {len(workflow_input)} bytes; {VALUE_BYTES_MAX} is the most")


def begin(
    *,
    workflow_id: str,
    workflow_type: str,
    workflow_input: bytes,
    tags: Mapping[str, str],
    now: int,
    start_at: int | None = None,
    is_unique: bool = False,
    may_replace: bool = False,
    origin: Origin = UNKNOWN,
) -> Beginning:
    """The start of a workflow that is due at once or at ``start_at``; times are milliseconds since the epoch.

    Raises:
        InvalidIdError, ValueTooLargeError: there can be no such workflow.
    """
    check_start(workflow_id, workflow_type, workflow_input, tags)
    check_origin(origin)
    parts = log.cut(log.encode(log.Record(puts=[(INPUT_KEY, workflow_input)])))
    later = start_at if start_at is not None and start_at > now else None
    head = Head(
        workflow_id=workflow_id,
        type=workflow_type,
        tags=dict(tags),
        # Not 0: a holder that slept through the purge of an earlier life must never meet its own epoch again.
        epoch=now,
        seq=1,
        log_items=len(parts),
        start_at=later,
        wake_at=later,
        # Whoever starts it arms this alarm; a far one is a schedule, which then waits to be cleared.
        schedule_at=schedule_ms(later, now),
        due_at=now if later is None else later,
        created_at=now,
        updated_at=now,
        # What is remembered of the input, to tell a repeated start from a conflicting one.
        input_digest=hashlib.sha256(workflow_input).digest(),
        is_unique=is_unique,
        origin=origin,
    )
    return Beginning(head=head, parts=parts, may_replace=may_replace)


def kept_start_at(head: Head, now: int) -> int | None:
    """When it begins that was put off, as HEAD says it behind a commit at ``now``; None where that is over.

    Who commits before it can have begun cancels it, or has it begin now.
    """
    is_ahead = head.state is WorkflowState.PENDING and (head.start_at or 0) > now + ALARM_EARLY_MS
    return None if is_ahead else head.start_at
