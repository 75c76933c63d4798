"""An order, from its first check to the parcel's way: the workflow of the demo, and the one to read first."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from engine import Context, CriticalError, step_context, workflow

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """So many of one thing; the price of one, in cents of the order's currency."""

    name: str
    quantity: int
    price_cents: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the shop sends. ``payment`` says how our pretended bank takes it: prompt, flaky, refused or slow."""

    customer: str
    currency: str
    items: list[Item]
    payment: str = "prompt"
    patience_s: float = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """How the order ended: ``outcome`` is shipped or refunded."""

    outcome: str
    total_cents: int
    payment_id: str
    parcel: str | None = None


class PaymentRefusedError(CriticalError):
    """The bank has said no: trying again cannot help, so the order fails."""


@workflow("order")
async def order(ctx: Context, order: Order) -> Receipt:
    """Check it, charge it, let the customer think again, then wait for the parcel, but not for ever."""
    total_cents = await ctx.step("validate", validate, order)
    payment_id = await ctx.step("charge", charge, order.payment, total_cents)
    await ctx.sleep("cool-off", 2)
    shipped = await ctx.queue.next_batch("wait-shipped", ["shipped"], timeout=order.patience_s)
    if not shipped:
        await ctx.step("refund", refund, payment_id)
        return Receipt(outcome="refunded", total_cents=total_cents, payment_id=payment_id)
    parcel = shipped[0].body["parcel"]
    await ctx.step("notify", notify, order.customer, parcel)
    return Receipt(outcome="shipped", total_cents=total_cents, payment_id=payment_id, parcel=parcel)


def validate(order: Order) -> int:
    """What the order costs, in cents."""
    if not order.items:
        raise CriticalError("nothing is ordered")
    return sum(item.quantity * item.price_cents for item in order.items)


async def charge(payment: str, total_cents: int) -> str:
    """The bank's id of the payment. A real bank would be handed ``idempotency_key``, and so charge once."""
    step = step_context()
    logger.info("charging", extra={"workflow_id": step.workflow_id, "attempt": step.attempt, "cents": total_cents})
    if payment == "refused":
        raise PaymentRefusedError("the bank refuses the card")
    if payment == "flaky" and step.attempt in (1, 2):
        raise ConnectionError("the bank does not answer")
    await asyncio.sleep(8 if payment == "slow" else 0)
    return f"payment-{step.workflow_id}"


async def refund(payment_id: str) -> None:
    """Give the money back."""
    logger.info("refunding", extra={"payment": payment_id})


async def notify(customer: str, parcel: str) -> str:
    """What the customer is written."""
    return f"Dear {customer}, parcel {parcel} is on its way."
