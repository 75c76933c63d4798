"""The shapes of the bodies of schedules, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from engine.schedules.record import Fate, Overlap

_TEXT = {"type": "string"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_INSTANT = {"type": "string", "format": "date-time"}
_INSTANTS = {"type": "array", "items": _INSTANT}
_COUNT = {"type": "integer"}
_TAGS = {"type": "object", "additionalProperties": _TEXT}
_OVERLAP = {
    "enum": [str(overlap) for overlap in Overlap],
    "description": "What becomes of an occurrence while the run before is under way.",
}
_INTERVAL = {"type": ["string", "integer"]}

_SPEC: dict[str, Any] = {
    "cron": {**_TEXT, "description": "Five fields: minute, hour, day of the month, month, day of the week."},
    "every": {**_INTERVAL, "description": "An interval such as 15m or 1h30m, or its seconds."},
    "at": {**_TEXT, "description": "One time, ISO 8601; without an offset the local time of the zone."},
    "timezone": {**_TEXT, "description": "An IANA name; UTC where it is left out."},
    "start_at": {**_TEXT, "description": "What an interval is aligned to; the creation where it is left out."},
    "type": {**_TEXT, "description": "The workflow type of the runs."},
    "input": {"description": "The input of the runs, any value."},
    "overlap": _OVERLAP,
    "catch_up": {**_INTERVAL, "description": "By how much an occurrence may be late and is still made up for."},
    "tags": _TAGS,
}

_OCCURRENCE = {
    "type": "object",
    "required": ["scheduled_at", "outcome", "run_id", "reason", "decided_at"],
    "properties": {
        "scheduled_at": _INSTANT,
        "outcome": {"enum": [str(fate) for fate in Fate]},
        "run_id": {**_TEXT_OR_NULL, "description": "The workflow that was started for it."},
        "reason": {**_TEXT_OR_NULL, "description": "Why none was."},
        "decided_at": _INSTANT,
    },
}

_NAMED = {"name": {**_TEXT, "description": "The schedule's name: letters, digits, dots, dashes and underscores."}}

SCHEDULE_SCHEMAS: dict[str, dict[str, Any]] = {
    "NewSchedule": {
        "type": "object",
        "required": ["name", "type"],
        "properties": _NAMED | _SPEC,
        "additionalProperties": False,
    },
    "ScheduleSpec": {"type": "object", "required": ["type"], "properties": _SPEC, "additionalProperties": False},
    "Pausing": {
        "type": "object",
        "properties": {"note": {**_TEXT, "description": "Why."}},
        "additionalProperties": False,
    },
    "Filling": {
        "type": "object",
        "required": ["from", "to"],
        "properties": {
            "from": {**_TEXT, "description": "The first instant; without an offset the schedule's local time."},
            "to": {**_TEXT, "description": "The last one."},
            "overlap": {**_OVERLAP, "description": "One after the other, unless it is allow, or the schedule's is."},
        },
        "additionalProperties": False,
    },
    "Schedule": {
        "type": "object",
        "required": ["name", "state", "type", "next", "recent", "counts"],
        "properties": _NAMED
        | _SPEC
        | {
            "state": {
                **_TEXT,
                "description": "active, paused, ended, or how its workflow stands otherwise; in a list unreadable "
                "where its history is.",
            },
            "type": {**_TEXT_OR_NULL, "description": "The workflow type of the runs; null where it is unreadable."},
            "start_at": {"type": ["string", "null"], "format": "date-time"},
            "next": {**_INSTANTS, "description": "Its next occurrences, in local time."},
            "recent": {"type": "array", "items": _OCCURRENCE, "description": "Its latest occurrences, newest first."},
            "running": {"type": "array", "items": _TEXT, "description": "Runs that hold up those after them."},
            "waiting": {**_INSTANTS, "description": "Occurrences that wait for the run before them."},
            "backfills": {**_COUNT, "description": "Backfills that are not done."},
            "counts": {"type": "object", "additionalProperties": _COUNT},
            "note": {**_TEXT_OR_NULL, "description": "Why it is paused."},
            "problem": {**_TEXT_OR_NULL, "description": "What went wrong last."},
            "created_at": _INSTANT,
            "workflow_id": _TEXT,
        },
    },
    "SchedulePage": {
        "type": "object",
        "required": ["schedules", "cursor"],
        "properties": {
            "schedules": {"type": "array", "items": {"$ref": "#/components/schemas/Schedule"}},
            "cursor": {**_TEXT_OR_NULL, "description": "Give it back for the next page; null on the last."},
        },
    },
    "ScheduleGone": {
        "type": "object",
        "required": ["name", "is_gone"],
        "properties": {"name": _TEXT, "is_gone": {"type": "boolean"}},
    },
}
"""By name, as ``openapi.SCHEMAS``."""
