"""The door into history: names, one operation at a time, divergence, and code that holds on to signals."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import warnings
from typing import Any

import pytest

from engine import (
    Break,
    Context,
    Continue,
    EntryInProgressError,
    HistoryDivergedError,
    WorkflowState,
    YieldSwallowedError,
)
from engine.errors import InvalidIdError
from tests.unit.bench import Bench


async def failing(bench: Bench, fn: Any, kind: type[BaseException], match: str) -> None:
    with pytest.raises(kind, match=match):
        await bench.through(fn)
    assert bench.state() == "failed"


# --- names -----------------------------------------------------------------------------------------------------------


async def test_a_name_is_used_once_in_one_execution_of_its_scope() -> None:
    bench = Bench()

    async def twice(ctx: Context) -> None:
        await ctx.step("a", bench.giving("a"))
        with contextlib.suppress(Exception):
            await ctx.sleep("a", 1)

    await failing(bench, twice, HistoryDivergedError, "the name 'a' is used twice")


async def test_iterations_and_branches_have_names_of_their_own() -> None:
    bench = Bench()

    async def body(ctx: Context, n: int) -> Any:
        await ctx.step("a", bench.giving("a"))
        return Break(n) if n == 2 else Continue(n + 1)

    async def branch(ctx: Context) -> None:
        await ctx.step("a", bench.giving("a"))

    async def work(ctx: Context) -> Any:
        await ctx.step("a", bench.giving("a"))
        await ctx.join("j", {"a": branch, "b": branch})
        return await ctx.loop("l", body, 0)

    assert (await bench.once(work)).output == 2
    assert bench.runs == {"a": 6}


@pytest.mark.parametrize("name", ["x" * 1025, "\ud800", "ä" * 600])
async def test_a_name_that_cannot_be_a_key_is_refused(name: str) -> None:
    bench = Bench()
    with pytest.raises(InvalidIdError):
        await bench.once(lambda ctx: ctx.step(name, bench.giving("a")))
    assert bench.runs == {}


# --- one at a time ---------------------------------------------------------------------------------------------------


async def test_an_operation_that_was_not_awaited_is_named_by_the_next_one() -> None:
    bench = Bench()

    async def forgetful(ctx: Context) -> None:
        _ = ctx.step("charge", bench.giving("charge"))
        await ctx.step("next", bench.giving("next"))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await failing(bench, forgetful, EntryInProgressError, "did you forget to await 'charge'.*use ctx.join")
        gc.collect()
    assert bench.runs == {}


async def test_the_last_operation_that_was_not_awaited_is_found_too() -> None:
    bench = Bench()

    async def forgetful(ctx: Context) -> None:
        _ = ctx.step("charge", bench.giving("charge"))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await failing(bench, forgetful, EntryInProgressError, "'charge'")
        gc.collect()


async def test_gather_over_operations_of_one_scope_is_refused_even_if_swallowed() -> None:
    bench = Bench()

    async def gathering(ctx: Context) -> None:
        with contextlib.suppress(Exception):
            await asyncio.gather(ctx.step("a", bench.giving("a")), ctx.step("b", bench.giving("b")))

    await failing(bench, gathering, EntryInProgressError, "while 'a' is unfinished")


async def test_a_parent_cannot_act_while_its_join_runs() -> None:
    bench = Bench()

    async def work(ctx: Context) -> None:
        async def branch(_inner: Context) -> None:
            await ctx.step("through the parent", bench.giving("x"))

        await ctx.join("j", {"a": branch})

    await failing(bench, work, EntryInProgressError, "while 'j' is unfinished")


# --- divergence ------------------------------------------------------------------------------------------------------


async def recorded(fn: Any) -> Bench:
    bench = Bench()
    await bench.once(fn)
    assert bench.state() == "sleeping"
    return bench


async def test_divergence_names_the_place_and_the_remedy_and_leaves_history_alone() -> None:
    bench = Bench()

    async def body(ctx: Context, n: int) -> Any:
        await ctx.step("inner", bench.giving("inner"))
        if n == 3:
            await ctx.sleep("wait", 60)
        return Continue(n + 1)

    await bench.once(lambda ctx: ctx.loop("outer", body, 0))
    before = bench.entries()

    async def other(ctx: Context, n: int) -> Any:
        await ctx.sleep("inner", n)
        return Continue(n + 1)

    await failing(
        bench,
        lambda ctx: ctx.loop("outer", other, 0),
        HistoryDivergedError,
        r"'outer/~3/inner' is a sleep.*has a step.*ctx.removed",
    )
    assert bench.entries() == before
    handle = bench.start(lambda ctx: ctx.loop("outer", body, 0))
    with pytest.raises(Exception, match="outer/~3/inner"):
        await handle.result
    await handle.recover()
    assert (await bench.once(lambda ctx: ctx.loop("outer", body, 0))).state is WorkflowState.SLEEPING
    assert bench.runs == {"inner": 4}


async def test_an_operation_that_the_code_no_longer_reaches_diverges_in_every_scope() -> None:
    bench = Bench()

    async def inner(ctx: Context) -> None:
        await ctx.step("gone", bench.giving("gone"))
        await ctx.sleep("wait", 60)

    async def shorter(ctx: Context) -> None:
        await ctx.sleep("wait", 60)

    async def loop_body(ctx: Context, _n: int) -> Any:
        await inner(ctx)
        return Break(None)

    async def shorter_body(ctx: Context, _n: int) -> Any:
        await shorter(ctx)
        return Break(None)

    for old, new, place in [
        (inner, shorter, "gone"),
        (lambda ctx: ctx.join("j", {"a": inner}), lambda ctx: ctx.join("j", {"a": shorter}), "j/a/gone"),
        (lambda ctx: ctx.race("r", {"a": inner}), lambda ctx: ctx.race("r", {"a": shorter}), "r/a/gone"),
        (lambda ctx: ctx.try_block("t", inner), lambda ctx: ctx.try_block("t", shorter), "t/gone"),
        (lambda ctx: ctx.loop("l", loop_body, 0), lambda ctx: ctx.loop("l", shorter_body, 0), "l/~0/gone"),
    ]:
        bench = Bench()
        await bench.once(old)
        await failing(
            bench, new, HistoryDivergedError, f"history has a step at '{place}', which the code no longer reaches"
        )


async def test_a_divergence_that_is_swallowed_still_ends_the_run() -> None:
    bench = await recorded(lambda ctx: ctx.sleep("a", 60))

    async def swallowing(ctx: Context) -> str:
        try:
            await ctx.step("a", bench.giving("a"))
        except Exception:  # noqa: BLE001 - as authors do
            return "fine"
        return "finer"

    await failing(bench, swallowing, HistoryDivergedError, "'a' is a step in the code")


async def test_a_missing_branch_diverges() -> None:
    async def branch(ctx: Context) -> None:
        await ctx.sleep("s", 60)

    bench = await recorded(lambda ctx: ctx.join("j", {"a": branch, "b": branch}))
    await failing(
        bench,
        lambda ctx: ctx.join("j", {"a": branch, "c": branch}),
        HistoryDivergedError,
        "missing in the code: b; new in the code: c",
    )


# --- swallowed signals -----------------------------------------------------------------------------------------------


async def swallow_and_return(ctx: Context) -> str:
    try:
        await ctx.sleep("s", 60)
    except BaseException:  # noqa: BLE001 - as authors do
        return "swallowed"
    return "slept"


async def swallow_in_finally(ctx: Context) -> str:
    try:
        await ctx.sleep("s", 60)
    finally:
        raise ValueError("from a finally block")


async def swallow_for_ever(ctx: Context) -> str:
    for number in range(100):
        with contextlib.suppress(BaseException):
            await ctx.sleep(f"s{number}", 60)
    return "never"


async def gather_exceptions(ctx: Context) -> str:
    await asyncio.gather(ctx.sleep("s", 60), return_exceptions=True)
    return "gathered"


def in_join(body: Any) -> Any:
    return lambda ctx: ctx.join("j", {"a": body, "b": body})


def in_race(body: Any) -> Any:
    return lambda ctx: ctx.race("r", {"a": body})


def in_block(body: Any) -> Any:
    return lambda ctx: ctx.try_block("t", body)


def in_loop(body: Any) -> Any:
    async def once(ctx: Context, _state: int) -> Any:
        return Break(await body(ctx))

    return lambda ctx: ctx.loop("l", once, 0)


@pytest.mark.parametrize("around", [lambda body: body, in_join, in_race, in_block, in_loop])
@pytest.mark.parametrize("body", [swallow_and_return, swallow_in_finally, swallow_for_ever, gather_exceptions])
async def test_a_swallowed_wait_is_detected(around: Any, body: Any) -> None:
    bench = Bench()
    await failing(bench, around(body), YieldSwallowedError, "Catch\\s+Exception, not BaseException")
    assert not any(
        branch.output for entry in bench.entries().values() for branch in getattr(entry.kind, "branches", {}).values()
    )


@pytest.mark.parametrize("around", [lambda body: body, in_join, in_race, in_block, in_loop])
async def test_a_wait_in_whose_place_code_raised_its_own_is_told_with_that_error_as_its_cause(around: Any) -> None:
    bench = Bench()
    with pytest.raises(YieldSwallowedError) as caught:
        await bench.through(around(swallow_in_finally))
    assert isinstance(caught.value.__cause__, ValueError)
    assert "from a finally block" in str(caught.value.__cause__)


async def test_an_ordinary_except_does_not_catch_a_wait() -> None:
    async def careful(ctx: Context) -> str:
        try:
            await ctx.sleep("s", 60)
        except Exception:  # noqa: BLE001 - what it is about
            return "caught"
        return "slept"

    bench = Bench()
    assert (await bench.through(careful)).output == "slept"


@pytest.mark.parametrize("around", [lambda body: body, in_join, in_race, in_block, in_loop])
async def test_what_code_returns_after_it_swallowed_an_eviction_means_nothing(around: Any) -> None:
    bench = Bench()
    handle = bench.start(around(swallow_and_return), mode="live")
    await bench.idle(handle)
    handle.evict()
    await bench.finish(handle)
    assert bench.state() != "completed"
    assert not any(
        branch.output for entry in bench.entries().values() for branch in getattr(entry.kind, "branches", {}).values()
    )
    result = await bench.once(around(lambda ctx: ctx.sleep("s", 60)))
    assert result.state is WorkflowState.SLEEPING


async def test_finally_blocks_run_at_every_wait_and_their_operations_only_at_the_end() -> None:
    bench = Bench()
    passed = []

    async def tidy(ctx: Context) -> str:
        try:
            try:
                await ctx.sleep("s", 60)
            finally:
                passed.append("inner")
                await ctx.step("inner cleanup", bench.giving("inner"))
        finally:
            passed.append("outer")
            await ctx.step("outer cleanup", bench.giving("outer"))
        return "done"

    assert (await bench.through(tidy)).output == "done"
    assert passed == ["inner", "outer"] * 2
    assert bench.runs == {"inner": 1, "outer": 1}
