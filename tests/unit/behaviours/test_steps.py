"""Steps: run once, retried with backoff, timed out, and what is stored of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from engine import (
    CriticalError,
    EntryInProgressError,
    HistoryDivergedError,
    RollbackError,
    RunErrorEvent,
    StepErrorEvent,
    StepExhaustedError,
    StepTimeoutError,
    WorkflowFailedError,
)
from tests.unit.behaviours.world import failed

if TYPE_CHECKING:
    from engine import Context
    from tests.unit.behaviours.world import Counter, World


async def test_a_step_gives_its_value(world: World) -> None:
    async def greet(ctx: Context, name: str) -> Any:
        return await ctx.step("greet", lambda: f"hello {name}")

    result = await world.through(greet, "world")

    assert (result.state, result.output) == ("completed", "hello world")


@pytest.mark.parametrize("value", ["text", None, 0, "", False, [], {}])
async def test_a_recorded_step_is_not_run_again(world: World, value: Any, count: Counter) -> None:
    async def once(ctx: Context, _given: Any) -> Any:
        found = await ctx.step("work", count.giving("work", value))
        await ctx.sleep("nap", 60)
        return found

    for _ in range(2):
        result = await world.through(once)
        assert (result.state, result.output) == ("completed", value)

    assert count["work"] == 1


async def test_steps_run_one_after_another(world: World) -> None:
    async def add(ctx: Context, _given: Any) -> int:
        return sum([await ctx.step(name, lambda n=n: n) for n, name in enumerate("abc", 1)])

    assert (await world.through(add)).output == 6


async def test_a_failed_step_is_tried_again_until_it_succeeds(world: World, count: Counter) -> None:
    async def flaky(ctx: Context, _given: Any) -> Any:
        return await ctx.step("flaky", count.failing("flaky", times=2, then="up"))

    result = await world.through(flaky)

    assert result.output == "up"
    assert count["flaky"] == 3


async def test_a_failure_that_will_be_retried_is_reported(world: World, count: Counter) -> None:
    async def flaky(ctx: Context, _given: Any) -> Any:
        return await ctx.step(
            "flaky", count.failing("flaky", times=1, then="up"), retry_backoff_base=5, retry_backoff_max=5
        )

    started = world.clock.now()
    await world.through(flaky)

    [event] = world.errors
    assert isinstance(event, StepErrorEvent)
    assert (event.step_name, event.attempt, event.max_retries, event.remaining_retries) == ("flaky", 1, 3, 3)
    assert event.will_retry
    assert event.retry_delay == 5
    assert event.retry_at == started + 5000
    assert (event.error.name, event.error.message) == ("ValueError", "attempt 1 of flaky")


async def test_between_attempts_the_run_sleeps(yielding: World, count: Counter) -> None:
    async def failing(ctx: Context, _given: Any) -> Any:
        return await ctx.step("failing", count.failing("failing", times=9), retry_backoff_base=50)

    first = await yielding.once(failing)
    second = await yielding.once(failing)

    assert first.state == second.state == "sleeping"
    assert first.sleep_until == second.sleep_until == yielding.clock.now() + 100_000 - 70_000
    assert yielding.alarm == second.sleep_until
    assert count["failing"] == 1


@pytest.mark.parametrize("error", [CriticalError("no"), RollbackError("no")])
async def test_some_errors_are_not_retried(world: World, count: Counter, error: Exception) -> None:
    async def fails(ctx: Context, _given: Any) -> None:
        await ctx.step("fails", count.raising("fails", error))

    with pytest.raises(type(error), match="no"):
        await world.through(fails)

    assert count["fails"] == 1
    [event] = world.errors
    assert isinstance(event, StepErrorEvent)
    assert (event.attempt, event.will_retry, event.error.name) == (1, False, type(error).__name__)


async def test_an_error_of_the_workflow_itself_is_reported_once(world: World) -> None:
    async def fails(_ctx: Context, _given: Any) -> None:
        raise ValueError("of the workflow")

    with pytest.raises(ValueError, match="of the workflow"):
        await world.through(fails)

    [event] = world.errors
    assert isinstance(event, RunErrorEvent)
    assert (event.error.name, event.error.message) == ("ValueError", "of the workflow")


async def test_a_step_is_exhausted_after_its_last_retry(world: World, count: Counter) -> None:
    async def fails(ctx: Context, _given: Any) -> None:
        await ctx.step("fails", count.failing("fails", times=9), max_retries=2)

    with pytest.raises(StepExhaustedError) as caught:
        await world.through(fails)

    assert count["fails"] == 3
    assert caught.value.step_name == "fails"
    assert caught.value.last_error == "ValueError: attempt 3 of fails"
    assert [event.will_retry for event in world.errors] == [True, True, False]


async def test_a_failed_workflow_stays_failed_and_reports_nothing_new(world: World, count: Counter) -> None:
    """The reference runs a failed workflow again; ours raises what is stored and touches nothing."""

    async def fails(ctx: Context, _given: Any) -> None:
        await ctx.step("fails", count.failing("fails", times=9), max_retries=0)

    with pytest.raises(StepExhaustedError):
        await world.through(fails)
    stored = world.driver.dump()
    with pytest.raises(WorkflowFailedError, match="attempt 1 of fails") as caught:
        await world.through(fails)

    assert caught.value.name == "StepExhaustedError"
    assert len(world.errors) == 1
    assert world.driver.dump() == stored


async def test_recovering_gives_an_exhausted_step_new_attempts(world: World, count: Counter) -> None:
    async def fails(ctx: Context, _given: Any) -> Any:
        return await ctx.step("fails", count.failing("fails", times=3, then="up"), max_retries=1)

    handle = world.start(fails)
    with pytest.raises(StepExhaustedError):
        await world.drive(handle, fails)
    await handle.recover()
    assert await handle.get_state() == "sleeping"
    result = await world.through(fails)

    assert result.output == "up"
    assert count["fails"] == 4


async def test_a_step_that_outlives_its_timeout_fails_for_good(world: World, count: Counter) -> None:
    cancelled = asyncio.Event()

    async def slow() -> None:
        count.note("slow")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def waits(ctx: Context, _given: Any) -> None:
        await ctx.step("slow", slow, timeout=5)

    with pytest.raises(StepTimeoutError) as caught:
        await world.through(waits)

    assert isinstance(caught.value, CriticalError)
    assert caught.value.timeout_s == 5
    assert count["slow"] == 1
    assert cancelled.is_set(), "the body must really have been stopped"


async def test_timeouts_are_retried_where_asked_for(world: World, count: Counter) -> None:
    async def slow() -> None:
        count.note("slow")
        await asyncio.Event().wait()

    async def waits(ctx: Context, _given: Any) -> None:
        await ctx.step("slow", slow, timeout=5, retry_on_timeout=True, max_retries=2)

    with pytest.raises(StepExhaustedError):
        await world.through(waits)

    assert count["slow"] == 3


async def test_a_step_that_is_not_awaited_is_found(world: World) -> None:
    async def forgets(ctx: Context, _given: Any) -> None:
        first = ctx.step("charge", lambda: 1)
        try:
            await ctx.step("ship", lambda: 2)
        finally:
            first.close()

    with pytest.raises(EntryInProgressError, match="charge"):
        await world.through(forgets)


async def test_operations_side_by_side_need_a_join(world: World) -> None:
    async def gathers(ctx: Context, _given: Any) -> None:
        await asyncio.gather(ctx.step("charge", lambda: 1), ctx.step("ship", lambda: 2))

    with pytest.raises(EntryInProgressError, match="join"):
        await world.through(gathers)


async def test_a_name_can_be_used_once_in_its_scope(world: World) -> None:
    async def twice(ctx: Context, _given: Any) -> None:
        await ctx.step("same", lambda: 1)
        await ctx.step("same", lambda: 2)

    with pytest.raises(HistoryDivergedError, match="same"):
        await world.through(twice)


async def test_ephemeral_steps_ride_on_the_next_commit(world: World) -> None:
    async def batches(ctx: Context, _given: Any) -> Any:
        for name in ("a", "b", "c"):
            await ctx.step(name, lambda: 1, ephemeral=True)
        return await ctx.step("durable", lambda: "done")

    result = await world.through(batches)

    assert result.output == "done"
    assert len(world.driver.commits) <= 2
    assert {"a", "b", "c", "durable"} <= world.labels()


async def test_a_failed_attempt_stores_its_error_and_no_output(yielding: World, count: Counter) -> None:
    async def fails(ctx: Context, _given: Any) -> None:
        await ctx.step("fails", count.failing("fails", times=9))

    await yielding.once(fails)

    entry, metadata = yielding.step("fails")
    assert entry.output is None
    assert entry.error == "ValueError: attempt 1 of fails"
    assert (metadata.status.name, metadata.attempts) == ("FAILED", 1)


async def test_a_terminal_failure_replays_as_the_same_failure(yielding: World, count: Counter) -> None:
    """The reference runs a step that failed critically again on replay; ours remembers how it failed."""

    async def tries(ctx: Context, _given: Any) -> Any:
        first = await ctx.try_step("fails", count.raising("fails", CriticalError("no")))
        await ctx.sleep("nap", 60)
        failure = failed(first)
        return [first.ok, failure.kind, failure.error.name, failure.error.message]

    result = await yielding.through(tries)

    assert result.output == [False, "critical", "CriticalError", "no"]
    assert count["fails"] == 1


async def test_a_value_that_cannot_be_stored_fails_the_step_once(world: World, count: Counter) -> None:
    async def odd(ctx: Context, _given: Any) -> None:
        await ctx.step("odd", count.giving("odd", {"lock": object()}))

    with pytest.raises(CriticalError, match=r"odd.*lock.*object"):
        await world.through(odd)

    assert count["odd"] == 1


async def test_a_step_that_kills_its_process_is_exhausted_like_any_other(yielding: World, count: Counter) -> None:
    async def dies(ctx: Context, _given: Any) -> Any:
        return await ctx.step("dies", count.giving("dies", 1), max_retries=3)

    yielding.driver.deaths = 4

    with pytest.raises(StepExhaustedError):
        await yielding.through(dies)
    assert count["dies"] == 0
