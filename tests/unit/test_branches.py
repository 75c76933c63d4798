"""Joins and races: who runs, who waits, who is cancelled, what is recorded, and what comes first when they differ."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine import (
    Context,
    CriticalError,
    HistoryDivergedError,
    JoinError,
    RaceError,
    RaceResult,
    UnstorableValueError,
    WorkflowState,
)
from engine.entry import BranchState, JoinEntry, RaceEntry
from engine.errors import EntryInProgressError, EvictedError, RollbackCheckpointError, SleepError, StoreUnavailableError
from engine.ops.branch import Stopped, Waiting, first_stop
from tests.unit.bench import Bench


def step_branch(bench: Bench, name: str, value: Any = None, *, takes_s: float = 0) -> Any:
    async def body(ctx: Context) -> Any:
        return await ctx.step(name, bench.giving(name, value, takes_s=takes_s))

    return body


def failing_branch(error: Exception) -> Any:
    async def body(_ctx: Context) -> Any:
        raise error

    return body


async def sleeping(ctx: Context) -> None:
    await ctx.sleep("s", 600)


# --- precedence ------------------------------------------------------------------------------------------------------


def test_what_ends_the_run_comes_in_a_fixed_order() -> None:
    errors = [
        RollbackCheckpointError("c"),
        EntryInProgressError("p"),
        HistoryDivergedError("d"),
        EvictedError(),
    ]
    for length in range(len(errors), 0, -1):
        assert first_stop(Stopped(error) for error in errors[:length]) is errors[length - 1]
    assert first_stop([Waiting(SleepError(1))]) is None


async def test_a_wait_comes_before_a_failure_and_the_failure_after_it() -> None:
    bench = Bench()

    async def work(ctx: Context) -> Any:
        try:
            await ctx.join("j", {"fails": failing_branch(KeyError("k")), "waits": sleeping})
        except JoinError as error:
            return {name: [one.name, one.message] for name, one in error.errors.items()}

    assert (await bench.once(work)).state is WorkflowState.SLEEPING
    assert (await bench.through(work)).output == {"fails": ["KeyError", "'k'"]}


# --- join ------------------------------------------------------------------------------------------------------------


async def test_the_text_of_a_failed_join_says_why_and_stays_short() -> None:
    bench = Bench()
    branches = {f"b{number}": failing_branch(ValueError(f"no {number}" * 100)) for number in range(7)}
    with pytest.raises(JoinError) as caught:
        await bench.once(lambda ctx: ctx.join("j", branches))
    text = str(caught.value)
    assert text.startswith("Join failed: b0 (ValueError: no 0no 0")
    assert text.endswith(" and 2 more")
    assert len(text) < 1_200
    assert len(caught.value.errors) == 7


async def test_errors_are_the_same_live_and_on_replay_and_live_ones_have_their_cause() -> None:
    bench = Bench()
    seen: list[Any] = []
    original = ValueError("no")

    async def work(ctx: Context) -> None:
        try:
            await ctx.join("j", {"a": failing_branch(original), "b": step_branch(bench, "b")})
        except JoinError as error:
            seen.append([(name, one.name, one.message, one.__cause__) for name, one in error.errors.items()])
        await ctx.sleep("s", 60)

    await bench.through(work)
    assert seen == [[("a", "ValueError", "no", original)], [("a", "ValueError", "no", None)]]


async def test_at_most_so_many_branches_run_at_once_also_over_waits() -> None:
    bench = Bench()
    running: list[int] = [0, 0]

    def branch(name: str) -> Any:
        async def fn() -> str:
            running[0] += 1
            running[1] = max(running)
            await bench.clock.sleep(1)
            running[0] -= 1
            return name

        async def body(ctx: Context) -> Any:
            await ctx.sleep("first", 60)
            return await ctx.step("s", fn)

        return body

    names = [f"b{number}" for number in range(7)]
    work = lambda ctx: ctx.join("j", {name: branch(name) for name in names}, max_concurrency=2)  # noqa: E731
    result = await bench.through(work)
    assert result.output == {name: name for name in names}
    assert running[1] == 2
    with pytest.raises(ValueError, match="max_concurrency must be 1 or more"):
        await Bench().once(lambda ctx: ctx.join("j", {}, max_concurrency=0))


async def test_a_join_of_nothing_is_nothing() -> None:
    assert (await Bench().once(lambda ctx: ctx.join("j", {}))).output == {}


async def test_a_value_that_cannot_be_stored_fails_its_branch_alone() -> None:
    bench = Bench()
    with pytest.raises(JoinError) as caught:
        await bench.once(lambda ctx: ctx.join("j", {"bad": returns_socket, "good": step_branch(bench, "g", 1)}))
    assert set(caught.value.errors) == {"bad"}
    assert caught.value.errors["bad"].name == "UnstorableValueError"
    kind = bench.entries()["j"].kind
    assert isinstance(kind, JoinEntry)
    assert kind.branches["good"].status is BranchState.COMPLETED


async def returns_socket(_ctx: Context) -> Any:
    return asyncio.Event()


async def test_a_wait_of_several_branches_is_one() -> None:
    bench = Bench()
    start = bench.clock.now()

    def queue(name: str) -> Any:
        async def body(ctx: Context) -> Any:
            await ctx.queue.next("n", name)

        return body

    async def retrying(ctx: Context) -> Any:
        await ctx.step("s", bench.raising("s", ValueError("no"), times=1), retry_backoff_base=20)

    branches = {"a": queue("a"), "b": queue("b"), "sleep": sleeping, "retry": retrying, "done": step_branch(bench, "d")}
    result = await bench.once(lambda ctx: ctx.join("j", branches))
    assert (result.sleep_until, result.waiting_for_messages) == (start + 30_000, ["a", "b"])


async def test_results_that_one_entry_cannot_hold_fail_the_join_once_nobody_waits_any_more() -> None:
    bench = Bench()
    bench.driver.value_bytes_max = 1000
    branches = {"a": step_branch(bench, "a", "x" * 600), "b": step_branch(bench, "b", "x" * 600), "c": sleeping}
    result = await bench.once(lambda ctx: ctx.join("j", branches))
    assert result.state is WorkflowState.SLEEPING
    bench.clock.advance(600)
    with pytest.raises(UnstorableValueError, match="join 'j'"):
        await bench.once(lambda ctx: ctx.join("j", branches))
    assert bench.runs == {"a": 1, "b": 1}


async def test_a_wake_for_nothing_writes_no_branch_anew() -> None:
    bench = Bench()

    async def work(ctx: Context) -> None:
        with pytest.raises(RaceError):
            await ctx.race("lost", {"a": failing_branch(ValueError("x"))})
        waiting = {"done": step_branch(bench, "d", "x" * 999), "deaf": lambda inner: inner.queue.next("n", "x")}
        await ctx.join("j", waiting)

    await bench.once(work)
    count = len(bench.driver.commits)
    await bench.once(work)
    assert [commit.puts for commit in bench.driver.commits[count:] if commit.puts] == []


# --- race ------------------------------------------------------------------------------------------------------------
# --- race ------------------------------------------------------------------------------------------------------------


async def test_a_sleep_is_a_time_limit_for_a_step_also_in_yield_mode() -> None:
    bench = Bench()
    cancelled = []

    async def long() -> None:
        try:
            await bench.clock.sleep(3600)
        finally:
            cancelled.append(bench.clock.now())

    async def slow(ctx: Context) -> Any:
        await ctx.step("long", long, timeout=None)

    async def limit(ctx: Context) -> str:
        await ctx.sleep("limit", 5)
        return "too late"

    start = bench.clock.now()
    result = await bench.once(lambda ctx: work(ctx, {"slow": slow, "limit": limit}))
    assert result.output == ["limit", "too late"]
    assert cancelled == [start + 5000]
    kind = bench.entries()["r"].kind
    assert isinstance(kind, RaceEntry)
    assert (kind.winner, kind.branches["slow"].status) == ("limit", BranchState.CANCELLED)
    assert not any(place.startswith("r/slow/") for place in bench.entries())


async def work(ctx: Context, branches: Any) -> Any:
    result = await ctx.race("r", branches)
    return [result.winner, result.value]


@pytest.mark.parametrize("mode", ["yield", "live"])
async def test_a_race_with_a_finished_branch_does_not_wait_for_the_others(mode: Any) -> None:
    bench = Bench()
    branches = {"never": sleeping, "fast": step_branch(bench, "f", 1), "deaf": lambda ctx: ctx.queue.next("n", "x")}
    result = await bench.once(lambda ctx: work(ctx, branches), mode=mode)
    assert result.output == ["fast", 1]
    assert (await bench.once(lambda ctx: work(ctx, branches), mode=mode)).output == ["fast", 1]
    assert bench.runs == {"f": 1}


async def test_all_failed_is_an_error_the_same_live_and_on_replay() -> None:
    bench = Bench()
    seen: list[Any] = []

    async def lost(ctx: Context) -> None:
        try:
            await ctx.race("r", {"a": failing_branch(ValueError("x")), "b": failing_branch(KeyError("y"))})
        except RaceError as error:
            seen.append({name: (one.name, one.message) for name, one in error.errors.items()})
        await ctx.sleep("s", 60)

    await bench.through(lost)
    assert seen == [{"a": ("ValueError", "x"), "b": ("KeyError", "'y'")}] * 2


async def test_the_winner_and_the_removal_of_the_losers_are_one_commit() -> None:
    bench = Bench()

    async def loser(ctx: Context) -> None:
        await ctx.step("taken", bench.giving("taken"))
        await ctx.queue.next("n", "m")
        await ctx.sleep("s", 600)

    async def winner(ctx: Context) -> str:
        await ctx.sleep("w", 60)
        return "won"

    bench.send("m", "back", id="m")
    bench.send("m", "second")
    race = lambda ctx: work(ctx, {"loser": loser, "winner": winner})  # noqa: E731
    await bench.once(race)
    assert [message.body for message in bench.driver.messages] != []
    assert "m" not in {message.id for message in bench.driver.messages}
    bench.clock.advance(60)
    await bench.once(race)
    (commit,) = [commit for commit in bench.driver.commits if commit.returned]
    assert commit.ranges
    assert any(b"winner" in value for _, value in commit.puts)
    assert [message.id for message in bench.driver.messages] == ["m", "m2"]


@pytest.mark.parametrize("is_waiting", [False, True])
async def test_a_message_that_is_back_is_found_by_who_wants_it_next(*, is_waiting: bool) -> None:
    bench = Bench()

    async def loser(ctx: Context) -> None:
        await ctx.queue.next("n", "m")
        await ctx.sleep("s", 600)

    async def winner(ctx: Context) -> None:
        await ctx.sleep("w", 60)

    async def race(ctx: Context) -> None:
        await ctx.race("r", {"loser": loser, "winner": winner})

    async def wants(ctx: Context) -> Any:
        return (await ctx.queue.next("again", "m")).body

    async def one_after_the_other(ctx: Context) -> Any:
        await race(ctx)
        return await wants(ctx)

    async def side_by_side(ctx: Context) -> Any:
        return (await ctx.join("j", {"race": race, "wants": wants}))["wants"]

    bench.send("m", "for the loser")
    result = await bench.through(side_by_side if is_waiting else one_after_the_other)
    assert result.output == "for the loser"
    assert bench.driver.messages == []


@pytest.mark.parametrize("phase", ["before", "after"])
async def test_a_race_decided_in_a_commit_that_fails_gives_every_message_back_once(phase: str) -> None:
    bench = Bench()

    async def loser(ctx: Context) -> None:
        await ctx.queue.next("n", "m")
        await ctx.sleep("s", 600)

    async def race(ctx: Context) -> Any:
        await ctx.race("r", {"loser": loser, "winner": step_branch(bench, "w", takes_s=1)})
        return [one.body for one in await ctx.queue.next_batch("all", "m", count=9)]

    for number in range(1, 8):
        bench = Bench()
        bench.send("m", 1)
        bench.send("m", 2)
        commits = 0

        def fail(operation: str, when: str, number: int = number) -> None:
            nonlocal commits
            commits += (operation, when) == ("commit", "before")
            if (operation, when) == ("commit", phase) and commits == number:
                raise StoreUnavailableError("a crash")

        bench.driver.on_call = fail
        try:
            result = await bench.once(race)
        except StoreUnavailableError:
            bench.driver.on_call = None
            result = await bench.once(race)
        assert result.output == [1, 2], number
        assert bench.driver.messages == []


async def test_a_race_inside_a_losing_branch_ends_with_it() -> None:
    bench = Bench()
    passed = []

    async def deep(ctx: Context) -> None:
        async def inner(below: Context) -> None:
            try:
                await below.step("slow", bench.giving("slow", takes_s=3600), timeout=None)
            finally:
                passed.append("cancelled")

        await ctx.race("inner", {"a": inner, "b": inner})

    result = await bench.once(lambda ctx: work(ctx, {"deep": deep, "fast": step_branch(bench, "f", 1, takes_s=1)}))
    assert result.output == ["fast", 1]
    assert passed == ["cancelled"] * 2
    assert bench.clock.next_timer() is None


async def test_a_branch_cancelled_before_its_first_step_leaves_the_run_able_to_end() -> None:
    bench = Bench()

    async def at_once(_ctx: Context) -> str:
        return "at once"

    async def crowd(ctx: Context) -> None:
        await ctx.join("crowd", {f"b{number}": sleeping for number in range(5)})

    for _ in range(2):
        result = await bench.once(lambda ctx: work(ctx, {"at once": at_once, "crowd": crowd, "late": sleeping}))
        assert result.output == ["at once", "at once"]


async def test_an_abort_signal_tells_the_losers() -> None:
    bench = Bench()
    told = []

    async def loser(ctx: Context) -> None:
        try:
            await ctx.step("s", bench.giving("s", takes_s=3600), timeout=None)
        finally:
            told.append((ctx.abort_signal.is_set(), ctx.is_evicted()))

    await bench.once(lambda ctx: work(ctx, {"loser": loser, "fast": step_branch(bench, "f", takes_s=1)}))
    assert told == [(True, False)]


async def test_a_branch_whose_result_cannot_be_stored_does_not_win() -> None:
    with pytest.raises(RaceError) as failed:
        await Bench().once(lambda ctx: work(ctx, {"bad": returns_socket}))
    assert failed.value.errors["bad"].name == UnstorableValueError.__name__
    assert "branch 'bad'" in failed.value.errors["bad"].message
    with pytest.raises(ValueError, match="needs at least one branch"):
        await Bench().once(lambda ctx: work(ctx, {}))


async def test_a_failure_inside_a_race_that_is_won_is_forgotten() -> None:
    bench = Bench()

    async def fails(ctx: Context) -> None:
        await ctx.step("s", bench.raising("s", CriticalError("no")))

    result = await bench.once(lambda ctx: work(ctx, {"fails": fails, "wins": step_branch(bench, "w", 1, takes_s=1)}))
    assert result.output == ["wins", 1]
    assert not any(place.startswith("r/fails/") for place in bench.entries())


async def test_a_race_with_a_branch_that_has_diverged_is_not_decided() -> None:
    bench = Bench()

    async def slow(ctx: Context) -> str:
        await ctx.sleep("nap", 60)
        return str(await ctx.step("slow", bench.giving("slow", "slow", takes_s=0.02)))

    async def fits(ctx: Context) -> str:
        await ctx.step("quick", bench.giving("quick"))
        await ctx.sleep("s", 600)
        return "fits"

    async def diverges(ctx: Context) -> None:
        await ctx.sleep("quick", 60)

    await bench.once(lambda ctx: ctx.race("r", {"slow": slow, "other": fits}))
    before = bench.entries().keys()
    bench.clock.advance(60)
    with pytest.raises(HistoryDivergedError):
        await bench.once(lambda ctx: ctx.race("r", {"slow": slow, "other": diverges}))
    assert bench.runs["slow"] == 1
    assert bench.entries().keys() >= before
    race = bench.entries()["r"].kind
    assert isinstance(race, RaceEntry)
    assert race.winner is None


def test_a_race_result_says_what_it_is() -> None:
    assert repr(RaceResult("a", 1)) == "RaceResult(winner='a', value=1)"
    assert RaceResult("a", 1) == RaceResult("a", 1)
    assert RaceResult("a", 1) != RaceResult("b", 1)


@pytest.mark.parametrize("kind", ["join", "race"])
async def test_a_branch_that_has_failed_is_not_entered_again_while_the_others_go_on(kind: str) -> None:
    bench = Bench()
    entered: list[str] = []

    async def failing(ctx: Context) -> None:
        entered.append("failing")
        # What code decides by a time of day, say: entered again it would go on, and win.
        if len(entered) == 1:
            await ctx.step("no", bench.raising("no", CriticalError("no")))

    async def waiting(ctx: Context) -> str:
        await ctx.sleep("s", 60)
        return "waited"

    async def work(ctx: Context) -> Any:
        if kind == "race":
            return (await ctx.race("r", {"a": failing, "b": waiting})).value
        with pytest.raises(JoinError, match="a"):
            await ctx.join("r", {"a": failing, "b": waiting})
        return "waited"

    assert (await bench.through(work)).output == "waited"
    assert entered == ["failing"]
