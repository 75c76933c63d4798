"""Every error of the engine, drawn once, split by who must act.

::

    Exception
     └─ TorporError
         ├─ AuthorError                     the author of the workflow must change code
         │   ├─ HistoryDivergedError          code and history disagree
         │   ├─ EntryInProgressError          an operation was not awaited, or two run side by side
         │   ├─ RollbackCheckpointError       rollback= before any rollback_checkpoint
         │   ├─ YieldSwallowedError           workflow code caught the engine's control flow
         │   ├─ LoopResultError               a stateful loop body returned None
         │   └─ UnstorableValueError          a value that has no stored form (also a CriticalError)
         ├─ StepError                       a step ended for good; workflow code may catch it
         │   ├─ StepExhaustedError            every attempt failed
         │   └─ CriticalError                 raised by authors: do not retry
         │       └─ StepTimeoutError          the step outlived its timeout
         ├─ RollbackError                   raised by authors: do not retry, undo
         ├─ JoinError, RaceError            branches failed
         ├─ QueueTimeoutError               queue.next saw its deadline pass
         ├─ MessageNotCompletedError        a completable message is still open
         ├─ StateConflictError              two activities changed the document at once; tried again
         ├─ RecordedError                   an error read back from history
         ├─ CallerError                     whoever called from outside must change the call
         │   ├─ WorkflowFailedError           the workflow ended in failure
         │   ├─ WorkflowNotFoundError, WorkflowEndedError, WorkflowNotEndedError
         │   ├─ UnknownTypeError
         │   ├─ StartConflictError ─ ChildRefusedError
         │   ├─ InvalidIdError, InvalidReplayError, InvalidScheduleError, ValueTooLargeError
         └─ OperatorError                   whoever runs the system must look
             ├─ StalledError                  the process died again and again outside any step
             ├─ UnknownVersionError           stored by a newer or foreign engine
             ├─ CorruptHistoryError           stored bytes that cannot be read
             └─ DriverError                   the store failed; the run may be tried again
                 ├─ CommitTooLarge              a flush beyond the driver's limits
                 ├─ CommitInFlightError         two commits at once under one lease
                 └─ StoreUnavailableError       throttled, unreachable or refused

    BaseException
     └─ ControlFlow                         never to be caught by workflow code
         ├─ Yield: SleepError, MessageWaitError, WorkflowWaitError, StepFailedError
         ├─ EvictedError ─ FencedError        the run must stop; somebody else holds the lease
         ├─ RollbackStopError                 the read-only replay reached the frontier
         ├─ CancelledError                    a race was decided for another branch
         └─ InboxMovedError                   a message or an end came between load and yield
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class TorporError(Exception):
    """Root of every error that code outside the engine may catch."""


# --- the author ---------------------------------------------------------------------------------------------------


class AuthorError(TorporError):
    """The workflow's code must change; running it again cannot help."""


class HistoryDivergedError(AuthorError):
    """Workflow code and recorded history disagree; the message names the location and the remedy."""


class EntryInProgressError(AuthorError):
    """An operation was started while another of the same scope was unfinished or never awaited."""


class RollbackCheckpointError(AuthorError):
    """A step with ``rollback=`` was reached before any ``rollback_checkpoint``."""


class YieldSwallowedError(AuthorError):
    """Workflow code caught the engine's control flow (a bare ``except`` or ``except BaseException``)."""


class LoopResultError(AuthorError):
    """A loop body returned neither ``Continue`` nor ``Break`` though the loop has a state."""


# --- the workflow itself ------------------------------------------------------------------------------------------


class StepError(TorporError):
    """A step ended for good.

    Attributes:
        step_name: the step's name, or ``""`` where an author raised the error and no step has claimed it yet.
        attempts: how many times the function was started.
    """

    step_name: str = ""
    attempts: int = 0


class StepExhaustedError(StepError):
    """Every attempt of a step failed; ``last_error`` is the text ``Name: message`` of the last one."""

    def __init__(self, step_name: str, last_error: str | None = None) -> None:
        super().__init__(f'Step "{step_name}" exhausted retries: {last_error or "unknown error"}')
        self.step_name = step_name
        self.last_error = last_error


class CriticalError(StepError):
    """Raise it (or a subclass) in a step to fail at once, without further attempts."""


NonRetryable = CriticalError
"""The name of ``CriticalError`` that suits activities."""


class StepTimeoutError(CriticalError):
    """A step outlived its ``timeout``; ``timeout_s`` is that timeout in seconds."""

    timeout_s: float = 0.0


class UnstorableValueError(AuthorError, CriticalError):
    """A value has no stored form, or is larger than the driver can keep; names the path inside it and the type."""


class RollbackError(TorporError):
    """Raise it in a step to fail at once and, where nobody catches it, to undo the completed steps.

    ``step_name`` and ``attempts`` are as those of a ``StepError``.
    """

    step_name: str = ""
    attempts: int = 0


class RecordedError(TorporError):
    """An error read back from history, and the only one that can be stored: its class's ``name``, its ``message``."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name
        self.message = message

    @classmethod
    def __torpor_read_back__(cls, plain: Mapping[str, str], _arguments: object) -> RecordedError:
        return cls(plain["name"], plain["message"])


class JoinError(TorporError):
    """Branches of the join ``operation`` failed; ``errors`` maps each of them to its error, live as on replay."""

    def __init__(self, errors: Mapping[str, RecordedError], operation: str = "") -> None:
        super().__init__(f"Join failed: {_told(errors)}")
        self.errors = dict(errors)
        self.operation = operation


class RaceError(TorporError):
    """Every branch of the race ``operation`` failed; ``errors`` maps each to its error, live as on replay."""

    def __init__(self, errors: Mapping[str, RecordedError], operation: str = "") -> None:
        super().__init__(f"All branches failed: {_told(errors)}")
        self.errors = dict(errors)
        self.operation = operation


_BRANCHES_TOLD_MAX = 5
"""Branches whose errors the text of a JoinError or RaceError tells; all are in its ``errors``. Design choice."""

_CHARACTERS_TOLD_MAX = 200
"""Characters of each that it tells. Design choice."""


def _told(errors: Mapping[str, RecordedError]) -> str:
    told = [f"{branch} ({error.name}: {error.message[:_CHARACTERS_TOLD_MAX]})" for branch, error in errors.items()]
    more = len(told) - _BRANCHES_TOLD_MAX
    return ", ".join(told[:_BRANCHES_TOLD_MAX]) + (f" and {more} more" if more > 0 else "")


class QueueTimeoutError(TorporError):
    """``queue.next`` saw its deadline pass without a message; use ``next_batch`` for optional reads."""


class MessageNotCompletedError(TorporError):
    """The next message was asked for while a completable one is still open: ``await message.complete(...)`` first."""


class StateConflictError(TorporError):
    """Another activity changed the workflow's document since this attempt began: it has failed, and may be retried."""


# --- the caller ---------------------------------------------------------------------------------------------------


class CallerError(TorporError):
    """The call from outside must change."""


class WorkflowFailedError(CallerError):
    """The workflow had ended in failure; ``name`` and ``message`` are those of its stored error.

    ``operation`` is the ``ctx.output`` that raised it, ``""`` where it comes from outside a workflow.
    """

    operation: str = ""

    def __init__(self, name: str, message: str, metadata: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"{name}: {message}" if message else name)
        self.name = name
        self.message = message
        self.metadata = dict(metadata or {})


class WorkflowNotFoundError(CallerError):
    """No workflow has this id."""


class WorkflowEndedError(CallerError):
    """The workflow is completed, failed or cancelled and takes no more messages.

    From ``ctx.output``, whose name is ``operation`` then: it was cancelled, and has no output.
    """

    operation: str = ""


class WorkflowNotEndedError(CallerError):
    """The workflow has not ended, and only what has ended can be purged."""


class UnknownTypeError(CallerError):
    """No workflow is registered under this type in the deployed build."""


class StartConflictError(CallerError):
    """A workflow with this id exists already with another type or input, or is being purged."""


class ChildRefusedError(StartConflictError):
    """A commit was to start the child ``workflow_id``, and cannot.

    Attributes:
        workflow_id: the id that was asked for.
        existing: the workflow that is there in its place and serves as well: the same start under the same id, or, of a
            unique type and tags, the one that has not ended; None where there is a conflict.
    """

    workflow_id: str = ""
    existing: str | None = None


class InvalidIdError(CallerError):
    """A workflow id, message id, name or tag breaks its rule; the message states the rule."""


class InvalidReplayError(CallerError):
    """``replay_workflow_from_step`` was asked for something that is no replayable step."""


class InvalidScheduleError(CallerError):
    """A schedule that cannot be: its cron expression, time zone, interval, time or range; the message says what can."""


class ValueTooLargeError(CallerError):
    """An input or message body is larger than the store can keep; the message states both sizes."""


# --- the operator -------------------------------------------------------------------------------------------------


class OperatorError(TorporError):
    """Whoever runs the system must look; the workflow itself did nothing wrong."""


class StalledError(OperatorError):
    """The process died again and again with no step in flight; ``recover()`` clears it."""


class UnknownVersionError(OperatorError):
    """Stored bytes carry a format version that this engine does not know; it never guesses."""


class CorruptHistoryError(OperatorError):
    """Stored bytes cannot be read; the message names the key."""


class DriverError(OperatorError):
    """The store failed. State and history stay as last committed; whoever runs the workflow next goes on."""


class CommitTooLarge(DriverError):  # noqa: N818 - the name of the design
    """A flush is beyond the driver's limits and was refused whole; names the size and the largest entry."""


class CommitInFlightError(DriverError):
    """A second commit was started while one is in flight under the same lease: a bug of the engine."""


class StoreUnavailableError(DriverError):
    """The store could not be reached, or kept refusing, for as long as we were willing to try."""


# --- control flow -------------------------------------------------------------------------------------------------


class ControlFlow(BaseException):
    """The engine's own signals. ``except Exception`` does not catch them, and workflow code must not either."""


class Yield(ControlFlow):
    """The run must wait; the subclasses say for what. Times are integer milliseconds since the epoch, UTC.

    ``awaited`` are ids of other workflows, of which one's end is waited for too, ``failed`` the steps that are tried
    again.
    """

    deadline: int | None = None
    names: tuple[str, ...] | None = None
    awaited: tuple[str, ...] = ()
    failed: tuple[StepFailedError, ...] = ()


class SleepError(Yield):
    """Sleep until ``deadline``, or until a message of ``names`` comes where names are given (``()`` = any name)."""

    def __init__(self, deadline: int, names: Sequence[str] | None = None, awaited: Sequence[str] = ()) -> None:
        super().__init__(f"Sleeping until {deadline}")
        self.deadline = deadline
        self.names = None if names is None else tuple(names)
        self.awaited = tuple(awaited)


class MessageWaitError(Yield):
    """Wait for a message of ``names`` (``()`` = any name)."""

    def __init__(self, names: Sequence[str], awaited: Sequence[str] = ()) -> None:
        super().__init__(f"Waiting for messages: {', '.join(names) or '*'}")
        self.names = tuple(names)
        self.awaited = tuple(awaited)


class WorkflowWaitError(Yield):
    """Wait until one of the workflows ``awaited`` has ended."""

    def __init__(self, awaited: Sequence[str]) -> None:
        super().__init__(f"Waiting for workflows: {', '.join(awaited)}")
        self.awaited = tuple(awaited)


class StepFailedError(Yield):
    """A step failed and will be tried again at ``deadline``: ``attempts`` it had, ``attempts_max`` (0: unknown) it may.

    ``entry_id`` and ``location``, such as ``orders/~3/charge``, are where history has it, ``error`` is the text
    ``Name: message`` of its latest failure.
    """

    def __init__(
        self,
        step_name: str,
        attempts: int,
        deadline: int,
        *,
        attempts_max: int = 0,
        entry_id: str = "",
        location: str = "",
        error: str = "",
    ) -> None:
        super().__init__(f'Step "{step_name}" failed (attempt {attempts})')
        self.step_name = step_name
        self.attempts = attempts
        self.attempts_max = attempts_max
        self.entry_id = entry_id
        self.location = location or step_name
        self.error = error
        self.deadline = deadline


class EvictedError(ControlFlow):
    """The run must stop here; history is kept and another run goes on. Also: the workflow was cancelled."""


class FencedError(EvictedError):
    """Somebody else holds the lease: stop at once, write nothing, report nothing."""


class RollbackStopError(ControlFlow):
    """The read-only replay that collects undos reached the first incomplete entry."""


class CancelledError(ControlFlow):
    """Another branch won the race."""


class InboxMovedError(ControlFlow):
    """A message arrived between load and yield, or an awaited workflow ended; the yield was refused. Look again."""
