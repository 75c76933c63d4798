"""Steps: what history says of one, as a table; attempts, timeouts, deaths, cancellations and what they leave."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from engine import (
    Context,
    CriticalError,
    RollbackError,
    StalledError,
    StepExhaustedError,
    StepTimeoutError,
    UnstorableValueError,
    WorkflowState,
    step_context,
)
from engine.entry import EntryMetadata, EntryStatus, StepEntry
from engine.ops.step import BackOff, Failed, Replay, Run, decide
from engine.retry import RetryPolicy
from tests.unit.bench import Bench

NOW = 1_000_000
S = EntryStatus


def decided(
    status: EntryStatus,
    attempts: int,
    *,
    output: bytes | None = None,
    error: str | None = None,
    deaths: int = 0,
    retry_on_timeout: bool = False,
    last: int = NOW,
) -> Any:
    metadata = EntryMetadata(status=status, attempts=attempts, error=error, created_at=1, last_attempt_at=last)
    policy = RetryPolicy(max_retries=3, retry_on_timeout=retry_on_timeout)
    return decide("s", StepEntry(output=output), metadata, policy, NOW, deaths)


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (decided(S.COMPLETED, 1, output=b"v"), Replay(b"v")),
        (decided(S.COMPLETED, 1), Replay(None)),
        (decided(S.RUNNING, 1, output=b"v"), Replay(b"v")),
        (decided(S.EXHAUSTED, 4, output=b"v"), Replay(b"v")),
        (decided(S.PENDING, 0), Run(1)),
        (decided(S.PENDING, 0, deaths=2), Run(3)),
        (decided(S.RUNNING, 1), Run(2)),
        (decided(S.RUNNING, 1, deaths=1), Run(3)),
        (decided(S.FAILED, 1), BackOff(NOW + 200)),
        (decided(S.FAILED, 1, deaths=2), BackOff(NOW + 200)),
        (decided(S.FAILED, 1, last=NOW - 200), Run(2)),
        (decided(S.FAILED, 1, last=NOW - 200, deaths=1), Run(3)),
        (decided(S.PENDING, 2), Run(3)),
    ],
)
def test_what_history_says_of_a_step(verdict: Any, expected: Any) -> None:
    assert verdict == expected


@pytest.mark.parametrize(
    ("verdict", "kind", "text", "is_news"),
    [
        (decided(S.PENDING, 0, deaths=4), StepExhaustedError, "ProcessDied", True),
        (decided(S.RUNNING, 4, error="ValueError: no"), StepExhaustedError, "ValueError: no", True),
        (decided(S.FAILED, 4, error="ValueError: no"), StepExhaustedError, "ValueError: no", True),
        (decided(S.EXHAUSTED, 4, error="ValueError: no"), StepExhaustedError, "ValueError: no", False),
        (decided(S.EXHAUSTED, 1, error="CriticalError: no"), CriticalError, "no", False),
        (decided(S.EXHAUSTED, 4, error="CriticalError: no"), CriticalError, "no", False),
        (decided(S.EXHAUSTED, 1, error="Unheard: no"), CriticalError, "Unheard: no", False),
        (decided(S.EXHAUSTED, 1, error="StepTimeoutError: late"), StepTimeoutError, "late", False),
        (
            decided(S.EXHAUSTED, 4, error="StepTimeoutError: late", retry_on_timeout=True),
            StepExhaustedError,
            "late",
            False,
        ),
        (decided(S.EXHAUSTED, 1, error="RollbackError: undo"), RollbackError, "undo", False),
        (decided(S.EXHAUSTED, 1, error="UnstorableValueError: odd"), UnstorableValueError, "odd", False),
    ],
)
def test_a_failure_for_good_replays_as_itself(verdict: Any, kind: type[Exception], text: str, *, is_news: bool) -> None:
    assert isinstance(verdict, Failed)
    assert type(verdict.error) is kind
    assert text in str(verdict.error)
    assert verdict.is_news is is_news


# --- failures --------------------------------------------------------------------------------------------------------


class NoStockError(CriticalError):
    """A critical error of an author's own."""


@pytest.mark.parametrize("error", [CriticalError("no"), NoStockError("none left"), RollbackError("undo")])
async def test_a_terminal_failure_is_recorded_and_replays_without_calling_again(error: Exception) -> None:
    bench = Bench()
    seen = []

    async def work(ctx: Context) -> Any:
        try:
            await ctx.step("s", bench.raising("s", error))
        except (CriticalError, RollbackError) as caught:
            seen.append((type(caught), str(caught), caught.step_name, caught.attempts))
        await ctx.sleep("later", 60)

    await bench.through(work)
    assert seen == [(type(error), str(error), "s", 1)] * 2
    assert bench.runs == {"s": 1}
    assert bench.metadata("s").status is S.EXHAUSTED
    assert bench.entries()["s"].kind == StepEntry(error=f"{type(error).__name__}: {error}")


async def test_exhaustion_is_reported_once_and_attempts_are_timed() -> None:
    bench = Bench()
    last: list[str | None] = []

    async def work(ctx: Context) -> Any:
        try:
            await ctx.step("s", bench.raising("s", ValueError("no")), max_retries=2)
        except StepExhaustedError as error:
            last.append(error.last_error)
        await ctx.sleep("later", 60)

    start = bench.clock.now()
    await bench.through(work)
    assert bench.runs == {"s": 3}
    assert last == ["ValueError: no"] * 2
    events = [(event.attempt, event.will_retry, event.remaining_retries, event.retry_at) for event in bench.events]
    assert events == [(1, True, 2, start + 200), (2, True, 1, start + 600), (3, False, 0, None)]


async def test_a_shortened_delay_is_told_as_it_is() -> None:
    bench = Bench()
    start = bench.clock.now()
    await bench.once(
        lambda ctx: ctx.step("s", bench.raising("s", ValueError("no")), retry_jitter=True, retry_backoff_base=10)
    )
    [event] = bench.events
    assert 10 <= event.retry_delay < 20
    assert event.retry_at == start + round(event.retry_delay * 1000)


async def test_an_error_of_a_megabyte_is_cut_in_history() -> None:
    bench = Bench()
    with pytest.raises(StepExhaustedError):
        await bench.once(lambda ctx: ctx.step("s", bench.raising("s", ValueError("x" * 2**20)), max_retries=0))
    assert all(len(value) < 80_000 for value in bench.stored().values())
    kind = bench.entries()["s"].kind
    assert isinstance(kind, StepEntry)
    assert kind.error is not None
    assert kind.error.startswith("ValueError: xxx")
    assert "[1048576 characters]" in kind.error


async def test_a_value_that_cannot_be_stored_fails_the_step_for_good() -> None:
    bench = Bench()
    with pytest.raises(UnstorableValueError, match=r"step 's'.*Lock|step 's'.*lock"):
        await bench.once(lambda ctx: ctx.step("s", bench.giving("s", {"a": threading.Lock()})))
    assert bench.runs == {"s": 1}

    small = Bench(value_bytes_max=100)
    with pytest.raises(UnstorableValueError, match="keeps at most 100"):
        await small.once(lambda ctx: ctx.step("s", small.giving("s", "x" * 200)))
    assert small.runs == {"s": 1}


async def test_a_function_that_is_cancelled_from_within_has_failed_an_attempt() -> None:
    bench = Bench()

    async def body() -> str:
        bench.runs["s"] += 1
        if bench.runs["s"] == 1:
            inner = asyncio.ensure_future(asyncio.Event().wait())
            inner.cancel()
            await inner
        return "done"

    result = await bench.through(lambda ctx: ctx.step("s", body))
    assert result.output == "done"
    assert bench.metadata("s").attempts == 2


# --- timeouts --------------------------------------------------------------------------------------------------------


async def test_an_async_step_is_really_cancelled_at_its_timeout() -> None:
    bench = Bench()
    ended = []

    async def body() -> None:
        try:
            await bench.clock.sleep(100)
        finally:
            ended.append(bench.clock.now())

    start = bench.clock.now()
    with pytest.raises(StepTimeoutError, match="timed out after 5 s") as caught:
        await bench.once(lambda ctx: ctx.step("s", body, timeout=5))
    assert ended == [start + 5000]
    assert caught.value.timeout_s == 5
    assert bench.clock.next_timer() is None


async def test_a_timeout_is_retried_where_asked_for_and_then_exhausts() -> None:
    bench = Bench()
    body = bench.giving("s", takes_s=100)
    with pytest.raises(StepExhaustedError, match="StepTimeoutError"):
        await bench.through(lambda ctx: ctx.step("s", body, timeout=1, retry_on_timeout=True, max_retries=1))
    assert bench.runs == {"s": 2}


async def test_a_synchronous_step_times_out_though_its_thread_goes_on() -> None:
    bench = Bench()
    let_go = threading.Event()

    def body() -> str:
        let_go.wait(60)
        return "late"

    async def work(ctx: Context) -> Any:
        result = await ctx.try_step("s", body, timeout=1)
        return result.failure and result.failure.kind

    handle = bench.start(work)
    for _ in range(20):
        await asyncio.sleep(0.001)
    bench.clock.advance(1)
    result = await asyncio.wait_for(handle.result, 60)
    let_go.set()
    assert result.output == "timeout"
    assert bench.metadata("s").status is S.EXHAUSTED


async def test_a_step_in_time_leaves_no_timer() -> None:
    bench = Bench()
    await bench.once(lambda ctx: ctx.step("s", bench.giving("s", takes_s=1)))
    assert bench.clock.next_timer() is None


# --- deaths and evictions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retries", [0, 3, 7, 20])
async def test_a_step_that_kills_its_process_is_exhausted_like_any_other(retries: int) -> None:
    bench = Bench()
    bodies = 0

    async def body() -> None:
        nonlocal bodies
        bodies += 1
        await asyncio.Event().wait()

    async def work(ctx: Context) -> Any:
        await ctx.step("before", bench.giving("before"))
        await ctx.step("killer", body, max_retries=retries, timeout=None)

    for _ in range(40):
        handle = bench.start(work)
        await bench.idle(handle)
        if handle._task.done():
            break
        # The process dies: nothing of the run is left but what was committed.
        bench.driver.deaths += 1
        bench.driver.on_call, handle._run._flusher._driver = None, object()  # type: ignore[union-attr]
        handle._task.cancel()
        await asyncio.wait([handle._task])
    with pytest.raises(StepExhaustedError, match="ProcessDied"):
        await handle.result
    assert bodies == retries + 1
    assert bench.runs == {"before": 1}


async def test_deaths_are_not_charged_to_a_step_that_starts_after_a_commit() -> None:
    bench = Bench()
    attempts = []

    async def body() -> None:
        attempts.append(step_context().attempt)

    async def work(ctx: Context) -> Any:
        await ctx.step("a", body)
        await ctx.step("b", body)

    bench.driver.deaths = 2
    await bench.once(work)
    assert attempts == [3, 1]


async def test_deaths_are_not_charged_to_a_step_that_still_backs_off() -> None:
    bench = Bench()

    async def work(ctx: Context) -> Any:
        await ctx.step("a", bench.raising("a", ValueError("no"), times=1))

    await bench.once(work)
    bench.driver.deaths = 2
    await bench.once(work)
    assert bench.metadata("a").attempts == 1
    await bench.through(work)
    assert bench.metadata("a").attempts == 4


async def test_a_workflow_that_dies_without_a_step_stalls_and_recovers() -> None:
    bench = Bench()
    bench.driver.deaths = 10
    handle = bench.start(lambda ctx: ctx.sleep("s", 0))
    with pytest.raises(StalledError):
        await handle.result
    assert bench.state() == "failed"
    await handle.recover()
    assert (await bench.once(lambda ctx: ctx.sleep("s", 0))).state is WorkflowState.COMPLETED


async def test_an_attempt_cut_short_by_the_end_of_an_eviction_counts() -> None:
    bench = Bench()
    body = bench.giving("s", "done", takes_s=20)
    handle = bench.start(lambda ctx: ctx.step("s", body))
    await bench.idle(handle)
    handle.evict(grace=2)
    await bench.idle(handle)
    assert not handle._task.done()
    bench.clock.advance(2)
    result = await handle.result
    assert result.state is not WorkflowState.COMPLETED
    assert (bench.metadata("s").attempts, bench.metadata("s").status) == (1, S.PENDING)
    assert bench.alarm is None
    await bench.through(lambda ctx: ctx.step("s", body))
    assert bench.metadata("s").attempts == 2


async def test_a_step_in_flight_may_finish_when_its_run_is_evicted() -> None:
    bench = Bench()
    handle = bench.start(lambda ctx: ctx.step("s", bench.giving("s", "done", takes_s=20)))
    await bench.idle(handle)
    handle.evict()
    await bench.finish(handle)
    assert bench.metadata("s").status is S.COMPLETED
    assert (await bench.once(lambda ctx: ctx.step("s", bench.giving("s")))).output == "done"
    assert bench.runs == {"s": 1}


# --- what a step knows, and costs ------------------------------------------------------------------------------------


async def test_a_step_knows_its_attempt_and_a_key_that_outlives_it() -> None:
    bench = Bench()
    known: list[Any] = []

    async def body() -> None:
        context = step_context()
        known.append((context.workflow_id, context.step_name, context.attempt, context.idempotency_key))
        if len(known) < 3:
            raise ValueError

    await bench.through(lambda ctx: ctx.step("s", body))
    assert [one[:3] for one in known] == [("wf-1", "s", 1), ("wf-1", "s", 2), ("wf-1", "s", 3)]
    assert len({one[3] for one in known}) == 1
    with pytest.raises(LookupError):
        step_context()


async def test_an_ephemeral_step_rides_on_the_next_commit() -> None:
    bench = Bench()

    async def work(ctx: Context) -> Any:
        await ctx.step("light", bench.giving("light"), ephemeral=True)
        await ctx.step("durable", bench.giving("durable"))
        await ctx.sleep("s", 60)

    await bench.once(work)
    assert len(bench.driver.commits) == 1
    assert "light" in bench.entries()
    await bench.through(work)
    assert bench.runs == {"light": 1, "durable": 1}


async def test_unknown_options_are_refused() -> None:
    bench = Bench()
    with pytest.raises(TypeError, match="unknown option retries"):
        await bench.once(lambda ctx: ctx.step("s", bench.giving("s"), retries=3))
