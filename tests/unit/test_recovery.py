"""try_step and try_block: which failures become values, and what passes through."""

from __future__ import annotations

from typing import Any

import pytest

from engine import (
    Break,
    Context,
    CriticalError,
    HistoryDivergedError,
    JoinError,
    RollbackError,
    StepExhaustedError,
    StepTimeoutError,
    TryResult,
    WorkflowState,
)
from engine.errors import RecordedError
from tests.unit.bench import Bench


class OddError(CriticalError):
    """An author's own."""


FAILURES = [
    (CriticalError("no"), "critical", 1, "CriticalError", "no"),
    (OddError("odd"), "critical", 1, "OddError", "odd"),
    (ValueError("v"), "exhausted", 2, "ValueError", "v"),
    (ValueError("a lone \udcff"), "exhausted", 2, "ValueError", r"a lone \udcff"),
    (OddError("a lone \udcff"), "critical", 1, "OddError", r"a lone \udcff"),
    (StepTimeoutError("late"), "timeout", 1, "StepTimeoutError", "late"),
]


@pytest.mark.parametrize(("error", "kind", "attempts", "name", "text"), FAILURES, ids=ascii)
@pytest.mark.parametrize("is_block", [False, True])
async def test_a_failure_is_the_same_value_live_and_on_replay(
    error: Exception, kind: str, attempts: int, name: str, text: str, *, is_block: bool
) -> None:
    bench = Bench()
    seen: list[TryResult[Any]] = []

    async def work(ctx: Context) -> None:
        body = bench.raising("s", error)
        if is_block:
            seen.append(await ctx.try_block("b", lambda inner: inner.step("s", body, max_retries=1)))
        else:
            seen.append(await ctx.try_step("s", body, max_retries=1))
        await ctx.sleep("wait", 60)

    await bench.through(work)
    assert len(seen) == 2
    for result in seen:
        failure = result.failure
        assert failure is not None
        assert (result.ok, result.value) == (False, None)
        assert (failure.source, failure.kind, failure.name, failure.attempts) == ("step", kind, "s", attempts)
        assert (failure.error.name, failure.error.message) == (name, text)
    assert bench.runs == {"s": attempts}


async def test_only_the_kinds_asked_for_are_caught() -> None:
    for catch, raised in [(("timeout",), CriticalError), (("critical",), StepExhaustedError)]:
        bench = Bench()
        error = CriticalError("c") if raised is CriticalError else ValueError("v")

        async def work(ctx: Context, *, catch: Any = catch, error: Exception = error, bench: Bench = bench) -> None:
            await ctx.try_step("s", bench.raising("s", error), max_retries=0, catch=catch)

        with pytest.raises(raised):
            await bench.through(work)


async def test_a_rollback_passes_unless_it_is_asked_for() -> None:
    bench = Bench()
    with pytest.raises(RollbackError):
        await bench.once(lambda ctx: ctx.try_step("s", bench.raising("s", RollbackError("undo"))))

    async def work(ctx: Context) -> Any:
        step = await ctx.try_step("s", bench.raising("s", RollbackError("undo")), catch=("rollback",))
        block = await ctx.try_block("b", raising_rollback, catch=("rollback",))
        assert step.failure is not None
        assert block.failure is not None
        return [step.failure.kind, block.failure.kind, block.failure.source]

    assert (await Bench().once(work)).output == ["rollback", "rollback", "block"]


async def raising_rollback(_ctx: Context) -> None:
    raise RollbackError("by hand")


async def test_a_failure_may_be_the_value_of_a_branch_and_the_output_of_a_workflow() -> None:
    bench = Bench()

    async def one(ctx: Context, name: str) -> TryResult[str]:
        raises = bench.raising(name, CriticalError("no")) if name == "bad" else bench.giving(name, name)
        return await ctx.try_step("s", raises)

    async def work(ctx: Context) -> list[TryResult[str]]:
        found = await ctx.map("all", ["good", "bad"], one)
        await ctx.sleep("nap", 60)
        return found

    output = (await bench.through(work)).output
    assert output is not None
    good, bad = output
    assert good == TryResult(ok=True, value="good")
    assert bad.failure is not None
    assert isinstance(bad.failure.error, RecordedError)
    assert (bad.failure.error.name, bad.failure.error.message) == ("CriticalError", "no")


async def test_the_errors_of_a_join_may_be_an_output() -> None:
    async def bad(_ctx: Context) -> None:
        raise ValueError("no")

    async def work(ctx: Context) -> Any:
        try:
            await ctx.join("j", {"a": bad})
        except JoinError as error:
            return error.errors

    assert (await Bench().once(work)).output == {"a": {"name": "ValueError", "message": "no"}}


async def test_a_block_catches_joins_and_races_by_their_name() -> None:
    async def bad(_ctx: Context) -> None:
        raise ValueError("no")

    async def work(ctx: Context) -> Any:
        results: list[TryResult[Any]] = [
            await ctx.try_block("b1", lambda inner: inner.join("the join", {"a": bad})),
            await ctx.try_block("b2", lambda inner: inner.race("the race", {"a": bad})),
        ]
        return [[one.failure.source, one.failure.name, one.failure.kind] for one in results if one.failure is not None]

    assert (await Bench().once(work)).output == [["join", "the join", None], ["race", "the race", None]]

    async def choosy(ctx: Context) -> None:
        await ctx.try_block("b", lambda inner: inner.join("j", {"a": bad}), catch=("step", "race"))

    with pytest.raises(JoinError):
        await Bench().once(choosy)


async def test_what_is_no_failure_for_good_passes_through() -> None:
    bench = Bench()

    async def retrying(ctx: Context) -> Any:
        return (await ctx.try_step("s", bench.raising("s", ValueError("no"), times=1, then="ok"))).value

    assert (await bench.once(retrying)).state is WorkflowState.SLEEPING
    assert (await bench.through(retrying)).output == "ok"

    async def plain(_ctx: Context) -> None:
        raise LookupError("an ordinary error")

    with pytest.raises(LookupError):
        await Bench().once(lambda ctx: ctx.try_block("b", plain))

    async def diverging(ctx: Context) -> None:
        await ctx.sleep("x", 1)
        await ctx.sleep("x", 1)

    with pytest.raises(HistoryDivergedError):
        await Bench().through(lambda ctx: ctx.try_block("b", diverging))


async def test_a_block_leaves_no_entry_and_diverges_where_another_operation_stood() -> None:
    bench = Bench()

    async def body(ctx: Context) -> str:
        await ctx.sleep("s", 60)
        return "value"

    async def work(ctx: Context) -> Any:
        return (await ctx.try_block("b", body)).value

    await bench.once(work)
    assert set(bench.entries()) == {"b/s"}
    with pytest.raises(HistoryDivergedError, match="'b' is a sleep in the code, but history has a try_block there"):
        await bench.through(lambda ctx: ctx.sleep("b", 1))

    other = Bench()
    await other.once(lambda ctx: ctx.sleep("b", 60))
    with pytest.raises(HistoryDivergedError, match="'b' is a try_block in the code"):
        await other.through(work)


@pytest.mark.parametrize("kind", ["join", "race", "loop"])
async def test_a_block_that_has_become_an_operation_with_several_scopes_is_found(kind: str) -> None:
    """Though what it has done stands where the new operation would have a branch of that name."""
    bench = Bench()

    async def branch(ctx: Context) -> None:
        await ctx.step("b", bench.giving("b"))

    async def body(ctx: Context, _state: Any) -> Break[None]:
        await branch(ctx)
        return Break(None)

    async def block(ctx: Context) -> None:
        await ctx.try_block("j", lambda inner: inner.step("a", bench.giving("a")))
        await ctx.sleep("s", 60)

    async def other(ctx: Context) -> None:
        await (ctx.loop("j", body) if kind == "loop" else getattr(ctx, kind)("j", {"a": branch}))
        await ctx.sleep("s", 60)

    await bench.once(block)
    with pytest.raises(HistoryDivergedError, match=f"'j' is a {kind} in the code, but history has a try_block there"):
        await bench.once(other)
    assert bench.runs == {"a": 1}
