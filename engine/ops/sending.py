"""What workflows do to each other: recorded as done, in the commit that does it, and anew where the driver refuses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar, cast

from engine import values
from engine.commit import Outgoing
from engine.entry import EntryMetadata, EntryStatus, StepEntry
from engine.error_info import error_text, parse_error
from engine.errors import CallerError, DriverError, StartConflictError, WorkflowEndedError, WorkflowNotFoundError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.driver import Peers
    from engine.entry import Entry, Message
    from engine.scope import Scope

T = TypeVar("T")

_REFUSALS: dict[str, type[WorkflowNotFoundError | WorkflowEndedError | StartConflictError]] = {
    kind.__name__: kind for kind in (WorkflowNotFoundError, WorkflowEndedError, StartConflictError)
}


class Sending:
    """A signal or a start under way, which is recorded as a step.

    Attributes:
        refusal: why it was not done, where it was not.
    """

    __slots__ = ("_entry", "_part", "_scope", "refusal")

    def __init__(self, scope: Scope, part: str, entry: Entry | None) -> None:
        self._scope = scope
        self._part = part
        self._entry = entry
        self.refusal: Exception | None = None

    @property
    def output(self) -> bytes:
        """What was recorded as its answer."""
        assert self._entry is not None
        assert isinstance(self._entry.kind, StepEntry)
        assert self._entry.kind.output is not None
        return self._entry.kind.output

    def entry_id(self) -> str:
        """The id of its record, which is begun where there is none yet."""
        if self._entry is None:
            self._record(StepEntry())
        assert self._entry is not None
        return self._entry.id

    def done(self, output: bytes, *, is_certain: bool = True) -> None:
        """Record that it was done, with what answer; not ``is_certain`` where ``commit`` may show that it was not."""
        self.refusal = None
        entry = self._record(StepEntry(output=output))
        put_metadata(self._scope, entry, EntryStatus.COMPLETED, None, is_certain=is_certain)

    def failed(self, refusal: Exception) -> None:
        """Record that it was not, and is not tried again."""
        self.refusal = refusal
        text = error_text(refusal)
        put_metadata(self._scope, self._record(StepEntry(error=text)), EntryStatus.EXHAUSTED, text)

    def _record(self, kind: StepEntry) -> Entry:
        scope = self._scope
        if self._entry is None:
            self._entry = scope.record(self._part, kind)
        else:
            self._entry = scope.rewrite(scope.key_of(self._part), self._entry, kind)
        return self._entry

    async def commit(self, on_refusal: Callable[[Sending, Exception], None]) -> None:
        """Return once it is recorded, one way or the other; whatever was recorded before goes with the same commit.

        Where the driver does not do it, and has written nothing, ``on_refusal`` records that by one of the above.
        """
        turn = self._scope.turn
        entry_id = self.entry_id()

        def refused(refusal: Exception) -> None:
            # Else the branch that wanted it has lost its race.
            if turn.storage.find(self._scope.key_of(self._part)) is not None:
                on_refusal(self, refusal)

        turn.storage.refusals[entry_id] = refused
        # Others of this run may send at the same moment: a commit may be divided between them, not within one.
        turn.storage.close_group()
        # Where this is cancelled, the commit goes on, and may still be refused.
        await turn.flush()
        turn.storage.refusals.pop(entry_id, None)
        metadata = turn.storage.find_metadata(entry_id)
        if metadata is not None and metadata.completed_at is not None:
            self._scope.finished(metadata.completed_at)


def put_metadata(scope: Scope, entry: Entry, status: EntryStatus, error: str | None, *, is_certain: bool = True) -> int:
    """Record how an operation that acts once stands, as of now; which is the answer, in milliseconds.

    Where that is not ``is_certain`` yet, the scope does not know of its end: a replay of a refusal would not either.
    """
    now = scope.turn.clock.now()
    completed_at = now if status is EntryStatus.COMPLETED else None
    scope.turn.storage.put_metadata(
        entry.id,
        EntryMetadata(
            status=status, error=error, attempts=1, last_attempt_at=now, created_at=now, completed_at=completed_at
        ),
    )
    if completed_at is not None and is_certain:
        scope.finished(completed_at)
    return now


def encoded(scope: Scope, name: str, body: object) -> bytes:
    """The stored form of the body of the message ``name``.

    Raises:
        UnstorableValueError: it has none, or is too large for the driver.
    """
    data = values.encode(body)
    scope.check_bytes(len(data), f"the message {name!r}", is_message=True)
    return data


async def send_to_oneself(scope: Scope, message: Message) -> None:
    """Put a message that was just recorded into the workflow's own inbox; return once its next operation can see it."""
    turn = scope.turn
    turn.storage.send(Outgoing(message=message))
    turn.storage.close_group()
    await turn.flush()
    await turn.look_again()


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


async def asked(scope: Scope, answer: Awaitable[T]) -> T:
    """What ``Peers`` answer; a question that they do not take is a mistake of the author's, and raised as it is."""
    mistake: CallerError | None = None

    async def told() -> T | None:
        nonlocal mistake
        try:
            return await answer
        except CallerError as error:
            mistake = error
            return None

    found = await scope.turn.reach(told())
    if mistake is not None:
        raise mistake
    return cast("T", found)


def check_atomic(scope: Scope, what: str) -> None:
    """End the run where the store's commits are not atomic: ``what`` would be lost or done twice in a crash."""
    if not scope.turn.flusher.is_atomic:
        text = f"{what}: a store whose commits are not atomic cannot reach other workflows"
        raise scope.turn.fail(DriverError(text))
