"""The document of a workflow: written with an activity's result, and seen again as the code saw it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from engine import (
    ActivityContext,
    Break,
    Context,
    Continue,
    StepExhaustedError,
    UnstorableValueError,
    WorkflowState,
    inspect,
    keys,
    recover_workflow,
    replay_workflow_from_step,
    values,
)
from engine.author.activities import ACTIVITIES, Activity, activity
from engine.entry import Entry, LoopEntry, StepEntry
from engine.errors import CorruptHistoryError, StateConflictError, UnknownVersionError
from engine.history.changes import Room
from engine.history.documents import EMPTY, Document, decode, encode
from engine.history.storage import Storage
from engine.location import LoopIteration
from engine.testing import MemoryDriver, activity_context
from tests.unit.bench import WORKFLOW_ID, Bench

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Have each test register whatever it likes, and forget it."""
    kept = dict(ACTIVITIES._found)
    ACTIVITIES._found.clear()
    yield
    ACTIVITIES._found.clear()
    ACTIVITIES._found.update(kept)


async def _note(ctx: ActivityContext, word: str) -> int:
    ctx.state.setdefault("words", []).append(word)
    return len(ctx.state["words"])


async def _look(ctx: ActivityContext) -> dict[str, Any]:
    return dict(ctx.state)


note: Activity[str, int] = Activity("note", _note, {"max_retries": 5, "retry_backoff_base": 1})
look: Activity[dict[str, Any]] = Activity("look", _look, {})


def documents(bench: Bench) -> dict[str, dict[str, Any]]:
    """What is stored of the document, by the place of the entry that it is beside."""
    places = {keys.document_key(keys.entry_key(entry.location)): place for place, entry in bench.entries().items()}
    return {
        places.get(key, key.hex()): values.decode(decode(value).data)
        for key, value in bench.stored().items()
        if key.startswith(keys.DOCUMENT_PREFIX)
    }


# --- writing ---------------------------------------------------------------------------------------------------------


async def test_a_change_is_in_the_commit_of_the_result() -> None:
    async def workflow(ctx: Context, _given: Any) -> list[Any]:
        seen = [dict(ctx.state)]
        await ctx.activity(note, "a")
        seen.append(dict(ctx.state))
        await ctx.sleep("pause", 3600)
        await ctx.activity(note, "b", name="again")
        return [*seen, dict(ctx.state)]

    bench = Bench()
    assert (await bench.through(workflow)).output == [{}, {"words": ["a"]}, {"words": ["a", "b"]}]
    assert documents(bench) == {"note": {"words": ["a"]}, "again": {"words": ["a", "b"]}}
    for place in ("note", "again"):
        key = keys.entry_key(bench.entries()[place].location)
        holding = [{found for found, _ in commit.puts} for commit in bench.driver.commits]
        assert [keys.document_key(key) in puts for puts in holding] == [key in puts for puts in holding]


async def test_what_does_not_change_is_not_written() -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        first = await ctx.activity(look, name="before")
        await ctx.activity(note, "a")
        return [first, await ctx.activity(look)]

    bench = Bench()
    assert (await bench.through(workflow)).output == [{}, {"words": ["a"]}]
    assert list(documents(bench)) == ["note"]


async def test_what_comes_back_in_another_type_is_no_change() -> None:
    @activity
    async def write(ctx: ActivityContext) -> None:
        ctx.state["pair"] = (1, {2})

    async def workflow(ctx: Context, _given: Any) -> Any:
        await ctx.activity(write)
        return await ctx.activity(look)

    bench = Bench()
    assert (await bench.through(workflow)).output == {"pair": [1, {2}]}
    assert list(documents(bench)) == ["write"]


async def test_a_failed_attempt_leaves_the_document_as_it_was() -> None:
    @activity(max_retries=2, retry_backoff_base=1)
    async def flaky(ctx: ActivityContext) -> int:
        ctx.state["attempts"] = [*ctx.state.get("attempts", []), ctx.attempt]
        if ctx.attempt < 3:
            raise ConnectionError
        return ctx.attempt

    async def workflow(ctx: Context, _given: Any) -> Any:
        await ctx.activity(flaky)
        return ctx.state["attempts"]

    assert (await Bench().through(workflow)).output == [3]


async def test_an_attempt_that_times_out_changes_nothing() -> None:
    bench = Bench()

    @activity(timeout=1)
    async def slow(ctx: ActivityContext) -> None:
        ctx.state["x"] = 1
        await bench.clock.sleep(5)

    async def workflow(ctx: Context, _given: Any) -> Any:
        failed = await ctx.try_step("slow", slow)
        return [failed.ok, dict(ctx.state), await ctx.activity(look)]

    assert (await bench.through(workflow)).output == [False, {}, {}]


async def test_workflow_code_cannot_write_it() -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        await ctx.activity(note, "a")
        with pytest.raises(TypeError):
            ctx.state["words"] = []  # type: ignore[index]
        ctx.state["words"].append("lost")
        return dict(ctx.state)

    assert (await Bench().through(workflow)).output == {"words": ["a"]}


async def test_a_document_that_cannot_be_kept_fails_its_activity_at_once() -> None:
    @activity
    async def big(ctx: ActivityContext) -> None:
        ctx.state["text"] = "x" * 2000

    @activity
    async def odd(ctx: ActivityContext) -> None:
        ctx.state["function"] = len

    async def workflow(ctx: Context, _given: Any) -> Any:
        messages = []
        for name, fn in (("big", big), ("odd", odd)):
            try:
                await ctx.activity(fn, name=name)
            except UnstorableValueError as error:
                messages.append(f"{error.attempts} {error}")
        return [*messages, await ctx.activity(look)]

    output: Any = (await Bench(value_bytes_max=1000).through(workflow)).output
    assert "1 the value of the state has 2" in output[0]
    assert "this store keeps at most 1000" in output[0]
    assert "function" in output[1]
    assert output[2] == {}


async def test_a_test_looks_at_the_state_that_it_gave() -> None:
    state: dict[str, Any] = {"words": ["a"]}
    assert await note(activity_context(state=state), "b") == 2
    assert state == {"words": ["a", "b"]}
    assert await note(activity_context(), "b") == 1


# --- side by side ----------------------------------------------------------------------------------------------------


async def test_branches_do_not_see_each_other_until_they_are_joined() -> None:
    async def writer(ctx: Context) -> Any:
        await ctx.activity(note, "w")
        await ctx.sleep("pause", 60)
        return dict(ctx.state)

    async def reader(ctx: Context) -> Any:
        first = dict(ctx.state)
        await ctx.sleep("pause", 3600)
        return [first, dict(ctx.state), await ctx.activity(look)]

    async def workflow(ctx: Context, _given: Any) -> Any:
        await ctx.activity(note, "0")
        seen = await ctx.join("both", {"writer": writer, "reader": reader})
        return [seen, dict(ctx.state)]

    before, after = {"words": ["0"]}, {"words": ["0", "w"]}
    output: Any = (await Bench().through(workflow)).output
    assert output == [{"writer": after, "reader": [before, before, after]}, after]


async def test_of_two_writers_at_once_the_later_fails_and_is_tried_again() -> None:
    bench = Bench()

    @activity(retry_backoff_base=1)
    async def slow(ctx: ActivityContext) -> int:
        ctx.state.setdefault("words", []).append("slow")
        await bench.clock.sleep(5)
        return ctx.attempt

    async def first(ctx: Context) -> int:
        return await ctx.activity(slow)

    async def second(ctx: Context) -> int:
        return await ctx.activity(note, "quick")

    async def workflow(ctx: Context, _given: Any) -> Any:
        return [await ctx.join("both", {"first": first, "second": second}), dict(ctx.state)]

    assert (await bench.through(workflow)).output == [{"first": 2, "second": 1}, {"words": ["quick", "slow"]}]
    assert [event.error.name for event in bench.events] == [StateConflictError.__name__]


async def test_a_writer_without_retries_fails_for_good() -> None:
    bench = Bench()

    @activity(max_retries=0)
    async def slow(ctx: ActivityContext) -> None:
        ctx.state["slow"] = True
        await bench.clock.sleep(5)

    async def first(ctx: Context) -> str:
        try:
            await ctx.activity(slow)
        except StepExhaustedError as error:
            return str(error)
        return ""

    async def second(ctx: Context) -> int:
        return await ctx.activity(note, "quick")

    async def workflow(ctx: Context, _given: Any) -> Any:
        return [(await ctx.join("both", {"first": first, "second": second}))["first"], dict(ctx.state)]

    output: Any = (await bench.through(workflow)).output
    assert "StateConflictError: another activity changed" in output[0]
    assert output[1] == {"words": ["quick"]}


async def test_readers_do_not_conflict() -> None:
    bench = Bench()

    @activity(max_retries=0)
    async def slow_look(ctx: ActivityContext) -> Any:
        await bench.clock.sleep(5)
        return dict(ctx.state)

    async def first(ctx: Context) -> Any:
        return await ctx.activity(slow_look)

    async def second(ctx: Context) -> int:
        return await ctx.activity(note, "quick")

    async def workflow(ctx: Context, _given: Any) -> Any:
        return await ctx.join("both", {"first": first, "second": second})

    assert (await bench.through(workflow)).output == {"first": {}, "second": 1}


async def test_a_map_of_writers_comes_through_on_its_retries() -> None:
    async def write(ctx: Context, word: str) -> int:
        return await ctx.activity(note, word)

    async def workflow(ctx: Context, _given: Any) -> Any:
        await ctx.map("words", ["a", "b", "c"], write)
        return sorted(ctx.state["words"])

    assert (await Bench().through(workflow)).output == ["a", "b", "c"]


async def test_what_losers_of_a_race_wrote_is_gone() -> None:
    async def quick(ctx: Context) -> str:
        await ctx.activity(note, "quick")
        await ctx.sleep("pause", 60)
        return "quick"

    async def slow(ctx: Context) -> str:
        await ctx.sleep("short", 30)
        await ctx.activity(note, "slow")
        await ctx.sleep("long", 3600)
        return "slow"

    async def alone(ctx: Context) -> str:
        await ctx.sleep("pause", 10)
        return "alone"

    async def workflow(ctx: Context, _given: Any) -> Any:
        # What was built on a loser's change has it; what a loser alone has changed goes with it.
        won = await ctx.race("first", {"alone": alone, "slow": quick})
        seen = [won.winner, await ctx.step("seen", lambda: dict(ctx.state)), dict(ctx.state)]
        won = await ctx.race("second", {"quick": quick, "slow": slow})
        await ctx.sleep("later", 60)
        return [*seen, won.winner, dict(ctx.state), await ctx.activity(look)]

    bench = Bench()
    expected = {"words": ["quick"]}
    assert (await bench.through(workflow)).output == ["alone", {}, {}, "quick", expected, expected]
    assert list(documents(bench)) == ["second/quick/note"]


# --- the same on replay ----------------------------------------------------------------------------------------------


async def rambling(ctx: Context, _given: Any) -> list[Any]:
    """Everything in which the document may change, and what the code sees of it in between."""
    seen: list[Any] = [dict(ctx.state)]
    await ctx.activity(note, "a")
    seen.append(dict(ctx.state))

    async def turn(inner: Context, number: int) -> Any:
        at_first = await inner.step("seen", lambda: dict(inner.state))
        assert at_first == inner.state == ctx.state
        if number % 3 == 0:
            await inner.activity(note, f"turn {number}")
            at_first = await inner.step("seen again", lambda: dict(inner.state))
            assert at_first == inner.state == ctx.state
        if number == 7:
            return Break(number)
        return Continue(number + 1)

    await ctx.loop("turns", turn, 0, history_prune_interval=2, history_size=1)
    seen.append(dict(ctx.state))

    async def left(inner: Context) -> Any:
        await inner.activity(note, "left")
        await inner.sleep("pause", 50)
        return dict(inner.state)

    async def right(inner: Context) -> Any:
        before = dict(inner.state)
        await inner.sleep("pause", 100)
        await inner.activity(note, "right")
        return [before, dict(inner.state)]

    seen += [await ctx.join("sides", {"left": left, "right": right}), dict(ctx.state)]
    block = await ctx.try_block("block", left)
    seen += [block.value, dict(ctx.state)]
    race = await ctx.race("race", {"left": left, "right": right})
    seen += [race.winner, race.value, dict(ctx.state)]
    seen.append(await ctx.activity(look, name="end"))
    return seen


@pytest.mark.parametrize("atomic", [True, False])
async def test_a_run_that_dies_at_any_call_sees_the_same(*, atomic: bool) -> None:
    whole = Bench(MemoryDriver(atomic))
    expected = (await whole.through(rambling)).output
    assert len(await whole.driver.list(keys.DOCUMENT_PREFIX)) < 10

    class DiedError(Exception):
        pass

    for fatal in range(1, 400):
        calls = 0

        def die(operation: str, phase: str, fatal: int = fatal) -> None:
            nonlocal calls
            calls += phase == "after" and operation in {"commit", "batch", "delete", "delete_range", "batch_delete"}
            if calls == fatal:
                calls += 1
                raise DiedError

        bench = Bench(MemoryDriver(atomic, on_call=die))
        try:
            output = (await bench.through(rambling)).output
        except DiedError:
            output = (await bench.through(rambling)).output
        assert output == expected, fatal
        if calls < fatal:
            return
    raise AssertionError("does not end")


async def test_a_version_without_its_entry_is_none() -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        seen = await ctx.activity(look)
        await ctx.activity(note, "a")
        return [seen, dict(ctx.state)]

    bench = Bench()
    await bench.driver.set(keys.document_key(keys.entry_key((5,))), encode(Document(9, values.encode({"x": 1}))))
    assert (await bench.through(workflow)).output == [{}, {"words": ["a"]}]
    # It does not wait for an entry to come that it would then stand beside.
    assert list(documents(bench)) == ["note"]


async def test_a_loop_keeps_one_version_for_all_that_it_forgets() -> None:
    async def turn(ctx: Context, number: int) -> Any:
        await ctx.activity(note, str(number))
        return Break(None) if number == 50 else Continue(number + 1)

    async def workflow(ctx: Context, _given: Any) -> Any:
        await ctx.loop("turns", turn, 0, history_prune_interval=5)
        return ctx.state["words"]

    bench = Bench()
    assert (await bench.through(workflow)).output == [str(number) for number in range(51)]
    assert len(documents(bench)) <= 6
    assert max(documents(bench)) in {"turns", "turns/~50/note"}


# --- going on after the end ------------------------------------------------------------------------------------------


async def test_replay_from_a_step_takes_the_document_back_to_it() -> None:
    async def turn(ctx: Context, number: int) -> Any:
        await ctx.activity(note, str(number))
        return Break(None) if number == 9 else Continue(number + 1)

    async def workflow(ctx: Context, _given: Any) -> Any:
        await ctx.activity(note, "before")
        seen = await ctx.activity(look)
        await ctx.loop("turns", turn, 0, history_prune_interval=2)
        await ctx.activity(note, "after", name="last")
        return [seen, len(ctx.state["words"])]

    bench = Bench()
    assert (await bench.through(workflow)).output == [{"words": ["before"]}, 12]
    entries = bench.entries()
    for place in ("last", "turns/~9/note", "look", "note"):
        await replay_workflow_from_step(WORKFLOW_ID, bench.driver, entries[place].id)
        assert (await bench.through(workflow)).output == [{"words": ["before"]}, 12]
        entries = bench.entries()
    await replay_workflow_from_step(WORKFLOW_ID, bench.driver)
    assert documents(bench) == {}


async def test_recover_goes_on_with_the_document_of_what_had_succeeded() -> None:
    bench = Bench()

    @activity(max_retries=0)
    async def broken(ctx: ActivityContext) -> None:
        ctx.state["words"].append("broken")
        bench.runs["broken"] += 1
        if bench.runs["broken"] == 1:
            raise ConnectionError

    async def workflow(ctx: Context, _given: Any) -> Any:
        await ctx.activity(note, "a")
        await ctx.activity(broken)
        return dict(ctx.state)

    with pytest.raises(StepExhaustedError):
        await bench.through(workflow)
    assert documents(bench) == {"note": {"words": ["a"]}}
    assert await recover_workflow(WORKFLOW_ID, bench.driver)
    assert (await bench.through(workflow)).output == {"words": ["a", "broken"]}


async def test_undoing_leaves_the_document() -> None:
    async def undo(_ctx: Any, _output: int) -> None:
        return None

    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.rollback_checkpoint("start")
        await ctx.activity(note, "a", rollback=undo)
        raise ValueError("no")

    bench = Bench()
    with pytest.raises(ValueError, match="no"):
        await bench.through(workflow)
    assert bench.state() == WorkflowState.FAILED
    assert documents(bench) == {"note": {"words": ["a"]}}


async def test_an_activity_that_is_no_longer_in_the_code_keeps_what_it_wrote() -> None:
    async def before(ctx: Context, _given: Any) -> Any:
        await ctx.activity(note, "a")
        await ctx.sleep("pause", 60)
        return dict(ctx.state)

    async def after(ctx: Context, _given: Any) -> Any:
        await ctx.removed("note", "step")
        await ctx.sleep("pause", 60)
        return dict(ctx.state)

    bench = Bench()
    await bench.once(before)
    bench.clock.advance(60)
    assert (await bench.through(after)).output == {"words": ["a"]}


# --- stored ----------------------------------------------------------------------------------------------------------


async def test_inspecting_shows_the_document() -> None:
    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.activity(note, "a")

    bench = Bench()
    await bench.through(workflow)
    history = inspect.describe(sorted(bench.stored().items()))
    assert history.document == {"words": ["a"]}
    assert history.unreadable == ()
    key = keys.document_key(keys.entry_key(bench.entries()["note"].location))
    torn = inspect.describe(sorted({**bench.stored(), key: b"\x07123456789"}.items()))
    assert [one.key for one in torn.unreadable] == [key.hex()]


def test_a_stored_version_is_read_back_or_refused() -> None:
    document = Document(7, values.encode({"a": 1}))
    assert decode(encode(document)) == document
    with pytest.raises(UnknownVersionError, match="format 2"):
        decode(b"\x02" + encode(document)[1:])
    with pytest.raises(CorruptHistoryError):
        decode(b"\x01\x00")


def test_a_version_is_never_parted_from_its_entry_nor_from_what_it_stands_for() -> None:
    loop, step = keys.entry_key((0,)), keys.entry_key((0, LoopIteration(0, 0), 1))
    stored = Storage()
    stored.put(loop, Entry("loop", (0,), LoopEntry(state=b"\0")))
    stored.put(step, Entry("step", (0, LoopIteration(0, 0), 1), StepEntry(output=b"\0")))
    stored.put_document(step, Document(1, b"d" * 900))
    storage, room = Storage.load(sorted(stored.gather().puts)), Room(bytes_max=3000, messages_max=100)
    storage.put(loop, Entry("loop", (0,), LoopEntry(state=b"\1")))
    storage.put_document(loop, storage.documents.of(step))
    storage.remove_range(*keys.iteration_range(loop, 0, 0, 1))
    storage.close_group()
    other = keys.entry_key((0, LoopIteration(0, 1), 1))
    storage.put(other, Entry("other", (0, LoopIteration(0, 1), 1), StepEntry(output=b"x" * 2900)))
    storage.close_group()
    storage.put(loop, Entry("loop", (0,), LoopEntry(state=b"\2")))
    storage.close_group()
    commits = []
    while storage.is_dirty():
        commits.append(storage.gather(room))
        storage.settled(0, None)
    for commit in commits:
        put = {key for key, _ in commit.puts}
        assert (loop in put) == (keys.document_key(loop) in put) == bool(commit.ranges)
    assert storage.documents.current == Document(1, b"d" * 900)
    storage.remove(loop)
    assert keys.document_key(loop) in storage.gather().deletes
    assert storage.documents.current == EMPTY


def test_what_could_not_be_committed_is_gathered_again() -> None:
    storage = Storage()
    key = keys.entry_key((0,))
    storage.put(key, Entry("step", (0,), StepEntry(output=b"\0")))
    storage.put_document(key, Document(1, b"d"))
    first = storage.gather()
    storage.restore()
    assert storage.gather().puts == first.puts
    storage.settled(0, None)
    storage.put(key, Entry("step", (0,), StepEntry(output=b"\1")))
    assert keys.document_key(key) not in dict(storage.gather().puts)
