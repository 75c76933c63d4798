"""How undos are called: an async one in the event loop, any other in a thread, as the functions of steps are."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from engine.errors import RecordedError, WorkflowFailedError
from engine.lifecycle import WorkflowState
from tests.unit.bench import Bench

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.author.context import Context

WAIT_S = 60.0
"""Seconds that a thread waits at most for the loop to go on: where it held the loop up, it would be for ever."""


def failing(bench: Bench, undo: Callable[..., Any], names: str = "a") -> Callable[[Context], Any]:
    """A workflow that fails when each step of ``names``, which returns its name, is done; ``undo`` undoes all."""

    async def work(ctx: Context) -> None:
        await ctx.rollback_checkpoint("cp")
        for name in names:
            await ctx.step(name, bench.giving(name, name), rollback=undo)
        raise ValueError("no")

    return work


async def test_an_undo_that_blocks_holds_up_nothing_else() -> None:
    bench, began, go_on = Bench(), threading.Event(), threading.Event()
    places: list[Any] = []

    def undo(_ctx: Any, output: str) -> None:
        began.set()
        places.append((output, threading.current_thread() is threading.main_thread(), go_on.wait(WAIT_S)))

    handle = bench.start(failing(bench, undo, "ab"))
    assert await asyncio.to_thread(began.wait, WAIT_S)
    go_on.set()
    with pytest.raises(ValueError, match="no"):
        await handle.result
    assert places == [("b", False, True), ("a", False, True)]
    assert bench.state() == "failed"


async def test_an_undo_in_a_thread_may_finish_when_the_run_is_evicted_and_is_not_done_again() -> None:
    bench, began, go_on = Bench(), threading.Event(), threading.Event()
    undone: list[str] = []

    def undo(ctx: Any, output: str) -> None:
        began.set()
        go_on.wait(WAIT_S)
        undone.append(f"{output} {'evicted' if ctx.is_evicted() else 'in peace'}")

    work = failing(bench, undo, "ab")
    handle = bench.start(work)
    assert await asyncio.to_thread(began.wait, WAIT_S)
    handle.evict()
    go_on.set()
    assert (await handle.result).state is WorkflowState.ROLLING_BACK
    assert bench.metadata("b").rollback_completed_at is not None
    with pytest.raises(WorkflowFailedError, match="ValueError: no"):
        await bench.once(work)
    assert undone == ["b evicted", "a in peace"]


async def test_the_hard_end_of_an_eviction_leaves_a_thread_to_itself_and_its_undo_to_the_next_run() -> None:
    bench, began, go_on = Bench(), threading.Event(), threading.Event()
    undone: list[str] = []
    ended = threading.Semaphore(0)

    def undo(_ctx: Any, output: str) -> None:
        began.set()
        go_on.wait(WAIT_S)
        undone.append(output)
        ended.release()

    work = failing(bench, undo)
    handle = bench.start(work)
    assert await asyncio.to_thread(began.wait, WAIT_S)
    handle.evict(grace=0)
    assert (await handle.result).state is WorkflowState.ROLLING_BACK
    assert undone == []
    assert bench.metadata("a").rollback_completed_at is None
    go_on.set()
    with pytest.raises(WorkflowFailedError, match="ValueError: no"):
        await bench.once(work)
    for _ in range(2):
        assert await asyncio.to_thread(ended.acquire, timeout=WAIT_S)
    assert undone == ["a", "a"]


async def test_an_async_undo_that_is_called_through_something_else_is_awaited() -> None:
    bench, undone = Bench(), []

    class Undo:
        async def __call__(self, _ctx: Any, output: str) -> None:
            undone.append((output, threading.current_thread() is threading.main_thread()))

    async def release(_ctx: Any, output: str) -> None:
        undone.append((output, threading.current_thread() is threading.main_thread()))

    def later(ctx: Any, output: str) -> Any:
        return release(ctx, output)

    async def work(ctx: Context) -> None:
        await ctx.rollback_checkpoint("cp")
        await ctx.step("a", bench.giving("a", "a"), rollback=Undo())
        await ctx.step("b", bench.giving("b", "b"), rollback=later)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await bench.once(work)
    assert undone == [("b", True), ("a", True)]


async def test_an_undo_that_awaited_what_somebody_else_cancelled_has_failed() -> None:
    bench = Bench()

    async def undo(_ctx: Any, _output: str) -> None:
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lost.cancel()
        await lost

    with pytest.raises(RecordedError, match="cancelled"):
        await bench.once(failing(bench, undo))
    assert bench.state() == "rolling_back"
    assert bench.metadata("a").rollback_error == "the function awaited something that was cancelled"


@pytest.mark.parametrize("error", [OSError("not now"), StopIteration()])
async def test_an_undo_that_fails_in_a_thread_has_failed(error: Exception) -> None:
    bench = Bench()

    def undo(_ctx: Any, _output: str) -> None:
        raise error

    with pytest.raises((OSError, RuntimeError)):
        await bench.once(failing(bench, undo))
    assert bench.state() == "rolling_back"
    assert bench.metadata("a").rollback_error in {"not now", "the function raised StopIteration"}
