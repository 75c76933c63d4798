"""What a turn publishes: put on the event bus while the workflow goes on, and awaited before the turn ends.

The bus is the fast path. What fails here costs a delivery there and nothing else: what was published is in the store,
where ``GET /messages/{name}`` finds it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

from adapters.events import EVENT_BYTES_MAX, Event
from engine.clock import sleep
from engine.errors import DriverError
from engine.values import decode
from handlers import bodies
from handlers.calls import instant

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from engine.commit import Publication
    from engine.driver import Clock

    class Bus(Protocol):
        """Where events go; ``adapters.events.EventBus`` is one."""

        async def put(self, events: Sequence[Event]) -> None:
            """See ``EventBus.put``."""


logger = logging.getLogger(__name__)

INTEGER_MAX = 2**63 - 1
"""The largest integer in an event's detail, and less one the smallest. Source: EventBridge's PutEvents."""


class Publisher:
    """Takes what one workflow's commits publish to ``bus``, in order; where that is None, nowhere."""

    def __init__(self, bus: Bus | None, clock: Clock, **publisher: str) -> None:
        self._bus = bus
        self._clock = clock
        self._publisher = publisher
        self._queued: list[Publication] = []
        self._work: asyncio.Task[None] | None = None

    def publish(self, published: Sequence[Publication]) -> None:
        """Put ``published`` on the bus soon, without waiting for it."""
        if self._bus is None:
            return
        self._queued += published
        if self._work is None or self._work.done():
            self._work = asyncio.get_running_loop().create_task(self._put_all(self._bus))

    async def settle(self, *, until: int) -> None:
        """Return when everything is on the bus or has failed, at ``until`` (milliseconds) at the latest."""
        if self._work is None or self._work.done():
            return
        deadline = asyncio.ensure_future(sleep(self._clock, max(0, until - self._clock.now()) / 1000))
        try:
            await asyncio.wait({self._work, deadline}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            deadline.cancel()
        if not self._work.done():
            self._work.cancel()
            await asyncio.wait({self._work})
            logger.warning("publications lost", extra={**self._publisher, "reason": "no time left"})

    async def _put_all(self, bus: Bus) -> None:
        while self._queued:
            taken, self._queued = self._queued, []
            try:
                await bus.put([event_of(one, self._publisher) for one in taken])
            except DriverError as error:
                fields = {**self._publisher, "count": len(taken), "error": f"{type(error).__name__}: {error}"}
                logger.warning("publications lost", extra=fields)
            except Exception:
                # A bug of ours; what the workflow has done is written, and goes on being right.
                logger.exception("publications lost", extra={**self._publisher, "count": len(taken)})


def event_of(publication: Publication, publisher: dict[str, str]) -> Event:
    """The event that tells of ``publication``; ``publisher`` is what its detail says of who published it."""
    about = {
        "id": publication.id,
        "topic": publication.topic,
        "ts": bodies.plain(instant(publication.sent_at)),
        **publisher,
    }
    body = _bounded(bodies.plain(decode(publication.body)))
    event = _event(publication, {**about, "body": body})
    if event.size <= EVENT_BYTES_MAX:
        return event
    return _event(publication, {**about, "body": None, "truncated": True})


def _event(publication: Publication, detail: dict[str, Any]) -> Event:
    text = json.dumps(detail, allow_nan=False, separators=(",", ":"))
    return Event(detail_type=publication.name, detail=text, at_ms=publication.sent_at)


def _bounded(value: Any) -> Any:
    """``value`` with the integers that EventBridge cannot carry as texts."""
    if isinstance(value, dict):
        return {key: _bounded(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_bounded(child) for child in value]
    if isinstance(value, int) and not -INTEGER_MAX - 1 <= value <= INTEGER_MAX:
        return str(value)
    return value
