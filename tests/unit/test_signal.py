"""Signals between workflows in memory: exactly once across crashes, and what is recorded where nobody is there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from engine import Context, JoinError, WorkflowResult, WorkflowState, run_workflow
from engine.entry import EntryStatus
from engine.errors import CriticalError, DriverError, InvalidIdError, WorkflowEndedError, WorkflowNotFoundError
from engine.handle import recover_workflow
from engine.testing import MemoryDriver, MemoryWorld
from tests.unit.bench import Bench

if TYPE_CHECKING:
    from engine.commit import Commit


async def receiver(ctx: Context, count: int) -> list[Any]:
    bodies: list[Any] = []
    while len(bodies) < count:
        bodies += [one.body for one in await ctx.queue.next_batch(f"wait-{len(bodies)}", "news", count=count)]
    return bodies


async def sender(ctx: Context, target: str) -> bool:
    await ctx.step("before", work)
    delivered = await ctx.signal("news", {"from": ctx.workflow_id}, to=target)
    await ctx.sleep("wait", 3600)
    await ctx.step("after", work)
    return delivered


async def work() -> str:
    return "done"


def output(world: MemoryWorld, workflow_id: str) -> Any:
    result = world.results[workflow_id]
    assert isinstance(result, WorkflowResult), result
    return result.output


async def test_a_signal_arrives_once_and_answers_the_same_on_replay() -> None:
    world = MemoryWorld()
    world.start("there", receiver, 1)
    world.start("here", sender, "there")
    await world.drive()
    assert output(world, "there") == [{"from": "here"}]
    assert output(world, "here") is True
    assert world.state("there") is WorkflowState.COMPLETED
    assert len(world.drivers["there"].message_driver.ids) == 1


@pytest.mark.parametrize("takes_s", [0, 0.02])
@pytest.mark.parametrize("ending", ["step", "sleep", "end"])
async def test_a_signal_costs_no_commit(ending: str, takes_s: float) -> None:
    """Whatever comes behind it: it rides in the commit of the step before it."""

    async def workflow(ctx: Context, target: str | None) -> None:
        await ctx.step("before", work)
        for _ in range(3):
            if target is not None:
                await ctx.signal("news", 1, to=target)
        if ending == "step":
            await ctx.step("after", work)
        elif ending == "sleep":
            await ctx.sleep("wait", 3600)

    async def take(operation: str, phase: str) -> None:
        if takes_s and (operation, phase) == ("reserve", "before"):
            await world.clock.sleep(takes_s)

    commits: dict[str | None, list[Commit]] = {}
    for target in (None, "there"):
        world = MemoryWorld()
        world.start("there", receiver, 3)
        world.start("here", workflow, target)
        world.drivers["here"].on_call = take
        await world.drive()
        commits[target] = world.drivers["here"].commits
    assert len(commits["there"]) == len(commits[None])
    carrier = commits["there"][0]
    assert [one.workflow_id for one in carrier.outgoing] == ["there"] * 3
    assert b"before" in b"".join(value for _, value in carrier.puts)


async def test_a_signal_is_sent_before_the_next_step_begins() -> None:
    seen: list[list[str]] = []

    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.signal("news", 1, to="there")
        await ctx.step("long", look)

    async def look() -> None:
        seen.append([message.name for message in world.drivers["there"].messages])

    world = MemoryWorld()
    world.start("there", receiver, 1)
    world.start("here", workflow)
    await world.drive()
    assert seen == [["news"]]


async def test_a_signal_is_sent_while_a_step_beside_it_is_under_way() -> None:
    seen: list[list[str]] = []

    async def workflow(ctx: Context, _given: Any) -> None:
        async def signalling(ctx: Context) -> None:
            await ctx.signal("news", 1, to="there")

        async def stepping(ctx: Context) -> None:
            await ctx.step("long", look)

        await ctx.join("both", {"stepping": stepping, "signalling": signalling})

    async def look() -> None:
        await world.clock.sleep(1)
        seen.append([message.name for message in world.drivers["there"].messages])

    world = MemoryWorld()
    world.start("there", receiver, 1)
    world.start("here", workflow)
    await world.drive()
    assert seen == [["news"]]


async def test_signals_one_after_another_go_together_as_far_as_a_commit_reaches() -> None:
    targets = [f"there-{number}" for number in range(40)]

    async def teller(ctx: Context, _given: Any) -> None:
        for target in targets:
            await ctx.signal("news", target, to=target)

    world = MemoryWorld()
    for target in targets:
        world.start(target, receiver, 1)
    world.start("here", teller)
    world.drivers["here"].commit_messages_max = 9  # type: ignore[attr-defined]  # as a store with a limit declares it
    await world.drive()
    assert all(output(world, target) == [target] for target in targets)
    # The last one is the end.
    assert [len(commit.outgoing) for commit in world.drivers["here"].commits] == [9, 9, 9, 9, 4, 0]


async def test_who_ends_before_the_commit_has_the_message_and_reads_it_once_recovered() -> None:
    is_broken = True

    async def fragile(ctx: Context, _given: Any) -> Any:
        await ctx.queue.next("first", "go")
        await ctx.step("work", breaks)
        return (await ctx.queue.next("second", "news")).body

    async def breaks() -> None:
        if is_broken:
            raise CriticalError("broken")

    async def end_it(operation: str, phase: str) -> None:
        if (operation, phase) == ("reserve", "after"):
            world.send("there", "go")
            await world.run("there")

    world = MemoryWorld()
    world.start("there", fragile, None)
    await world.run("there")
    world.start("here", sender, "there")
    world.drivers["here"].on_call = end_it
    await world.run("here")
    assert world.state("there") is WorkflowState.FAILED
    is_broken = False
    assert await recover_workflow("there", world.drivers["there"])
    await world.run("there")
    await world.drive()
    assert (output(world, "here"), output(world, "there")) == (True, {"from": "here"})


async def test_a_message_keeps_its_place_before_those_that_came_meanwhile() -> None:
    def come_between(operation: str, phase: str) -> None:
        if (operation, phase) == ("reserve", "after"):
            world.send("there", "news", "later")

    world = MemoryWorld()
    world.start("there", receiver, 2)
    world.start("here", sender, "there")
    world.drivers["here"].on_call = come_between
    await world.drive()
    assert output(world, "there") == [{"from": "here"}, "later"]


async def test_a_branch_that_lost_its_race_before_the_commit_has_sent_nothing() -> None:
    async def parent(ctx: Context, _given: Any) -> str:
        async def signalling(ctx: Context) -> None:
            await ctx.signal("news", 1, to="there")
            await asyncio.sleep(3600)

        async def quick(_ctx: Context) -> str:
            for _ in range(3):
                await asyncio.sleep(0)
            return "quick"

        race = await ctx.race("race", {"signalling": signalling, "quick": quick})
        return race.winner

    world = MemoryWorld()
    world.start("there", receiver, 1)
    world.start("here", parent)
    await world.drive()
    assert output(world, "here") == "quick"
    assert [commit.outgoing for commit in world.drivers["here"].commits] == [[]]
    assert world.drivers["there"].messages == []


@pytest.mark.parametrize("phase", ["before", "after"])
@pytest.mark.parametrize("crash_at", range(1, 4))
async def test_no_crash_loses_or_doubles_a_signal(phase: str, crash_at: int) -> None:
    world = MemoryWorld()
    world.start("there", receiver, 3)
    world.start("here", many, "there")
    calls = [0]

    def crash(operation: str, when: str) -> None:
        if operation == "commit" and when == phase:
            calls[0] += 1
            if calls[0] == crash_at:
                raise ConnectionError("crash")

    world.drivers["here"].on_call = crash
    await world.run("here")
    assert isinstance(world.results.pop("here"), ConnectionError)
    world.drivers["here"].on_call = None
    await world.run("here")
    await world.drive()
    assert output(world, "here") == "sent"
    assert output(world, "there") == [1, 2, 3]
    assert world.drivers["there"].messages == []


async def many(ctx: Context, target: str) -> str:
    for number in (1, 2, 3):
        await ctx.step(f"before-{number}", work)
        await ctx.signal("news", number, to=target)
    return "sent"


async def test_several_signals_of_one_name_are_recorded_apart() -> None:
    world = MemoryWorld()
    world.start("there", receiver, 3)
    world.start("here", many, "there")
    await world.drive()
    bench = Bench(world.drivers["here"])
    assert {"signal:news", "signal:news:2", "signal:news:3"} <= set(bench.entries())


async def test_signals_to_many_at_once_are_divided_between_operations() -> None:
    targets = [f"there-{number}" for number in range(60)]
    missing = {targets[7], targets[31]}

    async def crowd(ctx: Context, _given: Any) -> list[bool]:
        async def tell(ctx: Context, target: str) -> bool:
            return await ctx.signal("news", target, to=target, missing="ignore")

        return await ctx.map("all", targets, tell, concurrency=60)

    world = MemoryWorld()
    for target in targets:
        if target not in missing:
            world.start(target, receiver, 1)
    world.start("here", crowd)
    world.drivers["here"].latency_s = 0.001
    world.drivers["here"].commit_messages_max = 9  # type: ignore[attr-defined]  # as a store with a limit declares it
    await world.drive()
    assert output(world, "here") == [target not in missing for target in targets]
    assert all(output(world, target) == [target] for target in targets if target not in missing)
    commits = world.drivers["here"].commits
    assert max(len(commit.outgoing) for commit in commits) == 9
    assert sum(len(commit.outgoing) for commit in commits) == 58
    assert len(commits) < 20
    for commit in commits:
        # What says that a signal was sent is in the commit that sends it.
        written = b"".join(value for _, value in commit.puts)
        assert all(outgoing.message.id.encode() in written for outgoing in commit.outgoing)


# --- nobody there ----------------------------------------------------------------------------------------------------


async def ended(_ctx: Context, _given: Any) -> None: ...


async def careful(ctx: Context, target: str) -> list[str]:
    await ctx.step("before", work)
    said = []
    try:
        await ctx.signal("news", 1, to=target)
    except (WorkflowNotFoundError, WorkflowEndedError) as error:
        said.append(f"{type(error).__name__}: {error}")
    await ctx.sleep("wait", 3600)
    return said


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("nobody", "WorkflowNotFoundError: no workflow has the id 'nobody'"),
        ("over", "WorkflowEndedError: the workflow 'over' is completed"),
    ],
)
async def test_a_target_that_takes_nothing_is_an_error_that_is_recorded(target: str, expected: str) -> None:
    world = MemoryWorld()
    world.start("over", ended)
    await world.run("over")
    world.start("here", careful, target)
    await world.run("here")
    bench = Bench(world.drivers["here"])
    metadata = bench.metadata("signal:news")
    assert (metadata.status, metadata.attempts, metadata.error) == (EntryStatus.EXHAUSTED, 1, expected)
    # It is not tried again: whoever starts under that id now gets nothing from it.
    world.start("nobody", receiver, 1)
    await world.drive()
    assert output(world, "here") == [expected]
    assert world.drivers[target].messages == []


async def test_where_nobody_catches_it_the_workflow_fails_and_recovers() -> None:
    world = MemoryWorld()
    world.start("here", sender, "there")
    await world.drive()
    assert isinstance(world.results["here"], WorkflowNotFoundError)
    assert world.state("here") is WorkflowState.FAILED
    world.start("there", receiver, 1)
    assert await recover_workflow("here", world.drivers["here"])
    await world.drive()
    assert output(world, "here") is True
    assert output(world, "there") == [{"from": "here"}]


async def test_missing_may_be_ignored_for_good() -> None:
    async def ignoring(ctx: Context, _given: Any) -> list[bool]:
        delivered = await ctx.signal("news", 1, to="nobody", missing="ignore")
        await ctx.sleep("wait", 3600)
        return [delivered]

    world = MemoryWorld()
    world.start("here", ignoring)
    await world.run("here")
    world.start("nobody", receiver, 1)
    await world.drive()
    assert output(world, "here") == [False]
    assert world.drivers["nobody"].messages == []


async def test_what_else_the_refused_commit_carried_is_kept() -> None:
    runs: list[str] = []

    async def count(name: str) -> str:
        runs.append(name)
        return name

    async def branches(ctx: Context, _given: Any) -> dict[str, str]:
        async def fine(ctx: Context) -> str:
            await ctx.step("work", count, "fine")
            await ctx.signal("news", "fine", to="there")
            return "fine"

        async def lost(ctx: Context) -> str:
            await ctx.step("work", count, "lost")
            await ctx.signal("news", "lost", to="nobody")
            return "lost"

        async def stepping(ctx: Context) -> str:
            await ctx.step("work", count, "stepping")
            return "stepping"

        try:
            await ctx.join("all", {"lost": lost, "fine": fine, "stepping": stepping})
        except JoinError as error:
            await ctx.sleep("wait", 3600)
            return {name: one.name for name, one in error.errors.items()}
        return {}

    world = MemoryWorld()
    world.start("there", receiver, 1)
    world.start("here", branches)
    await world.drive()
    assert output(world, "here") == {"lost": "WorkflowNotFoundError"}
    assert output(world, "there") == ["fine"]
    assert sorted(runs) == ["fine", "lost", "stepping"]


# --- the rest --------------------------------------------------------------------------------------------------------


async def test_a_signal_to_oneself_is_a_message_to_oneself() -> None:
    async def own(ctx: Context, _given: Any) -> Any:
        await ctx.signal("news", 5, to=ctx.workflow_id)
        return (await ctx.queue.next("wait", "news")).body

    # There is no world here that could deliver it.
    assert (await Bench().once(own)).output == 5


async def test_a_scope_without_names_may_signal() -> None:
    async def placed(ctx: Context, target: str) -> bool:
        await ctx.step(work)
        await ctx.signal("news", 1, to=target)
        await ctx.sleep(3600)
        return True

    world = MemoryWorld()
    world.start("there", receiver, 1)
    world.start("here", placed, "there")
    await world.drive()
    assert output(world, "there") == [1]
    assert output(world, "here") is True


async def test_a_signal_needs_a_name_and_a_target() -> None:
    async def nameless(ctx: Context, _given: Any) -> None:
        await ctx.signal("", to="there")

    async def aimless(ctx: Context, _given: Any) -> None:
        await ctx.signal("news", to="")

    for workflow in (nameless, aimless):
        with pytest.raises(InvalidIdError, match="needs the name of a message"):
            await Bench().through(workflow)


async def test_a_store_that_writes_piece_by_piece_cannot_send() -> None:
    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.signal("news", to="there")

    driver = MemoryDriver(atomic=False)
    with pytest.raises(DriverError, match="not atomic"):
        await run_workflow("here", workflow, None, driver).result


async def test_a_driver_alone_has_nobody_to_send_to() -> None:
    with pytest.raises(DriverError, match="MemoryWorld holds several"):
        await Bench().through(sender, "there")


async def test_the_world_takes_messages_from_outside_and_starts_nobody_twice() -> None:
    world = MemoryWorld()
    world.start("there", receiver, 2)
    world.start("there", sender, "nobody")
    world.send("there", "news", 1)
    await world.drive()
    assert world.state("there") is WorkflowState.SLEEPING
    world.send("there", "news", 2)
    await world.drive()
    assert output(world, "there") == [1, 2]
    with pytest.raises(WorkflowEndedError):
        world.send("there", "news", 3)


async def test_a_refusal_that_comes_when_the_race_is_lost_harms_nobody() -> None:
    async def parent(ctx: Context, _given: Any) -> str:
        async def signalling(ctx: Context) -> str:
            await ctx.signal("news", 1, to="nobody")
            return "sent"

        async def quick(_ctx: Context) -> str:
            for _ in range(3):
                await asyncio.sleep(0)
            return "quick"

        return (await ctx.race("race", {"signalling": signalling, "quick": quick})).winner

    world = MemoryWorld()
    world.start("here", parent)
    world.drivers["here"].latency_s = 0.005
    await world.drive()
    assert output(world, "here") == "quick"


@pytest.mark.parametrize("bounds", [{"commit_messages_max": 50}, {"commit_bytes_max": 50_000}])
async def test_what_waits_behind_a_slow_commit_is_never_more_than_the_next_one_takes(bounds: dict[str, int]) -> None:
    """What is recorded again before it is committed goes in one commit with all that was recorded in between."""

    async def sender(ctx: Context, _given: Any) -> None:
        async def busy(ctx: Context) -> None:
            await ctx.step("work", world.clock.sleep, 3, timeout=0)
            await ctx.step("more", world.clock.sleep, 30, timeout=0)

        async def telling(ctx: Context) -> None:
            await ctx.step("begin", world.clock.sleep, 3.02, timeout=0)
            asked = await ctx.queue.next("ask", "question", completable=True)
            for number in range(200):
                await ctx.signal("news", f"{number:01000}", to="there")
            await asked.complete("told")

        await ctx.join("both", {"busy": busy, "telling": telling})

    async def take_long(operation: str, phase: str) -> None:
        if phase == "before":
            await world.clock.sleep({"commit": 1, "reserve": 0.001}.get(operation, 0))

    world = MemoryWorld()
    world.start("there", receiver, 200)
    world.start("here", sender)
    driver = world.drivers["here"]
    for name, value in bounds.items():
        setattr(driver, name, value)
    driver.on_call = take_long
    world.send("here", "question")
    await world.drive()
    assert output(world, "there") == [f"{number:01000}" for number in range(200)]
    assert max(len(commit.outgoing) for commit in driver.commits) <= 50
    assert len(driver.commits) < 20


async def test_a_reply_goes_with_no_more_than_a_commit_takes() -> None:
    async def sender(ctx: Context, _given: Any) -> None:
        asked = await ctx.queue.next("ask", "question", completable=True)
        for number in range(50):
            await ctx.signal("news", number, to="there")
        await asked.complete("told")

    world = MemoryWorld()
    world.start("there", receiver, 50)
    world.start("here", sender)
    driver = world.drivers["here"]
    driver.commit_messages_max = 50  # type: ignore[attr-defined]  # as a store with a limit declares it
    world.send("here", "question")
    await world.drive()
    assert output(world, "there") == list(range(50))
    assert max(len(commit.outgoing) + 2 * len(commit.replies) for commit in driver.commits) == 50
