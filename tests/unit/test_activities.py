"""Activities: their names, options and retries; what they know; and that they can be called without a workflow."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from engine import (
    ActivityContext,
    Context,
    CriticalError,
    HistoryDivergedError,
    NonRetryable,
    RollbackContext,
    StepExhaustedError,
    StepTimeoutError,
    UnstorableValueError,
    activity,
    operation,
)
from engine.author.activities import ACTIVITIES, OPERATIONS
from engine.author.catalogue import Catalogue
from engine.errors import InvalidIdError
from engine.testing import activity_context
from tests.unit.bench import WORKFLOW_ID, Bench

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Order:
    id: str
    cents: int


@dataclass(frozen=True)
class Receipt:
    order: Order
    key: str
    attempt: int


calls: list[str] = []


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Forget what a test registers and calls."""
    kept = [(catalogue, dict(catalogue._found)) for catalogue in (ACTIVITIES, OPERATIONS)]
    # What other tests have imported may have the names that a test takes.
    for catalogue, found in kept:
        for name, (origin, _) in found.items():
            if not origin.startswith(__name__):
                del catalogue._found[name]
    calls.clear()
    yield
    for catalogue, found in kept:
        catalogue._found.clear()
        catalogue._found.update(found)  # type: ignore[arg-type]


@activity
async def charge(ctx: ActivityContext, order: Order) -> Receipt:
    calls.append(order.id)
    return Receipt(order, ctx.idempotency_key, ctx.attempt)


@activity(max_retries=1, retry_backoff_base=1, timeout=7)
async def flaky(ctx: ActivityContext) -> int:
    calls.append(f"attempt {ctx.attempt}")
    raise ConnectionError("no answer")


# --- as a step -------------------------------------------------------------------------------------------------------


async def test_an_activity_is_a_step_of_its_name_whose_value_keeps_its_type() -> None:
    async def workflow(ctx: Context, _given: Any) -> list[Any]:
        receipt = await ctx.activity(charge, Order("o-1", 990))
        await ctx.sleep("wait", 3600)
        return [isinstance(receipt, Receipt), receipt.order == Order("o-1", 990), receipt.attempt, receipt.key]

    bench = Bench()
    output: Any = (await bench.through(workflow)).output
    assert output[:3] == [True, True, 1]
    assert output[3].startswith(f"{WORKFLOW_ID}/")
    assert calls == ["o-1"]
    assert list(bench.entries()) == ["charge", "wait"]


async def test_a_step_takes_an_activity_too() -> None:
    async def workflow(ctx: Context, _given: Any) -> int:
        return (await ctx.step("first", charge, Order("o-1", 1))).order.cents

    bench = Bench()
    assert (await bench.through(workflow)).output == 1
    assert list(bench.entries()) == ["first"]


async def test_attempts_are_max_retries_and_one() -> None:
    async def workflow(ctx: Context, _given: Any) -> str | None:
        try:
            await ctx.activity(flaky)
        except StepExhaustedError as error:
            return f"{error.step_name} {error.attempts} {error.last_error}"
        return None

    assert (await Bench().through(workflow)).output == "flaky 2 ConnectionError: no answer"
    assert calls == ["attempt 1", "attempt 2"]


async def test_by_default_an_activity_has_six_attempts_and_half_a_minute() -> None:
    assert charge.policy({}).retry.max_retries == 5
    assert charge.policy({}).timeout_s == 30
    assert flaky.policy({}).timeout_s == 7


async def test_options_of_the_call_take_the_place_of_those_registered() -> None:
    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.activity(flaky, max_retries=3, retry_backoff_base=0)

    with pytest.raises(StepExhaustedError):
        await Bench().through(workflow)
    assert len(calls) == 4
    assert flaky.policy({"timeout": None}).timeout_s == 0
    assert flaky.policy({"timeout": None}).retry.max_retries == 1


async def test_what_is_not_retryable_is_tried_once() -> None:
    class RefusedError(NonRetryable):
        pass

    @activity
    async def refused(_ctx: ActivityContext) -> None:
        calls.append("refused")
        raise RefusedError("blocked")

    async def workflow(ctx: Context, _given: Any) -> str:
        try:
            await ctx.activity(refused)
        except RefusedError as error:
            return str(error)
        return ""

    assert NonRetryable is CriticalError
    assert (await Bench().through(workflow)).output == "blocked"
    assert calls == ["refused"]


async def test_an_activity_times_out() -> None:
    bench = Bench()

    @activity(timeout=2)
    async def hang(_ctx: ActivityContext) -> None:
        await bench.clock.sleep(60)

    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.activity(hang)

    with pytest.raises(StepTimeoutError, match="timed out after 2 s"):
        await bench.through(workflow)


async def test_a_value_that_does_not_fit_the_declared_type_fails_for_good() -> None:
    @activity
    async def wrong(_ctx: ActivityContext) -> int:
        return "text"  # type: ignore[return-value]  # the fault under test

    async def workflow(ctx: Context, _given: Any) -> int:
        return await ctx.activity(wrong)

    with pytest.raises(UnstorableValueError, match="wrong"):
        await Bench().through(workflow)


# --- names -----------------------------------------------------------------------------------------------------------


async def test_a_second_use_needs_a_name() -> None:
    async def twice(ctx: Context, _given: Any) -> None:
        await ctx.activity(charge, Order("o-1", 1))
        await ctx.activity(charge, Order("o-2", 2))

    async def named(ctx: Context, _given: Any) -> int:
        first = await ctx.activity(charge, Order("o-1", 1))
        second = await ctx.activity(charge, Order("o-2", 2), name="charge-again")
        return first.order.cents + second.order.cents

    with pytest.raises(HistoryDivergedError, match=r"'charge' is used twice.*ctx.activity\(charge, \.\.\., name="):
        await Bench().through(twice)
    bench = Bench()
    assert (await bench.through(named)).output == 3
    assert list(bench.entries()) == ["charge", "charge-again"]


async def test_a_name_given_twice_is_refused_as_any_other() -> None:
    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.activity(charge, Order("o-1", 1), name="same")
        await ctx.activity(charge, Order("o-2", 2), name="same")

    with pytest.raises(HistoryDivergedError, match="the name 'same' is used twice"):
        await Bench().through(workflow)


def test_two_functions_of_one_name_are_refused_and_one_imported_twice_is_not() -> None:
    def first() -> Any:
        @activity
        async def ship(_ctx: ActivityContext) -> None: ...

        return ship

    def second() -> Any:
        @activity
        async def ship(_ctx: ActivityContext) -> None: ...

        return ship

    first()
    again = first()
    assert ACTIVITIES.get("ship") is again
    with pytest.raises(InvalidIdError, match="the activity 'ship' is defined twice"):
        second()
    assert {"charge", "flaky", "ship"} <= set(ACTIVITIES.names())


def test_names_have_small_letters_digits_and_underscores() -> None:
    async def Charge(_ctx: ActivityContext) -> None: ...  # noqa: N802 - the fault under test

    with pytest.raises(InvalidIdError, match="small letters"):
        activity(Charge)
    with pytest.raises(InvalidIdError, match="small letters"):
        operation(Charge)


def test_what_is_not_async_or_not_an_option_is_refused() -> None:
    def blocking(_ctx: ActivityContext) -> None: ...

    async def works(_ctx: ActivityContext) -> None: ...

    with pytest.raises(TypeError, match=r"asyncio\.to_thread"):
        activity(blocking)  # type: ignore[arg-type]  # the fault under test
    with pytest.raises(TypeError, match="unknown option retries"):
        activity(retries=3)(works)  # type: ignore[call-overload]  # the fault under test


def test_a_catalogue_names_what_it_has() -> None:
    catalogue: Catalogue[int] = Catalogue("number")
    with pytest.raises(InvalidIdError, match=r"no number is named 'one' \(registered: none\)"):
        catalogue.get("one")
    catalogue.add("two", 2, Order)
    with pytest.raises(InvalidIdError, match=r"registered: two"):
        catalogue.get("one")


# --- rollback --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_registered", [True, False])
async def test_an_activity_is_undone(*, is_registered: bool) -> None:
    async def refund(_ctx: RollbackContext, output: Receipt) -> None:
        calls.append(f"refund {output.order.id}")

    async def pay(ctx: ActivityContext, order: Order) -> Receipt:
        return Receipt(order, "", ctx.attempt)

    paying = activity(rollback=refund)(pay) if is_registered else activity(pay)

    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.rollback_checkpoint("start")
        if is_registered:
            await ctx.activity(paying, Order("o-1", 1))
        else:
            await ctx.activity(paying, Order("o-1", 1), rollback=refund)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await Bench().through(workflow)
    assert calls == ["refund o-1"]


# --- without a workflow ----------------------------------------------------------------------------------------------


async def test_activities_and_operations_are_called_like_functions() -> None:
    @operation
    async def price(item: str) -> int:
        return len(item)

    @activity
    async def quote(ctx: ActivityContext, item: str) -> str:
        return f"{await price(item)} for {ctx.workflow_id}, {ctx.activity_name}, {ctx.attempt}"

    assert await price("tea") == 3
    assert OPERATIONS.get("price") is price
    context = activity_context("quote", workflow_id="w", attempt=2)
    assert await quote(context, "tea") == "3 for w, quote, 2"
    assert not context.abort_signal.is_set()
    assert repr(quote) == "<activity 'quote'>"


async def test_an_activity_called_with_the_workflows_context_is_refused() -> None:
    async def workflow(ctx: Context, _given: Any) -> None:
        await charge(ctx, Order("o-1", 1))  # type: ignore[arg-type]  # the fault under test

    with pytest.raises(TypeError, match=r"await ctx.activity\(charge"):
        await Bench().through(workflow)
    assert calls == []


async def test_what_an_activity_logs_says_whom_it_works_for(caplog: pytest.LogCaptureFixture) -> None:
    @activity
    async def talk(ctx: ActivityContext) -> None:
        ctx.log.info("hello")

    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.activity(talk)

    caplog.set_level(logging.INFO, "torpor.activity")
    await Bench().through(workflow)
    [record] = caplog.records
    assert (record.workflow_id, record.activity, record.attempt) == (WORKFLOW_ID, "talk", 1)  # type: ignore[attr-defined]
