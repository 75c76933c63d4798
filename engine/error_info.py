"""An exception as history, observers and logs have it: its name, its text, where it came from, and back again."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from engine import limits
from engine.errors import RecordedError, WorkflowFailedError

if TYPE_CHECKING:
    import types

_FRAMES_MAX = 16
"""Frames told of one exception, those nearest to where it was raised. Design choice: a recursion has a thousand."""

_CAUSES_MAX = 8
"""Exceptions of a chain of causes whose frames are told. Design choice."""

_NOT_THE_AUTHORS = frozenset({"engine", "handlers", "adapters", "asyncio", "concurrent"})
"""Packages whose frames lie between the author's: ours, and those that carry a function to its thread and back."""


class ErrorInfo(Struct, frozen=True, kw_only=True):
    """An exception as it is stored: ``metadata`` holds its scalar attributes.

    ``frames`` says where it came from without a word of what it says, for logs: ``"file:line function"``, its first
    cause's first, each down to where it was raised. Torpor's own are left out where others remain, and are in
    ``all_frames``.
    """

    name: str
    message: str
    stack: str | None = None
    metadata: dict[str, Any] = {}
    frames: list[str] = []
    all_frames: list[str] = []


def error_name(error: BaseException) -> str:
    """The class name under which an exception is stored; a recorded error keeps the one it had."""
    if isinstance(error, (RecordedError, WorkflowFailedError)):
        return error.name
    return type(error).__name__


def error_message(error: BaseException) -> str:
    """The text of an exception as it is stored, so that it is the same live as on replay; never raises."""
    try:
        # The text of the other workflow's failure begins with its name, which is told beside it.
        text = error.message if isinstance(error, WorkflowFailedError) else str(error)
        return _clean(text)
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
    links = [list(traceback.walk_tb(link.__traceback__)) for link in _causes(error)]
    authors = [[place for place in link if _is_authors(place[0])] for link in links]
    return ErrorInfo(
        name=error_name(error),
        message=error_message(error),
        stack=_stack(error) if with_stack else None,
        metadata=_scalars(error),
        frames=_told(authors if any(authors) else links),
        all_frames=_told(links),
    )


def _told(links: list[list[tuple[types.FrameType, int]]]) -> list[str]:
    return [
        f"{frame.f_code.co_filename}:{line} {frame.f_code.co_qualname}"
        for link in links
        for frame, line in link[-_FRAMES_MAX:]
    ]


def _causes(error: BaseException) -> list[BaseException]:
    """``error`` and what led to it, as a traceback shows them: the first cause first."""
    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and len(links) < _CAUSES_MAX and not any(link is known for known in links):
        links.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return links[::-1]


def _is_authors(frame: types.FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] not in _NOT_THE_AUTHORS


def _stack(error: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception(error))
    except Exception as failure:  # noqa: BLE001 - it calls the exception's own __str__ and __repr__
        text = f"<stack unavailable: {type(failure).__name__}>"
    return shortened(text, limits.ERROR_STACK_CHARACTERS_MAX)


def tamed(error: BaseException) -> Exception:
    """``error`` where it is an ``Exception``, else one that tells of it: author code must not end the process.

    ``asyncio.TaskGroup`` around an operation raises a ``BaseExceptionGroup``, ``sys.exit`` a ``SystemExit``.
    """
    if isinstance(error, Exception):
        return error
    told = RecordedError(error_name(error), error_message(error))
    told.__cause__ = error
    return told


def _scalars(error: BaseException) -> dict[str, Any]:
    try:
        attributes = dict(error.__dict__)
    except Exception:  # noqa: BLE001 - an exception's own attributes are user code
        return {}
    return {
        key: _clean(value) if type(value) is str else value
        for key, value in attributes.items()
        if type(key) is str
        and _clean(key) == key
        and not key.startswith("_")
        and key not in ("name", "message", "stack")
        and (value is None or type(value) in (str, int, float, bool))
    }


def _clean(text: str) -> str:
    # A path from the file system may hold lone surrogates; recording a failure must not fail itself.
    return shortened(text.encode(errors="backslashreplace").decode(), limits.ERROR_TEXT_CHARACTERS_MAX)


def parse_error(text: str) -> RecordedError:
    """The error whose stored text is ``text``."""
    name, separator, message = text.partition(": ")
    if not separator:
        # A message without a name, as foreign writers store it, or a name without a message.
        return RecordedError(text, "") if text.isidentifier() else RecordedError("Error", text)
    return RecordedError(name, message)
