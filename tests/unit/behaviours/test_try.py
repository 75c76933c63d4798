"""try_step and try_block: terminal failures as values; retries, waits and control flow pass through."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from engine import CriticalError, HistoryDivergedError, RollbackError
from tests.unit.behaviours.world import failed

if TYPE_CHECKING:
    from engine import Context
    from tests.unit.behaviours.world import Counter, World


def failure_of(found: Any) -> list[Any]:
    failure = failed(found)
    return [found.ok, failure.kind, failure.name, failure.attempts, failure.error.name]


async def test_a_critical_failure_is_a_value(world: World, count: Counter) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        found = await ctx.try_step("fails", count.raising("fails", CriticalError("stop")))
        return [*failure_of(found), failed(found).error.message]

    assert (await world.through(workflow)).output == [False, "critical", "fails", 1, "CriticalError", "stop"]


async def test_a_success_is_a_value_too(world: World) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        found = await ctx.try_step("fine", lambda: 7)
        return [found.ok, found.value, found.failure]

    assert (await world.through(workflow)).output == [True, 7, None]


async def test_retries_come_before_the_verdict(world: World, count: Counter) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        found = await ctx.try_step("fails", count.failing("fails", times=9), max_retries=1)
        return [*failure_of(found), failed(found).error.message]

    expected = [False, "exhausted", "fails", 2, "ValueError", "attempt 2 of fails"]
    assert (await world.through(workflow)).output == expected
    assert count["fails"] == 2


async def test_a_rollback_passes_through_by_default(world: World, count: Counter) -> None:
    async def steps(ctx: Context, _given: Any) -> None:
        await ctx.try_step("fails", count.raising("fails", RollbackError("undo")))

    with pytest.raises(RollbackError, match="undo"):
        await world.through(steps)


async def test_a_rollback_is_a_value_where_asked_for(world: World, count: Counter) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        found = await ctx.try_step("fails", count.raising("fails", RollbackError("undo")), catch=["rollback"])
        return failure_of(found)

    assert (await world.through(workflow)).output == [False, "rollback", "fails", 1, "RollbackError"]


async def test_a_kind_that_is_not_asked_for_passes_through(world: World, count: Counter) -> None:
    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.try_step("fails", count.raising("fails", CriticalError("stop")), catch=["exhausted"])

    with pytest.raises(CriticalError, match="stop"):
        await world.through(workflow)


async def test_a_timeout_is_a_kind_of_its_own(world: World) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        return failure_of(await ctx.try_step("slow", asyncio.Event().wait, timeout=5))

    assert (await world.through(workflow)).output == [False, "timeout", "slow", 1, "StepTimeoutError"]


# --- blocks -----------------------------------------------------------------------------------------------------------


async def test_a_failed_step_ends_its_block(world: World, count: Counter) -> None:
    async def block(inner: Context) -> None:
        await inner.step("charge", count.raising("charge", CriticalError("declined")))

    async def workflow(ctx: Context, _given: Any) -> Any:
        found = await ctx.try_block("payment", block)
        return [failed(found).source, *failure_of(found), failed(found).error.message]

    expected = ["step", False, "critical", "charge", 1, "CriticalError", "declined"]
    assert (await world.through(workflow)).output == expected


@pytest.mark.parametrize(("kind", "error"), [("join", "JoinError"), ("race", "RaceError")])
async def test_a_failed_join_or_race_ends_its_block(world: World, kind: str, error: str) -> None:
    async def fails(_inner: Context) -> None:
        raise ValueError("boom")

    async def block(inner: Context) -> None:
        await getattr(inner, kind)("contest", {"one": fails, "two": fails})

    async def workflow(ctx: Context, _given: Any) -> Any:
        found = await ctx.try_block("block", block)
        return [found.ok, failed(found).source, failed(found).name, failed(found).error.name]

    assert (await world.through(workflow)).output == [False, kind, "contest", error]


async def test_a_rollback_passes_through_a_block_by_default(world: World) -> None:
    async def block(_inner: Context) -> None:
        raise RollbackError("undo")

    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.try_block("block", block)

    with pytest.raises(RollbackError, match="undo"):
        await world.through(workflow)


async def test_a_block_hands_over_a_rollback_where_asked_for(world: World) -> None:
    async def block(_inner: Context) -> None:
        raise RollbackError("undo")

    async def workflow(ctx: Context, _given: Any) -> Any:
        found = await ctx.try_block("block", block, catch=["rollback"])
        return [found.ok, failed(found).source, failed(found).name, failed(found).error.name]

    assert (await world.through(workflow)).output == [False, "block", "block", "RollbackError"]


async def test_an_ordinary_error_passes_through_a_block(world: World) -> None:
    async def block(_inner: Context) -> None:
        raise ValueError("a bug")

    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.try_block("block", block)

    with pytest.raises(ValueError, match="a bug"):
        await world.through(workflow)


async def test_waits_pass_through_a_block(world: World, count: Counter) -> None:
    async def block(inner: Context) -> Any:
        before = await inner.step("before", count.giving("before", 1))
        await inner.sleep("nap", 60)
        return before + await inner.step("after", count.failing("after", times=1, then=1))

    async def workflow(ctx: Context, _given: Any) -> Any:
        return (await ctx.try_block("block", block)).value

    assert (await world.through(workflow)).output == 2
    assert (count["before"], count["after"]) == (1, 2)


async def test_divergence_passes_through_a_block(world: World) -> None:
    async def block(inner: Context) -> None:
        await inner.step("same", lambda: 1)
        await inner.step("same", lambda: 1)

    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.try_block("block", block)

    with pytest.raises(HistoryDivergedError):
        await world.through(workflow)
