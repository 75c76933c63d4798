"""Random families of workflows: whatever they do, and wherever their processes die, they end as without a crash."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Context, CriticalError, Registry, WorkflowResult, workflow
from engine.errors import StartConflictError, WorkflowFailedError
from engine.lifecycle import ENDED
from engine.testing import MemoryWorld

if TYPE_CHECKING:
    from collections.abc import Callable

OWN = Registry()
LIVES = 120

Program = list[tuple[str, int]]


@workflow("member", registry=OWN)
async def member(ctx: Context, number: int) -> int:
    if number % 3:
        await ctx.sleep("work", 60 * (number % 3))
    if number % 5 == 4:
        raise (CriticalError if number % 2 else ValueError)(f"because of {number}")
    return number


@workflow("listener", registry=OWN)
async def listener(ctx: Context, _number: int) -> Any:
    return (await ctx.queue.next("wait", "go")).body


@workflow("parent", registry=OWN)
async def parent(ctx: Context, program: Program) -> list[Any]:
    return [await ACTS[act](ctx, f"{index}-{act}", number) for index, (act, number) in enumerate(program)]


async def waited(ctx: Context, _name: str, number: int) -> Any:
    try:
        return await ctx.output(await ctx.dispatch(member, number))
    except (WorkflowFailedError, CriticalError) as error:
        return f"{type(error).__name__} {error}"


async def forgotten(ctx: Context, _name: str, number: int) -> Any:
    await ctx.dispatch(member, number)


async def slept(ctx: Context, name: str, number: int) -> Any:
    await ctx.sleep(name, 30 * number)


async def named(ctx: Context, _name: str, number: int) -> Any:
    try:
        return str(await ctx.dispatch(member, number, id=f"named-{number % 3}"))
    except StartConflictError as error:
        return str(error)


async def only(ctx: Context, _name: str, number: int) -> Any:
    child = await ctx.dispatch(listener, number, unique=True, tags={"kind": str(number % 2)})
    delivered = await ctx.signal("go", number, type=listener, tags={"kind": str(number % 2)}, missing="ignore")
    return [delivered, await ctx.output(child)]


async def raced(ctx: Context, name: str, number: int) -> Any:
    child = await ctx.dispatch(member, number)

    async def ended(ctx: Context) -> Any:
        return (
            await waited(ctx, name, number) if number % 2 else await ctx.try_block("try", lambda ctx: ctx.output(child))
        )

    async def late(ctx: Context) -> str:
        await ctx.sleep("limit", 10 + 20 * number)
        return "late"

    # Who wins may depend on a death, which takes time; that somebody does, and what was started, does not.
    return bool((await ctx.race(name, {"ended": ended, "late": late})).winner)


async def joined(ctx: Context, name: str, number: int) -> Any:
    async def one(ctx: Context, index: int) -> Any:
        return await waited(ctx, name, index)

    return await ctx.map(name, range(number), one, concurrency=1 + number % 4)


ACTS: dict[str, Callable[[Context, str, int], Any]] = {
    act.__name__: act for act in (waited, forgotten, slept, named, only, raced, joined)
}


class DeathError(ConnectionError):
    """The process dies."""


async def lived(program: Program, deaths: list[tuple[int, str]]) -> tuple[list[Any], MemoryWorld, int]:
    """How the parent ends in a world whose processes die at these calls, the world, and how many calls there were."""
    calls = Counter[str]()

    def count(_operation: str, phase: str) -> None:
        calls[phase] += 1
        if (calls[phase], phase) in deaths:
            raise DeathError

    world = MemoryWorld(registry=OWN, on_call=count)
    world.start("parent", parent, program)
    for _ in range(len(deaths) + 1):
        await world.drive()
        for workflow_id, result in list(world.results.items()):
            if isinstance(result, DeathError):
                await world.run(workflow_id)
    await world.drive()
    result = world.results["parent"]
    assert isinstance(result, WorkflowResult), result
    output: list[Any] = result.output or []
    return output, world, calls["before"]


def started(world: MemoryWorld) -> Counter[str]:
    """The inputs with which children were started, by type, as commits say."""
    return Counter(
        f"{child.workflow_type} {child.workflow_input.hex()}"
        for driver in world.drivers.values()
        for commit in driver.commits
        for child in commit.children
    )


programs = st.lists(st.tuples(st.sampled_from(sorted(ACTS)), st.integers(0, 9)), max_size=6)


@settings(max_examples=LIVES, deadline=None)
@given(st.data())
async def test_no_death_changes_how_a_family_ends(data: st.DataObject) -> None:
    program = data.draw(programs)
    output, calm, calls = await lived(program, [])
    phases = st.sampled_from(["before", "after"])
    deaths = data.draw(st.lists(st.tuples(st.integers(1, max(1, calls)), phases), max_size=4, unique=True))
    again, world, _ = await lived(program, deaths)
    assert [str(part) for part in again] == [str(part) for part in output]
    assert started(world) == started(calm)
    assert len(world.drivers) == len(calm.drivers) == sum(started(calm).values()) + 1
    assert all(driver.state in ENDED for driver in world.drivers.values())
    assert not any(driver.messages for driver in world.drivers.values())
