"""Rollback: completed steps are undone in reverse, once, through every scope, and resumed where it stopped."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from engine import (
    Continue,
    CriticalError,
    EvictedError,
    RollbackCheckpointError,
    RollbackErrorEvent,
    WorkflowFailedError,
)
from engine.entry import LoopEntry

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine import Context
    from tests.unit.behaviours.world import World


class Undone(list[str]):
    """What was undone, with what, in order."""

    def note(self, name: str) -> Callable[[Any, Any], Any]:
        async def handler(_ctx: Any, output: Any) -> None:
            self.append(f"{name}:{output}")

        return handler


@pytest.fixture
def undone() -> Undone:
    return Undone()


async def test_steps_are_undone_in_reverse_order_with_their_outputs(world: World, undone: Undone) -> None:
    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.step("unprotected", lambda: 0)
        await ctx.rollback_checkpoint("from here")
        await ctx.step("first", lambda: "one", rollback=undone.note("first"))
        await ctx.step("plain", lambda: 0)
        await ctx.step("second", lambda: "two", rollback=undone.note("second"))
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        await world.through(workflow)

    assert undone == ["second:two", "first:one"]
    assert await world.state() == "failed"


async def test_an_undo_needs_a_checkpoint(world: World, undone: Undone) -> None:
    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.step("early", lambda: 1, rollback=undone.note("early"))

    with pytest.raises(RollbackCheckpointError):
        await world.through(workflow)
    assert await world.state() == "failed"
    assert undone == []


async def test_a_step_that_failed_is_not_undone(world: World, undone: Undone) -> None:
    async def fails() -> None:
        raise CriticalError("no stock")

    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.rollback_checkpoint("from here")
        await ctx.step("reserve", lambda: 1, rollback=undone.note("reserve"))
        await ctx.step("ship", fails, rollback=undone.note("ship"))

    with pytest.raises(CriticalError):
        await world.through(workflow)
    assert undone == ["reserve:1"]


async def test_a_rollback_goes_on_where_an_eviction_stopped_it(world: World, undone: Undone) -> None:
    started, gate = asyncio.Event(), asyncio.Event()

    async def blocked(rollback_ctx: Any, _output: Any) -> None:
        started.set()
        await gate.wait()
        assert not rollback_ctx.is_evicted()
        undone.append("second")

    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.rollback_checkpoint("from here")
        await ctx.step("first", lambda: 1, rollback=undone.note("first"))
        await ctx.step("second", lambda: 2, rollback=blocked)
        await ctx.step("third", lambda: 3, rollback=undone.note("third"))
        raise ValueError("boom")

    handle = world.start(workflow)
    await started.wait()
    handle.evict()
    result = await handle.result
    assert (result.state, undone) == ("rolling_back", ["third:3"])
    gate.set()

    with pytest.raises((ValueError, WorkflowFailedError), match="boom"):
        await world.through(workflow)
    assert undone == ["third:3", "second", "first:1"]


async def test_a_handler_that_fails_is_tried_again_by_the_next_run(yielding: World, undone: Undone) -> None:
    failures = [ConnectionError("not now")]

    async def fails_once(_ctx: Any, _output: Any) -> None:
        if failures:
            raise failures.pop()
        undone.append("first")

    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.rollback_checkpoint("from here")
        await ctx.step("first", lambda: 1, rollback=fails_once)
        await ctx.step("second", lambda: 2, rollback=undone.note("second"))
        raise ValueError("boom")

    with pytest.raises(ConnectionError, match="not now"):
        await yielding.once(workflow)
    assert await yielding.state() == "rolling_back"
    _, metadata = yielding.step("first")
    assert metadata.rollback_error
    [event] = [event for event in yielding.errors if isinstance(event, RollbackErrorEvent)]
    assert (event.step_name, event.error.message) == ("first", "not now")

    with pytest.raises((ValueError, WorkflowFailedError), match="boom"):
        await yielding.once(workflow)
    assert undone == ["second:2", "first"]
    assert await yielding.state() == "failed"


async def test_a_rollback_does_not_move_a_loop(world: World, undone: Undone) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        await ctx.rollback_checkpoint("from here")
        await ctx.step("outside", lambda: 0, rollback=undone.note("outside"))

        async def body(inner: Context, state: int) -> Any:
            await inner.step("inside", lambda: state, rollback=undone.note("inside"))
            if state == 1:
                raise ValueError("boom")
            return Continue(state + 1)

        return await ctx.loop("loop", body, state=0)

    with pytest.raises(ValueError, match="boom"):
        await world.through(workflow)

    [loop] = [entry.kind for entry in world.entries() if isinstance(entry.kind, LoopEntry)]
    assert loop.iteration == 1
    assert undone == ["inside:1", "outside:0"]


async def test_rollback_reaches_into_joins_races_and_blocks(world: World, undone: Undone) -> None:
    """The reference stops at joins that failed; ours undoes the completed steps of every scope."""

    def step(name: str) -> Any:
        return lambda inner: inner.step(name, lambda: name, rollback=undone.note(name))

    async def fails(_inner: Context) -> None:
        raise ValueError("boom")

    async def waits(inner: Context) -> None:
        await inner.abort_signal.wait()

    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.rollback_checkpoint("from here")
        await ctx.join("fine", {"a": step("joined")})
        await ctx.race("race", {"wins": step("raced"), "loses": waits})
        await ctx.try_block("block", step("tried"))
        await ctx.join("failing", {"good": step("sibling"), "bad": fails})

    with pytest.raises(Exception, match="bad"):
        await world.through(workflow)
    assert undone == ["sibling:sibling", "tried:tried", "raced:raced", "joined:joined"]


async def test_neither_eviction_nor_cancellation_undoes(yielding: World, undone: Undone) -> None:
    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.rollback_checkpoint("from here")
        await ctx.step("first", lambda: 1, rollback=undone.note("first"))
        await ctx.sleep("nap", 60)

    handle = yielding.start(workflow)
    await handle.result
    await handle.cancel()

    with pytest.raises(EvictedError):
        await yielding.once(workflow)
    assert undone == []
