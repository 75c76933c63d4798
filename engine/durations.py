"""Durations and instants as authors write them, and as history stores them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from engine import limits

Duration = timedelta | float
"""A timedelta, or a number of seconds."""


def milliseconds(duration: Duration) -> int:
    """A duration in milliseconds, rounded up, so that nothing is ever too early.

    Raises:
        TypeError: it is neither a timedelta nor a number.
        ValueError: it is infinite, or longer than a hundred years.
    """
    return -int(-to_seconds(duration) * 1000 // 1)


def timeout_milliseconds(timeout: Duration | None) -> int | None:
    """A timeout in milliseconds, None where there is none; a negative one is over at once. Raises as the above."""
    return None if timeout is None else max(0, milliseconds(timeout))


def check_duration(seconds: float) -> None:
    """Raise where a duration is no finite number, or longer than a hundred years."""
    if not math.isfinite(seconds) or seconds > limits.SLEEP_MAX_S:
        raise ValueError(f"a duration of {seconds} s is not possible; at most {limits.SLEEP_MAX_S} s (a hundred years)")


def to_datetime(at_ms: int) -> datetime:
    """An instant in milliseconds since the epoch as an aware datetime in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def to_seconds(duration: Duration) -> float:
    """A duration in seconds; raises as ``milliseconds`` does."""
    if isinstance(duration, timedelta):
        seconds = duration.total_seconds()
    elif isinstance(duration, str):
        raise TypeError(f"a duration is a timedelta or a number of seconds, not {duration!r}")
    else:
        try:
            seconds = float(duration)
        except TypeError:
            raise TypeError(f"a duration is a timedelta or a number of seconds, not {duration!r}") from None
        except OverflowError:
            seconds = math.inf
    check_duration(seconds)
    return seconds
