"""What workflows do to each other: recorded as done, in the commit that does it, and anew where the driver refuses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from engine.entry import EntryMetadata, EntryStatus, StepEntry
from engine.errors import DriverError, StartConflictError, WorkflowEndedError, WorkflowNotFoundError
from engine.hooks import error_text, parse_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.driver import Peers
    from engine.entry import Entry
    from engine.scope import Scope

_REFUSALS: dict[str, type[WorkflowNotFoundError | WorkflowEndedError | StartConflictError]] = {
    kind.__name__: kind for kind in (WorkflowNotFoundError, WorkflowEndedError, StartConflictError)
}


class Sending:
    """A signal or a start under way, which is recorded as a step.

    Attributes:
        entry: its record.
        refusal: why it was not done, where it was not.
    """

    __slots__ = ("_key", "_on_refusal", "_scope", "entry", "refusal")

    def __init__(
        self, scope: Scope, part: str, entry: Entry | None, on_refusal: Callable[[Sending, Exception], None]
    ) -> None:
        """``on_refusal`` records, by one of the methods below, what a refusal by the driver means."""
        self._scope = scope
        self._key = scope.key_of(part)
        self._on_refusal = on_refusal
        self.entry = scope.record(part, StepEntry()) if entry is None else entry
        self.refusal: Exception | None = None

    @property
    def output(self) -> bytes:
        """What was recorded as its answer."""
        assert isinstance(self.entry.kind, StepEntry)
        assert self.entry.kind.output is not None
        return self.entry.kind.output

    def done(self, output: bytes) -> None:
        """Record that it was done, with what answer."""
        self.refusal = None
        self.entry = self._scope.rewrite(self._key, self.entry, StepEntry(output=output))
        put_metadata(self._scope, self.entry, EntryStatus.COMPLETED, None)

    def failed(self, refusal: Exception) -> None:
        """Record that it was not, and is not tried again."""
        self.refusal = refusal
        text = error_text(refusal)
        self.entry = self._scope.rewrite(self._key, self.entry, StepEntry(error=text))
        put_metadata(self._scope, self.entry, EntryStatus.EXHAUSTED, text)

    def postponed(self, refusal: Exception) -> None:
        """Record that it was not, and is to be tried again."""
        self.refusal = refusal
        text = error_text(refusal)
        self.entry = self._scope.rewrite(self._key, self.entry, StepEntry(error=text))
        put_metadata(self._scope, self.entry, EntryStatus.PENDING, text)

    def refused(self, refusal: Exception) -> None:
        """The driver does not do it, and has written nothing: what is recorded must say so."""
        if self._scope.turn.storage.find(self._key) is None:
            # The branch that wanted it has lost its race.
            return
        self._on_refusal(self, refusal)

    async def commit(self) -> None:
        """Return once it is recorded, one way or the other; whatever was recorded before goes with the same commit."""
        turn = self._scope.turn
        turn.storage.refusals[self.entry.id] = self.refused
        # Others of this run may send at the same moment: a commit may be divided between them, not within one.
        turn.storage.close_group()
        # Where this is cancelled, the commit goes on, and may still be refused.
        await turn.flush()
        turn.storage.refusals.pop(self.entry.id, None)


def put_metadata(scope: Scope, entry: Entry, status: EntryStatus, error: str | None) -> None:
    """Record how an operation that acts once stands, as of now."""
    now = scope.turn.clock.now()
    completed_at = now if status is EntryStatus.COMPLETED else None
    scope.turn.storage.put_metadata(
        entry.id,
        EntryMetadata(
            status=status, error=error, attempts=1, last_attempt_at=now, created_at=now, completed_at=completed_at
        ),
    )
    if completed_at is not None:
        scope.finished(completed_at)


def replayed(scope: Scope, entry: Entry) -> bytes | None:
    """The output that history has; None where it is to be done again.

    Raises:
        WorkflowNotFoundError, WorkflowEndedError, StartConflictError: history says that it was refused.
    """
    assert isinstance(entry.kind, StepEntry)
    metadata = scope.turn.storage.find_metadata(entry.id)
    if metadata is not None and metadata.status is EntryStatus.EXHAUSTED:
        recorded = parse_error(metadata.error or "")
        raise _REFUSALS.get(recorded.name, WorkflowNotFoundError)(recorded.message)
    if entry.kind.output is not None and metadata is not None and metadata.completed_at is not None:
        scope.finished(metadata.completed_at)
    return entry.kind.output


async def started(scope: Scope, workflow_id: str | None = None) -> None:
    """Return once what this run starts under ``workflow_id``, or at all, is there for others to see."""
    turn = scope.turn
    while any(workflow_id in (None, child.workflow_id) for child in turn.storage.starting()):
        # Other branches may be about to start theirs: one commit has room for all.
        await asyncio.sleep(0)
        await turn.flush()


def peers_of(scope: Scope, what: str) -> Peers:
    """The other workflows; a store without any ends the run, as ``what`` cannot be done there."""
    check_atomic(scope, what)
    peers: Peers | None = getattr(scope.turn.driver, "peers", None)
    if peers is None:
        raise scope.turn.fail(
            DriverError(
                f"{what}: this store holds one workflow alone; in a test, engine.testing.MemoryWorld holds several"
            )
        )
    return peers


def check_atomic(scope: Scope, what: str) -> None:
    """End the run where the store's commits are not atomic: ``what`` would be lost or done twice in a crash."""
    if not scope.turn.flusher.is_atomic:
        text = f"{what}: a store whose commits are not atomic cannot reach other workflows"
        raise scope.turn.fail(DriverError(text))
