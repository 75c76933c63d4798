"""When a schedule occurs: by a cron expression, at an interval, or once."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from engine.durations import to_datetime
from engine.errors import InvalidScheduleError
from engine.schedules import cron
from engine.schedules.zones import instant_of, zone_of

if TYPE_CHECKING:
    from collections.abc import Iterator

UTC_NAME = "UTC"

INTERVAL_MIN_S = 2
"""Least seconds between two occurrences of an interval. Source: waits of less than a second are spent in memory, so
that a schedule of each second would keep a function busy for ever."""

INTERVAL_MAX_S = 10 * 366 * 86400
"""Most seconds between them (ten years). Design choice: what is longer is a mistake of units."""

INSTANT_MS_MAX = 253_402_300_799_000
"""The last second that a date can say. Source: Python's ``datetime`` ends with the year 9999."""

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_INTERVAL = re.compile(r"(?:[0-9]{1,10}[smhdw])+")
_PART = re.compile(r"([0-9]+)([smhdw])")


class Cron(Struct, frozen=True, kw_only=True, tag="cron"):
    """At the local times of ``zone`` (an IANA name) that the cron ``expression`` of five fields names."""

    expression: str
    zone: str = UTC_NAME

    def check(self) -> None:
        """Raise ``InvalidScheduleError`` where it is none."""
        zone_of(self.zone)
        cron.check(self.expression)

    def next_after(self, at_ms: int) -> int | None:
        """The first occurrence after ``at_ms`` (milliseconds since the epoch), None where there is none."""
        found = cron.next_after(self.expression, zone_of(self.zone), to_datetime(at_ms))
        return None if found is None else int(found.timestamp()) * 1000


class Every(Struct, frozen=True, kw_only=True, tag="every"):
    """At ``anchor_ms`` and each ``interval_s`` seconds after it, whatever clocks on walls say.

    One without an anchor is aligned to the beginning of its schedule.
    """

    interval_s: int
    anchor_ms: int | None = None

    def check(self) -> None:
        """Raise ``InvalidScheduleError`` where it is none."""
        if not INTERVAL_MIN_S <= self.interval_s <= INTERVAL_MAX_S:
            raise InvalidScheduleError(
                f"an interval of {self.interval_s} s is not possible: give {INTERVAL_MIN_S} s to {INTERVAL_MAX_S} s"
            )
        if self.anchor_ms is not None:
            _check_instant(self.anchor_ms)

    def next_after(self, at_ms: int) -> int | None:
        """The first occurrence after ``at_ms`` (milliseconds since the epoch), None where no date can say it."""
        interval_ms = self.interval_s * 1000
        anchor_ms = self.anchor_ms or 0
        passed = max(-1, (at_ms - anchor_ms) // interval_ms)
        found = anchor_ms + (passed + 1) * interval_ms
        return found if found <= INSTANT_MS_MAX else None


class At(Struct, frozen=True, kw_only=True, tag="at"):
    """Once, at ``at_ms``."""

    at_ms: int

    def check(self) -> None:
        """Raise ``InvalidScheduleError`` where it is none."""
        _check_instant(self.at_ms)

    def next_after(self, at_ms: int) -> int | None:
        """The occurrence, None where it has been at ``at_ms`` (milliseconds since the epoch)."""
        return self.at_ms if self.at_ms > at_ms else None


Timing = Cron | Every | At
"""When a schedule occurs; all occurrences are whole seconds."""


def upcoming(timing: Timing, at_ms: int, until_ms: int | None = None) -> Iterator[int]:
    """The occurrences after ``at_ms``, in order, up to and with ``until_ms`` (milliseconds since the epoch)."""
    found = timing.next_after(at_ms)
    while found is not None and (until_ms is None or found <= until_ms):
        yield found
        found = timing.next_after(found)


def _check_instant(at_ms: int) -> None:
    if not 0 <= at_ms <= INSTANT_MS_MAX or at_ms % 1000:
        raise InvalidScheduleError(f"{at_ms} is no time: give whole seconds from 1970 to 9999, as milliseconds")


def parse_interval(text: str) -> int:
    """The seconds of an interval as people write it: ``90s``, ``15m``, ``1h30m``, ``1d``, ``2w``.

    Raises:
        InvalidScheduleError: it is none.
    """
    if not _INTERVAL.fullmatch(text):
        raise InvalidScheduleError(
            f"{text[:80]!r} is no interval: write whole numbers with a unit of s, m, h, d or w, such as 90s, 15m, 1h30m"
        )
    return sum(int(number) * _UNITS_S[unit] for number, unit in _PART.findall(text))


def parse_instant(text: str, zone: str) -> int:
    """A time as people write it, ISO 8601, in milliseconds since the epoch and whole seconds.

    One without an offset is the local time of ``zone``.

    Raises:
        InvalidScheduleError: it is none.
    """
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = instant_of(moment, zone_of(zone))
        return int(moment.astimezone(UTC).timestamp()) * 1000
    except (ValueError, OverflowError):
        raise InvalidScheduleError(
            f"{text[:80]!r} is no time: write ISO 8601, such as 2030-01-31T08:00:00Z, or 2030-01-31T08:00 for the "
            "local time of the schedule's zone"
        ) from None


def format_interval(interval_s: int) -> str:
    """An interval as ``parse_interval`` reads it, in the largest units that fit."""
    parts = []
    for unit, size_s in reversed(_UNITS_S.items()):
        number, interval_s = divmod(interval_s, size_s)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"
