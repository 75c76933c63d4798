"""The output of another workflow, or its error: waited for until that one has ended, and recorded as a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine import values
from engine.entry import EntryStatus, StepEntry
from engine.error_info import error_text, parse_error
from engine.errors import (
    RecordedError,
    WorkflowEndedError,
    WorkflowFailedError,
    WorkflowNotFoundError,
    WorkflowWaitError,
)
from engine.lifecycle import ENDED, WorkflowState
from engine.ops.attempt import claimed
from engine.ops.failures import critical_class, made_again
from engine.ops.sending import asked, peers_of, put_metadata, started

if TYPE_CHECKING:
    from engine.driver import Peer
    from engine.entry import Entry
    from engine.scope import Scope


async def run(scope: Scope, name: str | None, label: str, workflow_id: str, returns: Any) -> Any:
    """What the workflow ``workflow_id`` has returned, waiting for its end. Recorded as a step ``name``, else ``label``.

    Raises:
        WorkflowNotFoundError: there is none, now or in an earlier run.
        WorkflowEndedError: it was cancelled.
        WorkflowFailedError, CriticalError, RollbackError: it has failed.
    """
    turn = scope.turn
    part = scope.next_name(label) if name is None else name
    _, entry = scope.open(part, StepEntry)
    if entry is not None and (text := _recorded_failure(scope, entry)) is not None:
        raise _error_of(part, text)
    if entry is not None and isinstance(entry.kind, StepEntry) and entry.kind.output is not None:
        metadata = turn.storage.find_metadata(entry.id)
        if metadata is not None and metadata.completed_at is not None:
            scope.finished(metadata.completed_at)
        return values.decode(entry.kind.output, returns)
    peers = peers_of(scope, f"output of {workflow_id!r}")
    scope.act()
    while True:
        await started(scope, workflow_id)
        peer = await asked(scope, peers.peek(workflow_id))
        if peer is None or peer.state in ENDED:
            break
        await turn.park(WorkflowWaitError((workflow_id,)))
    text, output = _ending(workflow_id, peer)
    if text is None:
        scope.check_bytes(len(output), f"workflow {workflow_id!r}")
    _record(scope, part, entry, text, output)
    await turn.recorded()
    if text is not None:
        raise _error_of(part, text)
    return values.decode(output, returns)


async def has_ended(scope: Scope, workflow_id: str) -> bool:
    """Whether a workflow has ended, or is not there, at this moment. Nothing is recorded of that."""
    peers = peers_of(scope, f"a look at {workflow_id!r}")
    # Of one that is waited for the first answer may be what this run was told when it began; the second is not.
    for _ in range(2):
        peer = await asked(scope, peers.peek(workflow_id))
        if peer is None or peer.state in ENDED:
            return True
    return False


def _ending(workflow_id: str, peer: Peer | None) -> tuple[str | None, bytes]:
    """What is recorded of how a workflow ended: the text of an error, or its output."""
    if peer is None:
        return error_text(WorkflowNotFoundError(f"no workflow has the id {workflow_id!r}")), b""
    if peer.state is WorkflowState.CANCELLED:
        return error_text(WorkflowEndedError(f"the workflow {workflow_id!r} is {peer.state}")), b""
    if peer.state is WorkflowState.FAILED:
        error = None if peer.error is None else values.decode_error(peer.error)
        told = "Error: the workflow failed" if error is None else f"{error.name}: {error.message}"
        # Under this name, so that an error of that workflow's own is never taken for one of those above.
        return error_text(RecordedError(WorkflowFailedError.__name__, told)), b""
    return None, values.encode(None) if peer.output is None else peer.output


def _record(scope: Scope, part: str, entry: Entry | None, text: str | None, output: bytes) -> None:
    kind = StepEntry(output=output) if text is None else StepEntry(error=text)
    entry = scope.record(part, kind) if entry is None else scope.rewrite(scope.key_of(part), entry, kind)
    put_metadata(scope, entry, EntryStatus.COMPLETED if text is None else EntryStatus.EXHAUSTED, text)


def _recorded_failure(scope: Scope, entry: Entry) -> str | None:
    metadata = scope.turn.storage.find_metadata(entry.id)
    return metadata.error or "" if metadata is not None and metadata.status is EntryStatus.EXHAUSTED else None


def _error_of(name: str, text: str) -> Exception:
    """The error whose stored text is ``text``, as the operation ``name`` raises it, live as on replay."""
    recorded = parse_error(text)
    if recorded.name == WorkflowNotFoundError.__name__:
        return WorkflowNotFoundError(recorded.message)
    if recorded.name == WorkflowEndedError.__name__:
        ended = WorkflowEndedError(recorded.message)
        ended.operation = name
        return ended
    inner = parse_error(recorded.message)
    kind = critical_class(inner.name)
    if kind is not None:
        # Whatever that workflow's author raises to say "do not try again" says so here too, by the same class.
        return claimed(made_again(kind, inner.message), name, 1)
    failed = WorkflowFailedError(inner.name, inner.message)
    failed.operation = name
    return failed
