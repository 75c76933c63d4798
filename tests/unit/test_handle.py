"""What the starter of a run holds, hooks that watch it, and the registry of types."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import pytest

from engine import (
    NO_OUTPUT,
    Context,
    HistorySnapshot,
    Registry,
    StepErrorEvent,
    StepExhaustedError,
    UnknownTypeError,
    WorkflowState,
    run_workflow,
    workflow,
)
from engine.error_info import error_info, error_text, parse_error, shortened
from engine.errors import InvalidIdError
from engine.history.hooks import RunErrorEvent
from engine.limits import DEATHS_MAX
from tests.unit.bench import WORKFLOW_ID, Bench


async def take(ctx: Context) -> Any:
    first = (await ctx.queue.next("a", "m")).body
    await ctx.step("s", nothing)
    return [first, (await ctx.queue.next("b", "m")).body]


async def nothing() -> None:
    return None


async def test_the_same_message_id_counts_once_also_after_it_was_consumed() -> None:
    bench = Bench()
    handle = bench.start(take)
    await handle.result
    assert await handle.message("m", 1, id="x")
    assert not await handle.message("m", 1, id="x")
    await bench.once(take)
    assert not await handle.message("m", 1, id="x")
    assert await handle.message("m", 2, id="y")
    assert (await bench.once(take)).output == [1, 2]


async def test_message_names_are_checked() -> None:
    handle = Bench().start(take)
    for name in ("", "x" * 1025, "\ud800"):
        with pytest.raises(InvalidIdError):
            await handle.message(name, 1)
    await handle.result


async def test_waking_sets_the_alarm_to_now() -> None:
    bench = Bench()
    handle = bench.start(lambda ctx: ctx.sleep("s", 600))
    await handle.result
    bench.clock.advance(5)
    await handle.wake()
    assert bench.alarm == bench.clock.now()


async def test_state_and_output_are_read_from_the_store() -> None:
    bench = Bench()
    handle = bench.start(lambda ctx: ctx.sleep("s", 600))
    assert await handle.get_state() is WorkflowState.PENDING
    assert await handle.get_output() is NO_OUTPUT
    await handle.result
    assert await handle.get_state() is WorkflowState.SLEEPING
    await bench.through(lambda ctx: ctx.sleep("s", 600))
    assert await handle.get_state() is WorkflowState.COMPLETED
    assert await handle.get_output() is None
    assert handle.workflow_id == WORKFLOW_ID


async def test_the_grace_of_an_eviction_leaves_no_timer_behind() -> None:
    bench = Bench()
    handle = bench.start(lambda ctx: ctx.step("s", bench.giving("s", takes_s=1)))
    await bench.idle(handle)
    handle.evict(grace=100)
    await bench.finish(handle)
    await asyncio.sleep(0)
    assert bench.clock.next_timer() is None
    handle.evict(grace=5)
    assert bench.clock.next_timer() is None


async def test_eviction_with_a_grace_that_is_over_stops_at_once() -> None:
    bench = Bench()
    handle = bench.start(lambda ctx: ctx.step("s", bench.giving("s", takes_s=1000), timeout=None))
    await bench.idle(handle)
    handle.evict(grace=0)
    assert (await handle.result).state is not WorkflowState.COMPLETED
    assert bench.metadata("s").error == "Evicted: the run had to stop before the step ended"


async def test_cancelling_the_wait_for_a_result_does_not_cancel_the_run() -> None:
    bench = Bench()
    handle = bench.start(lambda ctx: ctx.step("s", bench.giving("s", 1, takes_s=1)))
    waiting = asyncio.ensure_future(handle.result)
    await bench.idle(handle)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await bench.finish(handle)).output == 1


async def test_cancelling_before_anything_ran_cancels() -> None:
    bench = Bench()
    handle = bench.start(lambda ctx: ctx.step("s", bench.giving("s")))
    await handle.cancel()
    assert bench.state() == "cancelled"
    assert (await handle.result).state is WorkflowState.CANCELLED

    async def instant(_ctx: Context) -> str:
        return "no operation at all"

    other = Bench()
    handle = other.start(instant)
    await handle.cancel()
    assert other.state() == "cancelled"


async def test_a_run_needs_a_driver() -> None:
    with pytest.raises(TypeError, match="MemoryDriver"):
        run_workflow(WORKFLOW_ID, take)


# --- hooks -----------------------------------------------------------------------------------------------------------


async def test_a_snapshot_comes_at_load_and_after_each_commit_of_news() -> None:
    bench = Bench()
    snapshots: list[HistorySnapshot] = []

    async def work(ctx: Context) -> None:
        await ctx.step("a", bench.giving("a"))
        await ctx.step("b", bench.giving("b"))

    await bench.once(work, on_history_updated=snapshots.append)
    assert [len(snapshot.entries) for snapshot in snapshots] == [0, 1, 2]
    assert snapshots[-1].name_registry == ["a", "b"]
    assert set(snapshots[-1].entry_metadata) == {entry.id for entry in snapshots[-1].entries}


async def test_a_hook_that_raises_is_logged_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()

    def broken(_what: Any) -> None:
        raise RuntimeError("a broken hook")

    handle = run_workflow(
        WORKFLOW_ID,
        lambda ctx: ctx.step("s", bench.raising("s", ValueError("no"), times=1)),
        None,
        bench.driver,
        on_history_updated=broken,
        on_error=broken,
    )
    assert (await handle.result).state is WorkflowState.SLEEPING
    assert caplog.text.count("a broken hook") >= 2


async def test_an_error_is_told_once() -> None:
    bench = Bench()

    async def work(ctx: Context) -> None:
        await ctx.step("s", bench.raising("s", ValueError("no")), max_retries=0)

    with pytest.raises(Exception, match="exhausted"):
        await bench.through(work)
    assert [type(event) for event in bench.events] == [StepErrorEvent]

    async def plain(_ctx: Context) -> None:
        raise KeyError("k")

    other = Bench()
    with pytest.raises(KeyError):
        await other.through(plain)
    assert [type(event) for event in other.events] == [RunErrorEvent]


def test_texts_of_errors_are_parsed_back() -> None:
    for error in (ValueError("a: b: c"), KeyError("k"), RuntimeError()):
        recorded = parse_error(error_text(error))
        assert (recorded.name, recorded.message) == (type(error).__name__, str(error))
    assert parse_error("just words here").name == "Error"


def test_scalar_attributes_are_metadata_and_long_ones_are_cut() -> None:
    error = ValueError("x")
    error.code, error.text, error.lock = 7, "y" * 10**6, object()  # type: ignore[attr-defined]
    info = error_info(error)
    assert info.metadata["code"] == 7
    assert len(info.metadata["text"]) == 16 * 1024
    assert "lock" not in info.metadata
    assert shortened("abc", 3) == "abc"


# --- the registry ----------------------------------------------------------------------------------------------------


async def test_types_are_registered_once_and_found_by_name() -> None:
    registry = Registry()

    @workflow("order", registry=registry)
    async def order(ctx: Context) -> str:
        await ctx.sleep("s", 0)
        return "ordered"

    assert registry.get("order") is order
    assert registry.names() == ["order"]
    assert (await Bench().once(order)).output == "ordered"
    with pytest.raises(UnknownTypeError, match="registered: order"):
        registry.get("other")
    with pytest.raises(InvalidIdError, match="two workflows"):
        workflow("order", registry=registry)(take)
    for name in ("", "a/b", "a\nb"):
        with pytest.raises(InvalidIdError):
            workflow(name, registry=registry)(take)


# --- deterministic helpers -------------------------------------------------------------------------------------------


async def test_helpers_give_the_same_on_every_replay() -> None:
    bench = Bench()
    seen: list[list[Any]] = []

    async def work(ctx: Context) -> None:
        known: list[Any] = [ctx.now(), ctx.random(), ctx.uuid()]

        async def branch(inner: Context) -> None:
            known.extend([inner.now(), inner.random(), inner.uuid()])
            seen.append(known)
            await inner.sleep("s2", 60)

        await ctx.step("slow", bench.giving("slow", takes_s=7))
        known.append(ctx.now())
        await ctx.sleep("s", 60)
        known.extend([ctx.now(), ctx.random(), ctx.uuid()])
        await ctx.join("j", {"a": branch})

    start = bench.clock.now()
    await bench.through(work)
    assert len(seen) == 2
    assert seen[0] == seen[1]
    instants = [int(value.timestamp() * 1000) - start for value in seen[0] if hasattr(value, "timestamp")]
    assert instants == [0, 7000, 67000, 67000]
    chances = [value for value in seen[0] if isinstance(value, float)]
    assert len(set(chances)) == 3
    assert all(0 <= value < 1 for value in chances)


async def test_the_log_is_silent_during_a_replay(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    caplog.set_level(logging.INFO, logger="torpor.workflow")

    async def work(ctx: Context) -> None:
        ctx.log.info("begins")
        await ctx.step("a", bench.giving("a"))
        ctx.log.info("has done a")
        await ctx.sleep("s", 60)
        ctx.log.info("has slept")

    await bench.through(work)
    assert [record.message for record in caplog.records] == ["begins", "has done a", "has slept"]
    assert vars(caplog.records[0])["workflow_id"] == WORKFLOW_ID
    assert vars(caplog.records[0])["attempt"] == 1
    assert vars(caplog.records[0])["place"] == ""
    # What Lambda's runtime puts into each record itself, whereupon it drops one of the same name.
    lambdas = {"timestamp", "level", "logger", "stackTrace", "errorType", "errorMessage", "requestId", "location"}
    assert lambdas.isdisjoint(vars(caplog.records[0]))


async def test_the_log_speaks_again_behind_a_step_that_has_killed_its_process(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    caplog.set_level(logging.INFO, logger="torpor.workflow")

    async def work(ctx: Context) -> None:
        ctx.log.info("begins")
        with contextlib.suppress(StepExhaustedError):
            await ctx.step("a", bench.raising("a", ValueError("no")))
        ctx.log.info("goes on without a")

    await bench.once(work)
    bench.driver.deaths = DEATHS_MAX
    bench.clock.advance(60)
    await bench.through(work)
    assert [record.message for record in caplog.records] == ["begins", "goes on without a"]
    assert (bench.state(), bench.runs["a"]) == ("completed", 1)
