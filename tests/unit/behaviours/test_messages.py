"""Messages: waited for by name, taken in order, once, and kept in the inbox until they are completed where asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from engine import Break, Continue, MessageNotCompletedError, QueueTimeoutError

if TYPE_CHECKING:
    from engine import Context
    from tests.unit.behaviours.world import Counter, World


def takes(*names: str, **options: Any) -> Any:
    async def take(ctx: Context, _given: Any) -> Any:
        messages = await ctx.queue.next_batch("take", names=list(names), **options)
        return [[message.name, message.body] for message in messages]

    return take


async def test_a_wait_says_what_it_waits_for(yielding: World) -> None:
    result = await yielding.once(takes("first", "second"))

    assert result.state == "sleeping"
    assert list(result.waiting_for_messages or ()) == ["first", "second"]
    assert result.sleep_until is None
    assert yielding.alarm is None


@pytest.mark.parametrize("names", [("go",), ("other", "go"), ()])
async def test_a_message_ends_the_wait(world: World, names: tuple[str, ...]) -> None:
    handle = world.start(takes(*names))
    await world.settle()
    await handle.message("go", {"n": 1})

    result = await world.drive(handle, takes(*names))

    assert result.output == [["go", {"n": 1}]]
    assert world.inbox() == []


async def test_a_message_that_is_there_already_is_taken_at_once(world: World) -> None:
    await world.send("go", "early")

    assert (await world.through(takes("go"))).output == [["go", "early"]]
    assert world.inbox() == []


async def test_other_messages_stay_in_the_inbox(world: World) -> None:
    await world.send("other", 1)
    await world.send("go", 2)

    assert (await world.through(takes("go"))).output == [["go", 2]]
    assert world.inbox() == ["other"]


async def test_messages_come_in_their_order_up_to_the_count(world: World) -> None:
    for body in ("one", "two", "three"):
        await world.send("go", body)

    result = await world.through(takes("go", count=2, timeout=1))

    assert result.output == [["go", "one"], ["go", "two"]]
    assert world.inbox() == ["go"]


async def test_a_batch_does_not_wait_for_its_full_count(world: World) -> None:
    handle = world.start(takes("go", count=2, timeout=5000))
    await world.settle()
    await handle.message("go", "one")

    assert (await world.drive(handle, takes("go", count=2, timeout=5000))).output == [["go", "one"]]


async def test_a_batch_past_its_deadline_is_empty(world: World) -> None:
    started = world.clock.now()

    assert (await world.through(takes("never", timeout=50))).output == []
    assert world.clock.now() == started + 50_000


async def test_a_timed_wait_sleeps_until_its_deadline_or_a_message(yielding: World) -> None:
    result = await yielding.once(takes("go", timeout=50))

    assert result.sleep_until == yielding.clock.now() + 50_000 == yielding.alarm
    assert list(result.waiting_for_messages or ()) == ["go"]


async def test_a_single_message_past_its_deadline_is_an_error(world: World) -> None:
    async def take(ctx: Context, _given: Any) -> None:
        await ctx.queue.next("take", names=["never"], timeout=50)

    with pytest.raises(QueueTimeoutError, match="take"):
        await world.through(take)


async def test_a_message_that_came_late_in_the_wait_is_taken_at_the_deadline(yielding: World) -> None:
    """The reference gives up at the deadline without looking; ours looks once more."""
    await yielding.once(takes("go", timeout=50))
    yielding.clock.advance(60)
    await yielding.send("go", "just in time")

    assert (await yielding.through(takes("go", timeout=50))).output == [["go", "just in time"]]


async def test_a_wait_that_timed_out_stays_timed_out(yielding: World, count: Counter) -> None:
    async def take(ctx: Context, _given: Any) -> Any:
        messages = await ctx.queue.next_batch("take", names=["go"], timeout=50)
        await ctx.step("after", count.giving("after", None))
        await ctx.sleep("nap", 100)
        return len(messages)

    await yielding.once(take)
    yielding.clock.advance(50)
    await yielding.once(take)
    await yielding.send("go", "too late")

    assert (await yielding.through(take)).output == 0
    assert yielding.inbox() == ["go"]


@pytest.mark.parametrize("body", [None, 0, "", {}, []])
async def test_an_empty_body_is_a_message_all_the_same(world: World, body: Any) -> None:
    await world.send("go", body)

    assert (await world.through(takes("go", timeout=50))).output == [["go", body]]


async def test_a_message_sent_while_a_step_runs_is_found(world: World) -> None:
    gate, started = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        started.set()
        await gate.wait()

    async def take(ctx: Context, _given: Any) -> Any:
        await ctx.step("gate", wait)
        return (await ctx.queue.next("take", names=["mid"])).body

    handle = world.start(take)
    await started.wait()
    await handle.message("mid", "value")
    gate.set()

    assert (await world.drive(handle, take)).output == "value"


async def test_a_message_of_a_past_iteration_is_not_seen_again(world: World) -> None:
    await world.send("loop", "first")
    seen: list[str] = []

    async def drain(ctx: Context, _given: Any) -> Any:
        async def body(inner: Context) -> Any:
            messages = await inner.queue.next_batch("wait", names=["loop"], timeout=50)
            if not messages:
                return Break(list(seen))
            seen.append(messages[0].body)
            return Continue(None)

        return await ctx.loop("drain", body)

    assert (await world.through(drain)).output == ["first"]
    assert seen == ["first"]


async def test_a_second_wait_does_not_see_what_the_first_took(world: World) -> None:
    await world.send("plain", "first")

    async def twice(ctx: Context, _given: Any) -> Any:
        first = await ctx.queue.next("first", names=["plain"])
        second = await ctx.queue.next_batch("second", names=["plain"], timeout=50)
        return [first.body, len(second)]

    assert (await world.through(twice)).output == ["first", 0]


async def test_a_message_is_taken_in_the_commit_that_records_it(world: World) -> None:
    """The reference takes a message before it has recorded it; ours does both in one commit."""
    await world.send("go", 1, id="m1")

    await world.through(takes("go"))

    [commit] = [commit for commit in world.driver.commits if "m1" in commit.consumed]
    assert any(b"m1" in value for _, value in commit.puts)


# --- completable messages ---------------------------------------------------------------------------------------------


async def test_a_completed_message_leaves_the_inbox_with_its_answer(world: World) -> None:
    await world.send("ask", "hello", id="m1")

    async def answer(ctx: Context, _given: Any) -> Any:
        message = await ctx.queue.next("take", names=["ask"], completable=True)
        assert world.inbox() == ["ask"]
        await message.complete({"ok": True})
        return message.body

    assert (await world.through(answer)).output == "hello"
    assert world.inbox() == []
    assert world.replies() == {"m1": {"ok": True}}


async def test_a_completed_message_does_not_hold_up_the_next(world: World) -> None:
    await world.send("ask", "one")
    await world.send("ask", "two")

    async def answers(ctx: Context, _given: Any) -> Any:
        first = await ctx.queue.next("first", names=["ask"], completable=True)
        await first.complete("done")
        await ctx.sleep("between", 120)
        second = await ctx.queue.next("second", names=["ask"], completable=True)
        await second.complete("done")
        return [first.body, second.body]

    assert (await world.through(answers)).output == ["one", "two"]
    assert world.inbox() == []


async def test_a_message_may_be_completed_inside_a_step(world: World) -> None:
    await world.send("ask", "one", id="m1")

    async def answers(ctx: Context, _given: Any) -> Any:
        message = await ctx.queue.next("take", names=["ask"], completable=True)

        async def complete() -> str:
            await message.complete("from a step")
            return "completed"

        done = await ctx.step("complete", complete)
        await ctx.sleep("between", 120)
        return done

    assert (await world.through(answers)).output == "completed"
    assert world.replies() == {"m1": "from a step"}


async def test_an_open_message_holds_up_the_next(world: World) -> None:
    await world.send("ask", "one")
    await world.send("ask", "two")

    async def forgets(ctx: Context, _given: Any) -> None:
        await ctx.queue.next("first", names=["ask"], completable=True)
        await ctx.sleep("between", 120)
        await ctx.queue.next("second", names=["ask"], completable=True)

    with pytest.raises(MessageNotCompletedError):
        await world.through(forgets)
    assert world.inbox() == ["ask", "ask"]


# --- sending ----------------------------------------------------------------------------------------------------------


async def test_the_same_id_counts_once_even_after_it_was_consumed(world: World) -> None:
    async def take(ctx: Context, _given: Any) -> Any:
        first = await ctx.queue.next("first")
        second = await ctx.queue.next_batch("second", timeout=5)
        return [first.body, len(second)]

    handle = world.start(take)
    await world.settle()
    await handle.message("go", 1, id="same")
    await handle.message("go", 1, id="same")
    await world.settle()
    if world.mode == "yield":
        await world.once(take)
    await handle.message("go", 1, id="same")

    handle = handle if world.mode == "live" else world.start(take)
    assert (await world.drive(handle, take)).output == [1, 0]


async def test_a_workflow_can_send_to_itself_once(yielding: World) -> None:
    """The reference sends again on every replay; ours records that it has sent."""

    async def loops_back(ctx: Context, _given: Any) -> Any:
        await ctx.queue.send("self", {"n": 1})
        await ctx.queue.send("self", {"n": 2})
        await ctx.sleep("nap", 60)
        messages = await ctx.queue.next_batch("take", names=["self"], count=9)
        return [message.body["n"] for message in messages]

    assert (await yielding.through(loops_back)).output == [1, 2]
    assert yielding.inbox() == []
    assert {"send:self", "send:self:2"} <= yielding.labels()
