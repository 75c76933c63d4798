"""Publications in memory: once each, after the commit that records them, and never where nothing is recorded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine import Context, WorkflowResult, WorkflowState, run_workflow
from engine.errors import DriverError, InvalidIdError, UnstorableValueError
from engine.handle import replay_workflow_from_step
from engine.testing import MemoryDriver, MemoryWorld
from tests.unit.bench import Bench


async def work() -> str:
    return "done"


async def telling(ctx: Context, _given: Any) -> str:
    await ctx.step("before", work)
    await ctx.publish("progress", {"percent": 10}, topic="order:17")
    await ctx.publish("progress", {"percent": 20}, topic="order:17")
    await ctx.sleep("wait", 3600)
    await ctx.step("between", work)
    await ctx.publish("finished")
    return "told"


TOLD = [
    ("here", "progress", "order:17", {"percent": 10}),
    ("here", "progress", "order:17", {"percent": 20}),
    ("here", "finished", "*", None),
]


def told(world: MemoryWorld) -> list[tuple[str, str, str, Any]]:
    return [(one.workflow_id, one.name, one.topic, one.body) for one in world.published]


async def test_each_publication_leaves_once_however_often_the_workflow_is_replayed() -> None:
    world = MemoryWorld()
    world.start("here", telling)
    await world.drive()
    result = world.results["here"]
    assert isinstance(result, WorkflowResult)
    assert result.output == "told"
    assert told(world) == TOLD
    await world.run("here")
    assert told(world) == TOLD
    bench = Bench(world.drivers["here"])
    assert {"publish:progress", "publish:progress:2", "publish:finished"} <= set(bench.entries())


async def test_a_publication_needs_no_commit_of_its_own() -> None:
    world = MemoryWorld()
    world.start("here", telling)
    await world.drive()
    commits = [[one.name for one in commit.published] for commit in world.drivers["here"].commits]
    # The step's result and both go with the sleep, the third with the step before it and the end.
    assert commits == [["progress", "progress"], [], ["finished"]]
    for commit in world.drivers["here"].commits:
        written = b"".join(value for _, value in commit.puts)
        assert all(one.id.encode() in written for one in commit.published)


async def test_a_publication_is_written_before_anything_else_acts() -> None:
    world = MemoryWorld()
    seen: list[list[Any]] = []

    async def look() -> None:
        seen.append([one.body for one in world.published])

    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.publish("progress", 1)
        await ctx.step("look", look)

    world.start("here", workflow)
    await world.drive()
    assert seen == [[1]]


@pytest.mark.parametrize("phase", ["before", "after"])
@pytest.mark.parametrize("crash_at", range(1, 4))
async def test_no_crash_doubles_a_publication_or_makes_one_that_is_not_recorded(phase: str, crash_at: int) -> None:
    world = MemoryWorld()
    world.start("here", stepwise)
    calls = [0]

    def crash(operation: str, when: str) -> None:
        if operation == "commit" and when == phase:
            calls[0] += 1
            if calls[0] == crash_at:
                raise ConnectionError("crash")

    driver = world.drivers["here"]
    driver.on_call = crash
    await world.run("here")
    assert isinstance(world.results.pop("here"), ConnectionError)
    recorded = {name for name in Bench(driver).entries() if name.startswith("publish:")}
    assert len(world.published) == len(recorded) == crash_at - (1 if phase == "before" else 0)
    driver.on_call = None
    await world.run("here")
    assert [one.body for one in world.published] == [1, 2, 3]


async def stepwise(ctx: Context, _given: Any) -> None:
    for number in (1, 2, 3):
        await ctx.publish("progress", number)
        await ctx.step(f"after-{number}", work)


async def test_what_a_races_loser_has_not_committed_is_not_published() -> None:
    async def racing(ctx: Context, _given: Any) -> Any:
        async def fast(_ctx: Context) -> str:
            await asyncio.sleep(0)
            return "fast"

        async def late(ctx: Context) -> None:
            await ctx.publish("progress", "from the loser")
            await asyncio.Event().wait()

        result = await ctx.race("who", {"late": late, "fast": fast})
        await ctx.publish("progress", "from the winner")
        return result.value

    world = MemoryWorld()
    world.start("here", racing)
    await world.drive()
    assert [one.body for one in world.published] == ["from the winner"]


async def test_branches_that_publish_side_by_side_share_commits_within_their_limit() -> None:
    async def crowd(ctx: Context, _given: Any) -> None:
        async def tell(ctx: Context, number: int) -> None:
            await ctx.publish("progress", number, topic=f"item:{number}")

        await ctx.map("all", list(range(60)), tell, concurrency=60)

    world = MemoryWorld()
    world.start("here", crowd)
    driver = world.drivers["here"]
    driver.commit_messages_max = 9  # type: ignore[attr-defined]  # as a store with a limit declares it
    await world.drive()
    assert [one.body for one in world.published] == list(range(60))
    assert max(len(commit.published) for commit in driver.commits) == 9


async def test_a_workflow_that_runs_a_part_of_itself_again_publishes_that_again() -> None:
    world = MemoryWorld()
    world.start("here", telling)
    await world.drive()
    driver = world.drivers["here"]
    entry = Bench(driver).entries()["between"]
    await replay_workflow_from_step("here", driver, entry.id)
    world.results.pop("here")
    await world.drive()
    assert told(world) == [*TOLD, TOLD[-1]]


async def test_in_live_mode_a_publication_leaves_while_the_workflow_waits_in_memory() -> None:
    bench = Bench()
    handle = bench.start(telling, mode="live")
    await bench.idle(handle)
    assert [one.name for one in bench.driver.published] == ["progress", "progress"]
    await bench.finish(handle)
    assert [one.name for one in bench.driver.published] == ["progress", "progress", "finished"]


async def test_scopes_without_names_publish_too() -> None:
    async def placed(ctx: Context, _given: Any) -> None:
        await ctx.step(work)
        await ctx.publish("progress", 1)
        await ctx.sleep(3600)
        await ctx.publish("progress", 2)

    world = MemoryWorld()
    world.start("here", placed)
    await world.drive()
    assert [one.body for one in world.published] == [1, 2]
    with pytest.raises(ValueError, match="stand at a place"):
        await Bench().through(versioned)


async def versioned(ctx: Context, _given: Any) -> None:
    await ctx.v(2).publish("progress")


@pytest.mark.parametrize(
    ("name", "topic"),
    [("", "*"), ("progress", ""), ("a\nb", "*"), ("progress", "a\0"), ("torpor.message", "*"), ("x" * 129, "*")],
)
async def test_names_and_topics_that_no_bus_could_carry_are_refused(name: str, topic: str) -> None:
    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.publish(name, topic=topic)

    with pytest.raises(InvalidIdError):
        await Bench().through(workflow)


async def test_what_cannot_be_stored_is_refused_and_nothing_is_published() -> None:
    async def workflow(ctx: Context, size: int) -> None:
        await ctx.publish("progress", "x" * size or object())

    world = MemoryWorld()
    world.start("object", workflow, 0)
    world.start("large", workflow, 1000)
    world.drivers["large"].value_bytes_max = 500
    for workflow_id in ("object", "large"):
        await world.run(workflow_id)
        assert isinstance(world.results[workflow_id], UnstorableValueError)
        assert world.state(workflow_id) is WorkflowState.FAILED
    assert world.published == []


async def test_a_store_that_writes_piece_by_piece_cannot_publish() -> None:
    driver = MemoryDriver(atomic=False)
    with pytest.raises(DriverError, match="not atomic"):
        await run_workflow("here", telling, None, driver).result
    assert driver.published == []
