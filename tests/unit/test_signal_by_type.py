"""Signals by type and tags in memory: to the first that has not ended, also where that ends meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from engine import Context, Registry, WorkflowState, workflow
from engine.entry import EntryStatus
from engine.errors import DriverError, WorkflowNotFoundError
from engine.testing import MemoryWorld
from tests.unit.bench import Bench
from tests.unit.test_signal import output, receiver


async def by_tags(ctx: Context, given: dict[str, Any]) -> list[Any]:
    said: list[Any] = []
    try:
        said.append(await ctx.signal("news", 1, type="receiver", tags=given["tags"], missing=given["missing"]))
    except WorkflowNotFoundError as error:
        said.append(str(error))
    await ctx.sleep("wait", 3600)
    return said


def tagged() -> MemoryWorld:
    world = MemoryWorld()
    for workflow_id, tags in {"b": {"shop": "7", "floor": "1"}, "a": {"shop": "8"}, "c": {"shop": "7"}}.items():
        world.start(workflow_id, receiver, 1, tags=tags)
    return world


@pytest.mark.parametrize(
    ("tags", "target"), [({"shop": "7"}, "b"), ({"floor": "1", "shop": "7"}, "b"), ({"shop": "8"}, "a"), (None, "a")]
)
async def test_a_signal_goes_to_the_first_that_has_the_tags(tags: dict[str, str] | None, target: str) -> None:
    world = tagged()
    world.start("here", by_tags, {"tags": tags, "missing": "error"})
    await world.drive()
    assert output(world, "here") == [True]
    assert [one for one in "abc" if world.state(one) is WorkflowState.COMPLETED] == [target]
    assert len(world.drivers["here"].commits) == 2


@pytest.mark.parametrize(
    ("missing", "said"),
    [("error", "no workflow of type 'receiver' with shop=9 is there that has not ended"), ("ignore", False)],
)
async def test_nobody_has_the_tags(missing: str, said: Any) -> None:
    world = tagged()
    world.start("here", by_tags, {"tags": {"shop": "9"}, "missing": missing})
    await world.run("here")
    # It is not looked for again.
    world.start("d", receiver, 1, tags={"shop": "9"})
    await world.drive()
    assert output(world, "here") == [said]
    assert world.state("d") is WorkflowState.SLEEPING


async def test_who_ends_after_it_was_found_is_passed_over() -> None:
    world = tagged()

    async def end(operation: str, phase: str) -> None:
        if (operation, phase) == ("find", "after") and world.state("b") is not WorkflowState.COMPLETED:
            world.send("b", "news", "first")
            await world.run("b")

    world.start("here", by_tags, {"tags": {"shop": "7"}, "missing": "error"})
    world.drivers["here"].on_call = end
    await world.drive()
    assert output(world, "here") == [True]
    assert (output(world, "b"), output(world, "c")) == (["first"], [1])


async def test_who_has_ended_and_is_still_found_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    world = tagged()
    world.send("b", "news", "first")
    await world.run("b")
    # As an index that is a moment late.
    monkeypatch.setattr(world, "find", lambda _type, _tags, limit: ["b", "c"][:limit])
    world.start("here", by_tags, {"tags": {"shop": "7"}, "missing": "error"})
    await world.drive()
    assert output(world, "here") == [True]
    assert output(world, "c") == [1]


async def test_those_who_always_end_first_are_given_up() -> None:
    world = tagged()
    world.start("here", by_tags, {"tags": {"shop": "7"}, "missing": "error"})

    async def end(operation: str, phase: str) -> None:
        if (operation, phase) == ("find", "before"):
            world.start(f"b-{len(world.drivers)}", receiver, 1, tags={"shop": "7"})
        elif operation == "find":
            for one in world.find("receiver", {"shop": "7"}, 9):
                world.send(one, "news", "first")
                await world.run(one)

    world.drivers["here"].on_call = end
    await world.drive()
    assert output(world, "here") == ["no workflow of type 'receiver' with shop=7 is there that has not ended"]
    assert Bench(world.drivers["here"]).metadata("signal:news").status is EntryStatus.EXHAUSTED


@pytest.mark.parametrize("phase", ["before", "after"])
@pytest.mark.parametrize("crash_at", range(1, 9))
async def test_no_crash_doubles_a_signal_by_tags(phase: str, crash_at: int) -> None:
    world = tagged()
    world.start("here", by_tags, {"tags": {"shop": "7"}, "missing": "error"})
    calls = [0]

    def crash(_operation: str, when: str) -> None:
        calls[0] += when == phase
        if when == phase and calls[0] == crash_at:
            raise ConnectionError("crash")

    world.drivers["here"].on_call = crash
    await world.drive()
    if isinstance(world.results["here"], ConnectionError):
        await world.run("here")
        await world.drive()
    assert output(world, "here") == [True]
    assert output(world, "b") == [1]
    assert world.state("c") is WorkflowState.SLEEPING


@workflow("listener", registry=Registry())
async def listener(ctx: Context, count: int) -> list[Any]:
    bodies: list[Any] = await receiver(ctx, count)
    return bodies


async def test_a_child_can_be_signalled_as_soon_as_it_is_dispatched() -> None:
    async def parent(ctx: Context, _given: Any) -> list[Any]:
        child = await ctx.dispatch(listener, 2)
        await ctx.signal("news", "by id", to=child)
        await ctx.signal("news", "by type", type=listener)
        bodies: list[Any] = await ctx.output(child)
        return bodies

    world = MemoryWorld(workflows=[listener])
    world.start("here", parent)
    await world.drive()
    assert output(world, "here") == ["by id", "by type"]


async def test_a_child_can_be_found_as_soon_as_it_is_dispatched() -> None:
    async def parent(ctx: Context, _given: Any) -> Any:
        child = await ctx.dispatch(listener, 1)
        await ctx.signal("news", "by type", type=listener)
        bodies: list[Any] = await ctx.output(child)
        return bodies

    world = MemoryWorld(workflows=[listener])
    world.start("here", parent)
    await world.drive()
    assert output(world, "here") == ["by type"]


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({}, TypeError, "either to="),
        ({"to": "a", "type": "receiver"}, TypeError, "either to="),
        ({"to": "a", "tags": {"shop": "7"}}, TypeError, "tags= goes with type="),
        ({"to": 7}, TypeError, "a str, not 7"),
        ({"to": "a", "missing": "ignored"}, ValueError, '"error" or "ignore", not'),
        ({"type": receiver}, TypeError, "register 'receiver' with @workflow"),
        ({"type": "receiver", "tags": {"shop": 7}}, TypeError, "write numbers as texts"),
        ({"type": "receiver"}, DriverError, "one workflow alone"),
    ],
)
async def test_mistakes_say_what_to_do(options: dict[str, Any], error: type[Exception], match: str) -> None:
    async def parent(ctx: Context, _given: Any) -> None:
        await ctx.signal("news", 1, **options)

    with pytest.raises(error, match=match):
        await Bench().once(parent)
