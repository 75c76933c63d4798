"""Recover and replay from a step: what is forgotten, what stays, and in which order things were created."""

from __future__ import annotations

from typing import Any

import pytest

from engine import Break, Context, Continue, StepExhaustedError, WorkflowState, replay_workflow_from_step
from engine.entry import Entry, EntryMetadata, EntryStatus, SleepEntry, StepEntry, VersionCheckEntry
from engine.errors import CriticalError, InvalidReplayError, JoinError
from engine.history.revival import creation_order, recover_entries, rewind
from engine.history.storage import Storage
from engine.keys import entry_key
from tests.unit.bench import WORKFLOW_ID, Bench

V7_EARLY, V7_LATE = "018f0000-0000-7000-8000-000000000001", "018f0000-0001-7000-8000-000000000000"
V4_A, V4_B, V4_C = (f"{letter}0000000-0000-4000-8000-000000000000" for letter in "fab")


def history(*rows: tuple[str, int | None]) -> Storage:
    """Entries by id, each with the creation time of its metadata, or without any."""
    storage = Storage()
    for name, (entry_id, created_at) in enumerate(rows):
        index = storage.register_name(f"s{name}")
        storage.put(entry_key((index,)), Entry(entry_id, (index,), StepEntry(output=b"\xf6")))
        if created_at is not None:
            storage.put_metadata(entry_id, EntryMetadata(created_at=created_at, status=EntryStatus.COMPLETED))
    return storage


def ordered(storage: Storage) -> list[str]:
    return [entry.id for _, entry in sorted(storage.entries(), key=lambda pair: creation_order(storage, *pair))]


def test_entries_of_version_seven_sort_by_their_id() -> None:
    assert ordered(history((V7_LATE, 1), (V7_EARLY, 2))) == [V7_EARLY, V7_LATE]


def test_entries_of_the_reference_sort_by_their_creation_those_without_last_by_key() -> None:
    assert ordered(history((V4_A, None), (V4_B, 20), (V4_C, 10), ("c" + V4_A[1:], None))) == [
        V4_C,
        V4_B,
        V4_A,
        "c" + V4_A[1:],
    ]


def test_both_kinds_sort_together_by_time() -> None:
    early = int(V7_EARLY.replace("-", "")[:12], 16)
    assert ordered(history((V7_EARLY, None), (V4_A, early - 1), (V4_B, early + 1))) == [V4_A, V7_EARLY, V4_B]


def test_only_a_known_step_can_be_replayed_from() -> None:
    storage = history((V7_EARLY, 1))
    index = storage.register_name("nap")
    storage.put(entry_key((index,)), Entry(V7_LATE, (index,), SleepEntry(deadline=1)))
    with pytest.raises(InvalidReplayError, match="no entry has the id"):
        rewind(storage, "unheard")
    with pytest.raises(InvalidReplayError, match="is a sleep; only a step"):
        rewind(storage, V7_LATE)


def test_what_runs_and_would_remain_is_refused() -> None:
    storage = history((V7_EARLY, 1), (V7_LATE, 2))
    storage.put_metadata(V7_EARLY, EntryMetadata(created_at=1, status=EntryStatus.RUNNING))
    with pytest.raises(InvalidReplayError, match="is running and would remain"):
        rewind(storage, V7_LATE)
    rewind(storage, V7_EARLY)
    assert list(storage.entries()) == []


async def steps(ctx: Context, bench: Bench) -> str:
    for name in "abc":
        await ctx.step(name, bench.giving(name))
    await ctx.sleep("s", 1)
    await ctx.step("d", bench.giving("d"))
    return "done"


async def test_a_step_and_everything_after_it_run_again() -> None:
    bench = Bench()
    work = lambda ctx: steps(ctx, bench)  # noqa: E731
    await bench.through(work)
    snapshot = await replay_workflow_from_step(WORKFLOW_ID, bench.driver, bench.entries()["b"].id)
    assert len(snapshot.entries) == 1
    assert (bench.state(), bench.alarm) == ("sleeping", bench.clock.now())
    assert (await bench.through(work)).output == "done"
    assert bench.runs == {"a": 1, "b": 2, "c": 2, "d": 2}


async def test_without_a_step_all_runs_again_with_the_same_input() -> None:
    bench = Bench()

    async def work(ctx: Context, given: Any) -> Any:
        await ctx.step("a", bench.giving("a"))
        return given

    await bench.through(work, "given")
    await replay_workflow_from_step(WORKFLOW_ID, bench.driver, schedule_alarm=False)
    assert bench.alarm is None
    assert (await bench.through(work, "other")).output == "given"
    assert bench.runs == {"a": 2}


async def test_what_rolls_back_and_cannot_is_played_from_the_beginning_like_any_other() -> None:
    bench = Bench()

    async def refuse(_ctx: Any, _output: Any) -> None:
        raise ConnectionError("not now")

    async def work(ctx: Context, _given: Any) -> Any:
        await ctx.rollback_checkpoint("begin")
        await ctx.step("a", bench.giving("a"), rollback=refuse)
        if bench.runs["a"] == 1:
            raise ValueError("too late")
        return "done"

    with pytest.raises(ConnectionError):
        await bench.through(work)
    assert bench.state() == "rolling_back"
    await replay_workflow_from_step(WORKFLOW_ID, bench.driver)
    assert bench.state() == "sleeping"
    assert (await bench.through(work)).output == "done"


async def test_a_step_inside_loops_rewinds_to_the_outermost() -> None:
    bench = Bench()

    async def outer(ctx: Context, total: int) -> Any:
        async def inner(below: Context, n: int) -> Any:
            await below.step("s", bench.giving(f"{total}/{n}"))
            return Break(n) if n == 1 else Continue(n + 1)

        await ctx.loop("inner", inner, 0)
        return Break(total) if total == 2 else Continue(total + 1)

    async def work(ctx: Context) -> Any:
        await ctx.step("before", bench.giving("before"))
        return await ctx.loop("outer", outer, 0)

    await bench.through(work)
    await replay_workflow_from_step(WORKFLOW_ID, bench.driver, bench.entries()["outer/~1/inner/~1/s"].id)
    assert set(bench.entries()) == {"before"}
    assert (await bench.through(work)).output == 2
    assert {name: count for name, count in bench.runs.items() if count == 1} == {"before": 1}


async def test_what_other_branches_did_later_in_their_loops_is_done_again_with_the_loops() -> None:
    """A loop whose state has moved past what is gone would never do it again."""
    bench = Bench()

    def branch(name: str, wait_s: float) -> Any:
        async def body(ctx: Context, n: int) -> Any:
            await ctx.step("s", bench.giving(f"{name}{n}", takes_s=wait_s))
            return Break(n) if n == 2 else Continue(n + 1)

        return lambda ctx: ctx.loop("l", body, 0)

    async def work(ctx: Context) -> Any:
        await ctx.step("before", bench.giving("before"))
        return await ctx.join("j", {"first": branch("first", 1), "second": branch("second", 2)})

    await bench.through(work)
    [*_, target] = (bench.entries()[f"j/second/l/~{n}/s"] for n in range(2))
    await replay_workflow_from_step(WORKFLOW_ID, bench.driver, target.id)
    assert set(bench.entries()) == {"before", "j"}
    assert (await bench.through(work)).output == {"first": 2, "second": 2}
    assert {name for name, count in bench.runs.items() if count == 1} == {"before"}


async def test_a_branch_that_lost_a_step_runs_again_and_the_others_do_not() -> None:
    bench = Bench()

    def branch(name: str) -> Any:
        async def body(ctx: Context) -> Any:
            return await ctx.step("s", bench.giving(name, name))

        return body

    async def work(ctx: Context) -> Any:
        joined = await ctx.join("j", {"a": branch("a"), "b": branch("b")})
        raced = await ctx.race("r", {"only": branch("only")})
        return [joined, raced.winner]

    await bench.through(work)
    await replay_workflow_from_step(WORKFLOW_ID, bench.driver, bench.entries()["j/b/s"].id)
    assert (await bench.through(work)).output == [{"a": "a", "b": "b"}, "only"]
    assert bench.runs == {"a": 1, "b": 2, "only": 2}


async def test_recover_only_acts_on_failed_and_forgets_failures() -> None:
    bench = Bench()

    async def work(ctx: Context) -> Any:
        await ctx.step("ok", bench.giving("ok"))

        async def branch(inner: Context) -> Any:
            return await inner.step("bad", bench.raising("bad", ValueError("no"), times=2, then="good"), max_retries=1)

        return (await ctx.join("j", {"b": branch}))["b"]

    handle = bench.start(lambda ctx: ctx.sleep("s", 60))
    await handle.result
    before = bench.driver.dump()
    await handle.recover()
    assert bench.driver.dump() == before

    bench = Bench()
    with pytest.raises(Exception, match="Join failed: b"):
        await bench.through(work)
    handle = bench.start(work)
    with pytest.raises(Exception, match="Join failed"):
        await handle.result
    await handle.recover()
    metadata = bench.metadata("j/b/bad")
    assert (metadata.status, metadata.attempts, metadata.error) == (EntryStatus.PENDING, 0, None)
    assert (bench.state(), bench.alarm) == ("sleeping", bench.clock.now())
    result = await bench.through(work)
    assert (result.state, result.output) == (WorkflowState.COMPLETED, "good")
    assert bench.runs == {"ok": 1, "bad": 3}


async def test_a_recovered_step_has_all_its_attempts_again() -> None:
    bench = Bench()
    work = lambda ctx: ctx.step("s", bench.raising("s", ValueError("no"), times=5), max_retries=2)  # noqa: E731
    with pytest.raises(StepExhaustedError):
        await bench.through(work)
    handle = bench.start(work)
    with pytest.raises(Exception, match="exhausted"):
        await handle.result
    await handle.recover()
    assert (await bench.through(work)).state is WorkflowState.COMPLETED
    assert bench.runs == {"s": 6}


async def _fails_then_recovers(bench: Bench, work: Any, gives: Any) -> None:
    """Fails, is let go on, and ends with ``gives`` without having taken another way."""
    with pytest.raises(Exception, match="down"):
        await bench.through(work)
    handle = bench.start(work)
    with pytest.raises(Exception, match="down"):
        await handle.result
    await handle.recover()
    assert (await bench.through(work)).output == gives


async def test_recover_leaves_a_step_that_was_caught_and_gone_past() -> None:
    bench = Bench()

    async def work(ctx: Context) -> Any:
        tried = await ctx.try_step("pay", bench.raising("pay", CriticalError("no"), times=1, then="paid"))
        await ctx.step("mail" if not tried.ok else "thank", bench.giving("told"))
        return await ctx.step("ship", bench.raising("ship", CriticalError("down"), times=1, then=tried.ok))

    await _fails_then_recovers(bench, work, gives=False)
    assert bench.runs == {"pay": 1, "told": 1, "ship": 2}


async def test_recover_leaves_a_join_that_was_caught_and_gone_past() -> None:
    bench = Bench()

    async def branch(ctx: Context) -> Any:
        return await ctx.step("bad", bench.raising("bad", CriticalError("no"), times=1, then="good"))

    async def work(ctx: Context) -> Any:
        try:
            await ctx.join("j", {"a": branch})
        except JoinError:
            await ctx.step("instead", bench.giving("instead"))
        return await ctx.step("ship", bench.raising("ship", CriticalError("down"), times=1, then="shipped"))

    await _fails_then_recovers(bench, work, gives="shipped")
    assert bench.runs == {"bad": 1, "instead": 1, "ship": 2}


async def test_recover_leaves_a_block_that_was_caught_and_gone_past() -> None:
    bench = Bench()

    async def block(ctx: Context) -> Any:
        return await ctx.step("bad", bench.raising("bad", CriticalError("no"), times=1, then="good"))

    async def work(ctx: Context) -> Any:
        tried = await ctx.try_block("block", block)
        await ctx.step("after" if tried.ok else "instead", bench.giving("next"))
        return await ctx.step("ship", bench.raising("ship", CriticalError("down"), times=1, then="shipped"))

    await _fails_then_recovers(bench, work, gives="shipped")
    assert bench.runs == {"bad": 1, "next": 1, "ship": 2}


async def test_recover_reopens_what_failed_in_a_branch_whose_siblings_went_on() -> None:
    bench = Bench()

    async def failing(ctx: Context) -> Any:
        return await ctx.step("bad", bench.raising("bad", CriticalError("down"), times=1, then="good"))

    async def catching(ctx: Context) -> Any:
        tried = await ctx.try_step("soft", bench.raising("soft", CriticalError("no"), times=1, then="yes"))
        await ctx.sleep("nap", 60)
        await ctx.step("late" if not tried.ok else "other", bench.giving("late"))
        return tried.ok

    async def work(ctx: Context) -> Any:
        try:
            return await ctx.join("j", {"a": failing, "b": catching})
        except JoinError as error:
            raise ValueError("down") from error

    await _fails_then_recovers(bench, work, gives={"a": "good", "b": False})
    assert bench.runs == {"bad": 2, "soft": 1, "late": 1}


async def test_recover_reopens_what_failed_in_the_iteration_under_way_only() -> None:
    bench = Bench()

    async def body(ctx: Context, number: int) -> Any:
        if number == 0:
            tried = await ctx.try_step("s", bench.raising("first", CriticalError("no"), times=1, then="yes"))
            return Continue(1 if not tried.ok else 7)
        return Break(await ctx.step("s", bench.raising("second", CriticalError("down"), times=1, then=number)))

    await _fails_then_recovers(bench, lambda ctx: ctx.loop("l", body, 0), gives=1)
    assert bench.runs == {"first": 1, "second": 2}


def test_what_changed_code_puts_before_a_failure_does_not_count_as_later() -> None:
    storage = history((V7_EARLY, 1))
    storage.put_metadata(V7_EARLY, EntryMetadata(created_at=1, status=EntryStatus.FAILED))
    check, nap = storage.register_name("version"), storage.register_name("of unknown age")
    storage.put(entry_key((check,)), Entry(V7_LATE, (check,), VersionCheckEntry(resolved=1, latest=2)))
    storage.put(entry_key((nap,)), Entry(V4_A, (nap,), SleepEntry(deadline=1)))
    recover_entries(storage)
    metadata = storage.find_metadata(V7_EARLY)
    assert metadata is not None
    assert metadata.status is EntryStatus.PENDING
