"""When schedules occur: cron across changes of the clock, intervals, single times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import InvalidScheduleError
from engine.schedules.timing import At, Cron, Every, parse_instant, parse_interval, upcoming
from engine.schedules.zones import instant_of, next_change, offset_at, zone_of

if TYPE_CHECKING:
    from collections.abc import Callable

CHANGES = {
    "Europe/Berlin": ("2026-03-29T02:00", "2026-10-25T02:00"),
    "America/New_York": ("2026-03-08T02:00", "2026-11-01T01:00"),
    "Australia/Lord_Howe": ("2026-10-04T02:00", "2026-04-05T01:30"),
    "Pacific/Apia": ("2011-12-30T00:00", "2012-04-01T03:00"),
    "Africa/Cairo": ("2026-04-24T00:00", "2026-10-29T23:00"),
}
"""For each zone a local time that is skipped, and one that comes twice."""

WALLS = [wall for pair in CHANGES.values() for wall in pair]


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 1000


def local(expression: str, zone: str, start: str, count: int) -> list[str]:
    """The next occurrences, in local time, after an instant in UTC."""
    found = islice(upcoming(Cron(expression=expression, zone=zone), ms(start)), count)
    return [
        datetime.fromtimestamp(at // 1000, UTC).astimezone(zone_of(zone)).isoformat(timespec="minutes") for at in found
    ]


# --- changes of the clock -----------------------------------------------------------------------------------------


def test_a_skipped_time_occurs_when_the_clocks_change_and_once() -> None:
    assert local("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00Z", 3) == [
        "2026-03-28T02:30+01:00",
        "2026-03-29T03:00+02:00",
        "2026-03-30T02:30+02:00",
    ]


def test_several_skipped_times_are_one_occurrence() -> None:
    assert local("*/20 2 * * *", "Europe/Berlin", "2026-03-28T02:00Z", 2) == [
        "2026-03-29T03:00+02:00",
        "2026-03-30T02:00+02:00",
    ]


def test_a_skipped_time_and_the_moment_of_the_change_are_one_occurrence() -> None:
    assert local("0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00Z", 2) == [
        "2026-03-29T03:00+02:00",
        "2026-03-30T02:00+02:00",
    ]


def test_a_time_that_comes_twice_occurs_the_first_time() -> None:
    assert local("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z", 2) == [
        "2026-10-25T02:30+02:00",
        "2026-10-26T02:30+01:00",
    ]
    # Whoever asks between the two, or in the second, is not given it again.
    assert local("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10Z", 1) == ["2026-10-26T02:30+01:00"]


def test_every_hour_means_every_hour_that_passes() -> None:
    assert local("30 * * * *", "Europe/Berlin", "2026-10-24T23:00Z", 4) == [
        "2026-10-25T01:30+02:00",
        "2026-10-25T02:30+02:00",
        "2026-10-25T02:30+01:00",
        "2026-10-25T03:30+01:00",
    ]
    assert local("30 0-23 * * *", "Europe/Berlin", "2026-03-29T00:00Z", 2) == [
        "2026-03-29T01:30+01:00",
        "2026-03-29T03:30+02:00",
    ]


def test_half_an_hour_that_comes_twice() -> None:
    assert local("35,50 * * * *", "Australia/Lord_Howe", "2026-04-04T14:15Z", 5) == [
        "2026-04-05T01:35+11:00",
        "2026-04-05T01:50+11:00",
        "2026-04-05T01:35+10:30",
        "2026-04-05T01:50+10:30",
        "2026-04-05T02:35+10:30",
    ]


def test_a_day_that_was_skipped_is_one_occurrence() -> None:
    assert local("0 9,17 * * *", "Pacific/Apia", "2011-12-30T00:00Z", 4) == [
        "2011-12-29T17:00-10:00",
        "2011-12-31T00:00+14:00",
        "2011-12-31T09:00+14:00",
        "2011-12-31T17:00+14:00",
    ]


def test_half_past_twelve_where_midnight_is_skipped() -> None:
    assert local("30 0 * * *", "Africa/Cairo", "2026-04-23T00:00Z", 2) == [
        "2026-04-24T01:00+03:00",
        "2026-04-25T00:30+03:00",
    ]


@pytest.mark.parametrize(("zone", "wall"), [(zone, wall) for zone, walls in CHANGES.items() for wall in walls])
def test_the_change_is_found_to_the_second(zone: str, wall: str) -> None:
    start = datetime.fromisoformat(wall).replace(tzinfo=UTC) - timedelta(days=3)
    change = next_change(zone_of(zone), start, start + timedelta(days=6))
    assert change is not None
    before = change - timedelta(seconds=1)
    assert offset_at(before, zone_of(zone)) == offset_at(start, zone_of(zone)) != offset_at(change, zone_of(zone))


@settings(max_examples=150, deadline=None)
@given(
    zone=st.sampled_from(sorted(CHANGES)),
    skipped=st.booleans(),
    ahead_s=st.integers(-200_000, 200_000),
    minute=st.sampled_from(["0", "*", "*/20", "5,30,59", "59"]),
    hour=st.sampled_from(["*", "0", "1", "2", "3", "*/2", "0-4", "1,2,23", "0-23"]),
    days=st.sampled_from(["* * *", "* * SUN", "L * *", "1 * MON#1"]),
)
def test_occurrences_go_forward_and_none_is_left_out_or_doubled(
    zone: str,
    skipped: bool,  # noqa: FBT001 - hypothesis names its arguments
    ahead_s: int,
    minute: str,
    hour: str,
    days: str,
) -> None:
    wall = datetime.fromisoformat(CHANGES[zone][0 if skipped else 1])
    start = (wall.replace(tzinfo=UTC) + timedelta(seconds=ahead_s)).replace(microsecond=0)
    timing = Cron(expression=f"{minute} {hour} {days}", zone=zone)
    start_ms, end_ms = int(start.timestamp()) * 1000, int((start + timedelta(days=3)).timestamp()) * 1000
    found = list(upcoming(timing, start_ms, end_ms))
    assert all(before < after for before, after in pairwise([start_ms, *found]))
    # Wherever one begins to look, the rest is the same.
    for begin in {start_ms, *found[:3]}:
        assert list(islice(upcoming(timing, begin, end_ms), 3)) == [at for at in found if at > begin][:3]
    assert found == expected(timing, start, end_ms)


def expected(timing: Cron, start: datetime, end_ms: int) -> list[int]:
    """The slow way: every minute of local time, or every minute that passes, held against the fields."""
    zone = zone_of(timing.zone)
    minutes, hours, days = fields(timing.expression)
    instants: set[int] = set()
    if len(hours) == 24:
        moments = [start.replace(second=0) + timedelta(minutes=each) for each in range(3 * 1440 + 2)]
        for moment in moments:
            wall = moment.astimezone(zone)
            if wall.minute in minutes and days(wall):
                instants.add(int(moment.timestamp()) * 1000)
    else:
        first = start.astimezone(zone).replace(tzinfo=None, second=0) - timedelta(days=2)
        for wall in (first + timedelta(minutes=each) for each in range(7 * 1440)):
            if wall.minute in minutes and wall.hour in hours and days(wall):
                instants.add(int(instant_of(wall, zone).timestamp()) * 1000)
    return sorted(at for at in instants if int(start.timestamp()) * 1000 < at <= end_ms)


def fields(expression: str) -> tuple[set[int], set[int], Callable[[datetime], bool]]:
    minute, hour, day, _, weekday = expression.split()

    def numbers(text: str, end: int) -> set[int]:
        if text.startswith("*"):
            return set(range(0, end, int(text.partition("/")[2] or 1)))
        if "-" in text:
            first, last = map(int, text.split("-"))
            return set(range(first, last + 1))
        return set(map(int, text.split(",")))

    def is_day(wall: datetime) -> bool:
        if day == "L":
            return (wall + timedelta(days=1)).day == 1
        if weekday == "SUN":
            return wall.weekday() == 6
        if weekday == "MON#1":
            return wall.day == 1 or (wall.weekday() == 0 and wall.day <= 7)
        return True

    return numbers(minute, 60), numbers(hour, 24), is_day


# --- expressions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "first"),
    [
        ("0 9 * * MON-FRI", "2026-01-01T09:00+00:00"),
        ("0 0 L FEB *", "2026-02-28T00:00+00:00"),
        ("0 0 LW * *", "2026-01-30T00:00+00:00"),
        ("15 10 * * 5L", "2026-01-30T10:15+00:00"),
        ("0 12 * JAN,JUL MON#2", "2026-01-12T12:00+00:00"),
        ("5/20 8 * * 7", "2026-01-04T08:05+00:00"),
        ("0 0 29 2 *", "2028-02-29T00:00+00:00"),
        ("0 * 29 2 *", "2028-02-29T00:00+00:00"),
    ],
)
def test_expressions(expression: str, first: str) -> None:
    assert local(expression, "UTC", "2026-01-01T00:00Z", 1) == [first]


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* * 31 2 *",
        "@daily",
        "*/0 * * * *",
        "a b c d e",
        "5-1 * * * *",
        "* * * * \u00b2L",
        "1" * 5000 + " * * * *",
        "1," * 200 + "1 * * * *",
        "\x00 * * * *",
    ],
)
def test_what_is_no_expression_is_refused_and_told_how_to_be_one(expression: str) -> None:
    with pytest.raises(InvalidScheduleError, match=r"the fields are|five fields"):
        Cron(expression=expression).check()


@given(st.text("0123456789*/,-#LWMONJA \t", max_size=60))
def test_whatever_is_written_is_an_expression_or_refused(text: str) -> None:
    try:
        Cron(expression=text).check()
    except InvalidScheduleError:
        return
    found = Cron(expression=text, zone="Europe/Berlin").next_after(ms("2026-03-28T00:00Z"))
    assert found is None or found > ms("2026-03-28T00:00Z")


def test_an_expression_that_never_comes_true_has_no_occurrence() -> None:
    assert Cron(expression="0 0 */20 * 1L").next_after(ms("2026-01-01T00:00Z")) is None
    assert Cron(expression="0 0 1 1 *").next_after(ms("9999-06-01T00:00Z")) is None


@pytest.mark.parametrize("zone", ["Europe/Berlim", "", "../etc/passwd", "/etc/localtime", "\x00", "CEST+1", "Europe"])
def test_what_is_no_zone_is_refused(zone: str) -> None:
    with pytest.raises(InvalidScheduleError, match="IANA"):
        Cron(expression="* * * * *", zone=zone).check()


# --- intervals and single times -----------------------------------------------------------------------------------


@given(st.integers(1, 10**7), st.integers(0, 2**37), st.integers(0, 2**42))
def test_an_interval_is_aligned_to_its_anchor(interval_s: int, anchor_s: int, at_ms: int) -> None:
    timing = Every(interval_s=interval_s, anchor_ms=anchor_s * 1000)
    found = timing.next_after(at_ms)
    assert found is not None
    assert found > at_ms
    assert (found - anchor_s * 1000) % (interval_s * 1000) == 0
    assert found == anchor_s * 1000 or found - interval_s * 1000 <= at_ms


def test_an_interval_ends_with_the_calendar() -> None:
    timing = Every(interval_s=86400, anchor_ms=ms("9999-12-31T00:00Z"))
    assert list(upcoming(timing, 0)) == [timing.anchor_ms]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("1h30m", 5400), ("1d", 86400), ("2w", 1209600)]
)
def test_intervals_are_read(text: str, seconds: int) -> None:
    assert parse_interval(text) == seconds


@pytest.mark.parametrize("text", ["", "15", "m", "1.5h", "-1h", "1h 30m", "1y", "\u0661s", "9" * 11 + "s"])
def test_what_is_no_interval_is_refused(text: str) -> None:
    with pytest.raises(InvalidScheduleError, match="15m"):
        parse_interval(text)


@pytest.mark.parametrize("seconds", [-5, 0, 1, 10**12])
def test_an_interval_has_bounds(seconds: int) -> None:
    with pytest.raises(InvalidScheduleError, match="not possible"):
        Every(interval_s=seconds).check()


def test_a_single_time_occurs_once() -> None:
    timing = At(at_ms=ms("2026-11-29T09:00Z"))
    assert list(upcoming(timing, ms("2026-11-29T08:59Z"))) == [timing.at_ms]
    assert timing.next_after(timing.at_ms) is None


def test_times_are_read_in_the_zone_that_is_given() -> None:
    assert parse_instant("2026-11-29T09:00", "Europe/Berlin") == ms("2026-11-29T08:00Z")
    assert parse_instant("2026-03-29T02:30", "Europe/Berlin") == ms("2026-03-29T01:00Z")
    assert parse_instant("2026-11-29T09:00:00.75+02:00", "Europe/Berlin") == ms("2026-11-29T07:00Z")


@pytest.mark.parametrize(
    "text", ["", "soon", "2026-13-01T00:00Z", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00+14:00"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidScheduleError, match="ISO 8601"):
        parse_instant(text, "America/New_York")
