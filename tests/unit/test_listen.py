"""Listening for classes: names, conversion, unions, limits, timeouts, and bodies that do not fit."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, assert_type
from uuid import UUID

import msgspec
import pydantic
import pytest

from engine import Context, HistoryDivergedError, UnstorableValueError, WorkflowState, message, message_name
from engine.author.message_types import MESSAGES
from engine.errors import InvalidIdError
from tests.unit.bench import Bench

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Forget what a test registers."""
    kept = dict(MESSAGES._found)
    yield
    MESSAGES._found.clear()
    MESSAGES._found.update(kept)


@message("shipped")
@dataclass(frozen=True)
class ShippedEvent:
    parcel: str
    count: int = 1


class OrderCancelled(msgspec.Struct, frozen=True):
    reason: str = "none given"


class HTTPPing(pydantic.BaseModel):
    host: str


# --- names -----------------------------------------------------------------------------------------------------------


def test_a_class_has_the_name_given_or_its_own_in_snake_case() -> None:
    class Special(ShippedEvent):
        pass

    assert message_name(ShippedEvent) == "shipped"
    assert message_name(Special) == "special"
    assert message_name(OrderCancelled) == "order_cancelled"
    assert message_name(HTTPPing) == "http_ping"
    assert MESSAGES.get("shipped") is ShippedEvent


def test_a_name_belongs_to_one_class() -> None:
    class Other:
        pass

    with pytest.raises(InvalidIdError, match="the message 'shipped' is defined twice"):
        message("shipped")(Other)
    with pytest.raises(InvalidIdError, match="longer"):
        message("x" * 2000)


async def test_the_same_messages_twice_in_one_scope_need_a_name() -> None:
    async def twice(ctx: Context, _given: Any) -> None:
        await ctx.listen(OrderCancelled, ShippedEvent)
        await ctx.listen(ShippedEvent, OrderCancelled)

    async def named(ctx: Context, _given: Any) -> list[str]:
        first = await ctx.listen(ShippedEvent)
        second = await ctx.listen(ShippedEvent, name="second")
        return [first.parcel, second.parcel]

    bench = Bench()
    bench.send("shipped", {"parcel": "p-1"})
    bench.send("shipped", {"parcel": "p-2"})
    with pytest.raises(HistoryDivergedError, match=r"'listen:order_cancelled\|shipped': .* ctx.listen\(\.\.\., name="):
        await bench.through(twice)
    bench = Bench()
    bench.send("shipped", {"parcel": "p-1"})
    bench.send("shipped", {"parcel": "p-2"})
    assert (await bench.through(named)).output == ["p-1", "p-2"]
    assert list(bench.entries()) == ["listen:shipped:0", "listen:shipped:count", "second:0", "second:count"]


@pytest.mark.parametrize("kinds", [(), (ShippedEvent, ShippedEvent)])
async def test_no_class_or_one_twice_is_refused(kinds: tuple[type, ...]) -> None:
    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.listen(*kinds)

    with pytest.raises(ValueError, match="one class or more"):
        await Bench().through(workflow)


# --- one -------------------------------------------------------------------------------------------------------------


async def test_the_oldest_message_of_the_classes_comes_as_its_class_live_and_on_replay() -> None:
    seen: list[Any] = []

    async def workflow(ctx: Context, _given: Any) -> str:
        event = await ctx.listen(ShippedEvent, OrderCancelled, HTTPPing)
        assert_type(event, ShippedEvent | OrderCancelled | HTTPPing)
        seen.append(event)
        await ctx.sleep("wait", 3600)
        match event:
            case ShippedEvent(parcel, count):
                return f"{count} of {parcel}"
            case OrderCancelled():
                return "cancelled"
            case _:
                return event.host

    for name, body, expected in (
        ("shipped", {"parcel": "p"}, "1 of p"),
        ("order_cancelled", None, "cancelled"),
        ("http_ping", {"host": "h"}, "h"),
    ):
        bench = Bench()
        assert (await bench.once(workflow)).waiting_for_messages == ["shipped", "order_cancelled", "http_ping"]
        bench.send("other", 1)
        bench.send(name, body)
        seen.clear()
        assert (await bench.through(workflow)).output == expected
        assert seen[0] == seen[1]
        assert type(seen[0]) is type(seen[1])
        assert [one.name for one in await bench.driver.message_driver.receive((), 9)] == ["other"]


async def test_a_timeout_gives_none_and_a_message_before_it_an_instance() -> None:
    async def workflow(ctx: Context, _given: Any) -> str | None:
        event = await ctx.listen(ShippedEvent, OrderCancelled, timeout=3600)
        assert_type(event, ShippedEvent | OrderCancelled | None)
        await ctx.sleep("wait", 3600)
        return None if event is None else type(event).__name__

    late = await Bench().through(workflow)
    assert late.output is None
    bench = Bench()
    bench.send("order_cancelled")
    assert (await bench.through(workflow)).output == "OrderCancelled"


# --- many ------------------------------------------------------------------------------------------------------------


async def test_a_limit_gives_a_list_of_what_is_there() -> None:
    async def workflow(ctx: Context, _given: Any) -> list[str]:
        events = await ctx.listen(ShippedEvent, limit=2)
        assert_type(events, list[ShippedEvent])
        rest = await ctx.listen(ShippedEvent, limit=5, name="rest")
        none = await ctx.listen(ShippedEvent, limit=5, timeout=60, name="none")
        return [str(len(none)), *(event.parcel for event in (*events, *rest))]

    bench = Bench()
    for number in range(3):
        bench.send("shipped", {"parcel": f"p-{number}"})
    assert (await bench.through(workflow)).output == ["0", "p-0", "p-1", "p-2"]


async def test_a_limit_below_one_is_refused() -> None:
    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.listen(ShippedEvent, limit=0)

    with pytest.raises(ValueError, match="limit must be 1 or more"):
        await Bench().through(workflow)


# --- bodies as JSON says them -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Paid:
    amount: Decimal
    at: datetime
    by: UUID
    proof: bytes = b""


class PaidAsModel(pydantic.BaseModel):
    amount: Decimal
    at: datetime


WHEN = datetime(2026, 11, 30, 8, tzinfo=UTC)
WHO = UUID("6f1b0a52-4c0e-4b6e-9d57-0f7f0d6f3a10")
PAID = {"amount": "9.90", "at": "2026-11-30T08:00:00+00:00"}


async def test_texts_are_read_as_the_class_means_them_where_json_has_no_other_form() -> None:
    async def workflow(ctx: Context, _given: Any) -> list[Any]:
        paid = await ctx.listen(Paid)
        await ctx.sleep("replayed", 3600)
        again = await ctx.listen(Paid, name="again")
        model = await ctx.listen(PaidAsModel)
        return [paid == again, paid.amount, paid.at, paid.by, paid.proof, model.amount, model.at]

    bench = Bench()
    bench.send("paid", {**PAID, "by": str(WHO), "proof": "AAE="})
    bench.send("paid", {"amount": Decimal("9.90"), "at": WHEN, "by": WHO, "proof": b"\0\1"})
    bench.send("paid_as_model", PAID)
    result = await bench.through(workflow)
    assert result.output == [True, Decimal("9.90"), WHEN, WHO, b"\0\1", Decimal("9.90"), WHEN]


async def test_what_fits_as_it_is_stays_a_text() -> None:
    @dataclass(frozen=True)
    class Measured:
        value: Decimal | str

    async def workflow(ctx: Context, _given: Any) -> Any:
        return (await ctx.listen(Measured)).value

    bench = Bench()
    bench.send("measured", {"value": "9.90"})
    assert (await bench.through(workflow)).output == "9.90"


@pytest.mark.parametrize("body", [{**PAID, "amount": "much"}, {**PAID, "at": "noon"}, {**PAID, "amount": True}])
async def test_a_text_that_means_nothing_is_told_of(body: dict[str, Any]) -> None:
    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.listen(Paid)

    bench = Bench()
    bench.send("paid", {**body, "by": str(WHO)}, id="m-bad")
    with pytest.raises(UnstorableValueError, match="m-bad"):
        await bench.through(workflow)


# --- bodies that do not fit ------------------------------------------------------------------------------------------


async def test_a_body_that_does_not_fit_is_told_of_and_the_workflow_can_go_on() -> None:
    async def workflow(ctx: Context, _given: Any) -> list[str]:
        said = []
        try:
            await ctx.listen(ShippedEvent)
        except UnstorableValueError as error:
            said.append(str(error))
        await ctx.sleep("wait", 3600)
        event = await ctx.listen(ShippedEvent, name="again")
        return [*said, event.parcel]

    bench = Bench()
    bench.send("shipped", {"parcel": 1}, id="m-bad")
    bench.send("shipped", {"parcel": "good"})
    result = await bench.through(workflow)
    assert result.output is not None
    first, second = result.output
    assert first.startswith("the body of message 'm-bad' is no ShippedEvent, as 'shipped' demands: ")
    assert second == "good"


async def test_of_several_at_once_one_that_does_not_fit_takes_no_other_along() -> None:
    async def workflow(ctx: Context, _given: Any) -> list[Any]:
        heard: list[Any] = []
        while not heard or heard[-1]:
            try:
                events = await ctx.listen(ShippedEvent, OrderCancelled, limit=10, timeout=60, name=f"l-{len(heard)}")
                heard.append([getattr(event, "count", 0) for event in events])
            except UnstorableValueError:
                heard.append("misfit")
            await ctx.sleep(f"replayed-{len(heard)}", 60)
        return heard

    bench = Bench()
    for count in range(8):
        bench.send("shipped", {"parcel": 1 if count in (0, 3, 4, 7) else "p", "count": count})
        bench.send("order_cancelled", {})
    result = await bench.through(workflow)
    assert result.output == ["misfit", [0, 1, 0, 2, 0], "misfit", [0], "misfit", [0, 5, 0, 6, 0], "misfit", [0], []]


async def test_nobody_catching_it_fails_the_workflow() -> None:
    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.listen(ShippedEvent)

    bench = Bench()
    bench.send("shipped", None, id="m-bad")
    with pytest.raises(UnstorableValueError, match="m-bad"):
        await bench.through(workflow)
    assert bench.state() == WorkflowState.FAILED
