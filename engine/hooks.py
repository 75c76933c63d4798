"""What a run tells its observers: history snapshots and error events, to hooks that can do no harm."""

from __future__ import annotations

import inspect
import logging
import traceback
from collections import deque
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from engine import limits
from engine.entry import Entry, EntryMetadata
from engine.errors import RecordedError, WorkflowFailedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.storage import Storage

    HistoryHook = Callable[["HistorySnapshot"], Awaitable[None] | None]
    ErrorHook = Callable[["StepErrorEvent | RollbackErrorEvent | RunErrorEvent"], Awaitable[None] | None]

_REPORTED_MAX = 256

_log = logging.getLogger("torpor")


class HistorySnapshot(Struct, frozen=True, kw_only=True):
    """A history as of one flush: names by index, entries by key order, metadata by entry id."""

    name_registry: list[str]
    entries: list[Entry]
    entry_metadata: dict[str, EntryMetadata]


class ErrorInfo(Struct, frozen=True, kw_only=True):
    """An exception as it is stored: ``metadata`` holds its scalar attributes."""

    name: str
    message: str
    stack: str | None = None
    metadata: dict[str, Any] = {}


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
        # Long-lived runs meet many errors; only those that are still on their way up are asked about.
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


def error_name(error: BaseException) -> str:
    """The class name under which an exception is stored; a recorded error keeps the one it had."""
    if isinstance(error, (RecordedError, WorkflowFailedError)):
        return error.name
    return type(error).__name__


def error_message(error: BaseException) -> str:
    """The text of an exception; never raises, whatever the exception's ``__str__`` does."""
    try:
        return shortened(str(error), limits.ERROR_TEXT_CHARACTERS_MAX)
    except Exception as failure:  # noqa: BLE001 - an exception's own __str__ is user code
        return f"<text unavailable: {type(failure).__name__}>"


def error_text(error: BaseException) -> str:
    """The stored text ``Name: message``; the name alone where there is no message."""
    message = error_message(error)
    return f"{error_name(error)}: {message}" if message else error_name(error)


def shortened(text: str, most: int) -> str:
    """``text`` with its middle cut out where it is longer than ``most`` characters: both ends tell the most."""
    if len(text) <= most:
        return text
    note = f" ... [{len(text)} characters] ... "
    half = (most - len(note)) // 2
    return text[:half] + note + text[-half:]


def error_info(error: BaseException, *, with_stack: bool = True) -> ErrorInfo:
    """An exception as it is stored."""
    return ErrorInfo(
        name=error_name(error),
        message=error_message(error),
        stack=_stack(error) if with_stack else None,
        metadata=_scalars(error),
    )


def _stack(error: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception(error))
    except Exception as failure:  # noqa: BLE001 - it calls the exception's own __str__ and __repr__
        text = f"<stack unavailable: {type(failure).__name__}>"
    return shortened(text, limits.ERROR_STACK_CHARACTERS_MAX)


def _scalars(error: BaseException) -> dict[str, Any]:
    attributes = getattr(error, "__dict__", {})
    return {
        key: shortened(value, limits.ERROR_TEXT_CHARACTERS_MAX) if type(value) is str else value
        for key, value in attributes.items()
        if not key.startswith("_")
        and key not in ("name", "message", "stack")
        and (value is None or type(value) in (str, int, float, bool))
    }


def parse_error(text: str) -> RecordedError:
    """The error whose stored text is ``text``."""
    name, separator, message = text.partition(": ")
    if not separator:
        # A message without a name, as foreign writers store it, or a name without a message.
        return RecordedError(text, "") if text.isidentifier() else RecordedError("Error", text)
    return RecordedError(name, message)
