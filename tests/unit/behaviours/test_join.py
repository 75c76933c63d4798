"""Joins: every branch runs, every branch is waited for, failures are collected, waits are merged."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from engine import JoinError

if TYPE_CHECKING:
    from engine import Context
    from tests.unit.behaviours.world import Counter, World


async def test_branches_run_side_by_side(world: World) -> None:
    order: list[str] = []

    async def workflow(ctx: Context, _given: Any) -> Any:
        met = asyncio.Barrier(2)

        def branch(name: str, value: int) -> Any:
            async def run(inner: Context) -> Any:
                order.append(f"{name} starts")
                await inner.step("meet", met.wait)
                order.append(f"{name} ends")
                return value

            return run

        joined = await ctx.join("both", {"a": branch("a", 1), "b": branch("b", 2)})
        return joined["a"] + joined["b"]

    assert (await world.through(workflow)).output == 3
    assert set(order[:2]) == {"a starts", "b starts"}


async def test_a_failure_does_not_cut_the_others_short(world: World, count: Counter) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        async def bad(_inner: Context) -> None:
            raise ValueError("bad failed")

        async def good(inner: Context) -> Any:
            await inner.step("one", count.giving("one", 1))
            await inner.sleep("nap", 60)
            return await inner.step("two", count.giving("two", 2))

        return await ctx.join("both", {"bad": bad, "good": good})

    with pytest.raises(JoinError):
        await world.through(workflow)
    assert (count["one"], count["two"]) == (1, 1)


async def test_errors_are_told_by_branch_and_the_same_on_replay(world: World) -> None:
    seen: list[list[Any]] = []

    async def workflow(ctx: Context, _given: Any) -> Any:
        async def fails(_inner: Context) -> None:
            raise ValueError("boom")

        async def fine(_inner: Context) -> str:
            return "ok"

        try:
            await ctx.join("both", {"good": fine, "bad": fails})
        except JoinError as error:
            seen.append([[name, found.name, found.message] for name, found in error.errors.items()])
        await ctx.sleep("nap", 60)

    await world.through(workflow)

    assert seen == [[["bad", "ValueError", "boom"]]] * (2 if world.mode == "yield" else 1)


async def test_a_join_that_is_over_is_not_run_again(world: World, count: Counter) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        async def one(_inner: Context) -> str:
            count.note("one")
            return "one"

        joined = await ctx.join("all", {"one": one})
        await ctx.sleep("nap", 60)
        return joined

    assert (await world.through(workflow)).output == {"one": "one"}
    assert count["one"] == 1


async def test_joins_and_races_may_stand_inside_branches(world: World) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        def step(value: Any) -> Any:
            return lambda inner: inner.step("step", lambda: value)

        async def slow(inner: Context) -> str:
            await inner.abort_signal.wait()
            return "lost"

        async def joins(inner: Context) -> Any:
            joined = await inner.join("inner", {"left": step(1), "right": step(2)})
            return joined["left"] + joined["right"]

        async def races(inner: Context) -> Any:
            return (await inner.race("inner", {"fast": step("won"), "slow": slow})).value

        return await ctx.join("outer", {"joins": joins, "races": races, "plain": step(3)})

    assert (await world.through(workflow)).output == {"joins": 3, "races": "won", "plain": 3}


async def test_a_branch_that_retries_does_not_fail_the_join(world: World, count: Counter) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        async def flaky(inner: Context) -> Any:
            return await inner.step("flaky", count.failing("flaky", times=1, then="a"), max_retries=1)

        async def stable(_inner: Context) -> str:
            return "b"

        return await ctx.join("both", {"flaky": flaky, "stable": stable})

    assert (await world.through(workflow)).output == {"flaky": "a", "stable": "b"}
    assert count["flaky"] == 2


async def test_waits_of_branches_are_merged(yielding: World, count: Counter) -> None:
    started = yielding.clock.now()

    async def workflow(ctx: Context, _given: Any) -> Any:
        def nap(seconds: float) -> Any:
            return lambda inner: inner.sleep("nap", seconds)

        def take(*names: str) -> Any:
            return lambda inner: inner.queue.next("take", names=list(names))

        async def retries(inner: Context) -> Any:
            return await inner.step("flaky", count.failing("flaky", times=9), retry_backoff_base=100)

        async def done(_inner: Context) -> str:
            return "at once"

        branches = {"long": nap(500), "short": nap(40), "a": take("x"), "b": take("y"), "r": retries, "done": done}
        return await ctx.join("all", branches)

    result = await yielding.once(workflow)

    assert result.state == "sleeping"
    assert result.sleep_until == started + 30_000
    assert sorted(result.waiting_for_messages or ()) == ["x", "y"]


async def test_any_pending_wait_that_is_answered_resumes_the_join(yielding: World, count: Counter) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        async def a(inner: Context) -> None:
            await inner.queue.next("take", names=["a"])

        async def b(inner: Context) -> None:
            await inner.queue.next("take", names=["b"])
            await inner.step("after b", count.giving("after b", None))

        async def c(inner: Context) -> None:
            await inner.sleep("nap", 660)

        await ctx.join("all", {"a": a, "b": b, "c": c})

    await yielding.once(workflow)
    await yielding.send("b", 1)
    result = await yielding.once(workflow)

    assert count["after b"] == 1
    assert list(result.waiting_for_messages or ()) == ["a"]
    assert result.state == "sleeping"
