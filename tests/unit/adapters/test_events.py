"""The event bus: batches within its limits, and what is put again where a part of them was refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from adapters.events import ENTRIES_MAX, EVENT_BYTES_MAX, REQUEST_BYTES_MAX, Event, EventBus, batches
from engine.errors import StoreUnavailableError
from engine.testing import VirtualClock

BUS = "torpor-messages"


def event(number: int, size: int = 20) -> Event:
    return Event(detail_type="progress", detail=f'"{number:0{size}d}"', at_ms=1_700_000_000_000)


class Service:
    """The service's side of PutEvents: its limits, and answers that a test has planned."""

    def __init__(self, clock: VirtualClock, *plan: Any) -> None:
        self.clock = clock
        self.plan = list(plan)
        self.requests: list[list[str]] = []
        self.taken: list[str] = []

    async def put_events(self, **arguments: Any) -> dict[str, Any]:
        entries = arguments["Entries"]
        assert 1 <= len(entries) <= ENTRIES_MAX
        assert sum(len(entry["Detail"]) for entry in entries) <= 2**20
        assert {(entry["EventBusName"], entry["Source"]) for entry in entries} == {(BUS, "torpor")}
        self.requests.append([entry["Detail"] for entry in entries])
        refused = self.plan.pop(0) if self.plan else []
        if isinstance(refused, Exception):
            raise refused
        answers: list[dict[str, str]] = []
        for index, entry in enumerate(entries):
            if index in refused:
                answers.append({"ErrorCode": "ThrottlingException", "ErrorMessage": "slow down"})
            else:
                answers.append({"EventId": f"event-{len(self.taken)}"})
                self.taken.append(entry["Detail"])
        return {"FailedEntryCount": len(refused), "Entries": answers}


async def put(service: Service, events: list[Event]) -> None:
    """Put ``events``; the clock moves on whenever the bus waits."""
    work = asyncio.ensure_future(EventBus(service, BUS, service.clock).put(events))
    for _ in range(100):
        await asyncio.sleep(0)
        if not work.done() and (at_ms := service.clock.next_timer()) is not None:
            service.clock.advance_to(at_ms)
    await work


def client_error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "injected"}}, "PutEvents")


async def test_many_events_go_in_few_requests_and_in_order() -> None:
    service = Service(VirtualClock())
    await put(service, [event(number) for number in range(23)])
    assert [len(request) for request in service.requests] == [10, 10, 3]
    assert service.taken == [event(number).detail for number in range(23)]


def test_a_batch_has_no_more_bytes_than_a_request_takes() -> None:
    events = [event(number, EVENT_BYTES_MAX - 100) for number in range(9)]
    assert all(each.size <= EVENT_BYTES_MAX for each in events)
    found = list(batches(events))
    assert [each for batch in found for each in batch] == events
    assert max(sum(each.size for each in batch) for batch in found) <= REQUEST_BYTES_MAX
    assert len(found) == 3
    assert list(batches([])) == []


async def test_what_is_refused_alone_is_put_again_alone() -> None:
    service = Service(VirtualClock(), [1, 2])
    await put(service, [event(number) for number in range(3)])
    assert service.requests[1] == [event(1).detail, event(2).detail]
    assert sorted(service.taken) == [event(number).detail for number in range(3)]


async def test_what_is_refused_again_and_again_is_given_up() -> None:
    service = Service(VirtualClock(), [0], [0], [0])
    with pytest.raises(StoreUnavailableError, match="refused 1 of 2 events, 3 times"):
        await put(service, [event(0), event(1)])
    assert service.taken == [event(1).detail]


async def test_a_request_that_is_throttled_is_put_again() -> None:
    service = Service(VirtualClock(), client_error("ThrottlingException"))
    await put(service, [event(0)])
    assert service.taken == [event(0).detail]


@pytest.mark.parametrize(
    "error", [ReadTimeoutError(endpoint_url="http://events"), client_error("InternalException")], ids=["lost", "broken"]
)
async def test_what_may_have_been_taken_is_never_put_twice_and_the_next_batch_goes_all_the_same(
    error: Exception,
) -> None:
    service = Service(VirtualClock(), error)
    with pytest.raises(StoreUnavailableError):
        await put(service, [event(number) for number in range(12)])
    assert [len(request) for request in service.requests] == [10, 2]
    assert service.taken == [event(10).detail, event(11).detail]
