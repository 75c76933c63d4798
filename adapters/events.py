"""The stack's event bus: events for whoever has a rule on it, and what an event is that is for the stack itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from botocore.exceptions import ClientError
from msgspec import Struct

from adapters.outages import outages_of
from engine.clock import sleep
from engine.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.driver import Clock

SOURCE = "torpor"
"""The ``source`` of every event that the stack puts on its bus."""

MESSAGE = "torpor.message"
"""The ``detail-type`` of an event that is a message; its detail has ``name``, ``body``, maybe ``id``, and either a
``workflow_id`` or a ``type`` with ``tags``: then it goes to the first workflow of that type that has at least these and
has not ended. Any other event with a ``workflow_id`` is a wake."""

ENTRIES_MAX = 10
"""Events in one PutEvents. Source: EventBridge quota."""

EVENT_BYTES_MAX = 250_000
"""Bytes of one event. Source: EventBridge takes 1 MB since January 2026, targets such as SNS 256 KB with what
EventBridge puts around it."""

REQUEST_BYTES_MAX = 1_000_000
"""Bytes of the events of one PutEvents. Source: EventBridge quota, 1 MB since January 2026."""

_TRIES = 3
_PAUSE_S = 0.2
_THROTTLED = frozenset({"ThrottlingException", "ThrottledException"})


class EventsClient(Protocol):
    """The one call of an aiobotocore EventBridge client that we make."""

    async def put_events(self, **arguments: Any) -> dict[str, Any]:
        """The service's call of that name; arguments, answer and errors are its own."""


class Event(Struct, frozen=True, kw_only=True):
    """An event: its ``detail_type``, its ``detail`` as JSON text, when it came to be (milliseconds since the epoch)."""

    detail_type: str
    detail: str
    at_ms: int

    @property
    def size(self) -> int:
        """The bytes that EventBridge counts."""
        return 14 + len(SOURCE) + len(self.detail_type.encode()) + len(self.detail.encode())


class EventBus:
    """Puts events on the bus ``name``; what is not known to be refused is never put twice.

    So its client must not repeat a call by itself.
    """

    __slots__ = ("_client", "_clock", "_name")

    def __init__(self, client: EventsClient, name: str, clock: Clock) -> None:
        self._client = client
        self._name = name
        self._clock = clock

    async def put(self, events: Sequence[Event]) -> None:
        """Put ``events``, at most once each, in their order where nothing is refused.

        Raises:
            StoreUnavailableError: some were not put, or nobody can say whether they were.
        """
        failed: list[StoreUnavailableError] = []
        for batch in batches(events):
            try:
                await self._put(batch)
            except StoreUnavailableError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    async def _put(self, batch: list[Event]) -> None:
        left = batch
        for attempt in range(_TRIES):
            if attempt:
                await sleep(self._clock, _PAUSE_S * attempt)
            left = await self._refused(left)
            if not left:
                return
        raise StoreUnavailableError(f"EventBridge refused {len(left)} of {len(batch)} events, {_TRIES} times")

    async def _refused(self, batch: list[Event]) -> list[Event]:
        """Put a batch; those of it that EventBridge says it did not take, which may be put again."""
        with outages_of("EventBridge"):
            try:
                answer = await self._client.put_events(Entries=[self._entry(event) for event in batch])
            except ClientError as error:
                if error.response["Error"]["Code"] in _THROTTLED:
                    return batch
                raise
        if not answer.get("FailedEntryCount"):
            return []
        told = zip(batch, answer["Entries"], strict=True)
        return [event for event, entry in told if entry.get("ErrorCode")]

    def _entry(self, event: Event) -> dict[str, Any]:
        return {
            "EventBusName": self._name,
            "Source": SOURCE,
            "DetailType": event.detail_type,
            "Detail": event.detail,
            "Time": datetime.fromtimestamp(event.at_ms / 1000, UTC),
        }


def batches(events: Sequence[Event]) -> Iterator[list[Event]]:
    """``events`` in order, as many together as one request takes."""
    batch: list[Event] = []
    size = 0
    for event in events:
        if batch and (len(batch) == ENTRIES_MAX or size + event.size > REQUEST_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(event)
        size += event.size
    if batch:
        yield batch
