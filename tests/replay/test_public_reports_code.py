"""Suspension, cancellation, divergence and concurrency; the hazards of the reference engine.

Faults that others have had in public, each as a test by the number of its case; those that the engine alone can show.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest

from engine import (
    Break,
    Context,
    EvictedError,
    HistoryDivergedError,
    StepExhaustedError,
    WorkflowFailedError,
    WorkflowState,
    YieldSwallowedError,
)
from engine.entry import EntryStatus
from engine.errors import StoreUnavailableError
from tests.unit.bench import Bench


@contextlib.asynccontextmanager
async def resource(ended: list[str]) -> Any:
    try:
        yield
    finally:
        ended.append("released")


async def test_b31_except_exception_and_suppress_do_not_catch_a_wait_and_finally_runs_at_each() -> None:
    bench = Bench()
    passed: list[str] = []

    async def work(ctx: Context) -> list[Any]:
        found = []
        for number in range(3):
            try:
                async with resource(passed):
                    with contextlib.suppress(Exception):
                        found.append((await ctx.queue.next(f"n{number}", "x")).body)
            except Exception:  # noqa: BLE001 - what it is about
                passed.append("caught")
        return found

    for number in range(3):
        assert (await bench.once(work)).state is WorkflowState.SLEEPING
        bench.send("x", number)
    assert (await bench.once(work)).output == [0, 1, 2]
    assert "caught" not in passed
    # Waits 1, 2 and 3 are passed 4, 3 and 2 times, the last of each without waiting.
    assert len(passed) == 4 + 3 + 2


@pytest.mark.parametrize("swallow", ["bare", "gather"])
async def test_b31_a_wait_that_is_swallowed_is_reported(swallow: str) -> None:
    async def work(ctx: Context) -> str:
        if swallow == "gather":
            await asyncio.gather(ctx.queue.next("n", "x"), return_exceptions=True)
        else:
            try:
                await ctx.queue.next("n", "x")
            except:  # noqa: E722 - what it is about
                return "went on"
        return "went on"

    bench = Bench()
    with pytest.raises(YieldSwallowedError):
        await bench.once(work)
    assert bench.state() == "failed"


@pytest.mark.parametrize("is_sync", [False, True])
async def test_b34_a_cancelled_workflow_stays_cancelled(*, is_sync: bool) -> None:
    bench = Bench()
    let_go = threading.Event()
    bench.send("later")

    async def work(ctx: Context) -> str:
        await ctx.step("s", lambda: let_go.wait(60) if is_sync else None)
        if not is_sync:
            await ctx.step("slow", bench.giving("slow", takes_s=50), timeout=None)
        await ctx.queue.next("n", "later")
        return "finished"

    handle = bench.start(work)
    for _ in range(10):
        await asyncio.sleep(0.001)
    cancelling = asyncio.ensure_future(handle.cancel())
    await asyncio.sleep(0)
    let_go.set()
    await cancelling
    assert (await handle.result).state is WorkflowState.CANCELLED
    await asyncio.sleep(0.01)
    assert (bench.state(), bench.alarm) == ("cancelled", None)
    assert len(bench.driver.messages) == 1
    with pytest.raises(EvictedError):
        await bench.once(work)


async def _nothing(_ctx: Context) -> None:
    return None


async def _break(_ctx: Context) -> Any:
    return Break(None)


KINDS: dict[str, Any] = {
    "step": lambda ctx: ctx.step("x", _value),
    "sleep": lambda ctx: ctx.sleep("x", 0),
    "message": lambda ctx: ctx.queue.next_batch("x", "m"),
    "loop": lambda ctx: ctx.loop("x", _break),
    "join": lambda ctx: ctx.join("x", {"a": _nothing}),
    "race": lambda ctx: ctx.race("x", {"a": _nothing}),
    "rollback_checkpoint": lambda ctx: ctx.rollback_checkpoint("x"),
    "removed": lambda ctx: ctx.removed("x", "step"),
    "version_check": lambda ctx: ctx.get_version("x", 2),
}
CALLS: list[str] = []


async def _value() -> str:
    CALLS.append("x")
    return "value"


@pytest.mark.parametrize("then", KINDS)
@pytest.mark.parametrize("first", KINDS)
async def test_b36_no_operation_consumes_the_record_of_another(first: str, then: str) -> None:
    if first == then or (first, then) == ("step", "removed"):
        return
    bench = Bench()
    bench.send("m")

    async def old(ctx: Context) -> None:
        await KINDS[first](ctx)
        await ctx.sleep("wait", 60)

    async def new(ctx: Context) -> None:
        await KINDS[then](ctx)
        await ctx.sleep("wait", 60)

    await bench.once(old)
    history = bench.entries()
    CALLS.clear()
    with pytest.raises(HistoryDivergedError, match=r"'x(:0)?'"):
        await bench.through(new)
    assert CALLS == []
    assert bench.entries() == history
    with pytest.raises(WorkflowFailedError) as caught:
        await bench.once(new)
    assert caught.value.name == "HistoryDivergedError"
    assert bench.alarm is None


async def test_b36_a_rename_diverges_when_its_scope_ends() -> None:
    bench = Bench()

    async def old(ctx: Context) -> None:
        await ctx.step("old name", bench.giving("s"))
        await ctx.sleep("wait", 60)

    async def new(ctx: Context) -> None:
        await ctx.step("new name", bench.giving("s"))
        await ctx.sleep("wait", 60)

    await bench.once(old)
    with pytest.raises(HistoryDivergedError, match="a step at 'old name', which the code no longer reaches"):
        await bench.through(new)
    assert bench.state() == "failed"


@pytest.mark.parametrize("seed", [0])
async def test_b40_a_run_with_several_waits_sleeps_until_the_first(seed: int) -> None:
    bench = Bench()
    start = bench.clock.now() + seed

    async def message(ctx: Context) -> None:
        await ctx.queue.next("n", "m")

    async def retry(ctx: Context) -> None:
        await ctx.step("s", bench.raising("s", ValueError("no")))

    async def sleep(ctx: Context) -> None:
        await ctx.sleep("s", 30)

    branches = {"message": message, "retry": retry, "sleep": sleep, "done": _nothing}
    result = await bench.once(lambda ctx: ctx.join("j", branches))
    assert (result.state, result.sleep_until, result.waiting_for_messages) == (
        WorkflowState.SLEEPING,
        start + 200,
        ["m"],
    )


async def test_b43_a_step_that_kills_its_process_uses_its_budget() -> None:
    bench = Bench()
    undone: list[Any] = []

    async def body() -> None:
        bench.runs["killer"] += 1
        await asyncio.Event().wait()

    async def work(ctx: Context) -> None:
        await ctx.rollback_checkpoint("cp")
        await ctx.step("before", bench.giving("before", 1), rollback=lambda _ctx, output: undone.append(output))
        await ctx.step("killer", body, max_retries=3, timeout=None)

    for _ in range(20):
        handle = bench.start(work)
        await bench.idle(handle)
        if handle._task.done():
            break
        assert handle._run._flusher is not None
        handle._run._flusher._driver = object()  # type: ignore[assignment]  # the process is dead: it writes no more
        bench.driver.deaths += 1
        handle._task.cancel()
        await asyncio.wait([handle._task])
    with pytest.raises(StepExhaustedError):
        await handle.result
    assert bench.runs == {"before": 1, "killer": 4}
    assert undone == [1]


# --- hazards of the reference ----------------------------------------------------------------------------------------


async def test_hazard_1_the_state_and_its_alarm_are_one_commit() -> None:
    bench = Bench()

    async def work(ctx: Context) -> None:
        await ctx.step("s", bench.raising("s", ValueError("no"), times=1))
        await ctx.sleep("s2", 60)

    await bench.through(work)
    sleeping = [commit for commit in bench.driver.commits if commit.yields]
    assert len(sleeping) == 2
    assert all(commit.alarm is not None and commit.alarm.at is not None for commit in sleeping)
    assert sleeping[0].state is WorkflowState.SLEEPING


@pytest.mark.parametrize("phase", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 5))
async def test_hazards_3_and_4_a_crash_neither_repeats_a_send_nor_loses_what_was_taken(number: int, phase: str) -> None:
    bench = Bench()
    commits = 0

    def fail(operation: str, when: str) -> None:
        nonlocal commits
        commits += (operation, when) == ("commit", "before")
        if (operation, when) == ("commit", phase) and commits == number:
            raise StoreUnavailableError("a crash")

    async def work(ctx: Context) -> Any:
        await ctx.queue.send("own", 1)
        await ctx.step("s", bench.giving("s"))
        first = (await ctx.queue.next("n", "given")).body
        await ctx.step("s2", bench.giving("s2"))
        return [first, [one.body for one in await ctx.queue.next_batch("all", "own", count=9)]]

    bench.send("given", "g")
    bench.driver.on_call = fail
    try:
        result = await bench.once(work)
    except StoreUnavailableError:
        result = await bench.once(work)
    assert result.output == ["g", [1]]
    assert bench.driver.messages == []


@pytest.mark.parametrize("number", range(1, 6))
async def test_hazards_5_and_6_two_waits_race_for_one_message_and_a_crash_decides_nothing_twice(number: int) -> None:
    bench = Bench()
    commits = 0

    def fail(operation: str, when: str) -> None:
        nonlocal commits
        commits += (operation, when) == ("commit", "before")
        if (operation, when) == ("commit", "before") and commits == number:
            raise StoreUnavailableError("a crash")

    async def take(ctx: Context) -> Any:
        return (await ctx.queue.next("n", "m")).body

    async def work(ctx: Context) -> Any:
        won = await ctx.race("r", {"a": take, "b": take})
        await ctx.step("s", bench.giving("s"))
        return [won.value, [one.body for one in await ctx.queue.next_batch("rest", "m", count=9)]]

    bench.send("m", 1)
    bench.send("m", 2)
    bench.driver.on_call = fail
    try:
        result = await bench.once(work)
    except StoreUnavailableError:
        result = await bench.once(work)
    assert result.output == [1, [2]]


async def test_hazards_8_and_15_attempts_are_stored_and_jitter_only_comes_when_asked_for() -> None:
    bench = Bench()
    start = bench.clock.now()
    body = bench.raising("s", ValueError("no"))
    plain = await bench.once(lambda ctx: ctx.step("s", body))
    assert plain.sleep_until == start + 200
    assert (bench.metadata("s").attempts, bench.metadata("s").status) == (1, EntryStatus.FAILED)

    other = Bench()
    jittered = await other.once(lambda ctx: ctx.step("s", body, retry_jitter=True))
    assert jittered.sleep_until is not None
    assert start + 100 <= jittered.sleep_until <= start + 200


async def test_hazard_11_the_input_is_stored_once() -> None:
    bench = Bench()

    async def work(ctx: Context, given: Any) -> Any:
        await ctx.sleep("s", 60)
        return given

    await bench.once(work, "first")
    bench.clock.advance(60)
    assert (await bench.once(work, "second")).output == "first"


async def test_hazard_13_no_output_can_be_told_from_none() -> None:
    bench = Bench()
    handle = bench.start(lambda ctx: ctx.sleep("s", 60))
    await handle.result
    assert not await handle.get_output()
    assert await handle.get_output() is not None
    assert repr(await handle.get_output()) == "NO_OUTPUT"
    await bench.through(lambda ctx: ctx.sleep("s", 60))
    assert await handle.get_output() is None
