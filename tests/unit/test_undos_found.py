"""What is found to be undone: every step that is done, whatever way the code took past what left no record."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from engine import Break, Context, Continue, CriticalError, HistoryDivergedError, UnstorableValueError
from tests.unit.bench import Bench


class Undoing(Bench):
    """A workflow whose steps note that they were undone, and with what output."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.undone: list[Any] = []

    def step(self, ctx: Context, name: str, value: Any = None) -> Any:
        async def undo(_ctx: Any, output: Any) -> None:
            self.undone.append(name if output is None else output)

        return ctx.step(name, self.giving(name, value), rollback=undo)

    async def fail(self, work: Any) -> None:
        with pytest.raises(CriticalError, match="no"):
            await self.start(work).result


async def left_by_itself(ctx: Context) -> None:
    """What the guide says not to do, and is done all the same."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.01):
            await ctx.step("slow", asyncio.Event().wait)


async def test_steps_behind_an_operation_that_the_code_cancelled_itself_are_undone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Undoing()

    async def work(ctx: Context) -> None:
        await ctx.rollback_checkpoint("begin")
        await bench.step(ctx, "a")
        await left_by_itself(ctx)
        await bench.step(ctx, "b")
        raise CriticalError("no")

    await bench.fail(work)
    assert bench.undone == ["b", "a"]
    assert bench.metadata("b").rollback_completed_at is not None
    assert "workflow wf-1 undoes what its last run came past" in caplog.text
    assert "'slow' has not run, and the step 'b'" in caplog.text


async def test_what_is_over_or_gone_is_not_undone_there_either() -> None:
    bench = Undoing()

    async def body(ctx: Context, number: int) -> Any:
        await bench.step(ctx, "each", f"each {number}")
        if number == 1:
            raise CriticalError("no")
        return Continue(number + 1)

    async def once(ctx: Context) -> Any:
        await bench.step(ctx, "inner")
        return Break()

    async def loser(ctx: Context) -> None:
        await bench.step(ctx, "loses")
        await ctx.sleep("long", 3600)

    async def winner(ctx: Context) -> None:
        await bench.step(ctx, "wins")

    async def work(ctx: Context) -> None:
        await ctx.rollback_checkpoint("begin")
        await left_by_itself(ctx)
        await ctx.loop("over", once, history_size=0)
        await ctx.race("race", {"a": loser, "b": winner})
        await ctx.loop("under way", body, 0)

    await bench.fail(work)
    assert bench.undone == ["each 1", "wins"]


async def test_steps_behind_a_join_whose_results_were_too_large_together_are_undone() -> None:
    bench = Undoing()
    bench.driver.value_bytes_max = 1000

    async def large(_ctx: Context) -> str:
        return "x" * 600

    async def work(ctx: Context) -> None:
        await ctx.rollback_checkpoint("begin")
        with contextlib.suppress(UnstorableValueError):
            await ctx.join("both", {"a": large, "b": large})
        await bench.step(ctx, "b")
        await ctx.sleep("wait", 60)
        if bench.state() == "sleeping":
            raise CriticalError("no")

    await bench.once(work)
    bench.clock.advance(60)
    await bench.fail(work)
    assert bench.undone == ["b"]


@pytest.mark.parametrize("is_inline", [True, False])
async def test_what_was_put_into_a_block_before_done_steps_holds_the_rollback_up(*, is_inline: bool) -> None:
    bench = Undoing()

    def deployed(*, is_new: bool) -> Any:
        async def block(ctx: Context) -> None:
            await ctx.step("old", bench.giving("old"))
            if is_new:
                await ctx.step("new", bench.giving("new"))

        async def outer(ctx: Context) -> None:
            await (ctx.inline(block, name="block") if is_inline else ctx.try_block("block", block))

        async def work(ctx: Context) -> None:
            await ctx.rollback_checkpoint("begin")
            await ctx.try_block("outer", outer)
            await bench.step(ctx, "b")
            await ctx.sleep("wait", 60)

        return work

    handle = bench.start(deployed(is_new=False))
    await bench.finish(handle)
    await handle.cancel(rollback=True)
    with pytest.raises(
        HistoryDivergedError, match="'outer/block/new' has not run, and the step 'b', which comes after"
    ):
        await bench.once(deployed(is_new=True))
    assert (bench.state(), bench.undone) == ("rolling_back", [])
    assert (await bench.once(deployed(is_new=False))).state == "cancelled"
    assert bench.undone == ["b"]


async def test_a_handler_gets_the_recorded_output_whatever_the_code_made_of_it() -> None:
    bench = Undoing()

    async def work(ctx: Context) -> None:
        await ctx.rollback_checkpoint("begin")
        (await bench.step(ctx, "a", ["kept"])).append("not kept")
        raise CriticalError("no")

    await bench.fail(work)
    assert bench.undone == [["kept"]]


async def test_a_long_loop_keeps_no_undo_of_what_is_over() -> None:
    bench = Undoing()
    most = 0

    async def body(ctx: Context, number: int) -> Any:
        nonlocal most
        await bench.step(ctx, "each")
        turn = handle._run.turn
        assert turn is not None
        most = max(most, len(turn.undos))
        return Continue(number + 1) if number < 50 else Break()

    async def work(ctx: Context) -> None:
        await ctx.rollback_checkpoint("begin")
        await ctx.loop("l", body, 0)

    handle = bench.start(work)
    await handle.result
    assert most == 1
