"""The addresses of the API as one table: what is served and what ``/openapi.json`` says are both made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from handlers import listening, operations, origins, problems, schedules, signals

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from handlers.calls import Answer, Call
    from handlers.operations import Ports
    from handlers.problems import Kind


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter outside the path: its name, ``query`` or ``header``, the JSON type of it, what it does."""

    name: str
    place: str
    type: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One operation and where it is.

    Attributes:
        method: of HTTP, in upper case.
        path: its address; the parts in braces may hold slashes.
        act: what is done; the first line of its docstring is the summary.
        parameters: those outside the path.
        body: the schema of the body, or None where it takes none.
        answers: the schema of each status.
        problems: the kinds that are its own; those that every operation may answer with are left out.
    """

    method: str
    path: str
    act: Callable[[Ports, Call], Awaitable[Answer]]
    parameters: tuple[Parameter, ...] = ()
    body: str | None = None
    answers: Mapping[int, str]
    problems: tuple[Kind, ...] = ()


WAIT = Parameter("wait", "query", "number", "Seconds to wait for it, 25 at most.")
DOCUMENT = Parameter("document", "query", "boolean", "Whether to tell the document that its activities have written.")
CURSOR = Parameter("cursor", "query", "string", "Where the page before this one ended.")
KEY = Parameter(
    "Idempotency-Key", "header", "string", "A name of your own for this call: repeated, it has its effect once."
)

RAY = Parameter(
    origins.RAY_ID, "header", "string", "What this call and all that comes of it have in common in logs; made up else."
)

_BODY_PROBLEMS = (problems.BODY_TOO_LARGE, problems.UNSUPPORTED_MEDIA_TYPE)
_TOLD_PROBLEMS = (problems.SCHEDULE_NOT_FOUND, problems.SCHEDULE_ENDED, *_BODY_PROBLEMS)
_SPEC_PROBLEMS = (problems.INVALID_SCHEDULE, problems.UNKNOWN_TYPE, problems.APPLICATION_BROKEN)

ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/workflows",
        act=operations.list_workflows,
        parameters=(
            Parameter("type", "query", "string", "Only workflows of this type."),
            Parameter("state", "query", "string", "Only workflows in this state."),
            Parameter(
                "tag",
                "query",
                "string",
                "Only workflows of the type that have not ended and have this tag, as `name=value`, in the order of "
                "ids; may be repeated, the one that fewest have first.",
            ),
            Parameter("limit", "query", "integer", "Workflows a page, 100 at most."),
            CURSOR,
        ),
        answers={200: "WorkflowPage"},
    ),
    Route(
        method="POST",
        path="/signals/{name}",
        act=signals.signal,
        parameters=(KEY, RAY),
        body="Signal",
        answers={202: "Signalled"},
        problems=(problems.WORKFLOW_NOT_FOUND, *_BODY_PROBLEMS),
    ),
    Route(
        method="GET",
        path="/messages/{name}",
        act=listening.messages,
        parameters=(
            Parameter("topic", "query", "string", "Only messages on exactly this topic."),
            Parameter("after", "query", "string", "Only messages after those of the answer with this `next`."),
            Parameter("limit", "query", "integer", "Messages an answer, 100 at most: the last ones without `after`."),
            Parameter("wait", "query", "number", "Seconds to wait for one, 20 at most."),
        ),
        answers={200: "Published"},
        # A name with a line break matches no address.
        problems=(problems.NO_SUCH_ROUTE,),
    ),
    Route(
        method="POST",
        path="/workflows/{id}/messages/{name}",
        act=operations.send,
        parameters=(KEY, Parameter("id", "query", "string", "The same as Idempotency-Key."), WAIT, RAY),
        body="Value",
        answers={200: "Reply", 202: "Accepted"},
        problems=(problems.WORKFLOW_NOT_FOUND, problems.WORKFLOW_ENDED, *_BODY_PROBLEMS),
    ),
    Route(
        method="GET",
        path="/workflows/{id}/output",
        act=operations.output,
        parameters=(WAIT,),
        answers={200: "Ending", 202: "Ending"},
        problems=(problems.WORKFLOW_NOT_FOUND, problems.CORRUPT_HISTORY),
    ),
    Route(
        method="GET",
        path="/workflows/{id}/messages",
        act=operations.inbox,
        parameters=(
            Parameter("limit", "query", "integer", "Messages a page, 100 at most; fewer where they are large."),
            CURSOR,
        ),
        answers={200: "Inbox"},
        problems=(problems.WORKFLOW_NOT_FOUND, problems.CORRUPT_HISTORY),
    ),
    Route(
        method="GET",
        path="/workflows/{id}/history",
        act=operations.history,
        answers={200: "History"},
        problems=(problems.WORKFLOW_NOT_FOUND, problems.CORRUPT_HISTORY),
    ),
    Route(
        method="POST",
        path="/workflows/{id}/wake",
        act=operations.wake,
        answers={202: "Workflow"},
        problems=(problems.WORKFLOW_NOT_FOUND, problems.WORKFLOW_ENDED),
    ),
    Route(
        method="POST",
        path="/workflows/{id}/cancel",
        act=operations.cancel,
        parameters=(Parameter("rollback", "query", "boolean", "Undo what it has done before it ends as cancelled."),),
        answers={200: "Workflow", 202: "Workflow"},
        problems=(problems.WORKFLOW_NOT_FOUND, problems.WORKFLOW_ENDED),
    ),
    Route(
        method="POST",
        path="/workflows/{id}/recover",
        act=operations.recover,
        answers={200: "Workflow", 202: "Workflow"},
        problems=(problems.WORKFLOW_NOT_FOUND, problems.START_CONFLICT, problems.CORRUPT_HISTORY),
    ),
    Route(
        method="POST",
        path="/workflows/{id}/replay",
        act=operations.replay,
        body="Replay",
        answers={202: "Workflow"},
        problems=(
            problems.WORKFLOW_NOT_FOUND,
            problems.INVALID_REPLAY,
            problems.START_CONFLICT,
            problems.CORRUPT_HISTORY,
            *_BODY_PROBLEMS,
        ),
    ),
    Route(
        method="GET",
        path="/workflows/{id_or_type}",
        act=operations.describe,
        parameters=(DOCUMENT,),
        answers={200: "Workflow"},
        problems=(problems.WORKFLOW_NOT_FOUND, problems.CORRUPT_HISTORY),
    ),
    Route(
        method="POST",
        path="/workflows/{id_or_type}",
        act=operations.start,
        parameters=(KEY, RAY),
        body="Start",
        answers={200: "Started", 201: "Started"},
        problems=(problems.UNKNOWN_TYPE, problems.APPLICATION_BROKEN, problems.START_CONFLICT, *_BODY_PROBLEMS),
    ),
    Route(
        method="DELETE",
        path="/workflows/{id_or_type}",
        act=operations.purge,
        answers={200: "Purged", 202: "Purged"},
        problems=(problems.WORKFLOW_NOT_FOUND, problems.WORKFLOW_NOT_ENDED),
    ),
    Route(
        method="GET",
        path="/schedules",
        act=schedules.list_schedules,
        parameters=(
            Parameter("limit", "query", "integer", "Schedules a page, 25 at most."),
            CURSOR,
        ),
        answers={200: "SchedulePage"},
    ),
    Route(
        method="POST",
        path="/schedules",
        act=schedules.create,
        parameters=(RAY,),
        body="NewSchedule",
        answers={200: "Schedule", 201: "Schedule"},
        problems=(
            problems.SCHEDULE_CONFLICT,
            problems.SCHEDULE_ENDED,
            problems.SCHEDULE_NOT_FOUND,
            problems.CORRUPT_HISTORY,
            *_SPEC_PROBLEMS,
            *_BODY_PROBLEMS,
        ),
    ),
    Route(
        method="POST",
        path="/schedules/{name}/pause",
        act=schedules.pause,
        parameters=(KEY, RAY),
        body="Pausing",
        answers={202: "Accepted"},
        problems=_TOLD_PROBLEMS,
    ),
    Route(
        method="POST",
        path="/schedules/{name}/resume",
        act=schedules.resume,
        parameters=(KEY, RAY),
        answers={202: "Accepted"},
        problems=(problems.SCHEDULE_NOT_FOUND, problems.SCHEDULE_ENDED),
    ),
    Route(
        method="POST",
        path="/schedules/{name}/trigger",
        act=schedules.trigger,
        parameters=(KEY, RAY),
        answers={202: "Accepted"},
        problems=(
            problems.SCHEDULE_NOT_FOUND,
            problems.SCHEDULE_ENDED,
            problems.SCHEDULE_FULL,
            problems.CORRUPT_HISTORY,
        ),
    ),
    Route(
        method="POST",
        path="/schedules/{name}/backfill",
        act=schedules.backfill,
        parameters=(KEY, RAY),
        body="Filling",
        answers={202: "Accepted"},
        problems=(problems.INVALID_SCHEDULE, problems.SCHEDULE_FULL, problems.CORRUPT_HISTORY, *_TOLD_PROBLEMS),
    ),
    Route(
        method="POST",
        path="/schedules/{name}/update",
        act=schedules.update,
        parameters=(KEY, RAY),
        body="ScheduleSpec",
        answers={202: "Accepted"},
        problems=(*_SPEC_PROBLEMS, *_TOLD_PROBLEMS),
    ),
    Route(
        method="GET",
        path="/schedules/{name}",
        act=schedules.describe,
        answers={200: "Schedule"},
        problems=(problems.SCHEDULE_NOT_FOUND, problems.CORRUPT_HISTORY),
    ),
    Route(
        method="DELETE",
        path="/schedules/{name}",
        act=schedules.delete,
        answers={200: "ScheduleGone", 202: "ScheduleGone"},
        problems=(problems.SCHEDULE_NOT_FOUND, problems.WORKFLOW_NOT_FOUND, problems.WORKFLOW_NOT_ENDED),
    ),
)
"""In the order in which addresses are matched: ids may hold slashes, so the longer address stands first."""
