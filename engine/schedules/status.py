"""A schedule as somebody outside sees it, read from what is stored of its workflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine import bare, keys, values
from engine.entry import LoopEntry
from engine.errors import CorruptHistoryError
from engine.schedules.record import Schedule, Spec

if TYPE_CHECKING:
    from collections.abc import Iterable


def read(pairs: Iterable[tuple[bytes, bytes]], created_at: int) -> Schedule:
    """How far the schedule is whose workflow has these stored pairs and was created then (milliseconds).

    Raises:
        CorruptHistoryError, UnstorableValueError: they are not those of a schedule.
    """
    given: Spec | None = None
    for key, value in pairs:
        if key == keys.INPUT_KEY:
            given = values.decode(value, Spec)
        elif key.startswith(keys.HISTORY_PREFIX):
            entry = bare.decode_entry(value)
            # The loop in which it lives is all that stands in no other scope.
            if len(entry.location) == 1 and isinstance(entry.kind, LoopEntry):
                reached: Schedule = values.decode(entry.kind.state, Schedule)
                return reached
    if given is None:
        raise CorruptHistoryError("this is no history of a schedule")
    return Schedule.begun(given, created_at)
