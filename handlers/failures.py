"""What the log is told of failures: in an author's code which step or workflow, and where, but no values."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

from engine.error_info import ErrorInfo, error_info
from engine.errors import CallerError, DriverError, OperatorError, WorkflowFailedError
from engine.history.hooks import RollbackErrorEvent, StepErrorEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.history.hooks import RunErrorEvent

logger = logging.getLogger(__name__)


def tell_attempt(workflow_type: str, event: StepErrorEvent | RollbackErrorEvent | RunErrorEvent) -> None:
    """One warning for a failed attempt of a step, or of a step's undo; a run's end is told by ``tell_end``."""
    match event:
        case StepErrorEvent():
            more = {"step_name": event.step_name, "attempt": event.attempt, "will_retry": event.will_retry}
            _tell("step failed", event.workflow_id, workflow_type, event.error, more)
        case RollbackErrorEvent():
            _tell("rollback failed", event.workflow_id, workflow_type, event.error, {"step_name": event.step_name})


def tell_end(workflow_type: str, workflow_id: str, error: BaseException) -> None:
    """One warning for a workflow that has failed with ``error``."""
    more = {name: value for name in ("step_name", "attempts") if (value := getattr(error, name, None))}
    _tell("workflow failed", workflow_id, workflow_type, error_info(error), more)


def told(error: BaseException) -> dict[str, str]:
    """What a log may know of an error: our own errors say nothing of payloads, an author's may."""
    kind = type(error).__name__
    match error:
        case WorkflowFailedError():
            # What it says is what another workflow's error says, whose author may have put anything there.
            return {"error": f"{kind}: {_class_name(error.name)}"}
        case OperatorError() | CallerError():
            return {"error": f"{kind}: {error}"}
    return {"error": kind}


@contextlib.contextmanager
def losing_nothing(what: str, workflow_id: str) -> Iterator[None]:
    """A call whose failure costs a delay: what it was for is stored as due, and the sweeper finds it."""
    try:
        yield
    except DriverError as error:
        logger.warning(what, extra={"workflow_id": workflow_id, **told(error)})


def _tell(what: str, workflow_id: str, workflow_type: str, error: ErrorInfo, more: dict[str, Any]) -> None:
    fields = {
        "workflow_id": workflow_id,
        "type": workflow_type,
        **more,
        "error": _class_name(error.name),
        "frames": error.frames,
    }
    if logger.isEnabledFor(logging.DEBUG):
        # Not the error's own stack: it holds messages, and they hold values, which no level of the log may tell.
        fields["stack"] = "\n".join(error.all_frames)
    logger.warning(what, extra=fields)


def _class_name(name: str) -> str:
    """A class has a name; one that was read from a stored text may be any text."""
    return name if name.isidentifier() else "Error"
