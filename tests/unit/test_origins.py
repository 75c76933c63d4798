"""Ray and request ids as workflow code and activities know them, and as children come by them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from engine import ActivityContext, Context, workflow
from engine.author.activities import Activity
from engine.author.registry import Registry
from engine.origin import Origin
from engine.testing import MemoryDriver, MemoryWorld, activity_context
from tests.unit.bench import Bench

if TYPE_CHECKING:
    import pytest

OWN = Registry()


async def look(ctx: ActivityContext) -> list[str]:
    ctx.log.info("looking")
    return [ctx.ray_id, ctx.request_id]


LOOK: Activity[list[str]] = Activity("look", look, {})


@workflow("child", registry=OWN)
async def child(ctx: Context, _given: Any) -> list[str]:
    await ctx.signal("hello", None, to="parent")
    await ctx.queue.send("own", None)
    return [ctx.ray_id, ctx.request_id, *await ctx.activity(LOOK)]


@workflow("parent", registry=OWN)
async def parent(ctx: Context, _given: Any) -> list[str]:
    ctx.log.info("thinking")
    started = await ctx.dispatch("child", None, id="kid")
    await ctx.queue.next("greeting", "hello")
    return [ctx.ray_id, ctx.request_id, *await ctx.output(started)]


async def test_what_a_workflow_starts_and_sends_has_its_origin() -> None:
    world = MemoryWorld(registry=OWN)
    world.start("parent", parent, ray_id="r-1", request_id="q-1")
    await world.drive()
    result: Any = world.results["parent"]
    assert result.output == ["r-1", "q-1"] * 3
    sent = [one.message for commit in world.drivers["kid"].commits for one in commit.outgoing]
    assert [message.origin for message in sent] == [Origin(ray_id="r-1", request_id="q-1")] * 2


async def test_records_have_it_where_there_is_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def simple(ctx: Context, _given: Any) -> list[str]:
        ctx.log.info("thinking")
        return await ctx.activity(LOOK)

    driver = MemoryDriver(ray_id="r-2", request_id="q-2")
    assert (await Bench(driver).through(simple)).output == ["r-2", "q-2"]
    assert {(vars(record)["ray_id"], vars(record)["request_id"]) for record in caplog.records} == {("r-2", "q-2")}
    caplog.clear()
    assert (await Bench().through(simple)).output == ["", ""]
    assert len(caplog.records) == 2
    assert not any(hasattr(record, name) for record in caplog.records for name in ("ray_id", "request_id"))


def test_a_test_may_give_them() -> None:
    given = activity_context(ray_id="r", request_id="q")
    assert (given.ray_id, given.request_id) == ("r", "q")
    assert (activity_context().ray_id, activity_context().request_id) == ("", "")
