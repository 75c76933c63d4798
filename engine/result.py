"""How a run of a workflow ended."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

from engine import values
from engine.errors import WorkflowFailedError
from engine.lifecycle import WorkflowState

T = TypeVar("T")


class WorkflowResult(Struct, Generic[T], frozen=True, kw_only=True):
    """How a run ended.

    ``output`` is set where ``state`` is completed. Where it is sleeping, ``sleep_until`` is the alarm
    (milliseconds since the epoch), ``waiting_for_messages`` the names waited for (``[]`` = any) and
    ``waiting_for_workflows`` the ids of those whose end is waited for, each None where there is none.
    """

    state: WorkflowState
    output: T | None = None
    sleep_until: int | None = None
    waiting_for_messages: list[str] | None = None
    waiting_for_workflows: list[str] | None = None


def stored_failure(stored: bytes | None) -> WorkflowFailedError:
    """The failure that a workflow's stored error tells of."""
    if stored is None:
        return WorkflowFailedError("Error", "the workflow failed")
    error = values.decode_error(stored)
    return WorkflowFailedError(error.name, error.message, error.metadata)
