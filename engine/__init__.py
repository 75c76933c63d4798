"""torpor's engine: durable workflows as ordinary async functions, replayed from a key-value history.

This package is pure Python and knows no cloud: `engine.driver` has the ports, `engine.testing` a driver in memory.
"""

from engine.author.activities import Activity, ActivityContext, activity, operation
from engine.author.context import Context
from engine.author.dispatching import ChildId
from engine.author.message_types import message, message_name
from engine.author.queue_context import Message, Queue
from engine.author.registry import REGISTRY, Registry, Workflow, workflow
from engine.driver import Clock, EngineDriver, MessageDriver
from engine.error_info import ErrorInfo
from engine.errors import (
    AuthorError,
    CallerError,
    CommitTooLarge,
    CriticalError,
    DriverError,
    EntryInProgressError,
    EvictedError,
    FencedError,
    HistoryDivergedError,
    JoinError,
    LoopResultError,
    MessageNotCompletedError,
    MessageWaitError,
    NonRetryable,
    OperatorError,
    QueueTimeoutError,
    RaceError,
    RecordedError,
    RollbackCheckpointError,
    RollbackError,
    SleepError,
    StalledError,
    StartConflictError,
    StateConflictError,
    StepError,
    StepExhaustedError,
    StepFailedError,
    StepTimeoutError,
    TorporError,
    UnknownTypeError,
    UnstorableValueError,
    WorkflowEndedError,
    WorkflowFailedError,
    WorkflowNotFoundError,
    WorkflowWaitError,
    YieldSwallowedError,
)
from engine.handle import (
    NO_OUTPUT,
    NoOutput,
    WorkflowHandle,
    recover_workflow,
    replay_workflow_from_step,
    run_workflow,
)
from engine.history.hooks import HistorySnapshot, RollbackErrorEvent, RunErrorEvent, StepErrorEvent
from engine.lifecycle import WorkflowState
from engine.ops.attempt import StepContext, step_context
from engine.ops.loop import Break, Continue
from engine.ops.race import RaceResult
from engine.ops.recovery import Failure, TryResult
from engine.ops.rollback import RollbackContext
from engine.result import WorkflowResult
from engine.schedules.identity import scheduled_at

__all__ = [
    "NO_OUTPUT",
    "REGISTRY",
    "Activity",
    "ActivityContext",
    "AuthorError",
    "Break",
    "CallerError",
    "ChildId",
    "Clock",
    "CommitTooLarge",
    "Context",
    "Continue",
    "CriticalError",
    "DriverError",
    "EngineDriver",
    "EntryInProgressError",
    "ErrorInfo",
    "EvictedError",
    "Failure",
    "FencedError",
    "HistoryDivergedError",
    "HistorySnapshot",
    "JoinError",
    "LoopResultError",
    "Message",
    "MessageDriver",
    "MessageNotCompletedError",
    "MessageWaitError",
    "NoOutput",
    "NonRetryable",
    "OperatorError",
    "Queue",
    "QueueTimeoutError",
    "RaceError",
    "RaceResult",
    "RecordedError",
    "Registry",
    "RollbackCheckpointError",
    "RollbackContext",
    "RollbackError",
    "RollbackErrorEvent",
    "RunErrorEvent",
    "SleepError",
    "StalledError",
    "StartConflictError",
    "StateConflictError",
    "StepContext",
    "StepError",
    "StepErrorEvent",
    "StepExhaustedError",
    "StepFailedError",
    "StepTimeoutError",
    "TorporError",
    "TryResult",
    "UnknownTypeError",
    "UnstorableValueError",
    "Workflow",
    "WorkflowEndedError",
    "WorkflowFailedError",
    "WorkflowHandle",
    "WorkflowNotFoundError",
    "WorkflowResult",
    "WorkflowState",
    "WorkflowWaitError",
    "YieldSwallowedError",
    "activity",
    "message",
    "message_name",
    "operation",
    "recover_workflow",
    "replay_workflow_from_step",
    "run_workflow",
    "scheduled_at",
    "step_context",
    "workflow",
]
