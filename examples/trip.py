"""A trip booked with three services, or not at all: a saga. What one refuses, the others take back."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine import ActivityContext, Context, NonRetryable, RollbackContext, activity, workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Trip:
    """Where to and when. Our pretended services say no to what is in ``sold_out``: flight, hotel, car, payment."""

    traveller: str
    city: str
    nights: int
    sold_out: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """What a service has promised; ``reference`` is what it wants to hear when that is to be undone."""

    service: str
    reference: str
    price_cents: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Itinerary:
    """A trip that is booked and paid."""

    traveller: str
    bookings: list[Booking]
    total_cents: int


class SoldOutError(NonRetryable):
    """The service has nothing left: asking again does not help, so the trip is off and what is booked is given back."""


@workflow("trip")
async def trip(ctx: Context, trip: Trip) -> Itinerary:
    """Book all of it side by side, then pay; where one of these fails, every booking that was made is cancelled."""
    await ctx.rollback_checkpoint("begin")

    async def book(branch: Context, service: str) -> Booking:
        return await branch.activity(SERVICES[service], trip)

    bookings = await ctx.map("book", SERVICES, book)
    total_cents = await ctx.activity(pay, trip, bookings)
    return Itinerary(traveller=trip.traveller, bookings=bookings, total_cents=total_cents)


# --- the services, each as an activity and what undoes it -------------------------------------------------------------


async def cancel(_ctx: RollbackContext, booking: Booking) -> None:
    """Give back what was booked. It may be called twice for one booking: a real service is handed its reference."""
    cancelled.append(replace(booking, price_cents=0))


cancelled: list[Booking] = []
"""What this process has given back; a real service would know."""


@activity(rollback=cancel)
async def book_flight(ctx: ActivityContext, trip: Trip) -> Booking:
    """A seat there and back."""
    return _reserve(ctx, trip, "flight", 18_900)


@activity(rollback=cancel)
async def book_hotel(ctx: ActivityContext, trip: Trip) -> Booking:
    """A room for every night."""
    return _reserve(ctx, trip, "hotel", 9_500 * trip.nights)


@activity(rollback=cancel)
async def book_car(ctx: ActivityContext, trip: Trip) -> Booking:
    """A small car."""
    return _reserve(ctx, trip, "car", 4_200 * trip.nights)


SERVICES = {"flight": book_flight, "hotel": book_hotel, "car": book_car}
"""Who must be asked for a trip, in the order of its bookings."""


@activity
async def pay(ctx: ActivityContext, trip: Trip, bookings: list[Booking]) -> int:
    """What the traveller was charged, in cents."""
    if "payment" in trip.sold_out:
        raise SoldOutError(f"{trip.traveller}'s card is empty")
    ctx.log.info("charging %s", trip.traveller)
    return sum(booking.price_cents for booking in bookings)


def _reserve(ctx: ActivityContext, trip: Trip, service: str, price_cents: int) -> Booking:
    if service in trip.sold_out:
        raise SoldOutError(f"no {service} is left in {trip.city}")
    # The key is the same for every attempt, so that a service which is asked twice books once.
    return Booking(service=service, reference=ctx.idempotency_key, price_cents=price_cents)
