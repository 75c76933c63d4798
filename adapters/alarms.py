"""Alarms: near ones are SQS delays, which keep seconds; far ones are schedules, which only keep minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from adapters.sqs import DELAY_S_MAX, Wake

if TYPE_CHECKING:
    from engine.driver import Clock

SCHEDULE_EARLY_S = 60
"""How many seconds before an alarm its schedule is aimed: it may go off up to a minute late. Source: the service."""

SCHEDULE_AHEAD_S_MAX = 366 * 86_400
"""How far ahead a schedule is set, in seconds; it then counts as an early wake and is set anew. Design choice."""


class Delay(Struct, frozen=True):
    """Send the wake now, delayed by ``delay_s`` seconds."""

    delay_s: int


class Schedule(Struct, frozen=True):
    """Have the wake sent at ``at_s``, whole seconds since the epoch, always to come."""

    at_s: int


def decide(at_ms: int, now_ms: int) -> Delay | Schedule:
    """How to be woken at ``at_ms``; what is past is now.

    Rounded down to seconds: whoever is woken within the last second waits for the rest of it in memory, and is then
    on time to the millisecond, where rounding up would make everyone half a second late.
    """
    ahead_s = max(0, (at_ms - now_ms) // 1000)
    if ahead_s <= DELAY_S_MAX:
        return Delay(ahead_s)
    return Schedule(now_ms // 1000 + min(ahead_s - SCHEDULE_EARLY_S, SCHEDULE_AHEAD_S_MAX))


def schedule_ms(at_ms: int | None, now_ms: int) -> int | None:
    """When the schedule for an alarm at ``at_ms`` goes off, in milliseconds; None where it needs none."""
    if at_ms is None:
        return None
    match decide(at_ms, now_ms):
        case Schedule(at_s):
            return at_s * 1000
        case Delay():
            return None


class _Queue(Protocol):
    async def wake(self, workflow_id: str, delay_s: int = 0, *, alarm_at: int | None = None) -> None: ...


class _Scheduler(Protocol):
    async def set(self, wake: Wake, at_s: int) -> None: ...
    async def clear(self, workflow_id: str) -> None: ...


class Alarms:
    """Arms the alarms that commits have written, after those commits."""

    __slots__ = ("_clock", "_queue", "_scheduler")

    def __init__(self, queue: _Queue, scheduler: _Scheduler, clock: Clock) -> None:
        self._queue = queue
        self._scheduler = scheduler
        self._clock = clock

    async def arm(self, workflow_id: str, at_ms: int) -> None:
        """Have a workflow woken at ``at_ms`` (milliseconds since the epoch), or up to a minute early where it is far.

        Raises:
            StoreUnavailableError: the sweeper will wake it instead.
        """
        match decide(at_ms, self._clock.now()):
            case Delay(delay_s):
                await self._queue.wake(workflow_id, delay_s, alarm_at=at_ms)
            case Schedule(at_s):
                await self._scheduler.set(Wake(workflow_id=workflow_id, alarm_at=at_ms), at_s)

    async def clear(self, workflow_id: str) -> None:
        """Delete a workflow's schedule, where its driver says that it may have one: each call costs.

        Raises:
            StoreUnavailableError: it may go off yet, as a stale wake that is dropped.
        """
        await self._scheduler.clear(workflow_id)
