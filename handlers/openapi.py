"""The OpenAPI document of the API, made from its table of routes."""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import TYPE_CHECKING, Any

from engine.lifecycle import WorkflowState
from handlers import bodies, problems
from handlers.schedule_schemas import SCHEDULE_SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from handlers.routes import Parameter, Route

OPENAPI_VERSION = "3.1.0"

EVERYWHERE = (
    problems.INVALID_PARAMETER,
    problems.METHOD_NOT_ALLOWED,
    problems.ANSWER_TOO_LARGE,
    problems.STORE_UNAVAILABLE,
)
"""Problems that every operation may answer with."""

_TEXT = {"type": "string"}
_TEXTS_OR_NULL = {"type": ["array", "null"], "items": _TEXT}
_ORIGIN: dict[str, Any] = {
    "ray_id": {"type": ["string", "null"], "description": "What it shares with all that comes of the same request."},
    "request_id": {"type": ["string", "null"], "description": "The call or event that began it."},
}
_INSTANT = {"type": "string", "format": "date-time"}
_STATE = {"enum": [str(state) for state in WorkflowState]}
_TAGS = {"type": "object", "additionalProperties": _TEXT}
_INSTANT_OR_NULL = {"type": ["string", "null"], "format": "date-time"}
_ATTEMPTS = {"type": "integer", "description": "How often it was begun; 0 where that is not counted."}
_CURSOR = {"type": ["string", "null"], "description": "Give it back for the next page; null on the last."}
_WORKFLOW = {"$ref": "#/components/schemas/Workflow"}


def _object(required: Iterable[str] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties}


_RETRYING = _object(
    ["entry_id", "location", "attempts", "attempts_max", "error", "retry_at"],
    entry_id=_TEXT,
    location={**_TEXT, "description": "Its place in the workflow, such as `orders/~3/charge`."},
    attempts={"type": "integer", "description": "Attempts that it has had."},
    attempts_max={"type": "integer", "description": "Attempts that it may have."},
    error={**_TEXT, "description": "The beginning of its latest failure."},
    retry_at=_INSTANT,
)
_ENTRY = _object(
    ["id", "location", "kind", "status", "attempts", "attempts_max", "error", "retry_at"],
    id=_TEXT,
    location=_TEXT,
    kind=_TEXT,
    status=_TEXT,
    attempts=_ATTEMPTS,
    attempts_max={
        "type": ["integer", "null"],
        "description": "Attempts that it may have; told of what `retrying` has.",
    },
    error={"type": ["string", "null"], "description": "Its latest failure."},
    retry_at={**_INSTANT_OR_NULL, "description": "When it is tried again; told of what `retrying` has."},
    value={"description": "Its output, state, body or deadline."},
    details=_TEXT,
    branches={"type": "array", "items": {"type": "object"}},
    created_at=_INSTANT_OR_NULL,
    last_attempt_at=_INSTANT_OR_NULL,
    completed_at=_INSTANT_OR_NULL,
    rolled_back_at=_INSTANT_OR_NULL,
    rollback_error={"type": ["string", "null"]},
)


SCHEMAS: dict[str, dict[str, Any]] = {
    "Value": {"description": "Any value: what the workflow is given is what was sent."},
    "Start": {
        **_object(
            id={
                **_TEXT,
                "description": "The workflow's id; made up where it is left out. The same start again is one.",
            },
            input={"description": "Any value."},
            tags=_TAGS,
            ray_id={**_TEXT, "description": "As the header X-Ray-Id."},
            start_at={**_INSTANT, "description": "Not before this instant."},
            unique={
                "type": "boolean",
                "description": "The only one of its type with exactly these tags: while there is one that has neither "
                "completed nor been cancelled, that one is the answer.",
            },
            replace_failed={"type": "boolean", "description": "With unique: one that has failed does not count."},
        ),
        "additionalProperties": False,
    },
    "Signal": {
        **_object(
            ["type"],
            type={**_TEXT, "description": "The type of the workflow."},
            tags={**_TAGS, "description": "Tags that it must have at least; the first that has them gets it."},
            body={"description": "Any value."},
            id={**_TEXT, "description": "The same as Idempotency-Key."},
        ),
        "additionalProperties": False,
    },
    "Signalled": _object(
        ["workflow_id", "message_id", "duplicate"],
        workflow_id=_TEXT,
        message_id=_TEXT,
        duplicate={"type": "boolean"},
    ),
    "Replay": {
        **_object(entry_id={**_TEXT, "description": "The step to run again; from the beginning where it is left out."}),
        "additionalProperties": False,
    },
    "Started": _object(["id", "type", "created"], id=_TEXT, type=_TEXT, **_ORIGIN, created={"type": "boolean"}),
    "Workflow": _object(
        [
            "id",
            "type",
            "state",
            "created_at",
            "updated_at",
            "wake_at",
            "retrying",
            "waiting_for",
            "deaths",
            "is_running",
        ],
        id=_TEXT,
        type=_TEXT,
        state=_STATE,
        tags=_TAGS,
        **_ORIGIN,
        created_at=_INSTANT,
        updated_at={**_INSTANT, "description": "The last commit."},
        ended_at=_INSTANT_OR_NULL,
        prune_at={**_INSTANT_OR_NULL, "description": "When its history, or all of it, is to be forgotten."},
        pruned_at=_INSTANT_OR_NULL,
        wake_at={**_INSTANT_OR_NULL, "description": "When it goes on, unless a message or an end comes first."},
        wakes={"type": "integer", "description": "Claims so far."},
        deaths={"type": "integer", "description": "Processes that died with it since the last commit."},
        is_running={"type": "boolean", "description": "Whether a worker has it at this moment."},
        document={"type": "object", "description": "What its activities have written; where it was asked for."},
        retrying={
            "type": "array",
            "items": _RETRYING,
            "description": "Steps that had failed and waited for another attempt when it last went to sleep; the first "
            "three to be tried again.",
        },
        waiting_for={**_TEXTS_OR_NULL, "description": "Names of messages; any where it is empty."},
        waiting_for_workflows={
            **_TEXTS_OR_NULL,
            "description": "Ids of workflows whose ends it waited for when it last went to sleep; told of one alone.",
        },
    ),
    "WorkflowPage": _object(
        ["workflows", "cursor"],
        workflows={"type": "array", "items": _WORKFLOW},
        cursor=_CURSOR,
    ),
    "Accepted": _object(["message_id", "duplicate"], message_id=_TEXT, duplicate={"type": "boolean"}),
    "Reply": _object(
        ["message_id", "duplicate", "reply"],
        message_id=_TEXT,
        duplicate={"type": "boolean"},
        reply={"description": "What the workflow completed the message with."},
    ),
    "Inbox": _object(
        ["messages", "cursor"],
        messages={
            "type": "array",
            "items": _object(
                ["id", "name", "body", "sent_at"],
                id=_TEXT,
                name=_TEXT,
                body={"description": "Any value."},
                sent_at=_INSTANT,
                **_ORIGIN,
            ),
        },
        cursor=_CURSOR,
    ),
    "Published": _object(
        ["messages", "next", "has_gap"],
        messages={
            "type": "array",
            "items": _object(
                ["id", "topic", "body", "sent_at", "workflow_id"],
                id=_TEXT,
                topic=_TEXT,
                body={"description": "Any value."},
                sent_at=_INSTANT,
                workflow_id=_TEXT,
                **_ORIGIN,
            ),
        },
        next={**_TEXT, "description": "Give it back as `after` for later messages."},
        has_gap={"type": "boolean", "description": "Whether `after` was so old that messages after it may be gone."},
    ),
    "Ending": _object(
        ["id", "state"],
        id=_TEXT,
        state=_STATE,
        output={"description": "Any value, where the workflow completed."},
        error={"type": "object", "description": "name and message, where it failed."},
    ),
    "Purged": _object(
        ["id", "is_gone"],
        id=_TEXT,
        is_gone={"type": "boolean", "description": "Whether nothing is left, so that the id can be used anew."},
    ),
    "History": _object(
        ["id", "state", "workflow", "input", "document", "pruned_at", "entries", "unreadable"],
        id=_TEXT,
        state=_STATE,
        workflow={**_WORKFLOW, "description": "How it stands, as of the same commit."},
        input={"description": "What it was started with; null where nothing is left of that, too."},
        document={"type": "object", "description": "What its activities have written."},
        pruned_at={**_INSTANT_OR_NULL, "description": "When its history was forgotten."},
        entries={"type": "array", "items": _ENTRY},
        unreadable={"type": "array", "items": {"type": "object"}, "description": "Stored pairs that cannot be read."},
    ),
    "Problem": _object(
        ["type", "title", "status", "detail"],
        type={**_TEXT, "description": f"{problems.TYPE_PREFIX} and the kind's name."},
        title=_TEXT,
        status={"type": "integer"},
        detail={**_TEXT, "description": "What to do about it."},
    ),
    **SCHEDULE_SCHEMAS,
}
"""The shapes of bodies; times are RFC 3339 in JSON and datetimes in CBOR."""


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """The document that describes ``routes``."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": OPENAPI_VERSION,
        "info": {
            "title": "torpor",
            "version": "1",
            "description": "Start durable workflows, send them messages, look at them. " + _mapping(),
        },
        "paths": paths,
        "components": {"schemas": SCHEMAS},
    }


def _mapping() -> str:
    # The module's own docstring is where the mapping is kept right.
    return cleandoc(bodies.__doc__ or "")


def _operation(route: Route) -> dict[str, Any]:
    doc = cleandoc(route.act.__doc__ or "")
    described: dict[str, Any] = {
        "operationId": route.act.__name__,
        "summary": doc.splitlines()[0],
        "parameters": [*_path_parameters(route.path), *map(_parameter, route.parameters)],
        "responses": _responses(route),
    }
    if route.body is not None:
        described["requestBody"] = {"required": False, "content": _content(route.body)}
    return described


def _responses(route: Route) -> dict[str, Any]:
    answers = {str(status): {"description": name, "content": _content(name)} for status, name in route.answers.items()}
    kinds: dict[str, list[str]] = {}
    body_problems = (problems.MALFORMED_BODY, problems.INVALID_BODY) if route.body else ()
    for kind in (*route.problems, *body_problems, problems.INVALID_ID, *EVERYWHERE):
        kinds.setdefault(str(kind.status), []).append(kind.name)
    refusals = {status: _refusal(names) for status, names in sorted(kinds.items())}
    return {**answers, **refusals}


def _refusal(names: list[str]) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": ", ".join(names), "content": {problems.MEDIA_TYPE: {"schema": schema}}}


def _content(schema: str) -> dict[str, Any]:
    media = {"schema": {"$ref": f"#/components/schemas/{schema}"}}
    return {bodies.JSON: media, bodies.CBOR: media}


def _path_parameters(path: str) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)}", path)
    return [{"name": name, "in": "path", "required": True, "schema": _TEXT} for name in names]


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": False,
        "schema": {"type": parameter.type},
        "description": parameter.description,
    }
