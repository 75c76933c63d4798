"""What a schedule can be told, as messages to its workflow, and what becomes of it then."""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from engine.errors import InvalidScheduleError, UnstorableValueError
from engine.schedules import limits
from engine.schedules.record import Backfill, Overlap, Schedule, Spec
from engine.schedules.timing import At, Every, upcoming
from engine.shapes import fit

if TYPE_CHECKING:
    from engine.schedules.deciding import Turn


class Command(StrEnum):
    """The names of the messages."""

    PAUSE = "pause"
    RESUME = "resume"
    TRIGGER = "trigger"
    BACKFILL = "backfill"
    UPDATE = "update"


class Pausing(Struct, frozen=True, kw_only=True):
    """The body of ``pause``: why, where somebody says so."""

    note: str | None = None


class Filling(Struct, frozen=True, kw_only=True):
    """The body of ``backfill``: occurrences from one instant up to and with another (milliseconds since the epoch).

    They run one after the other, unless ``overlap`` is ``allow``.
    """

    from_ms: int
    until_ms: int
    overlap: Overlap | None = None

    def check(self, spec: Spec) -> None:
        """Raise ``InvalidScheduleError`` where ``spec`` has no occurrence there, or too many."""
        if self.from_ms < 0:
            raise InvalidScheduleError("a backfill begins in 1970 at the earliest: give another from")
        most = limits.BACKFILL_OCCURRENCES_MAX
        found = sum(1 for _ in islice(upcoming(spec.timing, self.from_ms - 1, self.until_ms), most + 1))
        if not found:
            raise InvalidScheduleError("there is no occurrence in that time: give another from and to")
        if found > most:
            raise InvalidScheduleError(
                f"there are more than {most} occurrences in that time: make up for them in several parts"
            )


def why_full(schedule: Schedule, command: Command) -> str | None:
    """Why a schedule takes no more of a command for now, in words for whoever gave it; None where it does."""
    is_counted = schedule.spec.overlap is not Overlap.ALLOW
    if command is Command.TRIGGER and is_counted and len(schedule.running) >= limits.RUNNING_MAX:
        return (
            f"{limits.RUNNING_MAX} of its runs are under way, the first {schedule.running[0]!r}: trigger it again when "
            "they have ended, or give it the overlap allow"
        )
    if command is Command.BACKFILL and len(schedule.backfills) >= limits.BACKFILLS_MAX:
        return f"{limits.BACKFILLS_MAX} backfills are to be done already: ask for another one when they are"
    return None


def obey(turn: Turn, name: str, body: Any, now_ms: int) -> None:
    """Do what a message says; one that says nothing that can be done is told of in the schedule's ``problem``."""
    try:
        _obey(turn, name, {} if body is None else body, now_ms)
    except (InvalidScheduleError, UnstorableValueError, ValueError, OverflowError, OSError) as error:
        told = f"the message {name!r} was not obeyed: {error}"[: limits.NOTE_CHARACTERS_MAX]
        turn.schedule = replace(turn.schedule, problem=told)


def _obey(turn: Turn, name: str, body: Any, now_ms: int) -> None:
    schedule = turn.schedule
    command = Command(name)
    if reason := why_full(schedule, command):
        raise InvalidScheduleError(reason)
    match command:
        case Command.PAUSE:
            note = fit(body, Pausing).note
            turn.schedule = replace(schedule, is_paused=True, note=note and note[: limits.NOTE_CHARACTERS_MAX])
        case Command.RESUME:
            turn.schedule = replace(schedule, is_paused=False, note=None, after_ms=_resumed_after(schedule, now_ms))
        case Command.TRIGGER:
            _trigger(turn, now_ms)
        case Command.BACKFILL:
            turn.schedule = _with_backfill(schedule, fit(body, Filling), now_ms)
        case Command.UPDATE:
            turn.schedule = _updated(schedule, fit(body, Spec), now_ms)


def _resumed_after(schedule: Schedule, now_ms: int) -> int:
    # What would have occurred during the pause was not wanted.
    return max(schedule.after_ms, now_ms) if schedule.is_paused else schedule.after_ms


def _trigger(turn: Turn, now_ms: int) -> None:
    at_ms = max(now_ms, turn.schedule.triggered_ms + 1)
    # Between two seconds, where no occurrence is: each has an id of its own.
    at_ms += 1 if at_ms % 1000 == 0 else 0
    turn.schedule = replace(turn.schedule, triggered_ms=at_ms)
    turn.start(at_ms, is_watched=turn.schedule.spec.overlap is not Overlap.ALLOW)


def _with_backfill(schedule: Schedule, asked: Filling, now_ms: int) -> Schedule:
    asked.check(schedule.spec)
    if asked.until_ms > now_ms:
        # What is still to come has its own time; started now, it would not be started then.
        asked = replace(asked, until_ms=now_ms)
        asked.check(schedule.spec)
    overlap = asked.overlap or schedule.spec.overlap
    timing = schedule.spec.timing
    made = Backfill(after_ms=asked.from_ms - 1, until_ms=asked.until_ms, overlap=overlap, timing=timing)
    return replace(schedule, backfills=[*schedule.backfills, made])


def _updated(schedule: Schedule, spec: Spec, now_ms: int) -> Schedule:
    spec.check()
    old = schedule.spec.timing
    anchor_ms = old.anchor_ms if isinstance(old, Every) and old.anchor_ms is not None else now_ms
    begun = Schedule.begun(spec.anchored(anchor_ms), now_ms)
    # Another single time is meant even where it has passed, as one is with which a schedule begins.
    is_another = isinstance(spec.timing, At) and spec.timing != old
    after_ms = begun.after_ms if is_another else max(schedule.after_ms, begun.after_ms)
    return replace(schedule, spec=begun.spec, after_ms=after_ms, problem=None)
