"""A signal: a message to another workflow, which rides in the commit that records it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine import values
from engine.commit import Outgoing
from engine.entry import EntryMetadata, EntryStatus, Message, StepEntry
from engine.errors import DriverError, WorkflowEndedError, WorkflowNotFoundError
from engine.hooks import error_text, parse_error

if TYPE_CHECKING:
    from engine.entry import Entry
    from engine.scope import Scope

Refusal = WorkflowNotFoundError | WorkflowEndedError

_REFUSALS: dict[str, type[Refusal]] = {kind.__name__: kind for kind in (WorkflowNotFoundError, WorkflowEndedError)}


async def run(scope: Scope, name: str, body: Any, to: str, *, ignores_missing: bool) -> bool:
    """Send ``body`` to the workflow ``to``, once; whether it was delivered. Recorded as a step ``signal:<name>``.

    Raises:
        WorkflowNotFoundError, WorkflowEndedError: it was not, now or in an earlier run.
    """
    turn = scope.turn
    part = scope.next_name(f"signal:{name}")
    _, entry = scope.open(part, StepEntry)
    if entry is not None and (delivered := _recorded(scope, entry)) is not None:
        return delivered
    if not turn.flusher.is_atomic:
        raise turn.fail(DriverError(f"signal {name!r}: a store whose commits are not atomic cannot send to others"))
    data = values.encode(body)
    scope.check_size(data, f"the message {name!r}")
    scope.act()
    sending = _Sending(scope, part, entry, ignores_missing=ignores_missing)
    target = None if to == turn.workflow_id else to
    message = Message(id=sending.entry.id, name=name, body=data, sent_at=turn.clock.now())
    turn.storage.refusals[message.id] = sending.refused
    turn.storage.send(Outgoing(workflow_id=target, message=message))
    # Others of this run may signal at the same moment: a commit may be divided between them, not within one.
    turn.storage.close_group()
    # Whether it can be delivered shows when it is committed. What was recorded before it goes with the same commit.
    try:
        await turn.flush()
    finally:
        turn.storage.refusals.pop(message.id, None)
    if target is None:
        await turn.look_again()
    if sending.refusal is not None and not ignores_missing:
        raise sending.refusal
    return sending.refusal is None


class _Sending:
    """One signal under way: recorded as delivered, and recorded anew where the driver refuses to deliver it."""

    __slots__ = ("_ignores_missing", "_key", "_scope", "entry", "refusal")

    def __init__(self, scope: Scope, part: str, entry: Entry | None, *, ignores_missing: bool) -> None:
        self._scope = scope
        self._key = scope.key_of(part)
        self._ignores_missing = ignores_missing
        self.refusal: Exception | None = None
        delivered = StepEntry(output=values.encode(True))  # noqa: FBT003 - the value that is recorded
        self.entry = scope.record(part, delivered) if entry is None else scope.rewrite(self._key, entry, delivered)
        self._put_metadata(EntryStatus.COMPLETED, None)

    def refused(self, refusal: Exception) -> None:
        """The driver does not deliver it, and has written nothing: what is recorded must say so."""
        self.refusal = refusal
        if self._scope.turn.storage.find(self._key) is None:
            return
        if self._ignores_missing:
            self._scope.rewrite(self._key, self.entry, StepEntry(output=values.encode(False)))  # noqa: FBT003
            return
        text = error_text(refusal)
        self._scope.rewrite(self._key, self.entry, StepEntry(error=text))
        self._put_metadata(EntryStatus.EXHAUSTED, text)

    def _put_metadata(self, status: EntryStatus, error: str | None) -> None:
        now = self._scope.turn.clock.now()
        completed_at = now if error is None else None
        self._scope.turn.storage.put_metadata(
            self.entry.id,
            EntryMetadata(
                status=status, error=error, attempts=1, last_attempt_at=now, created_at=now, completed_at=completed_at
            ),
        )
        if completed_at is not None:
            self._scope.finished(completed_at)


def _recorded(scope: Scope, entry: Entry) -> bool | None:
    """Whether history says that it was delivered; None where it is to be sent again."""
    assert isinstance(entry.kind, StepEntry)
    metadata = scope.turn.storage.find_metadata(entry.id)
    if metadata is not None and metadata.status is EntryStatus.EXHAUSTED:
        recorded = parse_error(metadata.error or "")
        raise _REFUSALS.get(recorded.name, WorkflowNotFoundError)(recorded.message)
    if entry.kind.output is None:
        return None
    if metadata is not None and metadata.completed_at is not None:
        scope.finished(metadata.completed_at)
    return bool(values.decode(entry.kind.output))
