"""Where alarms come early, what is nearly due is waited for in memory, and never by running again and again."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from engine import Context, StepExhaustedError, run_workflow
from engine.history.storage import Storage
from engine.lifecycle import WorkflowState
from engine.testing import MemoryDriver, VirtualClock, drive

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Early(MemoryDriver):
    """A driver whose alarms may come a second early, as those of SQS do."""

    wakes_early = True


def early() -> tuple[Early, VirtualClock]:
    clock = VirtualClock()
    return Early(clock=clock, worker_poll_interval=1.0), clock


class PutOff(Early):
    """One whose start was put off, and whose first alarm has come early."""

    def __init__(self, clock: VirtualClock, put_off_until: int) -> None:
        super().__init__(clock=clock, worker_poll_interval=1.0)
        self.started_at = self.put_off_until = put_off_until


async def tells_the_time(ctx: Context, _: None) -> list[datetime]:
    began = ctx.now()
    await ctx.step("work", lambda: "done")
    return [began, ctx.now()]


async def retried(ctx: Context, _: None) -> None:
    def fail() -> None:
        raise ValueError("no")

    await ctx.step("fails", fail)


async def timed_out(ctx: Context, _: None) -> int:
    return len(await ctx.queue.next_batch("wait", timeout=0.7))


async def beside_a_message(ctx: Context, _: None) -> dict[str, Any]:
    async def wait(inner: Context) -> int:
        return len(await inner.queue.next_batch("wait", timeout=0.5))

    async def work(inner: Context) -> str:
        return await inner.step("work", lambda: "done")

    return await ctx.join("both", {"wait": wait, "work": work})


async def test_the_short_delays_of_retries_are_one_run() -> None:
    driver, clock = early()
    runs = 0

    async def counted(ctx: Context, given: None) -> None:
        nonlocal runs
        runs += 1
        await retried(ctx, given)

    with pytest.raises(StepExhaustedError):
        await drive("w", counted, None, driver, clock)
    assert runs == 1
    assert driver.alarms == {}


@pytest.mark.parametrize(("body", "output"), [(timed_out, 0), (beside_a_message, {"wait": 0, "work": "done"})])
async def test_a_near_deadline_of_a_message_needs_no_alarm(
    body: Callable[[Context, None], Awaitable[Any]], output: Any
) -> None:
    driver, clock = early()
    result = await drive("w", body, None, driver, clock)
    assert (result.state, result.output) == (WorkflowState.COMPLETED, output)
    assert all(commit.alarm is None or commit.alarm.at is None for commit in driver.commits)


async def test_a_far_deadline_still_yields() -> None:
    driver, clock = early()

    async def body(ctx: Context, _: None) -> int:
        return len(await ctx.queue.next_batch("wait", timeout=5))

    assert (await drive("w", body, None, driver, clock)).output == 0
    assert any(commit.alarm is not None and commit.alarm.at is not None for commit in driver.commits)


# --- starts that were put off ----------------------------------------------------------------------------------------


async def begun(driver: PutOff, clock: VirtualClock) -> asyncio.Future[Any]:
    """A run that waits for its start."""
    result = asyncio.ensure_future(run_workflow("w", tells_the_time, None, driver, clock=clock).result)
    while clock.next_timer() is None:
        assert not result.done()
        await asyncio.sleep(0)
    return result


async def test_what_is_left_of_a_start_that_was_put_off_is_waited_for_in_memory() -> None:
    clock = VirtualClock()
    driver = PutOff(clock, clock.now() + 900)
    result = await begun(driver, clock)
    clock.advance(0.9)
    assert (await result).output == [datetime(2026, 1, 1, 0, 0, 0, 900_000, tzinfo=UTC)] * 2
    assert len(driver.commits) == 1


async def test_a_clock_that_is_behind_waits_no_longer_than_an_alarm_is_early() -> None:
    clock = VirtualClock()
    result = await begun(PutOff(clock, clock.now() + 86_400_000), clock)
    clock.advance(1)
    assert (await result).state is WorkflowState.COMPLETED


async def test_who_waits_for_its_start_can_be_stopped() -> None:
    clock = VirtualClock()
    driver = PutOff(clock, clock.now() + 900)
    handle = run_workflow("w", tells_the_time, None, driver, clock=clock)
    await asyncio.sleep(0)
    handle.evict()
    await handle.result
    assert clock.now() < driver.put_off_until
    assert not Storage.load(await driver.list(b"")).all_metadata()
