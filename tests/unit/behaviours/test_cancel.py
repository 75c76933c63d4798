"""Cancelling with a rollback: what was done is undone, once, and the workflow ends as cancelled, whoever runs it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from engine import EvictedError, HistoryDivergedError, WorkflowFailedError
from engine.keys import ERROR_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine import Context
    from tests.unit.behaviours.world import World


class Shop:
    """A workflow that can be undone, and what was undone."""

    def __init__(self) -> None:
        self.undone: list[str] = []
        self.done: list[str] = []

    def _undo(self, name: str) -> Callable[[Any, Any], Any]:
        async def handler(_ctx: Any, output: Any) -> None:
            self.undone.append(f"{name}:{output}")

        return handler

    def _do(self, name: str) -> Callable[[], str]:
        def body() -> str:
            self.done.append(name)
            return name.upper()

        return body

    async def sleeps(self, ctx: Context, _given: Any) -> str:
        await ctx.rollback_checkpoint("from here")
        await ctx.step("first", self._do("first"), rollback=self._undo("first"))
        await ctx.step("second", self._do("second"), rollback=self._undo("second"))
        await ctx.queue.next("go")
        await ctx.step("third", self._do("third"), rollback=self._undo("third"))
        return "done"


async def test_a_sleeper_is_undone_by_its_next_run_and_ends_cancelled(yielding: World) -> None:
    shop = Shop()
    handle = yielding.start(shop.sleeps)
    await handle.result
    await handle.cancel(rollback=True)
    assert await yielding.state() == "rolling_back"
    assert yielding.alarm == yielding.clock.now()
    assert shop.undone == []
    # Whatever comes in the meantime, the workflow does not go on.
    await yielding.send("go", None)

    assert (await yielding.once(shop.sleeps)).state == "cancelled"
    assert shop.undone == ["second:SECOND", "first:FIRST"]
    assert shop.done == ["first", "second"]
    assert await yielding.state() == "cancelled"
    assert yielding.alarm is None
    assert await yielding.driver.get(ERROR_KEY) is None
    with pytest.raises(EvictedError):
        await yielding.once(shop.sleeps)
    assert len(shop.undone) == 2


async def test_a_run_in_progress_is_stopped_and_its_step_not_undone(world: World) -> None:
    shop = Shop()
    started = asyncio.Event()

    async def hangs() -> None:
        started.set()
        await asyncio.Event().wait()

    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.rollback_checkpoint("from here")
        await ctx.step("first", shop._do("first"), rollback=shop._undo("first"))
        await ctx.step("hangs", hangs, timeout=3600, rollback=shop._undo("hangs"))

    handle = world.start(workflow)
    await started.wait()
    await handle.cancel(rollback=True)
    assert await world.state() == "rolling_back"
    assert (await world.once(workflow)).state == "cancelled"
    assert shop.undone == ["first:FIRST"]


async def test_a_rollback_of_a_cancellation_goes_on_where_it_stopped(yielding: World) -> None:
    shop = Shop()
    failures = [ConnectionError("not now")]

    async def fails_once(_ctx: Any, _output: Any) -> None:
        if failures:
            raise failures.pop()
        shop.undone.append("first")

    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.rollback_checkpoint("from here")
        await ctx.step("first", shop._do("first"), rollback=fails_once)
        await ctx.step("second", shop._do("second"), rollback=shop._undo("second"))
        await ctx.queue.next("go")

    handle = yielding.start(workflow)
    await handle.result
    await handle.cancel(rollback=True)
    with pytest.raises(ConnectionError):
        await yielding.once(workflow)
    assert await yielding.state() == "rolling_back"
    assert (await yielding.once(workflow)).state == "cancelled"
    assert shop.undone == ["second:SECOND", "first"]


async def test_nothing_to_undo_ends_at_once(yielding: World) -> None:
    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.queue.next("go")

    handle = yielding.start(workflow)
    await handle.result
    await handle.cancel(rollback=True)
    assert (await yielding.once(workflow)).state == "cancelled"


async def test_what_has_ended_or_rolls_back_already_is_left_to_its_end(yielding: World) -> None:
    gate = asyncio.Event()

    async def blocked(_ctx: Any, _output: Any) -> None:
        await gate.wait()

    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.rollback_checkpoint("from here")
        await ctx.step("first", lambda: 1, rollback=blocked)
        raise ValueError("boom")

    handle = yielding.start(workflow)
    for _ in range(100):
        await asyncio.sleep(0)
    await handle.cancel(rollback=True)
    assert await yielding.state() == "rolling_back"
    gate.set()
    with pytest.raises((ValueError, WorkflowFailedError), match="boom"):
        await yielding.once(workflow)
    assert await yielding.state() == "failed"
    stored = yielding.stored()
    await handle.cancel(rollback=True)
    assert yielding.stored() == stored


async def test_code_that_does_not_fit_the_history_undoes_nothing_until_it_does(yielding: World) -> None:
    shop = Shop()

    async def changed(ctx: Context, _given: Any) -> None:
        await ctx.rollback_checkpoint("from here")
        await ctx.sleep("first", 60)

    handle = yielding.start(shop.sleeps)
    await handle.result
    await handle.cancel(rollback=True)
    with pytest.raises(HistoryDivergedError):
        await yielding.once(changed)
    assert (await yielding.state(), shop.undone) == ("rolling_back", [])
    assert (await yielding.once(shop.sleeps)).state == "cancelled"
    assert shop.undone == ["second:SECOND", "first:FIRST"]
