"""What a run tells its observers: history snapshots and error events, to hooks that can do no harm."""

from __future__ import annotations

import inspect
import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from engine.entry import Entry, EntryMetadata
from engine.error_info import ErrorInfo

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.history.storage import Storage

    HistoryHook = Callable[["HistorySnapshot"], Awaitable[None] | None]
    ErrorHook = Callable[["StepErrorEvent | RollbackErrorEvent | RunErrorEvent"], Awaitable[None] | None]

_REPORTED_MAX = 256
"""Errors that are remembered as reported. Design choice: one is asked about soon, while it is on its way up."""

_log = logging.getLogger("torpor")


class HistorySnapshot(Struct, frozen=True, kw_only=True):
    """A history as of one flush: names by index, entries by key order, metadata by entry id."""

    name_registry: list[str]
    entries: list[Entry]
    entry_metadata: dict[str, EntryMetadata]


class StepErrorEvent(Struct, frozen=True, kw_only=True):
    """A step's attempt failed; ``retry_delay`` is in seconds, ``retry_at`` in milliseconds since the epoch."""

    workflow_id: str
    step_name: str
    attempt: int
    max_retries: int
    remaining_retries: int
    will_retry: bool
    retry_delay: float | None = None
    retry_at: int | None = None
    error: ErrorInfo


class RollbackErrorEvent(Struct, frozen=True, kw_only=True):
    """A rollback handler failed."""

    workflow_id: str
    step_name: str
    error: ErrorInfo


class RunErrorEvent(Struct, frozen=True, kw_only=True):
    """The workflow failed with an error that no step event has reported yet."""

    workflow_id: str
    error: ErrorInfo


class Hooks:
    """The observers of one run. A hook that raises is logged and ignored."""

    __slots__ = ("_on_error", "_on_history_updated", "_reported")

    def __init__(self, on_history_updated: HistoryHook | None = None, on_error: ErrorHook | None = None) -> None:
        self._on_history_updated = on_history_updated
        self._on_error = on_error
        self._reported: deque[BaseException] = deque(maxlen=_REPORTED_MAX)

    @property
    def wants_history(self) -> bool:
        """Whether anyone listens for snapshots."""
        return self._on_history_updated is not None

    async def history_updated(self, storage: Storage) -> None:
        """Tell that history changed."""
        if self._on_history_updated is not None:
            await _call(self._on_history_updated, snapshot(storage))

    async def failed(self, event: StepErrorEvent | RollbackErrorEvent | RunErrorEvent) -> None:
        """Tell of an error."""
        if self._on_error is not None:
            await _call(self._on_error, event)

    def mark_reported(self, error: BaseException) -> None:
        """Remember that observers know of ``error``, so that the run does not tell them again."""
        self._reported.append(error)

    def is_reported(self, error: BaseException) -> bool:
        """Whether observers know of ``error``."""
        return any(error is reported for reported in self._reported)

    @property
    def wants_errors(self) -> bool:
        """Whether anyone listens for errors."""
        return self._on_error is not None


async def _call(hook: Callable[[Any], Awaitable[None] | None], argument: object) -> None:
    try:
        answer = hook(argument)
        if inspect.isawaitable(answer):
            await answer
    except Exception:  # noqa: BLE001 - a hook is foreign code
        _log.exception("a hook raised; ignored")


def snapshot(storage: Storage) -> HistorySnapshot:
    """The history as it is in memory."""
    return HistorySnapshot(
        name_registry=list(storage.names),
        entries=[entry for _, entry in storage.entries()],
        entry_metadata=storage.all_metadata(),
    )
