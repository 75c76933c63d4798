"""The ray id as workflow code and activities know it, and as children come by it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from engine import ActivityContext, Context, workflow
from engine.activities import Activity
from engine.registry import Registry
from engine.testing import MemoryDriver, MemoryWorld, activity_context
from tests.unit.bench import Bench

if TYPE_CHECKING:
    import pytest

OWN = Registry()


async def look(ctx: ActivityContext) -> str:
    ctx.log.info("looking")
    return ctx.ray_id


LOOK: Activity[str] = Activity("look", look, {})


@workflow("child", registry=OWN)
async def child(ctx: Context, _given: Any) -> list[str]:
    await ctx.signal("hello", None, to="parent")
    return [ctx.ray_id, await ctx.activity(LOOK)]


@workflow("parent", registry=OWN)
async def parent(ctx: Context, _given: Any) -> list[str]:
    ctx.log.info("thinking")
    started = await ctx.dispatch("child", None, id="kid")
    await ctx.queue.next("greeting", "hello")
    return [ctx.ray_id, *await ctx.output(started)]


async def test_what_a_workflow_starts_and_sends_has_its_ray_id() -> None:
    world = MemoryWorld(registry=OWN)
    world.start("parent", parent, ray_id="r-1")
    await world.drive()
    result: Any = world.results["parent"]
    assert result.output == ["r-1", "r-1", "r-1"]
    sent = [one.message for commit in world.drivers["kid"].commits for one in commit.outgoing]
    assert [message.ray_id for message in sent] == ["r-1"]


async def test_records_have_it_where_there_is_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def simple(ctx: Context, _given: Any) -> str:
        ctx.log.info("thinking")
        return await ctx.activity(LOOK)

    assert (await Bench(MemoryDriver(ray_id="r-2")).through(simple)).output == "r-2"
    assert {vars(record)["ray_id"] for record in caplog.records} == {"r-2"}
    caplog.clear()
    assert (await Bench().through(simple)).output == ""
    assert len(caplog.records) == 2
    assert not any(hasattr(record, "ray_id") for record in caplog.records)


def test_a_test_may_give_one() -> None:
    assert activity_context(ray_id="r").ray_id == "r"
    assert activity_context().ray_id == ""
