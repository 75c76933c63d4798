"""Origins in the store: with a workflow from its start, with what it starts, what it sends and what it publishes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from adapters.dynamodb.model.limits import RAY_ID_CHARACTERS_MAX, REQUEST_ID_CHARACTERS_MAX
from engine.commit import Child, Commit, Publication
from engine.entry import Message
from engine.errors import ChildRefusedError, InvalidIdError
from engine.handle import run_workflow
from engine.origin import UNKNOWN, Origin

if TYPE_CHECKING:
    from engine import Context
    from tests.contract.aws import Place

RAY = "1-692ae0c0-5f84a1d45d3c4b6f1d2e3f40"
FROM = Origin(ray_id=RAY, request_id="JKJaXmPLvHcESHA=")


async def origin_of(place: Place, workflow_id: str) -> Origin:
    found = await place.store.describe(workflow_id)
    assert found is not None
    return found.origin


async def test_a_workflow_has_the_origin_that_its_start_was_given(place: Place) -> None:
    started = await place.store.start(workflow_id="w", type="order", input=b"\x01", origin=FROM)
    assert (started.created, started.origin) == (True, FROM)
    assert await origin_of(place, "w") == FROM
    driver = await place.claimed()
    assert driver.origin == FROM
    await driver.commit(Commit(puts=[(b"k", b"v")]))
    assert await origin_of(place, "w") == FROM
    # The same start again is the same workflow, whatever it comes from.
    another = Origin(ray_id="another", request_id="other")
    again = await place.store.start(workflow_id="w", type="order", input=b"\x01", origin=another)
    assert (again.created, again.origin) == (False, FROM)


async def test_a_start_that_is_given_none_gets_a_ray_id_of_its_own(moto_place: Place) -> None:
    rays = set()
    for workflow_id, origin in (("a", UNKNOWN), ("b", Origin(request_id="r"))):
        await moto_place.started(workflow_id, origin=origin)
        found = await origin_of(moto_place, workflow_id)
        rays.add(found.ray_id)
        assert found.request_id == origin.request_id
    assert len(rays) == 2
    assert "" not in rays
    assert "request_id" not in (await moto_place.items("a"))["HEAD"]


@pytest.mark.parametrize("ray_id", ["a b", "a\nb", "ä", "a/b", '"', "x" * (RAY_ID_CHARACTERS_MAX + 1), "a\0"])
async def test_what_no_log_should_hold_is_refused(moto_place: Place, ray_id: str) -> None:
    await refused(moto_place, Origin(ray_id=ray_id), "ray id")


@pytest.mark.parametrize("request_id", ["a b", "a\nb", "ä", "x" * (REQUEST_ID_CHARACTERS_MAX + 1), "a\0"])
async def test_what_no_header_could_hold_is_refused(moto_place: Place, request_id: str) -> None:
    await refused(moto_place, Origin(ray_id=RAY, request_id=request_id), "request id")


async def refused(place: Place, origin: Origin, which: str) -> None:
    with pytest.raises(InvalidIdError, match=which):
        await place.store.start(workflow_id="w", type="order", input=b"\x01", origin=origin)
    assert await place.items() == {}
    await place.started()
    with pytest.raises(InvalidIdError, match=which):
        await place.store.send("w", name="go", body=b"\x01", origin=origin)
    assert "INBOX" not in await place.items()


async def test_children_inherit_it(place: Place) -> None:
    driver = await place.started("parent", origin=FROM)
    await driver.commit(Commit(children=[Child(workflow_id="child", workflow_type="order", workflow_input=b"\x01")]))
    assert await origin_of(place, "child") == FROM
    await place.store.start(workflow_id="there", type="order", input=b"\x02")
    with pytest.raises(ChildRefusedError):
        await driver.commit(Commit(children=[Child(workflow_id="there", workflow_type="x", workflow_input=b"\x01")]))


async def test_messages_have_their_senders(place: Place) -> None:
    async def sender(ctx: Context, _given: Any) -> list[str]:
        await ctx.signal("news", 1, to="there")
        await ctx.queue.send("news", 2)
        return [ctx.ray_id, ctx.request_id]

    outside = [Origin(ray_id="outside", request_id="post-1"), Origin(request_id="event-2"), UNKNOWN]
    await place.store.start(workflow_id="there", type="order", input=b"\xf6", tags={"a": "b"})
    await place.store.send("there", name="news", body=b"\x01", origin=outside[0])
    await place.store.signal("order", {"a": "b"}, name="news", body=b"\x01", message_id="m", origin=outside[1])
    await place.store.send("there", name="news", body=b"\x01")
    await place.store.start(workflow_id="here", type="order", input=b"\xf6", origin=FROM)
    driver = await place.claimed("here")
    assert (await run_workflow("here", sender, None, driver).result).output == [RAY, FROM.request_id]
    stored = [item for name, item in (await place.items("there")).items() if name.startswith("MSG#")]
    told = [{name: item[name]["S"] for name in ("ray_id", "request_id") if name in item} for item in stored]
    assert told == [one.known() for one in (*outside, FROM)]
    there = await place.claimed("there")
    await there.message_driver.refresh()
    received = await there.message_driver.receive([], 10)
    assert [message.origin for message in received] == [*outside, FROM]
    [own] = [item for name, item in (await place.items("here")).items() if name.startswith("MSG#")]
    assert (own["ray_id"]["S"], own["request_id"]["S"]) == (RAY, FROM.request_id)


async def test_a_message_that_a_driver_adds_keeps_its_origin(place: Place) -> None:
    driver = await place.started()
    message = Message(id="m", name="news", body=b"\x01", sent_at=place.clock.now(), origin=FROM)
    assert await driver.message_driver.add(message)
    await driver.message_driver.refresh()
    assert [one.origin for one in await driver.message_driver.receive([], 10)] == [FROM]


async def test_publications_have_their_publishers(place: Place) -> None:
    driver = await place.started(origin=FROM)
    published = [Publication(id="p1", name="progress", body=b"\x01", sent_at=place.clock.now())]
    await driver.commit(Commit(puts=[(b"k", b"v")], published=published))
    tail = await place.store.messages("progress", topic=None, after=None, limit=10)
    assert [message.origin for message in tail.messages] == [FROM]


async def test_a_workflow_of_an_older_build_has_none(moto_place: Place) -> None:
    await moto_place.store.start(workflow_id="w", type="order", input=b"\x01")
    await moto_place.client.update_item(
        TableName=moto_place.table,
        Key={"pk": {"S": "w"}, "sk": {"S": "HEAD"}},
        UpdateExpression="REMOVE ray_id, request_id",
    )
    assert await origin_of(moto_place, "w") == UNKNOWN
    driver = await moto_place.claimed()
    await driver.commit(Commit(children=[Child(workflow_id="child", workflow_type="order", workflow_input=b"\x01")]))
    assert await origin_of(moto_place, "child") == UNKNOWN
