"""What a turn puts on the bus: in order, beside the run, and never a reason for it to fail."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from adapters.events import EVENT_BYTES_MAX
from engine.clock import SystemClock
from engine.commit import Publication
from engine.errors import StoreUnavailableError
from engine.values import encode
from handlers.publishing import Publisher, event_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from adapters.events import Event

CLOCK = SystemClock()
WHO = {"workflow_id": "order-17", "workflow_type": "order"}


def publication(number: int, body: Any = None) -> Publication:
    return Publication(
        id=f"id-{number}", name="progress", topic="order:17", body=encode(body), sent_at=1_767_225_600_123
    )


class Bus:
    """A bus that takes its time, and fails where a test says so."""

    def __init__(self, *plan: Exception | None, takes_s: float = 0.0) -> None:
        self.plan = list(plan)
        self.takes_s = takes_s
        self.puts: list[list[str]] = []

    async def put(self, events: Sequence[Event]) -> None:
        await asyncio.sleep(self.takes_s)
        self.puts.append([json.loads(event.detail)["id"] for event in events])
        error = self.plan.pop(0) if self.plan else None
        if error is not None:
            raise error


def soon() -> int:
    """Later than any machine stands still."""
    return CLOCK.now() + 60_000


async def test_what_comes_while_the_bus_is_busy_goes_together_with_the_next_request() -> None:
    bus = Bus(takes_s=0.01)
    publisher = Publisher(bus, CLOCK, **WHO)
    publisher.publish([publication(1), publication(2)])
    await asyncio.sleep(0)
    publisher.publish([publication(3)])
    publisher.publish([publication(4)])
    assert bus.puts == []
    await publisher.settle(until=soon())
    assert bus.puts == [["id-1", "id-2"], ["id-3", "id-4"]]
    publisher.publish([publication(5)])
    await publisher.settle(until=soon())
    assert bus.puts[2:] == [["id-5"]]


@pytest.mark.parametrize("error", [StoreUnavailableError("EventBridge failed"), ZeroDivisionError()])
async def test_a_failure_is_logged_and_costs_those_events_alone(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    bus = Bus(error, takes_s=0.01)
    publisher = Publisher(bus, CLOCK, **WHO)
    publisher.publish([publication(1)])
    await asyncio.sleep(0)
    publisher.publish([publication(2)])
    await publisher.settle(until=soon())
    assert bus.puts == [["id-1"], ["id-2"]]
    [line] = [vars(record) for record in caplog.records]
    assert (line["message"], line["workflow_id"], line["count"]) == ("publications lost", "order-17", 1)


async def test_a_bus_that_hangs_is_left_when_the_invocation_ends(caplog: pytest.LogCaptureFixture) -> None:
    publisher = Publisher(Bus(takes_s=3600), CLOCK, **WHO)
    publisher.publish([publication(1)])
    await publisher.settle(until=CLOCK.now() + 20)
    assert [record.message for record in caplog.records] == ["publications lost"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_without_a_bus_nothing_happens() -> None:
    publisher = Publisher(None, CLOCK, **WHO)
    publisher.publish([publication(1)])
    await publisher.settle(until=soon())


# --- events -----------------------------------------------------------------------------------------------------------


def test_an_event_says_what_was_published_and_by_whom() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    event = event_of(publication(1, {"at": at, "raw": b"\x00", "big": 2**70, "small": -5, "on": True}), WHO)
    assert (event.detail_type, event.at_ms) == ("progress", 1_767_225_600_123)
    assert json.loads(event.detail) == {
        "id": "id-1",
        "topic": "order:17",
        "ts": "2026-01-01T00:00:00.123000+00:00",
        "workflow_id": "order-17",
        "workflow_type": "order",
        "body": {"at": "2026-01-01T00:00:00+00:00", "raw": "AA==", "big": str(2**70), "small": -5, "on": True},
    }


def test_a_body_that_no_event_can_carry_is_left_out_and_that_is_said() -> None:
    event = event_of(publication(1, "ü" * (EVENT_BYTES_MAX // 6)), WHO)
    detail = json.loads(event.detail)
    assert (detail["body"], detail["truncated"], detail["id"]) == (None, True, "id-1")
    assert event.size < 1000
    whole = event_of(publication(1, "x" * (EVENT_BYTES_MAX - 1000)), WHO)
    assert "truncated" not in json.loads(whole.detail)
