"""The states of a workflow and which may follow which, as a table."""

from __future__ import annotations

from enum import StrEnum


class WorkflowState(StrEnum):
    """A workflow's state; the values are the stored texts. An absent state reads as ``pending``."""

    PENDING = "pending"
    RUNNING = "running"
    SLEEPING = "sleeping"
    FAILED = "failed"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    ROLLING_BACK = "rolling_back"


_S = WorkflowState

NEXT: dict[WorkflowState, frozenset[WorkflowState]] = {
    _S.PENDING: frozenset({_S.RUNNING, _S.SLEEPING, _S.COMPLETED, _S.FAILED, _S.ROLLING_BACK, _S.CANCELLED}),
    _S.RUNNING: frozenset({_S.SLEEPING, _S.COMPLETED, _S.FAILED, _S.ROLLING_BACK, _S.CANCELLED}),
    _S.SLEEPING: frozenset({_S.RUNNING, _S.COMPLETED, _S.FAILED, _S.ROLLING_BACK, _S.CANCELLED}),
    # To failed where a failure began it, to cancelled where cancel(rollback=True) did, or a cancel that did not wait; a
    # replay makes of it what it makes of any other.
    _S.ROLLING_BACK: frozenset({_S.FAILED, _S.CANCELLED, _S.SLEEPING}),
    # Only a request from outside leaves an ended state: recover() and replay both go to sleeping.
    _S.FAILED: frozenset({_S.SLEEPING}),
    _S.COMPLETED: frozenset({_S.SLEEPING}),
    _S.CANCELLED: frozenset({_S.SLEEPING}),
}
"""What may follow each state; nothing that the engine stores is another move. Staying in a state is none."""

ENDED = frozenset({WorkflowState.COMPLETED, WorkflowState.FAILED, WorkflowState.CANCELLED})
"""The states in which a workflow never runs again unless told to."""

OVER = ENDED - {WorkflowState.FAILED}
"""Those of them in which it leaves its place, where it was the only one of its kind, and may be forgotten after a
while: what has failed may be recovered, and keeps both its place and its history."""


def is_allowed(state: WorkflowState, following: WorkflowState) -> bool:
    """Whether ``following`` may come after ``state``."""
    return following is state or following in NEXT[state]
