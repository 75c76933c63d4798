"""Cron expressions in a time zone: when the next occurrence is, across changes of the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from engine.errors import InvalidScheduleError
from engine.schedules.zones import instant_of, next_change, offset_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import tzinfo

    from cronsim import CronSim

FIELDS = 5

EXPRESSION_CHARACTERS_MAX = 256
"""Characters of an expression. Design choice: what lists more minutes than fit into that is no schedule."""

_SECOND = timedelta(seconds=1)
_HOURS_A_DAY = 24


def check(expression: str) -> None:
    """Raise ``InvalidScheduleError``, which says what to write, unless ``expression`` is one of five fields."""
    _parsed(expression, datetime(2000, 1, 1))  # noqa: DTZ001 - local time, which is what expressions speak of


def next_after(expression: str, zone: tzinfo, instant: datetime) -> datetime | None:
    """The first occurrence after ``instant`` (aware), in UTC; None where there is none within fifty years.

    An expression that names hours means local times, each of which has one occurrence: one that is skipped occurs when
    the clocks change, one that comes twice occurs the first time. One that means every hour goes by elapsed time: in
    the hour that comes twice it occurs both times, and what is skipped is left out.
    """
    start = instant.astimezone(UTC).replace(microsecond=0)
    means_every_hour = len(_parsed(expression, start.replace(tzinfo=None)).hours) == _HOURS_A_DAY
    try:
        return (_elapsed if means_every_hour else _local)(expression, zone, start)
    except OverflowError:
        # The calendar ends with the year 9999.
        return None


def _local(expression: str, zone: tzinfo, start: datetime) -> datetime | None:
    wall = start.astimezone(zone).replace(tzinfo=None)
    # Local times that come twice, and those that are skipped, stand for an instant that has passed or was the last.
    instants = (instant_of(match, zone) for match in _matches(expression, wall))
    return next((found for found in instants if found > start), None)


def _elapsed(expression: str, zone: tzinfo, start: datetime) -> datetime | None:
    offset = offset_at(start, zone)
    wall = start.replace(tzinfo=None) + offset
    while (match := next(_matches(expression, wall), None)) is not None:
        found = match.replace(tzinfo=UTC) - offset
        change = next_change(zone, start, found)
        if change is None:
            return found
        start, offset = change, offset_at(change, zone)
        # The moment of the change is the first that has the new offset.
        wall = change.replace(tzinfo=None) + offset - _SECOND
    return None


def _matches(expression: str, wall: datetime) -> Iterator[datetime]:
    """Local times (naive) after ``wall`` that the expression names, in order."""
    return iter(_parsed(expression, wall))


def _parsed(expression: str, wall: datetime) -> CronSim:
    # Not at the top: it is for schedules alone, and every import is somebody's cold start.
    from cronsim import CronSim, CronSimError  # noqa: PLC0415

    fields = expression.split()
    if len(fields) != FIELDS or len(expression) > EXPRESSION_CHARACTERS_MAX:
        raise InvalidScheduleError(
            f"{expression[:80]!r} is no cron expression: write five fields, minute, hour, day of the month, month and "
            "day of the week, such as '0 9 * * MON-FRI'"
        )
    try:
        return CronSim(expression, wall)
    except (CronSimError, ValueError) as error:
        raise InvalidScheduleError(
            f"{expression!r} is no cron expression: {str(error)[:80]}; the fields are minute (0-59), hour (0-23), day "
            "of the month (1-31, L, LW), month (1-12, JAN-DEC) and day of the week (0-7, SUN-SAT, 5L, MON#2)"
        ) from None
