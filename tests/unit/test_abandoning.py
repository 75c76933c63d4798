"""Code that swallows every signal in a loop: the run ends without it, and says so."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from engine import Context, CriticalError, WorkflowState, YieldSwallowedError, limits
from engine.abandoning import give_up, held
from engine.errors import EvictedError
from tests.unit.bench import Bench

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ENDS_WITHIN_S = 60.0


async def endless() -> None:
    await asyncio.Event().wait()


async def forever(operation: Callable[[], Awaitable[Any]]) -> Any:
    """What no workflow should do."""
    while True:
        try:
            return await operation()
        except BaseException:  # noqa: BLE001 - what this is about
            await asyncio.sleep(0)


async def evicted(bench: Bench, work: Any, caplog: pytest.LogCaptureFixture) -> Any:
    handle = bench.start(work)
    await bench.idle(handle)
    handle.evict(grace=0)
    result = await asyncio.wait_for(handle.result, ENDS_WITHIN_S)
    assert "swallows EvictedError and goes on, again and again; it is left behind" in caplog.text
    return result


async def test_a_run_that_is_stopped_ends_without_it(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    result = await evicted(bench, lambda ctx: forever(lambda: ctx.step("s", endless)), caplog)
    assert result.state is WorkflowState.RUNNING
    # Another run goes on from there, as after any eviction.
    assert (await bench.once(lambda ctx: ctx.step("s", bench.giving("s", 1)))).output == 1


async def test_a_run_that_is_stopped_ends_without_its_branch(caplog: pytest.LogCaptureFixture) -> None:
    async def branch(ctx: Context) -> Any:
        return await forever(lambda: ctx.step("s", endless))

    await evicted(Bench(), lambda ctx: ctx.join("j", {"a": branch, "b": branch}), caplog)


async def test_a_race_that_is_decided_ends_without_its_loser(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()

    async def loser(ctx: Context) -> Any:
        return await forever(lambda: ctx.step("s", endless))

    async def winner(ctx: Context) -> Any:
        return await ctx.step("w", bench.giving("w", takes_s=1))

    async def work(ctx: Context) -> Any:
        won = (await ctx.race("r", {"bad": loser, "good": winner})).winner
        await ctx.step("after", bench.giving("after"))
        return won

    result = await asyncio.wait_for(bench.through(work), ENDS_WITHIN_S)
    assert (result.output, list(bench.entries())) == ("good", ["r", "r/good/w", "after"])
    assert "workflow code in 'r/bad' swallows" in caplog.text


async def test_a_yield_fails_the_run_and_ends_it_without_it() -> None:
    bench = Bench()
    turns = 0

    def sleeping(ctx: Context) -> Any:
        nonlocal turns
        turns += 1
        return ctx.sleep(f"s{turns}", 60)

    with pytest.raises(YieldSwallowedError):
        await asyncio.wait_for(bench.through(lambda ctx: forever(lambda: sleeping(ctx))), ENDS_WITHIN_S)
    assert bench.state() == "failed"
    assert turns <= limits.UNWIND_OPERATIONS_MAX + 1


async def test_undos_are_collected_without_it(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    undone = []

    async def undo(*_given: Any) -> None:
        undone.append("a")

    async def work(ctx: Context) -> Any:
        await ctx.rollback_checkpoint("c")
        await ctx.step("a", bench.giving("a"), rollback=undo)
        if bench.state() == "rolling_back" or undone or bench.runs.get("failed"):
            await forever(lambda: ctx.step("new", bench.giving("new")))
        bench.runs["failed"] = 1
        raise CriticalError("no")

    with pytest.raises(CriticalError, match="no"):
        await asyncio.wait_for(bench.through(work), ENDS_WITHIN_S)
    assert (undone, bench.state()) == (["a"], "failed")
    assert "goes on, again and again; it is left behind" in caplog.text


async def test_only_the_task_that_is_resumed_is_left() -> None:
    async def elsewhere() -> int:
        await asyncio.create_task(give_up(EvictedError(), "a task of the author's"))
        return 1

    assert await held(elsewhere) == 1
    await give_up(EvictedError(), "nowhere")


async def test_what_is_awaited_is_handed_on_both_ways() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def waiting() -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return await future
        return 0

    task = asyncio.create_task(held(waiting))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    future.set_result(7)
    assert await task == 7
