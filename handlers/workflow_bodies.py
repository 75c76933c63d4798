"""Workflows as they stand in answers: what is known of one, its operations, its inbox, its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from engine.lifecycle import WorkflowState
from engine.values import decode, decode_error
from handlers.calls import Answer, instant
from handlers.origins import told_origin

if TYPE_CHECKING:
    from adapters.dynamodb.query import Description, Outcome
    from engine.commit import Retrying
    from engine.entry import Message
    from engine.inspect import Operation

RETRY_AFTER_S = 1
"""Seconds in ``Retry-After`` of an output that is not there yet. Design choice."""


def described(found: Description) -> dict[str, Any]:
    """What HEAD tells of a workflow."""
    return {
        "id": found.workflow_id,
        "type": found.type,
        "state": str(found.state),
        "tags": found.tags,
        **told_origin(found.origin),
        "created_at": instant(found.created_at),
        "updated_at": instant(found.updated_at),
        "ended_at": instant(found.ended_at),
        "prune_at": instant(found.prune_at),
        "pruned_at": instant(found.pruned_at),
        "wake_at": instant(found.wake_at),
        "retrying": [_described_step(step) for step in found.retrying],
        "waiting_for": None if found.waiting_for is None else list(found.waiting_for),
        "wakes": found.wakes,
        "deaths": found.deaths,
        "is_running": found.is_running,
    }


def _described_step(step: Retrying) -> dict[str, Any]:
    return {
        "entry_id": step.entry_id,
        "location": step.location,
        "attempts": step.attempts,
        "attempts_max": step.attempts_max,
        "error": step.error,
        "retry_at": instant(step.retry_at),
    }


def described_entry(operation: Operation, retrying: Retrying | None) -> dict[str, Any]:
    """What history tells of an operation; ``retrying`` where HEAD tells of it, too."""
    told = {name: value for name, value in asdict(operation).items() if name not in {"key", "has_value"}}
    return {
        **told,
        "branches": [asdict(branch) for branch in operation.branches],
        "attempts_max": None if retrying is None else retrying.attempts_max,
        "retry_at": None if retrying is None else instant(retrying.retry_at),
    }


def described_message(message: Message) -> dict[str, Any]:
    """A message in an inbox."""
    return {
        "id": message.id,
        "name": message.name,
        "body": decode(message.body),
        "sent_at": instant(message.sent_at),
        **told_origin(message.origin),
    }


def ending(workflow_id: str, outcome: Outcome) -> Answer:
    """How a workflow ended, or that it has not."""
    value: dict[str, Any] = {"id": workflow_id, "state": str(outcome.state)}
    match outcome.state:
        case WorkflowState.COMPLETED:
            return Answer(value={**value, "output": None if outcome.output is None else decode(outcome.output)})
        case WorkflowState.FAILED:
            return Answer(value={**value, "error": _error(outcome.error)})
        case WorkflowState.CANCELLED:
            return Answer(value=value)
    return Answer(status=202, value=value, headers={"retry-after": str(RETRY_AFTER_S)})


def _error(stored: bytes | None) -> dict[str, Any] | None:
    if stored is None:
        return None
    error = decode_error(stored)
    # Not the stack: where the code lies on disk is nothing for a caller.
    return {"name": error.name, "message": error.message, "metadata": error.metadata or {}}
