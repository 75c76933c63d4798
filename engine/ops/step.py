"""A step: a function that runs, is retried, times out, and whose result or failure is recorded once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from engine import retry
from engine.entry import Entry, EntryMetadata, EntryStatus, StepEntry
from engine.error_info import parse_error
from engine.errors import (
    CriticalError,
    RollbackCheckpointError,
    RollbackError,
    StepError,
    StepExhaustedError,
    StepTimeoutError,
)
from engine.ops.attempt import Attempt, claimed, failed, jitter, report, returns
from engine.ops.failures import critical_class, made_again
from engine.ops.rollback import Undo
from engine.reading import recorded_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.ops.attempt import StepPolicy
    from engine.retry import RetryPolicy
    from engine.scope import Scope
    from engine.turn import Turn


# --- decide ----------------------------------------------------------------------------------------------------------


class Replay(Struct, frozen=True):
    """History has the output: ``output`` is its CBOR, None where the step completed without one."""

    output: bytes | None


class Failed(Struct, frozen=True):
    """The step has ended for good; ``is_news`` where history does not say so yet."""

    error: StepError | RollbackError
    is_news: bool = False


class BackOff(Struct, frozen=True):
    """Not before ``until`` (milliseconds)."""

    until: int


class Run(Struct, frozen=True):
    """Run it, as attempt number ``attempt``."""

    attempt: int


def decide(
    name: str,
    entry: StepEntry,
    metadata: EntryMetadata,
    policy: RetryPolicy,
    now: int,
    deaths: int,
    factor: float = 1.0,
) -> Replay | Failed | BackOff | Run:
    """What to do with a step that history knows; ``deaths`` are attempts that ended with their process."""
    if metadata.status is EntryStatus.COMPLETED or entry.output is not None:
        return Replay(entry.output)
    if metadata.status is EntryStatus.EXHAUSTED:
        return Failed(recorded_failure(name, metadata, policy))
    if metadata.status is EntryStatus.RUNNING or metadata.attempts == 0:
        return _run(name, metadata, policy, metadata.attempts + deaths)
    if retry.is_exhausted(policy, metadata.attempts):
        return _run(name, metadata, policy, metadata.attempts)
    until = metadata.last_attempt_at + retry.backoff_ms(policy, metadata.attempts, factor)
    if metadata.status is EntryStatus.FAILED and now < until:
        return BackOff(until)
    return _run(name, metadata, policy, metadata.attempts + deaths)


def _run(name: str, metadata: EntryMetadata, policy: RetryPolicy, attempts: int) -> Failed | Run:
    if not retry.is_exhausted(policy, attempts):
        return Run(attempts + 1)
    error = StepExhaustedError(name, metadata.error or "ProcessDied: the process died in every attempt")
    error.attempts = attempts
    return Failed(error, is_news=True)


def recorded_failure(name: str, metadata: EntryMetadata, policy: RetryPolicy) -> StepError | RollbackError:
    """The error of a step that history says is exhausted: the same kind, name and message as when it happened."""
    text = metadata.error or ""
    recorded = parse_error(text)
    found = critical_class(recorded.name)
    is_timeout = found is not None and issubclass(found, StepTimeoutError)
    if retry.is_exhausted(policy, metadata.attempts) and (found is None or (is_timeout and policy.retry_on_timeout)):
        error: StepError | RollbackError = StepExhaustedError(name, text or None)
    else:
        # Attempts were left, so it was critical, a timeout or a rollback; the class is found again by its name.
        kind = found or CriticalError
        error = made_again(kind, recorded.message if kind.__name__ == recorded.name else text)
    return claimed(error, name, metadata.attempts)


# --- act -------------------------------------------------------------------------------------------------------------


async def run(scope: Scope, name: str, fn: Callable[..., Any], args: tuple[Any, ...], policy: StepPolicy) -> Any:
    """The step ``name``: its recorded value, or that of ``fn(*args)`` now.

    Raises:
        StepExhaustedError, CriticalError, StepTimeoutError, RollbackError: it ended for good, now or earlier.
    """
    turn = scope.turn
    if policy.rollback is not None and not scope.checkpoint:
        missing = RollbackCheckpointError(
            f"step {name!r} has rollback= but no ctx.rollback_checkpoint(...) came before it"
        )
        raise turn.fail(missing)
    key, entry = scope.open(name, StepEntry)
    if entry is None or type(entry.kind) is not StepEntry or (output := entry.kind.output) is None:
        return await _go_on(scope, name, entry, fn, args, policy)
    # What is replayed most, by the shortest way: the verdict of ``decide`` is the same.
    metadata = turn.storage.find_metadata(entry.id) or EntryMetadata(created_at=turn.clock.now())
    if turn.storage.documents and key is not None:
        scope.see(turn.storage.documents.of(key))
    return _replay(scope, name, entry, metadata, output, fn, policy)


async def _go_on(
    scope: Scope, name: str, entry: Entry | None, fn: Callable[..., Any], args: tuple[Any, ...], policy: StepPolicy
) -> Any:
    """A step that is not completed: try it, wait for its next attempt, or tell that it has ended for good."""
    turn = scope.turn
    while True:
        verdict, metadata = _look(scope, name, entry, policy)
        if turn.charge and turn.storage.is_urgent and _is_news(verdict):
            # Deaths are charged to what starts before this run's first commit: what is not committed yet comes first.
            scope.frontier()
            await turn.before_acting()
            verdict, metadata = _look(scope, name, entry, policy)
        match verdict:
            case Replay(output):
                return _replay(scope, name, entry, metadata, output, fn, policy)
            case Failed(error, is_news):
                if is_news:
                    scope.frontier()
                    await _record_exhausted(scope, name, entry, metadata, error, policy)
                raise error
            case BackOff(until):
                scope.frontier()
                assert entry is not None
                await turn.park(failed(scope, name, entry, metadata.attempts if metadata else 0, policy, until))
            case Run(attempt):
                scope.act(is_step=True)
                await turn.before_acting()
                attempting = Attempt(scope, name, entry, metadata, attempt, policy)
                await attempting.charge()
                is_over, value = await attempting.run(fn, args)
                entry = attempting.entry
                if is_over:
                    if policy.rollback is not None and entry is not None:
                        _keep_undo(scope, name, entry, fn, policy)
                    return value


def _is_news(verdict: Replay | Failed | BackOff | Run) -> bool:
    return isinstance(verdict, Run) or (isinstance(verdict, Failed) and verdict.is_news)


def _look(
    scope: Scope, name: str, entry: Entry | None, policy: StepPolicy
) -> tuple[Replay | Failed | BackOff | Run, EntryMetadata | None]:
    turn = scope.turn
    if entry is None:
        if not turn.charge:
            return Run(1), None
        nothing = EntryMetadata(created_at=turn.clock.now())
        return decide(name, StepEntry(), nothing, policy.retry, turn.clock.now(), turn.charge), None
    metadata = turn.storage.find_metadata(entry.id) or EntryMetadata(created_at=turn.clock.now())
    kind = entry.kind
    assert isinstance(kind, StepEntry)
    if kind.output is not None or metadata.status is EntryStatus.COMPLETED:
        return Replay(kind.output), metadata
    factor = jitter(policy, entry.id, metadata.attempts)
    return decide(name, kind, metadata, policy.retry, turn.clock.now(), turn.charge, factor), metadata


def _replay(
    scope: Scope,
    name: str,
    entry: Entry | None,
    metadata: EntryMetadata | None,
    output: bytes | None,
    fn: Callable[..., Any],
    policy: StepPolicy,
) -> Any:
    assert entry is not None
    assert metadata is not None
    value = recorded_value(scope, name, output, returns(fn, policy))
    if metadata.completed_at is not None:
        scope.finished(metadata.completed_at)
    if policy.rollback is not None and metadata.rollback_completed_at is None:
        _keep_undo(scope, name, entry, fn, policy)
    return value


def _keep_undo(scope: Scope, name: str, entry: Entry, fn: Callable[..., Any], policy: StepPolicy) -> None:
    """Know how to undo a step that is done, where what comes after it fails."""
    turn = scope.turn
    assert policy.rollback is not None
    metadata = turn.storage.find_metadata(entry.id)
    completed_at = None if metadata is None else metadata.completed_at
    turn.undos[entry.id] = Undo(
        entry=entry,
        name=name,
        returns=returns(fn, policy),
        handler=policy.rollback,
        # What a scope had done before is looked up only where it matters.
        completed_at=scope.now() if turn.is_collecting else completed_at or 0,
    )


async def _record_exhausted(
    scope: Scope,
    name: str,
    entry: Entry | None,
    metadata: EntryMetadata | None,
    error: StepError | RollbackError,
    policy: StepPolicy,
) -> None:
    scope.act(is_step=True)
    now = scope.turn.clock.now()
    # The other failures that history knows are no news: the attempt that ended so has recorded it.
    assert isinstance(error, StepExhaustedError)
    text = error.last_error
    if entry is None:
        entry = scope.record(name, StepEntry(error=text))
    known = metadata or EntryMetadata(created_at=now)
    _put(
        scope.turn,
        entry,
        EntryMetadata(
            status=EntryStatus.EXHAUSTED,
            error=text,
            attempts=error.attempts,
            last_attempt_at=known.last_attempt_at,
            created_at=known.created_at,
        ),
    )
    await report(scope.turn, name, error, error.attempts, policy)
    scope.turn.hooks.mark_reported(error)


def _put(turn: Turn, entry: Entry, metadata: EntryMetadata) -> None:
    turn.storage.put_metadata(entry.id, metadata)
    turn.storage.is_urgent = True
