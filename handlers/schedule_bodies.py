"""Schedules as they stand in bodies: what is asked for, read; what is known of one, told."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from adapters.dynamodb.model.naming import check_tags
from engine.errors import InvalidScheduleError
from engine.schedules.identity import NAME_CHARACTERS_MAX, instant_text, schedule_id
from engine.schedules.record import Overlap, Spec
from engine.schedules.timing import (
    INSTANT_MS_MAX,
    UTC_NAME,
    At,
    Cron,
    Every,
    format_interval,
    parse_instant,
    parse_interval,
    upcoming,
)
from engine.schedules.zones import zone_of
from engine.values import decode
from handlers.calls import instant, instant_ms, text, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import tzinfo

    from adapters.dynamodb.query import Description
    from engine.schedules.record import Occurrence, Schedule
    from engine.schedules.timing import Timing

TIMINGS = ("cron", "every", "at")
SPEC_MEMBERS = frozenset({*TIMINGS, "timezone", "start_at", "type", "input", "overlap", "catch_up", "tags"})
FILLING_MEMBERS = frozenset({"from", "to", "overlap"})

_OF_RUNS = {"schedule": "n" * NAME_CHARACTERS_MAX, "scheduled_at": instant_text(INSTANT_MS_MAX)}
"""The tags that each run has beside those that are asked for, as long as they can be."""

NEXT_TOLD = 5
"""Occurrences ahead that are told. Design choice."""


def spec_of(body: Mapping[str, Any], stored_input: Callable[[str, Any], bytes], now_ms: int) -> Spec:
    """What a body asks for; ``stored_input`` is given the type and the input and makes of it what is stored.

    Raises:
        InvalidScheduleError: it cannot be.
        InvalidIdError: no workflow could have these tags and those of a run.
        Problem: a member is not of its JSON type.
    """
    workflow_type = text(body.get("type"), "type")
    if not workflow_type:
        raise InvalidScheduleError('say in "type" which workflow is to be started')
    timing = _timing(body)
    # Before the input, which is nothing to a caller whose times are wrong.
    timing.check()
    if timing.next_after(now_ms) is None:
        raise InvalidScheduleError("this has no occurrence ahead: give a time or an expression that comes")
    tags = texts(body.get("tags"), "tags")
    check_tags({**tags, **_OF_RUNS})
    spec = Spec(
        timing=timing,
        type=workflow_type,
        input=stored_input(workflow_type, body.get("input")),
        overlap=overlap_of(body.get("overlap")) or Overlap.SKIP,
        tags=tags,
    )
    if body.get("catch_up") is not None:
        spec = replace(spec, catch_up_s=_seconds(body["catch_up"], "catch_up"))
    spec.check()
    return spec


def _timing(body: Mapping[str, Any]) -> Timing:
    given = [name for name in TIMINGS if body.get(name) is not None]
    if len(given) != 1:
        raise InvalidScheduleError('say when with one of "cron", "every" and "at"')
    zone = text(body.get("timezone"), "timezone") or UTC_NAME
    zone_of(zone)
    start_at = body.get("start_at")
    if start_at is not None and given != ["every"]:
        raise InvalidScheduleError('"start_at" is for "every": it is what the interval is aligned to')
    match given[0]:
        case "cron":
            return Cron(expression=" ".join((text(body["cron"], "cron") or "").split()), zone=zone)
        case "every":
            anchor_ms = None if start_at is None else _instant(start_at, "start_at", zone)
            return Every(interval_s=_seconds(body["every"], "every"), anchor_ms=anchor_ms)
    return At(at_ms=_instant(body["at"], "at", zone))


def _seconds(value: Any, name: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return parse_interval(text(value, name) or "")


def _instant(value: Any, name: str, zone: str = UTC_NAME) -> int:
    if isinstance(value, str):
        return parse_instant(value, zone)
    at_ms = instant_ms(value, name)
    if at_ms is None:
        raise InvalidScheduleError(f'"{name}" must be a time')
    return at_ms // 1000 * 1000


def overlap_of(value: Any) -> Overlap | None:
    """What a body says of overlaps, None where it says nothing; raises ``InvalidScheduleError``."""
    given = text(value, "overlap")
    if given is None:
        return None
    try:
        return Overlap(given)
    except ValueError:
        raise InvalidScheduleError(f'"overlap" must be one of {", ".join(Overlap)}, not "{given[:80]}"') from None


def range_of(body: Mapping[str, Any], zone: str) -> tuple[int, int]:
    """The first and the last instant of a backfill, in milliseconds; raises ``InvalidScheduleError``."""
    missing = [name for name in ("from", "to") if body.get(name) is None]
    if missing:
        raise InvalidScheduleError('say with "from" and "to" what time is to be made up for')
    first, last = _instant(body["from"], "from", zone), _instant(body["to"], "to", zone)
    if last < first:
        raise InvalidScheduleError('"to" is before "from"')
    return first, last


# --- telling ------------------------------------------------------------------------------------------------------


def named(body: Mapping[str, Any]) -> tuple[str, str]:
    """The name that a body gives a schedule, and its workflow id; raises ``InvalidIdError``."""
    name = text(body.get("name"), "name") or ""
    return name, schedule_id(name)


def zone_name(schedule: Schedule) -> str:
    """The time zone in which a schedule's times are told and read."""
    timing = schedule.spec.timing
    return timing.zone if isinstance(timing, Cron) else UTC_NAME


def described(name: str, found: Description, schedule: Schedule, now_ms: int) -> dict[str, Any]:
    """What is known of a schedule."""
    # One whose time zone this build does not know is told of, too.
    schedule = schedule.checked()
    spec = schedule.spec
    zone = _zone(schedule)
    ahead = [] if schedule.is_paused or found.ended_at is not None else _ahead(schedule, now_ms)
    return {
        "name": name,
        "state": _state(found, schedule),
        **_told_timing(spec.timing, zone),
        "type": spec.type,
        "input": decode(spec.input),
        "overlap": str(spec.overlap),
        "catch_up": format_interval(spec.catch_up_s),
        "tags": spec.tags,
        "next": [_local(at_ms, zone) for at_ms in ahead],
        "recent": [_told(occurrence, zone) for occurrence in reversed(schedule.recent)],
        "running": schedule.running,
        "waiting": [_local(at_ms, zone) for at_ms in schedule.waiting],
        "backfills": len(schedule.backfills),
        "counts": {each: getattr(schedule.counts, each) for each in schedule.counts.__struct_fields__},
        "note": schedule.note,
        "problem": schedule.problem,
        "created_at": instant(found.created_at),
        "workflow_id": found.workflow_id,
    }


def unreadable(name: str, found: Description, error: Exception) -> dict[str, Any]:
    """What is known of a schedule whose history cannot be read, because of ``error``."""
    return {
        "name": name,
        "state": "unreadable",
        "type": None,
        "next": [],
        "recent": [],
        "counts": {},
        "problem": str(error),
        "created_at": instant(found.created_at),
        "workflow_id": found.workflow_id,
    }


def _zone(schedule: Schedule) -> tzinfo:
    try:
        return zone_of(zone_name(schedule))
    except InvalidScheduleError:
        return UTC


def _ahead(schedule: Schedule, now_ms: int) -> list[int]:
    return list(islice(upcoming(schedule.spec.timing, max(schedule.after_ms, now_ms)), NEXT_TOLD))


def _state(found: Description, schedule: Schedule) -> str:
    if found.ended_at is not None:
        return "ended" if found.state == "completed" else str(found.state)
    return "paused" if schedule.is_paused else "active"


def _told_timing(timing: Timing, zone: tzinfo) -> dict[str, Any]:
    match timing:
        case Cron():
            return {"cron": timing.expression, "timezone": timing.zone}
        case Every():
            return {"every": format_interval(timing.interval_s), "start_at": instant(timing.anchor_ms)}
    return {"at": _local(timing.at_ms, zone)}


def _told(occurrence: Occurrence, zone: tzinfo) -> dict[str, Any]:
    return {
        "scheduled_at": _local(occurrence.at_ms, zone),
        "outcome": str(occurrence.fate),
        "run_id": occurrence.run_id,
        "reason": occurrence.reason,
        "decided_at": instant(occurrence.decided_ms),
    }


def _local(at_ms: int, zone: tzinfo) -> datetime:
    # An offset alone, not the zone: that is all that a text of it says.
    return datetime.fromisoformat(datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(zone).isoformat())
