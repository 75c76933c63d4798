"""Sleeps: fixed once, short ones in memory, long ones handed to an alarm."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from engine import Break, Continue

if TYPE_CHECKING:
    from engine import Context
    from tests.unit.behaviours.world import World


def naps(duration: float | timedelta) -> Any:
    async def nap(ctx: Context, _given: Any) -> str:
        await ctx.sleep("nap", duration)
        return "rested"

    return nap


async def test_a_long_sleep_yields_with_an_alarm(yielding: World) -> None:
    started = yielding.clock.now()

    result = await yielding.once(naps(10))

    assert (result.state, result.sleep_until) == ("sleeping", started + 10_000)
    assert yielding.alarm == started + 10_000


async def test_a_sleep_ends_at_its_deadline_and_leaves_no_alarm(world: World) -> None:
    started = world.clock.now()

    result = await world.through(naps(10))

    assert result.output == "rested"
    assert world.clock.now() == started + 10_000
    assert world.alarm is None


async def test_a_short_sleep_is_waited_for_in_memory_without_an_alarm(yielding: World) -> None:
    yielding.driver.worker_poll_interval = 1.0

    result = await yielding.once(naps(0.5))

    assert result.output == "rested"
    assert all(commit.alarm is None or commit.alarm.at is None for commit in yielding.driver.commits)


async def test_waking_early_does_not_end_a_sleep(yielding: World) -> None:
    first = await yielding.once(naps(10))
    yielding.clock.advance(4)

    second = await yielding.once(naps(10))

    assert second.state == "sleeping"
    assert second.sleep_until == first.sleep_until == yielding.alarm


@pytest.mark.parametrize("duration", [0, -1, timedelta(seconds=-60)])
async def test_a_deadline_that_has_passed_is_no_wait(world: World, duration: Any) -> None:
    started = world.clock.now()

    assert (await world.through(naps(duration))).output == "rested"
    assert world.clock.now() == started


async def test_sleep_until_takes_an_instant(world: World) -> None:
    instant = datetime.fromtimestamp(world.clock.now() / 1000 + 90, UTC)

    async def until(ctx: Context, _given: Any) -> str:
        await ctx.sleep_until("morning", instant.astimezone())
        await ctx.sleep_until("past", instant - timedelta(days=1))
        return "up"

    assert (await world.through(until)).output == "up"
    assert world.clock.now() == round(instant.timestamp() * 1000)


async def test_an_iteration_that_is_over_is_not_run_again_after_a_sleep(world: World) -> None:
    seen: list[str] = []

    async def drain(ctx: Context, _given: Any) -> Any:
        async def body(inner: Context, state: int) -> Any:
            if state == 0:
                seen.append("first")
                return Continue(1)
            await inner.sleep("pause", 20)
            return Break(list(seen))

        return await ctx.loop("drain", body, state=0)

    result = await world.through(drain)

    assert result.output == ["first"]
    assert seen == ["first"]


async def test_a_deadline_is_never_computed_again(yielding: World) -> None:
    durations = iter([100, 5, 1])

    async def nap(ctx: Context, _given: Any) -> None:
        await ctx.sleep("nap", next(durations))

    first = await yielding.once(nap)
    yielding.clock.advance(50)
    second = await yielding.once(nap)

    assert first.sleep_until == second.sleep_until


@pytest.mark.parametrize("duration", ["soon", None, float("nan")])
async def test_a_duration_that_is_none_is_refused_before_anything_is_written(world: World, duration: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        await world.through(naps(duration))
    assert "nap" not in world.labels()


async def test_a_naive_instant_is_refused(world: World) -> None:
    async def until(ctx: Context, _given: Any) -> None:
        await ctx.sleep_until("morning", datetime(2030, 1, 1))  # noqa: DTZ001 - what is refused

    with pytest.raises((TypeError, ValueError), match=r"aware|naive|zone"):
        await world.through(until)
