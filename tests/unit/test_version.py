"""Code that changes under running workflows: removed operations and remembered versions."""

from __future__ import annotations

from typing import Any

import pytest

from engine import Break, Context, Continue, HistoryDivergedError
from engine.entry import RemovedEntry, VersionCheckEntry
from engine.errors import InvalidIdError
from tests.unit.bench import Bench


@pytest.mark.parametrize("latest", [0, -1, 2**32, True, 1.5, "2", None])
async def test_a_version_is_a_whole_number_from_one(latest: Any) -> None:
    with pytest.raises(InvalidIdError):
        await Bench().once(lambda ctx: ctx.get_version("v", latest))


async def test_a_new_run_gets_the_latest_and_keeps_it() -> None:
    bench = Bench()

    def build(latest: int) -> Any:
        async def work(ctx: Context) -> Any:
            version = await ctx.get_version("v", latest)
            await ctx.sleep("s", 60)
            return version

        return work

    await bench.once(build(2))
    assert bench.entries()["v"].kind == VersionCheckEntry(resolved=2, latest=2)
    assert (await bench.through(build(5))).output == 2


async def test_a_run_that_is_past_the_place_gets_one_and_one_that_is_not_the_latest() -> None:
    def build(*, is_new: bool) -> Any:
        async def work(ctx: Context) -> Any:
            await ctx.sleep("first", 60)
            version = await ctx.get_version("v", 3) if is_new else 1
            await ctx.sleep("second", 60)
            return version

        return work

    before, past = Bench(), Bench()
    await before.once(build(is_new=False))
    assert (await before.through(build(is_new=True))).output == 3
    await past.once(build(is_new=False))
    past.clock.advance(60)
    await past.once(build(is_new=False))
    assert (await past.through(build(is_new=True))).output == 1


async def test_each_iteration_decides_for_itself() -> None:
    bench = Bench()

    def build(*, is_new: bool) -> Any:
        async def body(ctx: Context, seen: list[int]) -> Any:
            seen = [*seen, await ctx.get_version("v", 2) if is_new else 0]
            await ctx.sleep("s", 60)
            return Break(seen) if len(seen) == 3 else Continue(seen)

        return lambda ctx: ctx.loop("l", body, [])

    await bench.once(build(is_new=False))
    bench.clock.advance(60)
    await bench.once(build(is_new=False))
    assert (await bench.through(build(is_new=True))).output == [0, 1, 2]


async def test_a_version_of_one_is_recorded_and_replays() -> None:
    bench = Bench()
    await bench.once(lambda ctx: ctx.sleep("s", 60))

    async def work(ctx: Context) -> Any:
        version = await ctx.get_version("v", 2)
        await ctx.sleep("s", 60)
        return version

    await bench.once(work)
    assert bench.entries()["v"].kind == VersionCheckEntry(resolved=1, latest=2)
    assert (await bench.through(work)).output == 1


@pytest.mark.parametrize(
    "kind", ["step", "loop", "sleep", "join", "race", "rollback_checkpoint", "version_check", "message"]
)
async def test_a_removed_operation_is_accepted_with_all_that_is_below_it(kind: str) -> None:
    bench = Bench()
    bench.send("m")

    async def below(ctx: Context) -> None:
        await ctx.step("inner", bench.giving("inner"))

    async def once(ctx: Context) -> Any:
        await below(ctx)
        return Break(None)

    operations: dict[str, Any] = {
        "step": lambda ctx: ctx.step("x", bench.giving("x")),
        "loop": lambda ctx: ctx.loop("x", once),
        "sleep": lambda ctx: ctx.sleep("x", 0),
        "join": lambda ctx: ctx.join("x", {"a": below}),
        "race": lambda ctx: ctx.race("x", {"a": below}),
        "rollback_checkpoint": lambda ctx: ctx.rollback_checkpoint("x"),
        "version_check": lambda ctx: ctx.get_version("x", 2),
        "message": lambda ctx: ctx.queue.next_batch("x", "m", timeout=60),
    }

    async def old(ctx: Context) -> None:
        await operations[kind](ctx)
        await ctx.sleep("s", 60)

    async def new(ctx: Context) -> str:
        await ctx.removed("x", kind)
        await ctx.sleep("s", 60)
        return "done"

    await bench.once(old)
    assert (await bench.through(new)).output == "done"
    fresh = Bench()
    assert (await fresh.through(new)).output == "done"
    assert fresh.entries()["x"].kind == RemovedEntry(original_type=kind, original_name="x")


async def test_the_wrong_type_and_an_unknown_one_are_refused() -> None:
    bench = Bench()

    async def old(ctx: Context) -> None:
        await ctx.step("x", bench.giving("x"))
        await ctx.sleep("s", 60)

    await bench.once(old)
    with pytest.raises(HistoryDivergedError, match="history has a step there; name the right type"):
        await bench.once(lambda ctx: ctx.removed("x", "sleep"))
    with pytest.raises(InvalidIdError, match="is no type of operation"):
        await Bench().once(lambda ctx: ctx.removed("x", "dance"))


async def test_a_name_that_was_removed_cannot_come_back_as_something_else() -> None:
    bench = Bench()

    async def without(ctx: Context) -> None:
        await ctx.removed("x", "step")
        await ctx.sleep("s", 60)

    async def with_it(ctx: Context) -> None:
        await ctx.step("x", bench.giving("x"))
        await ctx.sleep("s", 60)

    await bench.once(without)
    with pytest.raises(HistoryDivergedError, match=r"recorded it as removed \(step\)"):
        await bench.through(with_it)
    assert bench.runs == {}
