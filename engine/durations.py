"""Durations and instants as authors write them, and as history stores them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from engine import limits

Duration = timedelta | float
"""A timedelta, or a number of seconds."""


def milliseconds(duration: Duration) -> int:
    """A duration in milliseconds, rounded up, so that nothing is ever too early.

    Raises:
        ValueError: it is not a number, or longer than a hundred years.
    """
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    check_duration(seconds)
    return -int(-seconds * 1000 // 1)


def check_duration(seconds: float) -> None:
    """Raise where a duration is no number, or longer than a hundred years."""
    if seconds != seconds or seconds > limits.SLEEP_MAX_S:  # noqa: PLR0124 - NaN is not itself
        raise ValueError(f"a duration of {seconds} s is not possible; at most {limits.SLEEP_MAX_S} s (a hundred years)")


def to_datetime(at_ms: int) -> datetime:
    """An instant in milliseconds since the epoch as an aware datetime in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def to_seconds(duration: Duration) -> float:
    """A duration in seconds."""
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
