"""The trip: all of it is booked, or nothing is left booked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from engine import JoinError
from engine.testing import MemoryDriver, VirtualClock, drive
from examples import trip as example
from examples.trip import Itinerary, SoldOutError, Trip, trip

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def cancelled() -> Iterator[list[example.Booking]]:
    example.cancelled.clear()
    yield example.cancelled
    example.cancelled.clear()


async def book(*sold_out: str) -> Itinerary:
    clock = VirtualClock()
    wanted = Trip(traveller="Ada", city="Rome", nights=2, sold_out=list(sold_out))
    result = await drive("trip-1", trip, wanted, MemoryDriver(clock=clock), clock)
    assert isinstance(result.output, Itinerary)
    return result.output


async def test_a_trip_is_booked_and_paid(cancelled: list[example.Booking]) -> None:
    booked = await book()
    assert [booking.service for booking in booked.bookings] == ["flight", "hotel", "car"]
    assert booked.total_cents == 18_900 + 2 * (9_500 + 4_200)
    assert len({booking.reference for booking in booked.bookings}) == 3
    assert cancelled == []


@pytest.mark.parametrize(
    ("sold_out", "taken_back"),
    [
        (["car"], {"flight", "hotel"}),
        (["flight", "hotel"], {"car"}),
        (["payment"], {"flight", "hotel", "car"}),
        (["flight", "hotel", "car"], set()),
    ],
)
async def test_what_was_booked_is_taken_back_where_the_trip_is_off(
    sold_out: list[str], taken_back: set[str], cancelled: list[example.Booking]
) -> None:
    with pytest.raises((JoinError, SoldOutError), match=r"is left in Rome|card is empty"):
        await book(*sold_out)
    assert {booking.service for booking in cancelled} == taken_back
    assert len(cancelled) == len(taken_back)
