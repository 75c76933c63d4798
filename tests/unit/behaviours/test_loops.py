"""Loops: state carried from iteration to iteration, what is pruned and when, and where a loop resumes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from engine import Break, Continue
from engine.errors import LoopResultError
from engine.location import LoopIteration

if TYPE_CHECKING:
    from engine import Context
    from tests.unit.behaviours.world import Counter, World


def counts(rounds: int, **options: Any) -> Any:
    async def workflow(ctx: Context, _given: Any) -> Any:
        async def body(inner: Context, state: int) -> Any:
            await inner.step("work", lambda: None)
            return Break(state) if state >= rounds else Continue(state + 1)

        return await ctx.loop("count", body, state=0, **options)

    return workflow


def kept(world: World) -> set[int]:
    return {
        segment.iteration
        for entry in world.entries()
        for segment in entry.location
        if isinstance(segment, LoopIteration)
    }


async def test_a_loop_carries_its_state_until_it_breaks(world: World) -> None:
    assert (await world.through(counts(3))).output == 3


@pytest.mark.parametrize("last", [Continue(None), None])
async def test_a_loop_without_state_may_return_nothing(world: World, last: Any, count: Counter) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        async def body(inner: Context) -> Any:
            turn = await inner.step("turn", lambda: count.note("turn"))
            return Break("done") if turn >= 3 else last

        return await ctx.loop("turns", body)

    assert (await world.through(workflow)).output == "done"
    assert count["turn"] == 3


async def test_a_loop_with_state_must_return_one(world: World) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        async def body(_inner: Context, _state: int) -> Any:
            return None

        return await ctx.loop("turns", body, state=0)

    with pytest.raises(LoopResultError, match="turns"):
        await world.through(workflow)


@pytest.mark.parametrize("value", [None, 0, "out"])
async def test_a_loop_that_is_over_is_not_entered_again(world: World, value: Any, count: Counter) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        async def body(_inner: Context) -> Any:
            count.note("body")
            return Break(value)

        found = await ctx.loop("once", body)
        await ctx.sleep("nap", 60)
        return found

    assert (await world.through(workflow)).output == value
    assert count["body"] == 1


async def test_an_error_in_a_body_is_an_error_of_the_workflow(world: World) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        async def body(_inner: Context, _state: int) -> Any:
            raise ValueError("in the body")

        return await ctx.loop("fails", body, state=0)

    with pytest.raises(ValueError, match="in the body"):
        await world.through(workflow)


# --- what is kept -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rounds", "options", "expected"),
    [
        (4, {"history_prune_interval": 2}, {3, 4}),
        (5, {"history_prune_interval": 3}, {3, 4, 5}),
        (2, {"history_prune_interval": 10}, {0, 1, 2}),
        (3, {"history_prune_interval": 1}, {3}),
        (8, {"history_prune_interval": 3, "history_size": 5}, {4, 5, 6, 7, 8}),
    ],
)
async def test_old_iterations_are_pruned(
    world: World, rounds: int, options: dict[str, int], expected: set[int]
) -> None:
    assert (await world.through(counts(rounds, **options))).output == rounds
    assert kept(world) == expected


async def test_no_iteration_is_deleted_twice(world: World) -> None:
    await world.through(counts(8, history_prune_interval=3))

    ranges = [span for commit in world.driver.commits for span in commit.ranges]
    assert len(ranges) == len(set(ranges)) == 2


async def test_iterations_are_pruned_by_default_every_twenty(yielding: World) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        async def body(inner: Context, state: int) -> Any:
            await inner.step("work", lambda: None)
            if state == 40:
                await inner.sleep("nap", 60)
            return Continue(state + 1)

        return await ctx.loop("long", body, state=0)

    assert (await yielding.once(workflow)).state == "sleeping"
    assert kept(yielding) == set(range(20, 41))


# --- where it resumes -------------------------------------------------------------------------------------------------


async def test_a_loop_resumes_at_its_stored_iteration(yielding: World) -> None:
    seen: list[int] = []

    async def workflow(ctx: Context, _given: Any) -> Any:
        async def body(inner: Context, state: int) -> Any:
            seen.append(state)
            if state == 3:
                await inner.sleep("nap", 60)
            return Break(state) if state >= 5 else Continue(state + 1)

        return await ctx.loop("resumed", body, state=0, history_prune_interval=2)

    await yielding.once(workflow)
    seen.clear()
    yielding.clock.advance(60)

    assert (await yielding.once(workflow)).output == 5
    assert seen == [3, 4, 5]


async def test_loops_inside_loops_resume_where_they_were(world: World, count: Counter) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        async def outer(command: Context, done: list[str]) -> Any:
            message = await command.queue.next("next", names=["work"], completable=True)

            async def inner(item: Context, index: int) -> Any:
                if index == len(message.body):
                    return Break(None)
                await item.step("item", lambda: count.note(message.body[index]))
                return Continue(index + 1)

            await command.loop("items", inner, state=0)
            await message.complete("ok")
            done = [*done, *message.body]
            return Break(done) if len(done) >= 3 else Continue(done)

        return await ctx.loop("commands", outer, state=[])

    await world.send("work", ["a", "b"])
    handle = world.start(workflow)
    await world.settle()
    assert (count["a"], count["b"]) == (1, 1)
    await handle.message("work", ["c"])

    assert (await world.drive(handle, workflow)).output == ["a", "b", "c"]
    assert (count["a"], count["b"], count["c"]) == (1, 1, 1)


async def test_joins_inside_loops_resume_where_they_were(world: World, count: Counter) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        async def outer(command: Context, done: list[str]) -> Any:
            message = await command.queue.next("next", names=["work"], completable=True)

            def branch(item: str) -> Any:
                return lambda inner: inner.step("item", count.giving(item, item))

            joined = await command.join("items", {item: branch(item) for item in message.body})
            await message.complete("ok")
            done = [*done, *joined.values()]
            return Break(done) if len(done) >= 3 else Continue(done)

        return await ctx.loop("commands", outer, state=[])

    await world.send("work", ["a", "b"])
    handle = world.start(workflow)
    await world.settle()
    await handle.message("work", ["c"])

    assert (await world.drive(handle, workflow)).output == ["a", "b", "c"]
    assert (count["a"], count["b"], count["c"]) == (1, 1, 1)


async def test_races_inside_loops_resume_where_they_were(world: World, count: Counter) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        async def outer(command: Context, done: list[str]) -> Any:
            message = await command.queue.next("next", names=["work"])

            async def slow(inner: Context) -> None:
                await inner.abort_signal.wait()

            found = await command.race(
                "first",
                {"fast": lambda inner: inner.step("item", count.giving(message.body, message.body)), "slow": slow},
            )
            done = [*done, found.value]
            return Break(done) if len(done) >= 2 else Continue(done)

        return await ctx.loop("commands", outer, state=[])

    await world.send("work", "a")
    handle = world.start(workflow)
    await world.settle()
    await handle.message("work", "b")

    assert (await world.drive(handle, workflow)).output == ["a", "b"]
    assert (count["a"], count["b"]) == (1, 1)
