"""Problem documents (RFC 9457): which error answers with which status, and what the caller should do about it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import Struct

from engine import errors
from handlers.application import ApplicationBrokenError

if TYPE_CHECKING:
    from collections.abc import Mapping

MEDIA_TYPE = "application/problem+json"

TYPE_PREFIX = "urn:torpor:problem:"
"""What stands before a kind's name in a document's ``type``: a name to compare, not an address to visit."""

RETRY_AFTER_S = 1
"""Seconds in ``Retry-After`` when the store is throttled or out of reach. Design choice: about its own backoff."""


DETAIL_CHARACTERS_MAX = 4_000
"""Characters of a detail. Design choice: some details quote what the caller has sent, which may be as large as a body,
and a refusal must fit into an answer whatever it quotes."""


class Kind(Struct, frozen=True):
    """One kind of problem: its name, its HTTP status, its title (the same in every occurrence)."""

    name: str
    status: int
    title: str


NO_SUCH_ROUTE = Kind("no-such-route", 404, "There is nothing at this address")
METHOD_NOT_ALLOWED = Kind("method-not-allowed", 405, "This method is not allowed here")
MALFORMED_BODY = Kind("malformed-body", 400, "The body cannot be read")
INVALID_BODY = Kind("invalid-body", 400, "The body does not have the expected form")
INVALID_PARAMETER = Kind("invalid-parameter", 400, "A parameter is not valid")
INVALID_ID = Kind("invalid-id", 400, "An id or name is not valid")
BODY_TOO_LARGE = Kind("body-too-large", 413, "The body is too large")
UNSUPPORTED_MEDIA_TYPE = Kind("unsupported-media-type", 415, "The body is of a type that is not taken here")
INVALID_SCHEDULE = Kind("invalid-schedule", 400, "The schedule is not valid")
UNKNOWN_TYPE = Kind("unknown-type", 404, "No workflow has this type")
WORKFLOW_NOT_FOUND = Kind("workflow-not-found", 404, "There is no such workflow")
START_CONFLICT = Kind("start-conflict", 409, "Another workflow is in the way")
SCHEDULE_NOT_FOUND = Kind("schedule-not-found", 404, "There is no such schedule")
SCHEDULE_CONFLICT = Kind("schedule-conflict", 409, "The name is taken by another schedule")
SCHEDULE_ENDED = Kind("schedule-ended", 409, "The schedule has ended")
SCHEDULE_FULL = Kind("schedule-full", 409, "The schedule has as much to do as it may have")
WORKFLOW_ENDED = Kind("workflow-ended", 409, "The workflow has ended")
WORKFLOW_NOT_ENDED = Kind("workflow-not-ended", 409, "The workflow has not ended")
INVALID_REPLAY = Kind("invalid-replay", 409, "The workflow cannot be replayed from there")
STORE_UNAVAILABLE = Kind("store-unavailable", 503, "The store cannot be reached at the moment")
APPLICATION_BROKEN = Kind("application-broken", 503, "The deployed workflows cannot be loaded")
CORRUPT_HISTORY = Kind("corrupt-history", 500, "The workflow's history cannot be read")
ANSWER_TOO_LARGE = Kind("answer-too-large", 500, "The answer is larger than a function can give")
UNEXPECTED = Kind("unexpected", 500, "Something went wrong here")

KINDS: tuple[tuple[type[BaseException], Kind], ...] = (
    (errors.UnknownTypeError, UNKNOWN_TYPE),
    (errors.WorkflowNotFoundError, WORKFLOW_NOT_FOUND),
    (errors.StartConflictError, START_CONFLICT),
    (errors.WorkflowEndedError, WORKFLOW_ENDED),
    (errors.WorkflowNotEndedError, WORKFLOW_NOT_ENDED),
    (errors.InvalidIdError, INVALID_ID),
    (errors.InvalidReplayError, INVALID_REPLAY),
    (errors.InvalidScheduleError, INVALID_SCHEDULE),
    (errors.ValueTooLargeError, BODY_TOO_LARGE),
    (errors.CommitTooLarge, BODY_TOO_LARGE),
    (errors.UnstorableValueError, INVALID_BODY),
    (ApplicationBrokenError, APPLICATION_BROKEN),
    (errors.DriverError, STORE_UNAVAILABLE),
    (errors.ControlFlow, STORE_UNAVAILABLE),  # somebody else wrote at the same moment
    (errors.UnknownVersionError, CORRUPT_HISTORY),
    (errors.CorruptHistoryError, CORRUPT_HISTORY),
)
"""The kind of each error that a call may raise; the first that fits is the one."""


class Problem(Exception):  # noqa: N818 - the word of RFC 9457
    """A refusal, ready to be answered; ``detail`` says what the caller should do, ``headers`` go with the answer."""

    def __init__(self, kind: Kind, detail: str, headers: Mapping[str, str] | None = None) -> None:
        is_short = len(detail) <= DETAIL_CHARACTERS_MAX
        self.kind = kind
        self.detail = detail if is_short else f"{detail[: DETAIL_CHARACTERS_MAX - 1]}…"
        super().__init__(self.detail)
        self.headers = dict(headers or {})

    def document(self) -> bytes:
        """The body of the answer, as ``application/problem+json``."""
        members = {
            "type": TYPE_PREFIX + self.kind.name,
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
        }
        return harmless(json.dumps(members))


def harmless(text: str) -> bytes:
    """JSON that stays harmless even where someone pastes it into a page: escaping these three costs nothing."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").encode()


def from_error(error: BaseException) -> Problem:
    """The problem that ``error`` is; one that nobody foresaw tells the caller nothing of its text."""
    if isinstance(error, Problem):
        return error
    for kind_of_error, kind in KINDS:
        if isinstance(error, kind_of_error):
            return _foreseen(error, kind)
    return Problem(UNEXPECTED, "The call may have had an effect: look at the workflow before you repeat it.")


def _foreseen(error: BaseException, kind: Kind) -> Problem:
    if kind is STORE_UNAVAILABLE:
        detail = "Nothing is lost; repeat the same call, with the same id, after a moment."
        return Problem(kind, detail, {"retry-after": str(RETRY_AFTER_S)})
    if kind is APPLICATION_BROKEN:
        return Problem(kind, str(error), {"retry-after": "60"})
    return Problem(kind, str(error) or kind.title)
