"""Dispatches in memory: a start rides in the commit that records it, and happens once."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from typing import Any

import pytest

from engine import Break, ChildId, Context, JoinError, Registry, WorkflowResult, WorkflowState, run_workflow, workflow
from engine.entry import EntryStatus
from engine.errors import CriticalError, DriverError, InvalidIdError, StartConflictError, UnknownTypeError
from engine.handle import recover_workflow
from engine.testing import MemoryDriver, MemoryWorld
from tests.unit.bench import Bench

OWN = Registry()


@workflow("echo", registry=OWN)
async def echo(ctx: Context, given: Any) -> Any:
    return await ctx.step("say", say, given)


@workflow("waiter", registry=OWN)
async def waiter(ctx: Context, given: Any) -> Any:
    return [given, (await ctx.queue.next("wait", "go")).body]


@workflow("broken", registry=OWN)
async def broken(_ctx: Context, given: str) -> None:
    raise ValueError(given)


async def say(value: Any) -> Any:
    return value


def world_of(parent: Any, given: Any = None, **options: Any) -> MemoryWorld:
    world = MemoryWorld(registry=OWN, **options)
    world.start("parent", parent, given)
    return world


def output(world: MemoryWorld, workflow_id: str = "parent") -> Any:
    result = world.results[workflow_id]
    assert isinstance(result, WorkflowResult), result
    return result.output


def children(world: MemoryWorld) -> list[str]:
    return [workflow_id for workflow_id in world.drivers if workflow_id != "parent"]


# --- one start -------------------------------------------------------------------------------------------------------


async def test_a_child_is_started_in_the_commit_that_records_it() -> None:
    async def parent(ctx: Context, _given: Any) -> str:
        await ctx.step("before", say, 1)
        child = await ctx.dispatch(echo, "hello")
        await ctx.step("after", say, 2)
        return child

    world = world_of(parent)
    await world.drive()
    (child,) = children(world)
    assert output(world) == child
    assert output(world, child) == "hello"
    bench = Bench(world.drivers["parent"])
    entry = bench.entries()["dispatch:echo"]
    assert entry.id == child
    assert bench.metadata("dispatch:echo").status is EntryStatus.COMPLETED
    commits = world.drivers["parent"].commits
    # It rides with the next operation's commit, as the result of the step before it does.
    assert [len(commit.children) for commit in commits] == [1, 0]


@pytest.mark.parametrize("tags", [None, {"of": "all"}])
async def test_many_dispatches_and_a_sleep_are_one_commit(tags: dict[str, str] | None) -> None:
    async def parent(ctx: Context, _given: Any) -> list[str]:
        ids: list[str] = [await ctx.dispatch("echo", number, tags=tags) for number in range(5)]
        await ctx.sleep("wait", 3600)
        return ids

    world = world_of(parent)
    await world.run("parent")
    assert [len(commit.children) for commit in world.drivers["parent"].commits] == [5]
    await world.drive()
    assert output(world) == children(world)
    assert [output(world, child) for child in children(world)] == list(range(5))
    names = set(Bench(world.drivers["parent"]).entries())
    assert names == {"dispatch:echo", *(f"dispatch:echo:{number}" for number in range(2, 6)), "wait"}


async def test_a_dispatch_is_not_repeated_by_replays() -> None:
    async def parent(ctx: Context, _given: Any) -> list[str]:
        ids: list[str] = [await ctx.dispatch(echo, 1, name="one")]
        for number in range(3):
            await ctx.sleep(f"wait-{number}", 3600)
        ids.append(await ctx.dispatch(echo, 2, name="two"))
        return ids

    world = world_of(parent)
    await world.drive()
    assert output(world) == children(world)
    assert len(children(world)) == 2


@pytest.mark.parametrize("phase", ["before", "after"])
@pytest.mark.parametrize("crash_at", range(1, 8))
async def test_no_crash_loses_or_doubles_a_start(phase: str, crash_at: int) -> None:
    async def parent(ctx: Context, _given: Any) -> str:
        await ctx.step("first", say, 1)
        await ctx.dispatch(echo, 1)
        await ctx.dispatch(echo, 2, id="two")
        await ctx.step("second", say, 1)
        await ctx.dispatch(echo, 3, unique=True)
        await ctx.sleep("wait", 3600)
        await ctx.dispatch(echo, 4)
        return "done"

    world = world_of(parent)
    calls = [0]

    def crash(operation: str, when: str) -> None:
        if operation in ("commit", "list", "refresh") and when == phase:
            calls[0] += 1
            if calls[0] == crash_at:
                raise ConnectionError("crash")

    world.drivers["parent"].on_call = crash
    await world.drive()
    while isinstance(world.results["parent"], ConnectionError):
        await world.run("parent")
        await world.drive()
    assert output(world) == "done"
    assert sorted(output(world, child) for child in children(world)) == [1, 2, 3, 4]


async def test_a_commit_is_divided_between_starts() -> None:
    async def parent(ctx: Context, _given: Any) -> list[str]:
        ids: list[str] = [await ctx.dispatch(echo, number) for number in range(25)]
        await ctx.sleep("wait", 3600)
        return ids

    world = world_of(parent)
    world.drivers["parent"].commit_messages_max = 9  # type: ignore[attr-defined]  # as a store with a limit declares it
    await world.drive()
    commits = world.drivers["parent"].commits
    assert [len(commit.children) for commit in commits if commit.children] == [3] * 8 + [1]
    for commit in commits:
        written = b"".join(value for _, value in commit.puts)
        assert all(child.workflow_id.encode() in written for child in commit.children)
    assert output(world) == children(world)


async def test_children_are_started_by_a_workflow_that_ends_at_once() -> None:
    async def parent(ctx: Context, _given: Any) -> None:
        await ctx.dispatch(echo, 1)

    world = world_of(parent)
    await world.drive()
    assert [output(world, child) for child in children(world)] == [1]


# --- ids -------------------------------------------------------------------------------------------------------------


async def test_an_id_of_ones_own_is_taken_once() -> None:
    async def parent(ctx: Context, _given: Any) -> list[str]:
        said: list[str] = [await ctx.dispatch(echo, 1, id="mine"), await ctx.dispatch(echo, 1, id="mine")]
        for what, given in ((echo, 2), (waiter, 1)):
            try:
                await ctx.dispatch(what, given, id="mine")
            except StartConflictError as error:
                said.append(f"{type(error).__name__}: {error}")
        await ctx.sleep("wait", 3600)
        return said

    world = world_of(parent)
    await world.drive()
    conflict = "StartConflictError: a workflow 'mine' exists already with another type or input"
    assert output(world) == ["mine", "mine", conflict, conflict]
    assert children(world) == ["mine"]
    assert Bench(world.drivers["parent"]).metadata("dispatch:echo:3").status is EntryStatus.EXHAUSTED


@pytest.mark.parametrize("is_refused", [False, True])
async def test_the_time_after_a_start_is_the_same_on_replay_refused_or_not(*, is_refused: bool) -> None:
    seen: list[Any] = []

    async def parent(ctx: Context, _given: Any) -> None:
        await ctx.sleep("first", 60)
        world.clock.advance(7)
        with contextlib.suppress(StartConflictError):
            await ctx.dispatch(echo, 1, id="mine")
        seen.append(ctx.now())
        await ctx.sleep("wait", 3600)

    world = world_of(parent)
    if is_refused:
        world.start("mine", waiter, 1)
    await world.drive()
    assert len(seen) == 2
    assert seen[0] == seen[1]


async def test_a_conflict_that_nobody_catches_fails_and_recovers() -> None:
    async def parent(ctx: Context, _given: Any) -> str:
        return await ctx.dispatch(echo, 1, id="mine")

    world = world_of(parent)
    world.start("mine", waiter, 1)
    await world.drive()
    assert isinstance(world.results["parent"], StartConflictError)
    del world.drivers["mine"], world._members["mine"], world.results["mine"]
    await recover_workflow("parent", world.drivers["parent"])
    await world.drive()
    assert output(world) == "mine"
    assert output(world, "mine") == 1


async def test_branches_that_start_the_same_agree() -> None:
    async def parent(ctx: Context, _given: Any) -> list[str]:
        async def branch(ctx: Context, number: int) -> str:
            return await ctx.dispatch(echo, number % 2, id="mine")

        try:
            return await ctx.map("all", range(4), branch)
        except JoinError as error:
            return [*error.errors, *{one.name for one in error.errors.values()}]

    for latency_s in (0.0, 0.001):
        world = world_of(parent)
        world.drivers["parent"].latency_s = latency_s
        await world.drive()
        assert output(world) == ["1", "3", "StartConflictError"]
        assert output(world, "mine") == 0


# --- one of a kind ---------------------------------------------------------------------------------------------------


async def unique_parent(ctx: Context, given: Any) -> str:
    return await ctx.dispatch(waiter, given, tags={"shop": "7"}, unique=True)


async def test_fifty_at_once_start_one() -> None:
    world = MemoryWorld(registry=OWN)
    for number in range(50):
        world.start(f"parent-{number}", unique_parent, number)
    await world.drive()
    ids = {output(world, f"parent-{number}") for number in range(50)}
    assert len(ids) == 1
    assert len(world.drivers) == 51


@pytest.mark.parametrize("latency_s", [0.0, 0.001])
async def test_fifty_branches_start_one(latency_s: float) -> None:
    async def parent(ctx: Context, _given: Any) -> list[str]:
        return await ctx.map("all", range(50), unique_parent, concurrency=50)

    world = world_of(parent)
    world.drivers["parent"].latency_s = latency_s
    await world.drive()
    assert len(set(output(world))) == 1
    assert len(children(world)) == 1


async def test_other_tags_are_another_one() -> None:
    async def parent(ctx: Context, _given: Any) -> list[str]:
        tags: list[dict[str, str]] = [{"shop": "7"}, {"shop": "8"}, {"shop": "7", "floor": "1"}, {}]
        return [await ctx.dispatch(waiter, 1, tags=each, unique=True) for each in tags * 2]

    world = world_of(parent)
    await world.drive()
    assert output(world)[:4] == output(world)[4:]
    assert len(children(world)) == 4


async def test_the_place_is_free_once_it_has_ended_or_was_cancelled_and_not_once_it_has_failed() -> None:
    async def parent(ctx: Context, _given: Any) -> list[str]:
        ids: list[str] = [await ctx.dispatch(broken, "first", unique=True)]
        await ctx.sleep("wait", 60)
        ids.append(await ctx.dispatch(broken, "second", unique=True))
        ids.append(await ctx.dispatch(broken, "third", unique=True, replace_failed=True))
        ids.append(await ctx.dispatch(echo, 1, unique=True))
        await ctx.sleep("wait-again", 60)
        ids.append(await ctx.dispatch(echo, 2, unique=True))
        return ids

    world = world_of(parent)
    await world.drive()
    first, second, third, fourth, fifth = output(world)
    assert first == second
    assert len({first, third, fourth, fifth}) == 4
    assert (output(world, fourth), output(world, fifth)) == (1, 2)


async def test_one_that_was_replaced_does_not_go_on_beside_the_one_in_its_place() -> None:
    world = MemoryWorld(registry=OWN)

    async def parent(ctx: Context, _given: Any) -> list[str]:
        first = await ctx.dispatch(broken, "first", unique=True)
        await ctx.sleep("wait", 60)
        return [first, await ctx.dispatch(broken, "second", unique=True, replace_failed=True)]

    world.start("parent", parent)
    await world.drive()
    first, second = output(world)
    with pytest.raises(StartConflictError, match=f"'{first}' is unique and cannot go on: '{second}'"):
        await recover_workflow(first, world.drivers[first])
    assert world.state(first) is WorkflowState.FAILED
    assert await recover_workflow(second, world.drivers[second])
    assert world.state(second) is WorkflowState.SLEEPING


async def test_one_whose_successor_has_ended_goes_on_and_has_its_place_again() -> None:
    verdict = ["no"]

    async def moody(_ctx: Context, _given: Any) -> str:
        if verdict[0] == "no":
            raise CriticalError("no")
        return verdict[0]

    async def parent(ctx: Context, _given: Any) -> str:
        return await ctx.dispatch("moody", unique=True, replace_failed=True, id="second")

    world = MemoryWorld(workflows=[workflow("moody", registry=Registry())(moody)])
    world.start("first", moody, unique=True)
    await world.drive()
    verdict[0] = "yes"
    world.start("parent", parent)
    await world.drive()
    assert (world.state("first"), world.state("second")) == (WorkflowState.FAILED, WorkflowState.COMPLETED)
    assert await recover_workflow("first", world.drivers["first"])
    assert world.start("third", moody, unique=True) == "first"


# --- in races and in scopes without names ----------------------------------------------------------------------------


async def test_what_a_loser_has_not_committed_is_not_started() -> None:
    async def parent(ctx: Context, _given: Any) -> str:
        async def loser(ctx: Context) -> str:
            await ctx.dispatch(echo, "lost")
            await asyncio.Event().wait()
            return "loser"

        async def winner(_ctx: Context) -> str:
            return "winner"

        return (await ctx.race("race", {"loser": loser, "winner": winner})).winner

    world = world_of(parent)
    await world.drive()
    assert output(world) == "winner"
    assert children(world) == []


async def test_scopes_without_names_may_dispatch_and_wait() -> None:
    async def parent(ctx: Context, _given: Any) -> list[Any]:
        await ctx.step(say, 1)
        child = await ctx.dispatch(echo, "hello")
        await ctx.sleep(3600)
        return [await ctx.output(child), await ctx.output(str(child))]

    world = world_of(parent)
    await world.drive()
    assert output(world) == ["hello", "hello"]
    names = Bench(world.drivers["parent"]).entries()
    assert {"dispatch:echo", "output:echo", "output:workflow"} <= set(names)


async def test_an_inserted_operation_has_a_place_and_a_dispatch_has_none() -> None:
    async def parent(ctx: Context, _given: Any) -> None:
        await ctx.v(2).dispatch(echo, 1)

    with pytest.raises(ValueError, match=r"ctx\.v\(n\)"):
        await Bench().once(parent)


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "error", "match"),
    [
        ((say, 1), {}, TypeError, "register 'say' with @workflow"),
        ((7, 1), {}, TypeError, "the name of a type, not 7"),
        (("", 1), {}, InvalidIdError, "no workflow type"),
        (("a/b", 1), {}, InvalidIdError, "no workflow type"),
        (("a?b", 1), {}, InvalidIdError, "no workflow type"),
        (("x" * 256, 1), {}, InvalidIdError, "255 bytes"),
        (("echo", 1), {"id": 5}, TypeError, "a str, not 5"),
        (("echo", 1), {"id": ""}, InvalidIdError, "1 to 255 bytes"),
        (("echo", 1), {"id": "schedule:daily"}, InvalidIdError, "would be a schedule"),
        (("echo", 1), {"id": "order-7/output"}, InvalidIdError, "would be read as another id"),
        (("echo", 1), {"id": "order?7"}, InvalidIdError, "must not contain '\\?'"),
        (("echo", 1), {"id": "order\n7"}, InvalidIdError, "holds a control character"),
        (("echo", 1), {"id": "wf-1"}, InvalidIdError, "workflow that dispatches"),
        (("echo", 1), {"tags": ["a"]}, TypeError, "mapping of texts"),
        (("echo", 1), {"tags": {"a": 1}}, TypeError, "write numbers as texts"),
        (("echo", 1), {"replace_failed": True}, ValueError, "unique=True"),
        (("echo", 1), {}, DriverError, "one workflow alone"),
    ],
)
async def test_mistakes_say_what_to_do(
    arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception], match: str
) -> None:
    async def parent(ctx: Context, _given: Any) -> None:
        await ctx.dispatch(*arguments, **options)

    with pytest.raises(error, match=match):
        await Bench().once(parent)


async def test_a_store_that_writes_piece_by_piece_cannot_start_others() -> None:
    async def parent(ctx: Context, _given: Any) -> None:
        await ctx.dispatch("echo", 1)

    with pytest.raises(DriverError, match="not atomic"):
        await run_workflow("parent", parent, None, MemoryDriver(atomic=False)).result


async def test_a_world_says_which_workflow_it_does_not_know() -> None:
    async def parent(ctx: Context, _given: Any) -> None:
        await ctx.dispatch("unheard-of", 1)

    world = world_of(parent)
    await world.drive()
    assert isinstance(world.results["parent"], UnknownTypeError)


async def test_a_world_may_be_given_its_workflows() -> None:
    @workflow("elsewhere", registry=Registry())
    async def elsewhere(_ctx: Context, given: int) -> int:
        return given + 1

    async def parent(ctx: Context, _given: Any) -> int:
        return await ctx.output(await ctx.dispatch(elsewhere, 1))

    world = MemoryWorld(workflows=[elsewhere])
    world.start("parent", parent)
    await world.drive()
    assert output(world) == 2
    assert world.state("parent") is WorkflowState.COMPLETED


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_the_id_of_a_child_is_copied_with_what_it_knows(copied: Any) -> None:
    made = copied(ChildId("id-1", "echo", list[int]))
    assert (type(made), made, made.workflow_type, made.returns) == (ChildId, "id-1", "echo", list[int])


async def test_the_id_of_a_child_is_read_back_where_it_is_declared() -> None:
    @workflow("label", registry=OWN)
    async def label(_ctx: Context, text: str) -> set[str]:
        return {text}

    async def parent(ctx: Context) -> list[set[str]]:
        async def start(inner: Context, text: str) -> ChildId[set[str]]:
            return await inner.dispatch(label, text)

        async def ends(inner: Context, child: ChildId[set[str]]) -> Break[set[str]]:
            return Break(await inner.output(child))

        children = await ctx.map("start", ["a", "b"], start)
        return [await ctx.output(children[0]), await ctx.loop("l", ends, children[1])]

    world = MemoryWorld(registry=OWN)
    world.start("parent", parent)
    await world.drive()
    assert output(world) == [{"a"}, {"b"}]


async def test_what_is_no_text_is_no_id_of_a_child() -> None:
    async def wrong(_ctx: Context) -> ChildId[int]:
        return 7  # type: ignore[return-value]

    bench = Bench()
    with pytest.raises(JoinError, match="a int is no id of a workflow"):
        await bench.once(lambda ctx: ctx.join("j", {"a": wrong}))
