"""Time zones: an instant's offset, where the clocks change, and the one instant that a local time stands for."""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

from engine.errors import InvalidScheduleError

if TYPE_CHECKING:
    from datetime import tzinfo

_SECOND = timedelta(seconds=1)

_PROBE = timedelta(hours=6)
"""Between two changes of a zone's clock there was never less."""


@functools.lru_cache(maxsize=256)
def zone_of(name: str) -> tzinfo:
    """The time zone of that name in the IANA database, such as ``Europe/Berlin``.

    Raises:
        InvalidScheduleError: there is none.
    """
    if name == "UTC":
        return UTC
    # Not at the top: reading zones is for schedules alone, and every import is somebody's cold start.
    from zoneinfo import ZoneInfo  # noqa: PLC0415

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidScheduleError(
            f"{name[:80]!r} is no time zone: give a name of the IANA database, such as Europe/Berlin, America/New_York "
            "or UTC"
        ) from None


def offset_at(instant: datetime, zone: tzinfo) -> timedelta:
    """What local time is ahead of UTC at ``instant`` (aware)."""
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def instant_of(wall: datetime, zone: tzinfo) -> datetime:
    """The one instant (UTC) that stands for the local time ``wall`` (naive).

    Of one that comes twice it is the first; for one that is skipped it is the moment at which the clocks change.
    """
    before = wall.replace(tzinfo=zone, fold=0).utcoffset()
    assert before is not None
    instant = wall.replace(tzinfo=UTC) - before
    if offset_at(instant, zone) == before:
        return instant
    after = wall.replace(tzinfo=zone, fold=1).utcoffset()
    assert after is not None
    return _change(wall.replace(tzinfo=UTC) - after, instant, zone)


def next_change(zone: tzinfo, start: datetime, end: datetime) -> datetime | None:
    """The first moment in ``(start, end]`` from which local time has another offset than at ``start``; None: none."""
    if isinstance(zone, timezone):
        return None
    offset = offset_at(start, zone)
    before = start
    while before < end:
        probe = min(before + _PROBE, end)
        if offset_at(probe, zone) != offset:
            return _change(before, probe, zone)
        before = probe
    return None


def _change(before: datetime, after: datetime, zone: tzinfo) -> datetime:
    """The first second in ``(before, after]`` with the offset of ``after``, where ``before`` has another."""
    offset = offset_at(after, zone)
    while after - before > _SECOND:
        middle = before + (after - before) // 2 // _SECOND * _SECOND
        if offset_at(middle, zone) == offset:
            after = middle
        else:
            before = middle
    return after
