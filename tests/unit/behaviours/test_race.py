"""Races: the first success wins, the others are stopped and forgotten, and a race of waits is a time limit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from engine import RaceError
from engine.entry import RaceEntry

if TYPE_CHECKING:
    from engine import Context
    from tests.unit.behaviours.world import Counter, World


def gives(value: Any) -> Any:
    return lambda inner: inner.step("step", lambda: value)


async def waits_for_abort(inner: Context) -> str:
    await inner.abort_signal.wait()
    return "aborted"


async def test_the_first_branch_to_succeed_wins(world: World) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        found = await ctx.race("race", {"fast": gives("fast"), "slow": lambda inner: inner.sleep("nap", 60)})
        return [found.winner, found.value]

    started = world.clock.now()
    assert (await world.through(workflow)).output == ["fast", "fast"]
    assert world.clock.now() == started


async def test_losers_are_told_and_stopped(world: World) -> None:
    ends: list[str] = []

    async def workflow(ctx: Context, _given: Any) -> Any:
        async def polite(inner: Context) -> None:
            await inner.abort_signal.wait()
            ends.append("told")

        async def deaf(_inner: Context) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ends.append("stopped")

        found = await ctx.race("race", {"polite": polite, "deaf": deaf, "fast": gives(1)})
        return found.winner

    assert (await world.through(workflow)).output == "fast"
    assert "stopped" in ends


async def test_a_race_fails_when_every_branch_has(world: World) -> None:
    def fails(text: str) -> Any:
        async def run(_inner: Context) -> None:
            raise ValueError(text)

        return run

    async def workflow(ctx: Context, _given: Any) -> Any:
        await ctx.race("race", {"one": fails("fail one"), "two": fails("fail two")})

    with pytest.raises(RaceError) as caught:
        await world.through(workflow)
    assert {name: (error.name, error.message) for name, error in caught.value.errors.items()} == {
        "one": ("ValueError", "fail one"),
        "two": ("ValueError", "fail two"),
    }


async def test_a_failure_does_not_decide_a_race(world: World) -> None:
    async def fails(_inner: Context) -> None:
        raise ValueError("early")

    async def late(inner: Context) -> str:
        await inner.sleep("nap", 60)
        return "late"

    async def workflow(ctx: Context, _given: Any) -> Any:
        return (await ctx.race("race", {"fails": fails, "late": late})).value

    assert (await world.through(workflow)).output == "late"


async def test_a_decided_race_is_not_run_again(world: World, count: Counter) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        async def first(_inner: Context) -> str:
            count.note("first")
            return "won"

        found = await ctx.race("race", {"first": first, "second": waits_for_abort})
        await ctx.sleep("nap", 60)
        return found.value

    assert (await world.through(workflow)).output == "won"
    assert count["first"] == 1


async def test_joins_and_races_may_stand_inside_the_winner(world: World) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        async def joins(inner: Context) -> Any:
            joined = await inner.join("join", {"left": gives(1), "right": gives(2)})
            raced = await inner.race("race", {"fast": gives(3), "slow": waits_for_abort})
            return joined["left"] + joined["right"] + raced.value

        found = await ctx.race("outer", {"joins": joins, "slow": waits_for_abort})
        return [found.winner, found.value]

    assert (await world.through(workflow)).output == ["joins", 6]


async def test_a_branch_that_retries_is_still_in_the_race(world: World, count: Counter) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        async def flaky(inner: Context) -> Any:
            return await inner.step("flaky", count.failing("flaky", times=1, then="won"), retry_backoff_base=5)

        found = await ctx.race("race", {"flaky": flaky, "slow": lambda inner: inner.sleep("nap", 200)})
        return [found.winner, found.value]

    assert (await world.through(workflow)).output == ["flaky", "won"]
    assert count["flaky"] == 2


async def test_losers_leave_nothing_behind(world: World) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        async def loses(inner: Context) -> None:
            await inner.step("lost step", lambda: 1)
            await inner.sleep("lost nap", 60)

        async def wins(inner: Context) -> str:
            await inner.sleep("short nap", 10)
            return await inner.step("won step", lambda: "won")

        return (await ctx.race("race", {"loses": loses, "wins": wins})).value

    assert (await world.through(workflow)).output == "won"
    assert {"race", "race/wins/short nap", "race/wins/won step"} <= world.labels()
    assert not [label for label in world.labels() if label.startswith("race/loses")]
    assert set(world.metadata()) == {entry.id for entry in world.entries() if entry.id in world.metadata()}


async def test_winner_and_removal_of_the_losers_are_one_commit(world: World) -> None:
    """The reference deletes the losers first; a crash in between loses both. Ours is one commit."""

    async def workflow(ctx: Context, _given: Any) -> Any:
        async def loses(inner: Context) -> None:
            await inner.step("lost", lambda: 1)
            await inner.sleep("nap", 60)

        return (await ctx.race("race", {"loses": loses, "wins": lambda inner: inner.sleep("nap", 10)})).winner

    assert (await world.through(workflow)).output == "wins"
    for pairs in world.moments():
        labels = world.labels(pairs)
        is_lost = not [label for label in labels if label.startswith("race/loses/")]
        for entry in world.entries(pairs):
            if isinstance(entry.kind, RaceEntry) and entry.kind.winner is not None:
                assert is_lost


async def test_a_message_that_a_loser_took_goes_back_to_its_place(world: World) -> None:
    await world.send("go", "first", id="m1")
    await world.send("go", "second", id="m2")

    async def workflow(ctx: Context, _given: Any) -> Any:
        async def loses(inner: Context) -> None:
            await inner.queue.next("take", names=["go"])
            await inner.sleep("nap", 60)

        found = await ctx.race("race", {"loses": loses, "wins": lambda inner: inner.sleep("nap", 10)})
        after = await ctx.queue.next_batch("after", names=["go"], count=5)
        return [found.winner, *(message.body for message in after)]

    assert (await world.through(workflow)).output == ["wins", "first", "second"]


async def test_a_race_with_a_sleep_is_a_time_limit(world: World) -> None:
    """The reference yields as soon as one branch sleeps; ours answers the deadline in memory while another works."""
    started = world.clock.now()

    async def workflow(ctx: Context, _given: Any) -> Any:
        async def work(inner: Context) -> None:
            await inner.step("work", asyncio.Event().wait, timeout=3600)

        return (await ctx.race("race", {"work": work, "limit": lambda inner: inner.sleep("limit", 30)})).winner

    result = await world.live_through(workflow)

    assert result.output == "limit"
    assert world.clock.now() == started + 30_000
