"""try_step and try_block: failures that have ended for good become values; everything else passes through."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from msgspec import Struct

from engine.error_info import error_message, error_name, parse_error
from engine.errors import (
    CriticalError,
    JoinError,
    RaceError,
    RecordedError,
    RollbackError,
    StepError,
    StepExhaustedError,
    StepTimeoutError,
    WorkflowEndedError,
    WorkflowFailedError,
)
from engine.ops.branch import nested

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.scope import Scope

T = TypeVar("T")

StepFailureKind = Literal["critical", "timeout", "exhausted", "rollback"]
FailureSource = Literal["step", "join", "race", "block", "workflow"]

BlockFailureKind = FailureSource | Literal["rollback"]

# Tuples are named apart: of one that is given as a collection, type checkers do not see that its texts are literals.
StepCatch = tuple[StepFailureKind, ...] | Collection[StepFailureKind]
"""Which failures of a step become a result."""

BlockCatch = tuple[BlockFailureKind, ...] | Collection[BlockFailureKind]
"""What of a block becomes a result: the failure of what, or a rollback, wherever it was asked for."""

STEP_CATCH: StepCatch = ("critical", "timeout", "exhausted")
BLOCK_CATCH: BlockCatch = ("step", "join", "race", "workflow")


class Failure(Struct, frozen=True, kw_only=True):
    """A failure that was caught.

    ``kind`` is set where a step failed, ``source`` says what failed (``workflow``: another one, for whose output this
    one waited), ``name`` is that operation's name, ``attempts`` how often the step was started (0 for others).
    ``error`` is the same live and on replay.
    """

    source: FailureSource
    kind: StepFailureKind | None = None
    name: str
    attempts: int = 0
    error: RecordedError


class TryResult(Struct, Generic[T], frozen=True, kw_only=True):
    """``ok`` with a ``value``, or not ok with a ``failure``."""

    ok: bool
    value: T | None = None
    failure: Failure | None = None


def step_failure(error: Exception) -> Failure | None:
    """``error`` as a step's failure, or None where no step failed."""
    if not isinstance(error, (StepError, RollbackError)) or not error.step_name:
        return None
    return Failure(
        source="step", kind=_kind(error), name=error.step_name, attempts=error.attempts, error=_recorded(error)
    )


def _kind(error: StepError | RollbackError) -> StepFailureKind:
    match error:
        case RollbackError():
            return "rollback"
        case StepTimeoutError():
            return "timeout"
        case StepExhaustedError(last_error=str(text)) if text.startswith(StepTimeoutError.__name__):
            return "timeout"
        case CriticalError():
            return "critical"
        case _:
            return "exhausted"


def _recorded(error: Exception) -> RecordedError:
    if isinstance(error, StepExhaustedError) and error.last_error is not None:
        return parse_error(error.last_error)
    return RecordedError(error_name(error), error_message(error))


def block_failure(name: str, error: Exception) -> Failure | None:
    """``error`` as what a block may catch, or None."""
    failure = step_failure(error)
    if failure is not None:
        return failure
    match error:
        case JoinError():
            return Failure(source="join", name=error.operation or name, error=_recorded(error))
        case RaceError():
            return Failure(source="race", name=error.operation or name, error=_recorded(error))
        case RollbackError():
            return Failure(source="block", kind="rollback", name=name, error=_recorded(error))
        case WorkflowFailedError() | WorkflowEndedError() if error.operation:
            return Failure(source="workflow", name=error.operation, error=_recorded(error))
        case _:
            return None


async def try_step(work: Callable[[], Awaitable[T]], catch: StepCatch) -> TryResult[T]:
    """The step ``work`` as a result."""
    try:
        return TryResult(ok=True, value=await work())
    except (StepError, RollbackError) as error:
        failure = step_failure(error)
        if failure is None or failure.kind not in catch:
            raise
        return TryResult(ok=False, failure=failure)


async def try_block(
    scope: Scope,
    name: str,
    body: Callable[[Scope], Awaitable[Any]],
    catch: BlockCatch,
) -> TryResult[Any]:
    """``body`` in a scope of its own, its failure as a result. The block itself leaves no entry."""
    inner = nested(scope, name, "a try_block")
    try:
        value = await body(inner)
        inner.close()
    except (StepError, RollbackError, JoinError, RaceError, WorkflowFailedError, WorkflowEndedError) as error:
        failure = block_failure(name, error)
        if failure is None or not _is_caught(failure, catch):
            raise
        return TryResult(ok=False, failure=failure)
    finally:
        scope.finished(0, composite=inner.key)
    return TryResult(ok=True, value=value)


def _is_caught(failure: Failure, catch: Collection[str]) -> bool:
    return "rollback" in catch if failure.kind == "rollback" else failure.source in catch
