"""A run that must end whatever its code catches: what its code does after that is no part of history."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from engine import Break, Context, Continue, HistoryDivergedError, JoinError
from engine.entry import JoinEntry
from engine.errors import CorruptHistoryError
from tests.unit.bench import Bench


async def diverging(ctx: Context) -> None:
    with contextlib.suppress(HistoryDivergedError):
        await ctx.step("wait", lambda: 1)


async def failing(ctx: Context) -> None:
    try:
        await ctx.step("wait", lambda: 1)
    except HistoryDivergedError as error:
        raise ValueError("caught") from error


async def waiting(ctx: Context) -> None:
    await ctx.sleep("wait", 60)


def in_a_loop(answer: Any) -> Any:
    def workflow(work: Any) -> Any:
        async def body(ctx: Context, number: int) -> Any:
            await work(ctx)
            return answer if number == 0 else Break(number)

        return lambda ctx: ctx.loop("l", body, 0, history_prune_interval=1)

    return workflow


def in_a_join(work: Any) -> Any:
    return lambda ctx: ctx.join("j", {"a": work, "b": lambda inner: inner.sleep("other", 90)})


def in_a_race(work: Any) -> Any:
    return lambda ctx: ctx.race("r", {"a": work, "b": lambda inner: inner.sleep("other", 90)})


@pytest.mark.parametrize("swallowing", [diverging, failing])
@pytest.mark.parametrize("around", [in_a_loop(Continue(1)), in_a_loop(Break(1)), in_a_join, in_a_race])
async def test_a_divergence_that_is_caught_leaves_history_as_it_was(around: Any, swallowing: Any) -> None:
    bench = Bench()
    await bench.once(around(waiting))
    before = bench.entries()
    with pytest.raises(HistoryDivergedError):
        await bench.once(around(swallowing))
    assert bench.entries() == before


async def test_a_branch_whose_history_cannot_be_read_has_not_failed() -> None:
    bench = Bench()

    async def charging(ctx: Context) -> None:
        await ctx.step("charge", bench.giving("charge"))
        await ctx.sleep("wait", 60)

    async def inner(ctx: Context) -> None:
        with contextlib.suppress(JoinError):
            await ctx.join("inner", {"a": charging})

    def beside(takes_s: float) -> Any:
        async def branch(ctx: Context) -> None:
            await ctx.sleep("wait", 60)
            await ctx.step("acts", bench.giving("acts", takes_s=takes_s))

        return branch

    async def work(ctx: Context) -> str:
        await ctx.join("outer", {"a": inner, "b": beside(1), "c": beside(2)})
        return "done"

    await bench.once(work)
    key = next(
        key for key, value in bench.stored().items() if bench.entries()["outer/a/inner/a/charge"].id.encode() in value
    )
    whole = bench.stored()[key]
    await bench.driver.set(key, whole[:-1])
    bench.clock.advance(60)
    with pytest.raises(CorruptHistoryError):
        await bench.once(work)
    await bench.driver.set(key, whole)
    assert (await bench.through(work)).output == "done"
    assert bench.runs["charge"] == 1
    inner_kind = bench.entries()["outer/a/inner"].kind
    assert isinstance(inner_kind, JoinEntry)
    assert inner_kind.branches["a"].error is None
