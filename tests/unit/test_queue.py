"""The queue: what is taken, recorded, given back, and who is woken by it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine import (
    Break,
    Context,
    Continue,
    MessageNotCompletedError,
    QueueTimeoutError,
    WorkflowState,
    values,
)
from engine.entry import MessageEntry, SleepEntry, SleepState, StepEntry
from engine.errors import DriverError, StoreUnavailableError
from tests.unit.bench import Bench


async def test_the_oldest_of_the_wanted_names_come_first_up_to_count() -> None:
    bench = Bench()
    for name, body in [("a", 1), ("b", 2), ("a", 3), ("c", 4)]:
        bench.send(name, body)

    async def work(ctx: Context) -> Any:
        some = await ctx.queue.next_batch("some", ["c", "a"], count=2)
        rest = await ctx.queue.next_batch("rest", count=9)
        return [[one.body for one in some], [one.name for one in rest]]

    assert (await bench.once(work)).output == [[1, 3], ["b", "c"]]
    assert bench.driver.messages == []
    kinds = {place: entry.kind for place, entry in bench.entries().items()}
    count = kinds["some:count"]
    assert isinstance(count, MessageEntry)
    assert (count.name, values.decode(count.data)) == ("c|a:count", 2)
    assert isinstance(kinds["rest:count"], MessageEntry)
    assert kinds["rest:count"].name == "*:count"


async def test_messages_leave_the_inbox_in_the_very_commit_that_records_them() -> None:
    bench = Bench()
    bench.send("a", 1, id="m")

    async def work(ctx: Context) -> Any:
        await ctx.queue.next("n", "a")
        await ctx.sleep("s", 60)

    await bench.once(work)
    (commit,) = [commit for commit in bench.driver.commits if commit.consumed]
    places = {entry.location for entry in bench.entries().values()}
    assert commit.consumed == ["m"]
    assert len(places) == 3
    assert sum(key.hex().startswith("1502") for key, _ in commit.puts) >= 2


async def test_the_deadline_is_fixed_when_it_is_first_reached_and_its_end_is_history() -> None:
    bench = Bench()
    start = bench.clock.now()

    async def work(ctx: Context) -> Any:
        first = [one.body for one in await ctx.queue.next_batch("first", "a", timeout=10)]
        seen = ctx.now()
        await ctx.step("between", bench.giving("between"))
        await ctx.sleep("s", 60)
        return [first, int(seen.timestamp() * 1000)]

    result = await bench.once(work)
    assert (result.sleep_until, result.waiting_for_messages) == (start + 10_000, ["a"])
    bench.clock.advance(4)
    assert (await bench.once(work)).sleep_until == start + 10_000
    bench.clock.advance(6)
    await bench.once(work)
    assert bench.entries()["first:deadline"].kind == SleepEntry(deadline=start + 10_000, state=SleepState.COMPLETED)
    bench.send("a", "late")
    assert (await bench.through(work)).output == [[], start + 10_000]
    assert [message.name for message in bench.driver.messages] == ["a"]


@pytest.mark.parametrize(("before", "after"), [(60, None), (None, 60)])
async def test_a_timeout_may_be_dropped_or_given_in_a_deploy(before: float | None, after: float | None) -> None:
    bench = Bench()

    def code(timeout: float | None) -> Any:
        async def work(ctx: Context) -> list[str]:
            first = await ctx.queue.next_batch("first", "a", timeout=timeout)
            second = await ctx.queue.next_batch("second", "b", timeout=timeout)
            return [one.name for one in first + second]

        return work

    bench.send("a")
    await bench.once(code(before))
    waiting = await bench.once(code(after))
    assert (waiting.sleep_until is None, waiting.waiting_for_messages) == (after is None, ["b"])
    bench.clock.advance(50)
    bench.send("b")
    assert (await bench.once(code(after))).output == ["a", "b"]
    assert (await bench.once(code(after))).output == ["a", "b"]


async def test_next_raises_past_its_deadline_and_can_be_caught() -> None:
    bench = Bench()

    async def work(ctx: Context) -> Any:
        try:
            await ctx.queue.next("n", "a", timeout=1)
        except QueueTimeoutError as error:
            return str(error)
        return "a message"

    assert "use queue.next_batch for optional reads" in str((await bench.through(work)).output)


async def test_at_the_deadline_it_looks_once_more() -> None:
    bench = Bench()

    async def work(ctx: Context) -> Any:
        async def slow(inner: Context) -> None:
            await inner.step("slow", bench.giving("slow", takes_s=10))

        async def wait(inner: Context) -> Any:
            return (await inner.queue.next("n", "a", timeout=5)).body

        return await ctx.join("j", {"slow": slow, "wait": wait})

    handle = bench.start(work)
    await bench.idle(handle)
    bench.clock.advance(1)
    # Accepted while the run works: nobody has told it.
    bench.send("a", "in time")
    assert (await bench.finish(handle)).output == {"slow": None, "wait": "in time"}


async def test_who_waits_in_memory_is_woken_by_the_look_of_a_sibling() -> None:
    bench = Bench()

    async def work(ctx: Context) -> Any:
        async def first(inner: Context) -> Any:
            return (await inner.queue.next("n", "a")).body

        async def second(inner: Context) -> Any:
            return [one.body for one in await inner.queue.next_batch("n", "b", timeout=1)]

        async def busy(inner: Context) -> None:
            await inner.step("busy", bench.giving("busy", takes_s=3))

        return await ctx.join("j", {"first": first, "second": second, "busy": busy})

    handle = bench.start(work)
    await bench.idle(handle)
    bench.send("a", "for the first")
    result = await bench.finish(handle)
    assert result.output == {"first": "for the first", "second": [], "busy": None}


async def test_what_a_workflow_sends_reaches_a_sibling_that_waits_already() -> None:
    bench = Bench()

    async def work(ctx: Context) -> Any:
        async def receive(inner: Context) -> Any:
            return (await inner.queue.next("n", "own")).body

        async def send(inner: Context) -> None:
            await inner.step("first", bench.giving("first"))
            await inner.queue.send("own", "hello")

        return await ctx.join("j", {"receive": receive, "send": send})

    assert (await bench.once(work)).output == {"receive": "hello", "send": None}


async def test_a_sent_message_is_recorded_as_a_step_and_not_repeated() -> None:
    bench = Bench()

    async def work(ctx: Context) -> Any:
        await ctx.queue.send("x", 1)
        await ctx.queue.send("x", 2)
        await ctx.sleep("s", 60)
        return [one.body for one in await ctx.queue.next_batch("n", "x", count=9)]

    assert (await bench.through(work)).output == [1, 2]
    kinds = bench.entries()
    assert isinstance(kinds["send:x"].kind, StepEntry)
    assert isinstance(kinds["send:x:2"].kind, StepEntry)
    assert bench.driver.messages == []


async def test_a_completable_message_stays_until_it_is_completed() -> None:
    bench = Bench()
    bench.send("ask", 2, id="m")
    bench.send("ask", 3)

    async def work(ctx: Context) -> Any:
        message = await ctx.queue.next("n", "ask", completable=True)
        await ctx.step("s", bench.giving("s"))
        await ctx.sleep("wait", 60)
        await message.complete({"double": message.body * 2})
        await ctx.sleep("wait more", 60)
        return message.body

    await bench.once(work)
    assert bench.driver.messages[0].id == "m"
    assert (await bench.through(work)).output == 2
    assert [message.id for message in bench.driver.messages] == ["m2"]
    assert values.decode(bench.driver.message_driver.replies["m"] or b"") == {"double": 4}
    assert sum(len(commit.replies) for commit in bench.driver.commits) == 1


async def test_the_next_message_is_refused_while_one_is_open_and_a_second_reply_too() -> None:
    bench = Bench()
    bench.send("ask")
    bench.send("ask")

    async def work(ctx: Context) -> Any:
        message = await ctx.queue.next("a", "ask", completable=True)
        with pytest.raises(MessageNotCompletedError, match=r"await message.complete"):
            await ctx.queue.next("b", "ask")
        await message.complete()
        with pytest.raises(MessageNotCompletedError, match="completed already"):
            await message.complete()
        return (await ctx.queue.next("c", "ask")).id

    assert (await bench.once(work)).output == "m2"


@pytest.mark.parametrize("body", [None, 0, "", {}, False, []])
async def test_an_empty_body_is_a_message(body: Any) -> None:
    bench = Bench()
    bench.send("a", body)

    async def work(ctx: Context) -> Any:
        found = [one.body for one in await ctx.queue.next_batch("n", "a", timeout=1)]
        await ctx.sleep("s", 60)
        return found

    result = await bench.through(work)
    assert result.output == [body]
    assert type(result.output[0]) is type(body)


async def test_a_message_is_taken_once_though_two_branches_want_it() -> None:
    bench = Bench()
    bench.send("a", 1)

    async def take(ctx: Context) -> Any:
        return (await ctx.queue.next("n", "a")).body

    result = await bench.once(lambda ctx: ctx.join("j", {"x": take, "y": take}))
    assert result.state is WorkflowState.SLEEPING
    bench.send("a", 2)
    result = await bench.once(lambda ctx: ctx.join("j", {"x": take, "y": take}))
    assert sorted((result.output or {}).values()) == [1, 2]


async def test_a_store_that_fails_while_it_is_asked_is_no_error_of_the_workflow() -> None:
    bench = Bench()
    stored = bench.driver.dump()

    def fail(operation: str, _phase: str) -> None:
        if operation == "receive":
            raise OSError("the network")

    async def work(ctx: Context) -> Any:
        try:
            return (await ctx.queue.next("n", "a")).body
        except Exception:  # noqa: BLE001 - it must not be caught here
            return "caught"

    bench.driver.on_call = fail
    with pytest.raises(OSError, match="the network"):
        await bench.once(work)
    assert bench.driver.dump() == stored
    bench.driver.on_call = None
    bench.send("a", 1)
    assert (await bench.once(work)).output == 1


@pytest.mark.parametrize("error", [StoreUnavailableError("gone"), DriverError("odd"), ValueError("foreign")])
async def test_a_failed_commit_rolls_nothing_back_and_the_next_run_goes_on(error: Exception) -> None:
    bench = Bench()
    undone = []

    async def work(ctx: Context) -> Any:
        await ctx.rollback_checkpoint("cp")
        await ctx.step("a", bench.giving("a"), rollback=lambda _ctx, _output: undone.append("a"))
        bench.driver.on_call = broken if not bench.runs["b"] else None
        await ctx.step("b", bench.giving("b"))
        await ctx.step("c", bench.giving("c"))

    def broken(operation: str, phase: str) -> None:
        if (operation, phase) == ("commit", "before") and bench.runs["b"]:
            raise error

    with pytest.raises(type(error)):
        await bench.once(work)
    assert undone == []
    assert bench.state() == "running"
    bench.driver.on_call = None
    assert (await bench.once(work)).state is WorkflowState.COMPLETED
    assert bench.runs == {"a": 1, "b": 2, "c": 1}


@pytest.mark.parametrize("mode", ["yield", "live"])
async def test_a_loop_of_messages_keeps_their_order(mode: Any) -> None:
    bench = Bench()
    for number in range(50):
        bench.send("n", number)

    async def body(ctx: Context, seen: list[int]) -> Any:
        seen = [*seen, (await ctx.queue.next("m", "n")).body]
        return Break(seen) if len(seen) == 50 else Continue(seen)

    assert (await bench.once(lambda ctx: ctx.loop("l", body, []), mode=mode)).output == list(range(50))


async def test_a_message_that_a_sibling_has_read_while_a_look_was_answered_is_not_slept_beside() -> None:
    bench = Bench()
    answering, has_looked = asyncio.Event(), asyncio.Event()

    async def late(operation: str, phase: str) -> None:
        if (operation, phase) == ("receive", "after") and not answering.is_set():
            answering.set()
            await has_looked.wait()

    async def first(ctx: Context) -> Any:
        return (await ctx.queue.next("q", "wanted")).body

    async def second(ctx: Context) -> None:
        await answering.wait()
        bench.send("wanted", 1)
        # Whoever sends to itself has the inbox read anew.
        await ctx.queue.send("other", None)
        has_looked.set()

    bench.driver.on_call = late
    result = await bench.once(lambda ctx: ctx.join("j", {"first": first, "second": second}))
    assert result.output == {"first": 1, "second": None}
