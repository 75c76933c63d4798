"""Rollback: who is undone, in which order, once, through crashes, evictions and failing handlers."""

from __future__ import annotations

from typing import Any

import pytest

from engine import (
    Break,
    Context,
    Continue,
    EntryInProgressError,
    HistoryDivergedError,
    JoinError,
    RaceError,
    Registry,
    RollbackCheckpointError,
    UnstorableValueError,
    WorkflowFailedError,
    WorkflowState,
)
from engine.entry import Entry, StepEntry
from engine.errors import StoreUnavailableError
from engine.ops.rollback import Undo, order
from engine.testing import MemoryWorld, VirtualClock
from tests.unit.bench import Bench


class Undoing(Bench):
    """A bench whose steps can be undone."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.undone: list[Any] = []

    async def do(self, ctx: Context, name: str, *, takes_s: float = 0) -> Any:
        """A step that notes when it is undone."""

        async def undo(_ctx: Any, output: Any) -> None:
            self.undone.append(output)

        return await ctx.step(name, self.giving(name, name, takes_s=takes_s), rollback=undo)

    async def fail(self, fn: Any, kind: type[BaseException] = ValueError) -> None:
        """Run ``fn`` through to its failure."""
        with pytest.raises(kind):
            await self.through(fn)
        assert self.state() == "failed"


async def test_completed_steps_are_undone_in_reverse_with_one_commit_each() -> None:
    bench = Undoing()

    async def work(ctx: Context) -> None:
        await ctx.rollback_checkpoint("cp")
        for name in "abc":
            await bench.do(ctx, name)
            bench.clock.advance(0.001)
        await ctx.step("plain", bench.giving("plain"))
        raise ValueError("no")

    await bench.fail(work)
    assert bench.undone == ["c", "b", "a"]
    assert all(bench.metadata(name).rollback_completed_at for name in "abc")
    assert bench.metadata("plain").rollback_completed_at is None
    with pytest.raises(WorkflowFailedError, match="ValueError: no"):
        await bench.once(work)
    assert bench.undone == ["c", "b", "a"]


async def test_equal_times_are_undone_by_creation() -> None:
    bench = Undoing()

    async def work(ctx: Context) -> None:
        await ctx.rollback_checkpoint("cp")
        for name in "abc":
            await bench.do(ctx, name)
        raise ValueError("no")

    await bench.fail(work)
    assert bench.undone == ["c", "b", "a"]


async def test_a_clock_that_was_behind_changes_no_order() -> None:
    bench = Undoing()

    async def work(ctx: Context) -> None:
        async def branch(inner: Context) -> None:
            await bench.do(inner, "a")

        await ctx.rollback_checkpoint("cp")
        await ctx.join("j", {"only": branch})
        await bench.do(ctx, "b")
        await ctx.queue.next("wait")
        await bench.do(ctx, "c")
        raise ValueError("no")

    await bench.once(work)
    # Another machine takes over.
    bench.clock = bench.driver.clock = VirtualClock(bench.clock.now() - 30_000)
    bench.send("go")
    await bench.fail(work)
    assert bench.undone == ["c", "b", "a"]


def test_equal_times_in_a_history_of_the_other_engine_are_undone_by_the_codes_order() -> None:
    """Its ids are no times, and many steps of its end in one millisecond."""
    undos = [Undo(entry=step(name), name=name, returns=None, handler=print, completed_at=7) for name in ("b", "c", "a")]
    assert [undo.name for undo in order(undos)] == ["a", "c", "b"]


def step(entry_id: str) -> Entry:
    return Entry(entry_id, (), StepEntry())


async def test_a_handler_before_any_checkpoint_is_a_fault_of_the_code() -> None:
    bench = Undoing()
    await bench.fail(lambda ctx: bench.do(ctx, "a"), RollbackCheckpointError)
    assert bench.runs == {}


async def test_rollback_goes_into_everything_that_is_not_over() -> None:
    bench = Undoing()

    async def work(ctx: Context) -> None:
        await ctx.rollback_checkpoint("cp")

        async def branch(inner: Context) -> None:
            await bench.do(inner, "in join")

        async def winner(inner: Context) -> None:
            await bench.do(inner, "winner")

        async def loser(inner: Context) -> None:
            await bench.do(inner, "loser")
            await inner.sleep("s", 600)

        async def block(inner: Context) -> None:
            await bench.do(inner, "in block")

        async def body(inner: Context, n: int) -> Any:
            await bench.do(inner, f"iteration {n}")
            if n == 2:
                raise ValueError("no")
            return Continue(n + 1)

        await ctx.join("j", {"a": branch})
        await ctx.race("r", {"loser": loser, "winner": winner})
        await ctx.try_block("t", block)
        await ctx.loop("l", body, 0)

    await bench.fail(work)
    assert sorted(bench.undone) == ["in block", "in join", "iteration 2", "winner"]


async def test_a_sibling_of_a_failed_branch_is_undone() -> None:
    bench = Undoing()

    async def work(ctx: Context) -> None:
        await ctx.rollback_checkpoint("cp")

        async def good(inner: Context) -> None:
            await bench.do(inner, "good")

        async def bad(inner: Context) -> None:
            await bench.do(inner, "before the failure")
            raise KeyError("no")

        await ctx.join("j", {"good": good, "bad": bad})

    await bench.fail(work, JoinError)
    assert sorted(bench.undone) == ["before the failure", "good"]


async def test_what_follows_a_failure_that_was_handled_is_undone_too() -> None:
    bench = Undoing()

    async def bad(inner: Context) -> None:
        await bench.do(inner, "in the failed branch")
        raise KeyError("no")

    async def work(ctx: Context) -> None:
        await ctx.rollback_checkpoint("cp")
        for operation in ("race", "join"):
            try:
                await getattr(ctx, operation)(operation, {"bad": bad})
            except (RaceError, JoinError):
                await bench.do(ctx, f"after {operation}")
        await ctx.try_step("t", bench.raising("t", ValueError("x")), max_retries=0)
        await bench.do(ctx, "after try")
        raise ValueError("no")

    await bench.fail(work)
    assert sorted(set(bench.undone)) == ["after join", "after race", "after try", "in the failed branch"]
    assert len(bench.undone) == 5


async def ending_with(ctx: Context, answer: Any) -> None:
    async def body(inner: Context, _state: int) -> Any:
        await inner.sleep("nap", 0)
        return answer

    await ctx.loop("l", body, 0)


async def beginning_with(ctx: Context, state: Any) -> None:
    async def body(_inner: Context, _state: Any) -> Break[None]:
        return Break()

    await ctx.loop("l", body, state)


@pytest.mark.parametrize(
    "refused",
    [
        lambda ctx: ctx.publish("p", object()),
        lambda ctx: ctx.queue.send("s", object()),
        lambda ctx: ctx.signal("s", object(), to="wf-1"),
        lambda ctx: ctx.dispatch("child", object()),
        lambda ctx: beginning_with(ctx, object()),
        lambda ctx: ending_with(ctx, Continue(object())),
        lambda ctx: ending_with(ctx, Break(object())),
    ],
)
async def test_what_follows_a_mistake_that_left_no_record_and_was_caught_is_undone_too(refused: Any) -> None:
    world = MemoryWorld(registry=Registry())
    bench = Undoing()

    async def work(ctx: Context) -> None:
        await ctx.rollback_checkpoint("cp")
        await bench.do(ctx, "before")
        with pytest.raises(UnstorableValueError):
            await refused(ctx)
        await bench.do(ctx, "after")
        raise ValueError("no")

    world.start("wf-1", work)
    await world.drive()
    assert isinstance(world.results["wf-1"], ValueError)
    assert sorted(bench.undone) == ["after", "before"]


async def test_nothing_is_undone_for_a_fault_of_the_code() -> None:
    bench = Undoing()

    async def work(ctx: Context) -> None:
        await ctx.rollback_checkpoint("cp")
        await bench.do(ctx, "a")
        await ctx.sleep("s", 60)

    async def other(ctx: Context) -> None:
        await ctx.rollback_checkpoint("cp")
        await bench.do(ctx, "a")
        await ctx.step("s", bench.giving("s"))

    await bench.once(work)
    await bench.fail(other, HistoryDivergedError)
    assert bench.undone == []
    handle = bench.start(other)
    with pytest.raises(WorkflowFailedError):
        await handle.result
    await handle.recover()
    assert (await bench.through(work)).state is WorkflowState.COMPLETED
    assert bench.runs == {"a": 1}


async def test_a_failing_handler_stops_the_rollback_and_the_next_run_retries_it() -> None:
    bench = Undoing()
    attempts: list[str] = []

    async def undo(_ctx: Any, output: str) -> None:
        attempts.append(output)
        if output == "b" and attempts.count("b") < 3:
            raise OSError("not now")

    async def work(ctx: Context) -> None:
        await ctx.rollback_checkpoint("cp")
        for name in "abc":
            await ctx.step(name, bench.giving(name, name), rollback=undo)
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(OSError, match="not now"):
            await bench.once(work)
        assert bench.state() == "rolling_back"
        assert bench.metadata("b").rollback_error == "not now"
    with pytest.raises(WorkflowFailedError, match="ValueError: no"):
        await bench.once(work)
    assert attempts == ["c", "b", "b", "b", "a"]
    assert bench.metadata("b").rollback_error is None
    assert [type(event).__name__ for event in bench.events].count("RollbackErrorEvent") == 2


async def test_a_handler_that_performs_an_operation_of_the_workflow_is_told_why_it_cannot() -> None:
    bench = Undoing()

    async def work(ctx: Context) -> None:
        async def undo(_ctx: Any, _output: str) -> None:
            await ctx.sleep("a while", 1)

        await ctx.rollback_checkpoint("cp")
        await ctx.step("a", bench.giving("a", "a"), rollback=undo)
        raise ValueError("no")

    with pytest.raises(EntryInProgressError, match="the undo of 'a' performed an operation"):
        await bench.once(work)
    assert bench.state() == "rolling_back"
    assert "the undo of 'a'" in (bench.metadata("a").rollback_error or "")


@pytest.mark.parametrize("number", range(1, 9))
@pytest.mark.parametrize("phase", ["before", "after"])
async def test_a_crash_anywhere_loses_no_undo(number: int, phase: str) -> None:
    bench = Undoing()
    commits = 0

    def fail(operation: str, when: str) -> None:
        nonlocal commits
        commits += (operation, when) == ("commit", "before")
        if (operation, when) == ("commit", phase) and commits == number:
            raise StoreUnavailableError("a crash")

    async def work(ctx: Context) -> None:
        await ctx.rollback_checkpoint("cp")
        for name in "abc":
            await bench.do(ctx, name)
        raise ValueError("no")

    bench.driver.on_call = fail
    while bench.state() != "failed":
        with pytest.raises((StoreUnavailableError, ValueError, WorkflowFailedError)):
            await bench.once(work)
    assert set(bench.undone) == set("abc")
    assert len(bench.undone) <= 4


@pytest.mark.parametrize("at", ["collecting", "undoing"])
async def test_an_eviction_during_the_rollback_undoes_no_less(at: str) -> None:
    bench = Undoing()
    started: list[Any] = []

    async def undo(_ctx: Any, output: str) -> None:
        bench.undone.append(output)
        if at == "undoing" and len(bench.undone) == 1:
            started[0].evict()

    async def work(ctx: Context) -> None:
        await ctx.rollback_checkpoint("cp")
        if at == "collecting" and ctx._scope.turn.is_collecting and not bench.undone:
            started[0].evict()
        for name in "abc":
            await ctx.step(name, bench.giving(name, name), rollback=undo)
        raise ValueError("no")

    started.append(bench.start(work))
    assert (await started[0].result).state is not WorkflowState.FAILED
    bench.undone += ["evicted"] if at == "collecting" else []
    with pytest.raises((ValueError, WorkflowFailedError)):
        await bench.once(work)
    assert [name for name in bench.undone if name != "evicted"] == ["c", "b", "a"]
    assert bench.state() == "failed"


async def test_neither_eviction_nor_cancel_rolls_back() -> None:
    bench = Undoing()

    async def work(ctx: Context) -> None:
        await ctx.rollback_checkpoint("cp")
        await bench.do(ctx, "a")
        await bench.do(ctx, "b", takes_s=60)

    handle = bench.start(work)
    await bench.idle(handle)
    handle.evict(grace=0)
    await bench.finish(handle)
    handle = bench.start(work)
    await bench.idle(handle)
    await handle.cancel()
    assert (await handle.result).state is WorkflowState.CANCELLED
    assert bench.undone == []


async def test_the_loop_is_not_advanced_by_the_rollback() -> None:
    bench = Undoing()

    async def body(ctx: Context, n: int) -> Any:
        await bench.do(ctx, f"{n}")
        if n == 1:
            raise ValueError("no")
        return Break(n) if n == 9 else Continue(n + 1)

    async def work(ctx: Context) -> None:
        await ctx.rollback_checkpoint("cp")
        await ctx.loop("l", body, 0)

    await bench.fail(work)
    assert bench.entries()["l"].kind.iteration == 1  # type: ignore[union-attr]
    assert bench.undone == ["1"]


async def test_a_handler_knows_its_workflow_and_whether_to_stop() -> None:
    bench = Undoing()
    known: list[Any] = []

    async def work(ctx: Context) -> None:
        await ctx.rollback_checkpoint("cp")
        # A handler that is no coroutine function is called all the same.
        await ctx.step("a", bench.giving("a", 7), rollback=note)
        raise ValueError("no")

    def note(ctx: Any, output: int) -> None:
        known.append((ctx.workflow_id, ctx.is_evicted(), ctx.abort_signal.is_set(), output))

    await bench.fail(work)
    assert known == [("wf-1", False, False, 7)]


# --- code that was deployed meanwhile ---------------------------------------------------------------------------------


class Edited(Undoing):
    """Two steps and a sleep, under code that has something more between the steps: with names, or without."""

    def __init__(self, *, has_names: bool) -> None:
        super().__init__()
        self.has_names = has_names
        self.is_broken = False

    def named(self, name: str) -> list[Any]:
        return [name] if self.has_names else []

    async def step(self, ctx: Context, name: str) -> None:
        async def undo(_ctx: Any, output: Any) -> None:
            if self.is_broken and output == "a":
                raise ConnectionError("away")
            self.undone.append(output)

        await ctx.step(*self.named(name), self.giving(name, name), rollback=undo)
        self.clock.advance(0.001)

    def code(self, between: Any = None, ends_with: Exception | None = None) -> Any:
        async def workflow(ctx: Context) -> None:
            await ctx.rollback_checkpoint(*self.named("cp"))
            await self.step(ctx, "a")
            if between is not None:
                await between(self, ctx)
            await self.step(ctx, "b")
            if ends_with is not None:
                raise ends_with
            sleep: Any = ctx.sleep
            await sleep(*self.named("s"), 3600)

        return workflow

    async def cancelled(self, code: Any) -> None:
        """Cancel the sleeping workflow, and undo it with ``code``."""
        await self.start(code).cancel(rollback=True)
        assert self.state() == "rolling_back"
        await self.once(code)


async def gate(bench: Edited, ctx: Context) -> None:
    version = await (ctx.get_version("gate", 2) if bench.has_names else ctx.check_version(2))
    if version >= 2:
        await bench.step(ctx, "new")


async def mark(bench: Edited, ctx: Context) -> None:
    assert bench.has_names
    await ctx.removed("gone", "step")


async def put_in(bench: Edited, ctx: Context) -> None:
    await bench.step(ctx if bench.has_names else ctx.v(2), "new")


@pytest.mark.parametrize("has_names", [True, False])
async def test_what_stands_behind_a_gate_that_was_deployed_meanwhile_is_undone(*, has_names: bool) -> None:
    bench = Edited(has_names=has_names)
    await bench.once(bench.code())
    before = bench.entries().keys()
    await bench.cancelled(bench.code(gate))
    assert bench.undone == ["b", "a"]
    assert bench.state() == "cancelled"
    assert bench.entries().keys() == before


async def test_what_stands_behind_a_mark_of_something_removed_is_undone() -> None:
    bench = Edited(has_names=True)
    await bench.once(bench.code())
    await bench.cancelled(bench.code(mark))
    assert bench.undone == ["b", "a"]


@pytest.mark.parametrize("has_names", [True, False])
async def test_a_rollback_that_goes_on_with_other_code_undoes_no_less(*, has_names: bool) -> None:
    bench = Edited(has_names=has_names)
    bench.is_broken = True
    with pytest.raises(ConnectionError):
        await bench.through(bench.code(ends_with=ValueError("no")))
    assert (bench.undone, bench.state()) == (["b"], "rolling_back")
    bench.is_broken = False
    with pytest.raises(WorkflowFailedError, match="no"):
        await bench.through(bench.code(gate))
    assert bench.undone == ["b", "a"]


async def test_what_stands_behind_a_wait_that_was_given_a_timeout_meanwhile_is_undone() -> None:
    bench = Edited(has_names=True)

    def between(timeout: float | None) -> Any:
        async def wait(_bench: Edited, ctx: Context) -> None:
            await ctx.queue.next("wait", timeout=timeout)

        return wait

    bench.send("go")
    await bench.once(bench.code(between(None)))
    await bench.fail(bench.code(between(60), ends_with=ValueError("no")))
    assert bench.undone == ["b", "a"]


@pytest.mark.parametrize("has_names", [True, False])
async def test_nothing_is_undone_past_an_operation_that_has_not_run(*, has_names: bool) -> None:
    """What the code would do with its result nobody knows; half a rollback would say that all was undone."""
    bench = Edited(has_names=has_names)
    await bench.once(bench.code())
    with pytest.raises(HistoryDivergedError, match=r"has not run, and the step .*, which comes after it in the code"):
        await bench.cancelled(bench.code(put_in))
    assert (bench.undone, bench.state()) == ([], "rolling_back")
    await bench.once(bench.code())
    assert (bench.undone, bench.state()) == (["b", "a"], "cancelled")


async def test_steps_of_names_that_begin_alike_are_no_parts_of_one_operation() -> None:
    bench = Edited(has_names=True)

    def code(*names: str) -> Any:
        async def workflow(ctx: Context) -> None:
            await ctx.rollback_checkpoint("cp")
            for name in names:
                await bench.step(ctx, name)
            await ctx.sleep("s", 3600)

        return workflow

    await bench.once(code("a", "charge:2"))
    with pytest.raises(HistoryDivergedError, match="'charge:1' has not run, and the step 'charge:2'"):
        await bench.cancelled(code("a", "charge:1", "charge:2"))
    assert (bench.undone, bench.state()) == ([], "rolling_back")


async def test_an_operation_that_has_not_run_with_nothing_to_undo_behind_it_is_the_end() -> None:
    bench = Edited(has_names=True)

    async def more(ctx: Context) -> None:
        await ctx.rollback_checkpoint("cp")
        for name in ("a", "b", "new"):
            await bench.step(ctx, name)
        await ctx.sleep("s", 3600)

    await bench.once(bench.code())
    await bench.cancelled(more)
    assert (bench.undone, bench.state()) == (["b", "a"], "cancelled")
