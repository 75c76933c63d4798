"""Sleeps, as authors perform them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, overload

from engine.author.operating import ABSENT, Operating
from engine.durations import check_duration, milliseconds
from engine.entry import SleepEntry
from engine.ops import sleep

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from engine.durations import Duration


class Waiting(Operating):
    """How a context lets time pass."""

    __slots__ = ()

    @overload
    def sleep(self, name: str, duration: Duration) -> Coroutine[Any, Any, None]: ...

    @overload
    def sleep(self, duration: Duration, /) -> Coroutine[Any, Any, None]: ...

    def sleep(self, name: Any, duration: Any = ABSENT) -> Coroutine[Any, Any, None]:
        """Sleep for ``duration`` (a timedelta or seconds) from when this is first reached; up to a hundred years.

        ``name`` is left out in a scope without names.
        """
        label, duration = (None, name) if duration is ABSENT else (name, duration)
        deadline = max(0, self._scope.turn.clock.now() + milliseconds(duration))
        return self._perform(label, SleepEntry.kind, lambda used: sleep.run(self._scope, used, deadline))

    @overload
    def sleep_until(self, name: str, instant: datetime) -> Coroutine[Any, Any, None]: ...

    @overload
    def sleep_until(self, instant: datetime, /) -> Coroutine[Any, Any, None]: ...

    def sleep_until(self, name: Any, instant: Any = ABSENT) -> Coroutine[Any, Any, None]:
        """Sleep until ``instant``, an aware datetime; ``name`` is left out in a scope without names.

        Raises:
            TypeError: it is no datetime.
            ValueError: the datetime is naive.
        """
        label, instant = (None, name) if instant is ABSENT else (name, instant)
        if not isinstance(instant, datetime):
            raise TypeError(f"sleep_until needs an aware datetime, not {instant!r}")
        if instant.tzinfo is None:
            raise ValueError(
                f"sleep_until({label or instant!r}) needs an aware datetime; add a time zone, e.g. tzinfo=datetime.UTC"
            )
        deadline = round(instant.timestamp() * 1000)
        check_duration((deadline - self._scope.turn.clock.now()) / 1000)
        return self._perform(label, SleepEntry.kind, lambda used: sleep.run(self._scope, used, max(0, deadline)))
