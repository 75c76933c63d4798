"""Checks of the version in scopes without names: what old workflows, new ones and those in between are pinned to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from engine import Context, WorkflowState
from engine.entry import VersionCheckEntry
from engine.handle import recover_workflow
from tests.unit.bench import WORKFLOW_ID, Bench
from tests.unit.test_positional import echo, two

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def checked(ctx: Context, latest: int) -> list[Any]:
    await ctx.step(echo, "a")
    version = await ctx.check_version(latest)
    if version >= 2:
        await ctx.step(echo, "new way")
    await ctx.step(echo, "b")
    await ctx.queue.next(names="go")
    return [version]


async def test_a_check_pins_an_old_workflow_to_what_history_has_and_a_new_one_to_the_latest() -> None:
    async def old(ctx: Context, _given: Any) -> None:
        await two(ctx)
        await ctx.queue.next(names="go")

    async def new(ctx: Context, _given: Any) -> Any:
        return await checked(ctx, 2)

    async def newer(ctx: Context, _given: Any) -> Any:
        return await checked(ctx, 3)

    began_old, began_new = Bench(), Bench()
    await began_old.once(old)
    for bench, version, place in ((began_old, 1, "{1.1}@2"), (began_new, 2, "{2}")):
        for workflow in (new, newer):
            await bench.once(workflow)
        kind = bench.entries()[place].kind
        assert isinstance(kind, VersionCheckEntry)
        assert kind.resolved == version
        bench.send("go")
        assert (await bench.through(newer)).output == [version]


async def test_a_check_at_the_end_of_what_history_has_is_new() -> None:
    async def old(ctx: Context, _given: Any) -> None:
        await ctx.step(echo, "a")
        await ctx.queue.next(names="go")

    async def new(ctx: Context, _given: Any) -> Any:
        return await checked(ctx, 2)

    bench = Bench()
    await bench.once(old)
    bench.send("go")
    assert (await bench.through(new)).output == [2]


async def test_a_check_sees_what_history_has_at_no_place_too() -> None:
    """A message that was sent, or a start, stands at no place, and an older workflow has done it all the same."""

    async def old(ctx: Context, _given: Any) -> None:
        await ctx.step(echo, "a")
        await ctx.queue.send("note")
        raise LookupError("not yet")

    async def new(ctx: Context, _given: Any) -> int:
        await ctx.step(echo, "a")
        version = await ctx.check_version(2)
        await ctx.queue.send("note" if version == 1 else "news")
        await ctx.queue.next(names="go")
        return version

    began_old, began_new = Bench(), Bench()
    with pytest.raises(LookupError):
        await began_old.once(old)
    assert await recover_workflow(WORKFLOW_ID, began_old.driver)
    for bench, version in ((began_old, 1), (began_new, 2)):
        await bench.once(new)
        bench.send("go")
        assert (await bench.through(new)).output == version


async def gated_once(ctx: Context) -> list[str]:
    said = [await ctx.step(echo, "a")]
    if await ctx.check_version(2) >= 2:
        said.append(await ctx.step(echo, "second"))
    said.append(await ctx.step(echo, "b"))
    await ctx.queue.next(names="go")
    return said


async def gated_twice(ctx: Context) -> list[str]:
    said = [await ctx.step(echo, "a")]
    if await ctx.v(3).check_version(3) >= 3:
        said.append(await ctx.step(echo, "third"))
    if await ctx.check_version(2) >= 2:
        said.append(await ctx.step(echo, "second"))
    said.append(await ctx.step(echo, "b"))
    await ctx.queue.next(names="go")
    return said


async def ungated(ctx: Context) -> list[str]:
    said = [await ctx.step(echo, "a"), await ctx.step(echo, "b")]
    await ctx.queue.next(names="go")
    return said


@pytest.mark.parametrize(
    ("codes", "said", "place"),
    [
        ([gated_twice], ["a", "third", "second", "b"], "{2}@3"),
        ([gated_once, gated_twice], ["a", "second", "b"], "{1.1}@3"),
        ([ungated, gated_once, gated_twice], ["a", "b"], "{1.0.1}@3"),
        ([ungated, gated_twice], ["a", "b"], "{1.1}@3"),
    ],
)
async def test_a_check_before_another_one_does_not_take_its_answer(
    codes: list[Callable[[Context], Awaitable[list[str]]]], said: list[str], place: str
) -> None:
    bench = Bench()
    for code in codes:

        async def workflow(ctx: Context, _given: Any, code: Any = code) -> Any:
            return await code(ctx)

        assert (await bench.once(workflow)).state is WorkflowState.SLEEPING
    assert isinstance(bench.entries()[place].kind, VersionCheckEntry)
    assert (await bench.once(workflow)).state is WorkflowState.SLEEPING
    bench.send("go")
    assert (await bench.through(workflow)).output == said


@pytest.mark.parametrize("latest", [2, 3])
async def test_a_check_put_before_another_one_is_never_answered_with_the_latest(latest: int) -> None:
    """History was made by code without it, whatever number its author gives it."""

    async def old(ctx: Context, _given: Any) -> None:
        await ctx.check_version(4)
        await ctx.queue.next(names="go")

    async def new(ctx: Context, _given: Any) -> list[int]:
        said = [await ctx.v(3).check_version(latest), await ctx.check_version(4)]
        await ctx.queue.next(names="go")
        return said

    bench = Bench()
    await bench.once(old)
    bench.send("go")
    assert (await bench.through(new)).output == [latest - 1, 4]


async def test_a_check_in_what_was_inserted_counts_from_its_version() -> None:
    async def body(ctx: Context) -> int:
        return await ctx.check_version(2)

    async def workflow(ctx: Context, _given: Any) -> Any:
        answer = await ctx.v(4).join({"b": body})
        await ctx.sleep(3600)
        return answer

    bench = Bench()
    assert (await bench.through(workflow)).output == {"b": 2}
    kind = bench.entries()["{1}@4/b/{1}@4"].kind
    assert isinstance(kind, VersionCheckEntry)
    assert (kind.resolved, kind.latest) == (5, 5)
