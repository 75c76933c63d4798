"""Outputs of other workflows in memory: waited for without anybody polling, typed, and the same on replay."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, assert_type

import pytest

from engine import (
    Context,
    CriticalError,
    Registry,
    WorkflowResult,
    WorkflowState,
    keys,
    run_workflow,
    values,
    workflow,
)
from engine.entry import EntryStatus
from engine.errors import (
    DriverError,
    InvalidIdError,
    RecordedError,
    UnstorableValueError,
    WorkflowEndedError,
    WorkflowFailedError,
    WorkflowNotFoundError,
)
from engine.handle import recover_workflow
from engine.testing import MemoryDriver, MemoryWorld
from tests.unit.bench import Bench

OWN = Registry()


@dataclass(frozen=True)
class Parcel:
    weight: int


@dataclass(frozen=True)
class Label:
    text: str


class RefusedError(CriticalError):
    """As an author defines one."""


@workflow("ship", registry=OWN)
async def ship(ctx: Context, parcel: Parcel) -> Label:
    await ctx.sleep("truck", 3600)
    return Label(f"{parcel.weight} kg")


@workflow("waiter", registry=OWN)
async def waiter(ctx: Context, given: Any) -> Any:
    return [given, (await ctx.queue.next("wait", "go")).body]


@workflow("failing", registry=OWN)
async def failing(ctx: Context, kind: str) -> None:
    await ctx.sleep("wait", 3600)
    raise {"refused": RefusedError, "missing": WorkflowNotFoundError}.get(kind, ValueError)(f"because of {kind}")


async def say(value: Any) -> Any:
    return value


def world_of(parent: Any, given: Any = None) -> MemoryWorld:
    world = MemoryWorld(registry=OWN)
    world.start("parent", parent, given)
    return world


def output(world: MemoryWorld, workflow_id: str = "parent") -> Any:
    result = world.results[workflow_id]
    assert isinstance(result, WorkflowResult), result
    return result.output


class Calls:
    """What drivers are asked, by operation; a hook for each."""

    def __init__(self, *drivers: MemoryDriver) -> None:
        self.counts: Counter[str] = Counter()
        for driver in drivers:
            driver.on_call = self

    def __call__(self, operation: str, phase: str) -> None:
        self.counts[operation] += phase == "before"


# --- waiting ---------------------------------------------------------------------------------------------------------


async def test_a_parent_sleeps_until_its_child_has_ended() -> None:
    async def parent(ctx: Context, _given: Any) -> str:
        child = await ctx.dispatch(ship, Parcel(7))
        label = await ctx.output(child)
        assert isinstance(label, Label)
        await ctx.sleep("later", 60)
        return label.text

    world = world_of(parent)
    calls = Calls(world.drivers["parent"])
    await world.run("parent")
    result = world.results["parent"]
    assert isinstance(result, WorkflowResult)
    (child,) = set(world.drivers) - {"parent"}
    assert (result.state, result.sleep_until, result.waiting_for_messages) == (WorkflowState.SLEEPING, None, None)
    assert result.waiting_for_workflows == [child]
    commits = world.drivers["parent"].commits
    assert [(len(commit.children), commit.yields, commit.awaited) for commit in commits] == [
        (1, False, ()),
        (0, True, (child,)),
    ]
    await world.drive()
    assert output(world) == "7 kg"
    assert set(Bench(world.drivers["parent"]).entries()) == {"dispatch:ship", "output:ship", "later"}
    # Once before it slept, once after it was woken, and not again on replay.
    assert calls.counts["peek"] == 2


async def test_a_wait_costs_one_commit_and_the_output_rides_with_the_next() -> None:
    async def parent(ctx: Context, child: str) -> Any:
        await ctx.step("before", say, 1)
        value = await ctx.output(child)
        await ctx.step("after", say, 2)
        return value

    world = world_of(parent, "other")
    world.start("other", waiter, 1)
    await world.run("other")
    await world.run("parent")
    assert len(world.drivers["parent"].commits) == 1
    world.send("other", "go", 2)
    await world.drive()
    assert output(world) == [1, 2]
    # The wait with the first step, the output, the end with the second step.
    assert len(world.drivers["parent"].commits) == 3


async def test_what_has_ended_before_is_there_at_once() -> None:
    async def parent(ctx: Context, child: str) -> Any:
        return [await ctx.output(child, returns=Label), await ctx.output(child, returns=ship), await ctx.output(child)]

    world = MemoryWorld()
    world.start("other", ship, Parcel(1))
    await world.drive()
    world.start("parent", parent, "other")
    await world.drive()
    assert output(world) == [{"text": "1 kg"}] * 3
    assert set(Bench(world.drivers["parent"]).entries()) == {
        "output:workflow",
        "output:workflow:2",
        "output:workflow:3",
    }


async def test_an_end_between_the_look_and_the_sleep_is_not_missed() -> None:
    async def parent(ctx: Context, child: str) -> Any:
        return await ctx.output(child)

    world = world_of(parent, "other")
    world.start("other", waiter, 1)
    await world.run("other")
    peeks = [0]

    async def end(operation: str, phase: str) -> None:
        if (operation, phase) == ("peek", "after"):
            peeks[0] += 1
            if peeks[0] == 1:
                world.send("other", "go", 2)
                await run_workflow("other", waiter, None, world.drivers["other"], clock=world.clock).result

    world.drivers["parent"].on_call = end
    await world.run("parent")
    assert output(world) == [1, 2]
    assert peeks[0] == 2


async def test_live_mode_looks_at_the_interval_of_the_driver() -> None:
    async def parent(ctx: Context, child: str) -> Any:
        async def ticking(ctx: Context) -> None:
            for number in range(40):
                await ctx.sleep(f"tick-{number}", 0.05)

        async def waiting(ctx: Context) -> Any:
            return await ctx.output(child)

        return (await ctx.join("all", {"ticking": ticking, "waiting": waiting}))["waiting"]

    world = world_of(parent, "other")
    world.start("other", waiter, 1)
    await world.run("other")
    calls = Calls(world.drivers["parent"])
    bench = Bench(world.drivers["parent"])
    world.drivers["parent"].clock = bench.clock
    handle = bench.start(parent, "other", mode="live")
    await bench.idle(handle)
    for _ in range(20):
        bench.clock.advance(0.05)
        await bench.idle(handle)
    assert 8 <= calls.counts["peek"] <= 13
    world.send("other", "go", 2)
    await world.run("other")
    assert (await bench.finish(handle)).output == [1, 2]


# --- how it ended ----------------------------------------------------------------------------------------------------


async def told(ctx: Context, target: str) -> list[str]:
    said = []
    try:
        await ctx.output(target)
    except (WorkflowFailedError, WorkflowEndedError, WorkflowNotFoundError, CriticalError) as error:
        said.append(f"{type(error).__name__}: {error}")
    await ctx.sleep("wait", 10_000)
    return said


@pytest.mark.parametrize(
    ("kind", "expected", "stored"),
    [
        ("bad", "WorkflowFailedError: ValueError: because of bad", "WorkflowFailedError: ValueError: because of bad"),
        ("refused", "RefusedError: because of refused", "WorkflowFailedError: RefusedError: because of refused"),
        # Not to be taken for a child that is not there.
        (
            "missing",
            "WorkflowFailedError: WorkflowNotFoundError: because of missing",
            "WorkflowFailedError: WorkflowNotFoundError: because of missing",
        ),
    ],
)
async def test_a_failed_child_raises_its_error(kind: str, expected: str, stored: str) -> None:
    world = world_of(told, "other")
    world.start("other", failing, kind)
    await world.drive()
    assert output(world) == [expected]
    metadata = Bench(world.drivers["parent"]).metadata("output:workflow")
    assert (metadata.status, metadata.attempts, metadata.error) == (EntryStatus.EXHAUSTED, 1, stored)


async def test_what_is_not_there_is_recorded_as_such() -> None:
    world = world_of(told, "other")
    await world.run("parent")
    world.start("other", ship, Parcel(1))
    await world.drive()
    assert output(world) == ["WorkflowNotFoundError: no workflow has the id 'other'"]


async def test_a_cancelled_child_has_no_output() -> None:
    world = world_of(told, "other")
    world.start("other", waiter, 1)
    await world.drive()
    await run_workflow("other", waiter, None, world.drivers["other"], clock=world.clock).cancel()
    await world.drive()
    assert output(world) == ["WorkflowEndedError: the workflow 'other' is cancelled"]


@pytest.mark.parametrize(
    ("kind", "source", "name"), [("bad", "workflow", "ValueError"), ("refused", "step", "RefusedError")]
)
async def test_a_block_catches_the_failure_of_a_child(kind: str, source: str, name: str) -> None:
    async def parent(ctx: Context, _given: Any) -> list[Any]:
        async def body(ctx: Context) -> None:
            await ctx.output("other")

        result = await ctx.try_block("block", body)
        await ctx.sleep("wait", 10_000)
        assert result.failure is not None
        failure = result.failure
        return [failure.source, failure.name, failure.error.name, failure.error.message]

    world = world_of(parent)
    world.start("other", failing, kind)
    await world.drive()
    assert output(world) == [source, "output:workflow", name, f"because of {kind}"]


async def test_a_block_may_let_it_pass() -> None:
    async def parent(ctx: Context, _given: Any) -> None:
        async def body(ctx: Context) -> None:
            await ctx.output("other")

        await ctx.try_block("block", body, catch=("step",))

    world = world_of(parent)
    world.start("other", failing, "bad")
    await world.drive()
    error = world.results["parent"]
    assert isinstance(error, WorkflowFailedError)
    assert (error.name, error.message, error.operation) == ("ValueError", "because of bad", "output:workflow")
    stored = values.decode_error(Bench(world.drivers["parent"]).stored()[keys.ERROR_KEY])
    assert (stored.name, stored.message) == ("ValueError", "because of bad")


async def test_a_join_tells_which_child_has_failed() -> None:
    async def parent(ctx: Context, _given: Any) -> Any:
        async def branch(ctx: Context) -> None:
            await ctx.output("other")

        try:
            await ctx.join("all", {"one": branch})
        except Exception as error:  # noqa: BLE001 - what it is, is looked at
            errors: dict[str, RecordedError] = error.errors  # type: ignore[attr-defined]
            await ctx.sleep("wait", 10_000)
            return [errors["one"].name, errors["one"].message]

    world = world_of(parent)
    world.start("other", failing, "bad")
    await world.drive()
    assert output(world) == ["ValueError", "because of bad"]


async def test_parent_and_child_recover_together() -> None:
    broken = [True]

    async def child(_ctx: Context, _given: Any) -> str:
        if broken:
            raise ValueError("not yet")
        return "mended"

    async def parent(ctx: Context, _given: Any) -> Any:
        return await ctx.output("other")

    world = world_of(parent)
    world.start("other", child)
    await world.drive()
    assert isinstance(world.results["parent"], WorkflowFailedError)
    broken.clear()
    for workflow_id in ("other", "parent"):
        assert await recover_workflow(workflow_id, world.drivers[workflow_id])
    await world.drive()
    assert output(world) == "mended"


async def test_an_output_of_another_shape_is_an_error_each_time() -> None:
    async def parent(ctx: Context, _given: Any) -> str:
        said = []
        try:
            await ctx.output("other", returns=Label)
        except UnstorableValueError as error:
            said.append(type(error).__name__)
        await ctx.sleep("wait", 10_000)
        return said[0]

    world = world_of(parent)
    world.start("other", waiter, 1)
    world.send("other", "go", 2)
    await world.drive()
    assert output(world) == "UnstorableValueError"


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("child", "error", "match"),
    [
        (7, TypeError, "a str, not 7"),
        ("", InvalidIdError, "1 to 255 bytes"),
        ("wf-1", InvalidIdError, "wait for itself for ever"),
        ("other", DriverError, "one workflow alone"),
    ],
)
async def test_mistakes_say_what_to_do(child: Any, error: type[Exception], match: str) -> None:
    async def parent(ctx: Context, _given: Any) -> None:
        await ctx.output(child)

    with pytest.raises(error, match=match):
        await Bench().once(parent)


# --- types ---------------------------------------------------------------------------------------------------------


async def test_a_type_checker_knows_an_output_also_where_it_may_be_missing() -> None:
    async def maybe(ctx: Context) -> Label | None:
        return await ctx.output(await ctx.dispatch(ship, Parcel(1)))

    async def surely(ctx: Context) -> str:
        child = await ctx.dispatch(ship, Parcel(1))
        label = await ctx.output(child)
        assert_type(label, Label)
        assert_type(await ctx.output("ship-7", returns=ship), Label)
        return label.text

    world = MemoryWorld(registry=OWN)
    world.start("ship-7", ship.fn, Parcel(7))
    world.start("maybe", maybe)
    world.start("surely", surely)
    await world.drive()
    told = [world.results[name] for name in ("maybe", "surely")]
    assert [one.output for one in told if isinstance(one, WorkflowResult)] == [Label("1 kg"), "1 kg"]
