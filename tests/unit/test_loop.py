"""Loops: what a body's answer means, how much history stays, and where a run goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from engine import Break, Context, Continue, StepExhaustedError, UnstorableValueError, WorkflowState, values
from engine.entry import LoopEntry
from engine.errors import LoopResultError, StoreUnavailableError
from engine.ops.loop import LoopPolicy, break_type, is_pruning, result_of
from tests.unit.bench import Bench


@pytest.mark.parametrize(
    ("answer", "has_state", "expected"),
    [
        (Continue(1), True, Continue(1)),
        (Break(1), True, Break(1)),
        (Break(None), False, Break(None)),
        (None, False, Continue(None)),
    ],
)
def test_what_an_answer_means(answer: Any, expected: Any, *, has_state: bool) -> None:
    assert result_of("l", answer, has_state=has_state) == expected


@pytest.mark.parametrize(("answer", "has_state"), [(None, True), (5, True), (5, False), (True, False)])
async def test_an_answer_that_means_nothing_is_an_error(answer: Any, *, has_state: bool) -> None:
    async def body(_ctx: Context, _state: Any) -> Any:
        return answer

    bench = Bench()
    with pytest.raises(LoopResultError, match=r"return Continue\(state\) or Break\(value\)"):
        await bench.once(lambda ctx: ctx.loop("l", body, 1 if has_state else None))


def test_when_a_loop_prunes_and_how_much_it_keeps() -> None:
    assert [iteration for iteration in range(1, 61) if is_pruning(iteration, LoopPolicy())] == [20, 40, 60]
    assert LoopPolicy().kept == 20
    assert LoopPolicy(prune_interval=5).kept == 5
    assert LoopPolicy(prune_interval=5, history_size=0).kept == 0


def counting(bench: Bench, stop: int, at: int | None = None) -> Any:
    async def body(ctx: Context, n: int) -> Any:
        await ctx.step("s", bench.giving(f"s{n}"))
        if n == at:
            await ctx.sleep("wait", 60)
        return Break(n) if n == stop else Continue(n + 1)

    return body


def iterations(bench: Bench) -> list[int]:
    return sorted({int(place.split("/~")[1].split("/")[0]) for place in bench.entries() if "/~" in place})


async def test_at_iteration_forty_the_first_twenty_are_gone() -> None:
    bench = Bench()
    await bench.once(lambda ctx: ctx.loop("l", counting(bench, 99, at=40), 0))
    assert iterations(bench) == list(range(20, 41))
    kind = bench.entries()["l"].kind
    assert isinstance(kind, LoopEntry)
    assert (kind.iteration, values.decode(kind.state), kind.output) == (40, 40, None)


@pytest.mark.parametrize(
    ("interval", "size", "kept"),
    [(20, None, range(31, 51)), (5, 2, range(49, 51)), (5, 0, range(0)), (7, 100, range(51))],
)
async def test_on_break_too_only_so_many_iterations_stay(interval: int, size: int | None, kept: range) -> None:
    bench = Bench()
    work = lambda ctx: ctx.loop("l", counting(bench, 50), 0, history_prune_interval=interval, history_size=size)  # noqa: E731
    assert (await bench.once(work)).output == 50
    assert iterations(bench) == list(kept)
    assert set(bench.runs.values()) == {1}


async def test_an_iteration_is_removed_once() -> None:
    bench = Bench()
    await bench.once(lambda ctx: ctx.loop("l", counting(bench, 100), 0))
    removed = [commit.ranges for commit in bench.driver.commits if commit.ranges]
    assert len(removed) == 5
    assert all(len(ranges) == 1 for ranges in removed)
    deleted = [key for commit in bench.driver.commits for key in commit.deletes]
    assert len(deleted) == len(set(deleted)) == 81


async def test_state_rides_on_every_commit_and_a_crash_goes_on_at_the_stored_iteration() -> None:
    bench = Bench()

    def fail(operation: str, phase: str) -> None:
        if (operation, phase) == ("commit", "before") and bench.runs["s7"]:
            raise StoreUnavailableError("a crash")

    bench.driver.on_call = fail
    work = lambda ctx: ctx.loop("l", counting(bench, 9), 0)  # noqa: E731
    with pytest.raises(StoreUnavailableError):
        await bench.once(work)
    kind = bench.entries()["l"].kind
    assert isinstance(kind, LoopEntry)
    assert kind.iteration >= 6
    bench.driver.on_call = None
    assert (await bench.once(work)).output == 9
    assert {name: count for name, count in bench.runs.items() if count > 1} == {"s7": 2}


async def test_the_pruning_commit_overlaps_one_iteration_and_not_two() -> None:
    bench = Bench()
    begun: list[int] = []
    seen: list[tuple[int, bool]] = []
    bench.driver.latency_s = 0.001

    async def body(ctx: Context, n: int) -> Any:
        begun.append(n)
        turn = ctx._scope.turn
        seen.append((n, turn.flusher.is_busy))
        return Break(n) if n == 3 else Continue(n + 1)

    await bench.start(lambda ctx: ctx.loop("l", body, 0, history_prune_interval=2)).result
    assert seen == [(0, False), (1, False), (2, True), (3, False)]


async def test_a_finished_loop_replays_its_value_even_none_without_its_body() -> None:
    for value in (None, 0, "", [1]):
        bench = Bench()
        calls: list[int] = []

        async def body(_ctx: Context, *, value: Any = value, calls: list[int] = calls) -> Any:
            calls.append(1)
            return Break(value)

        async def work(ctx: Context, *, body: Any = body) -> Any:
            found = await ctx.loop("l", body)
            await ctx.sleep("s", 60)
            return found

        assert (await bench.through(work)).output == value
        assert calls == [1]


@dataclass(frozen=True)
class Found:
    name: str


async def test_the_value_of_a_loop_has_the_type_that_its_body_declares_live_and_on_replay() -> None:
    bench = Bench()
    seen: list[Any] = []

    async def body(_ctx: Context, number: int) -> Continue[int] | Break[Found] | Break[set[int]]:
        return Continue(1) if number == 0 else Break(Found("lamp"))

    async def work(ctx: Context) -> None:
        seen.append(await ctx.loop("l", body, 0))
        await ctx.sleep("s", 60)

    await bench.through(work)
    assert seen == [Found("lamp")] * 2


T = TypeVar("T")


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (Break[Found], Found),
        (Continue[int] | Break[int] | Break[str] | None, int | str),
        (Break[None], type(None)),
        (Break, values.PLAIN),
        (Continue[int], values.PLAIN),
        (Continue[int] | Break[T], values.PLAIN),  # type: ignore[valid-type]
        (values.PLAIN, values.PLAIN),
    ],
)
def test_what_a_body_declares_to_break_with(declared: Any, expected: Any) -> None:
    assert break_type(declared) == expected


async def test_state_that_cannot_be_stored_fails() -> None:
    async def body(_ctx: Context, _state: Any) -> Any:
        return Continue(object())

    with pytest.raises(UnstorableValueError, match="loop 'l'"):
        await Bench().once(lambda ctx: ctx.loop("l", body, 0))


async def test_nested_loops_go_on_where_each_stood() -> None:
    bench = Bench()

    async def outer(ctx: Context, total: int) -> Any:
        async def inner(below: Context, n: int) -> Any:
            await below.step("s", bench.giving(f"{total}/{n}"))
            if (total, n) == (3, 2):
                await below.sleep("wait", 60)
            return Break(n) if n == 3 else Continue(n + 1)

        await ctx.loop("inner", inner, 0)
        return Break(total) if total == 4 else Continue(total + 1)

    assert (await bench.through(lambda ctx: ctx.loop("outer", outer, 0))).output == 4
    assert set(bench.runs.values()) == {1}
    assert len(bench.runs) == 20


async def test_a_failing_iteration_fails_the_workflow_and_recovers_in_place() -> None:
    bench = Bench()

    async def body(ctx: Context, n: int) -> Any:
        await ctx.step("ok", bench.giving(f"ok{n}"))
        if n == 3:
            await ctx.step("bad", bench.raising("bad", ValueError("no"), times=1), max_retries=0)
        return Break(n) if n == 4 else Continue(n + 1)

    handle = bench.start(lambda ctx: ctx.loop("l", body, 0))
    with pytest.raises(StepExhaustedError):
        await handle.result
    await handle.recover()
    assert bench.state() == "sleeping"
    result = await bench.once(lambda ctx: ctx.loop("l", body, 0))
    assert (result.state, result.output) == (WorkflowState.COMPLETED, 4)
    assert bench.runs == {"ok0": 1, "ok1": 1, "ok2": 1, "ok3": 1, "ok4": 1, "bad": 2}
