"""The ray id in the store: with a workflow from its start, with what it starts, what it sends and what it publishes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from adapters.dynamodb.limits import RAY_ID_CHARACTERS_MAX
from engine.commit import Child, Commit, Publication
from engine.errors import ChildRefusedError, InvalidIdError
from engine.handle import run_workflow

if TYPE_CHECKING:
    from engine import Context
    from tests.contract.aws import Place

RAY = "1-692ae0c0-5f84a1d45d3c4b6f1d2e3f40"


async def ray_of(place: Place, workflow_id: str) -> str:
    found = await place.store.describe(workflow_id)
    assert found is not None
    return found.ray_id


async def test_a_workflow_has_the_ray_id_that_its_start_was_given(place: Place) -> None:
    started = await place.store.start(workflow_id="w", type="order", input=b"\x01", ray_id=RAY)
    assert (started.created, started.ray_id) == (True, RAY)
    assert await ray_of(place, "w") == RAY
    driver = await place.claimed()
    assert driver.ray_id == RAY
    await driver.commit(Commit(puts=[(b"k", b"v")]))
    assert await ray_of(place, "w") == RAY
    # The same start again is the same workflow, whatever ray it comes with.
    again = await place.store.start(workflow_id="w", type="order", input=b"\x01", ray_id="another")
    assert (again.created, again.ray_id) == (False, RAY)


async def test_a_start_that_is_given_none_gets_one_of_its_own(moto_place: Place) -> None:
    rays = set()
    for workflow_id in ("a", "b"):
        await moto_place.started(workflow_id)
        rays.add(await ray_of(moto_place, workflow_id))
    assert len(rays) == 2
    assert "" not in rays


@pytest.mark.parametrize("ray_id", ["a b", "a\nb", "ä", "a/b", '"', "x" * (RAY_ID_CHARACTERS_MAX + 1), "a\0"])
async def test_what_no_log_should_hold_is_refused(moto_place: Place, ray_id: str) -> None:
    with pytest.raises(InvalidIdError, match="ray id"):
        await moto_place.store.start(workflow_id="w", type="order", input=b"\x01", ray_id=ray_id)
    assert await moto_place.items() == {}
    await moto_place.started()
    with pytest.raises(InvalidIdError, match="ray id"):
        await moto_place.store.send("w", name="go", body=b"\x01", ray_id=ray_id)
    assert "INBOX" not in await moto_place.items()


async def test_children_inherit_it(place: Place) -> None:
    driver = await place.started("parent", ray_id=RAY)
    await driver.commit(Commit(children=[Child(workflow_id="child", workflow_type="order", workflow_input=b"\x01")]))
    assert await ray_of(place, "child") == RAY
    await place.store.start(workflow_id="there", type="order", input=b"\x02")
    with pytest.raises(ChildRefusedError):
        await driver.commit(Commit(children=[Child(workflow_id="there", workflow_type="x", workflow_input=b"\x01")]))


async def test_messages_have_their_senders(place: Place) -> None:
    async def sender(ctx: Context, _given: Any) -> str:
        await ctx.signal("news", 1, to="there")
        return ctx.ray_id

    await place.store.start(workflow_id="there", type="order", input=b"\xf6")
    await place.store.send("there", name="news", body=b"\x01", ray_id="outside")
    await place.store.send("there", name="news", body=b"\x01", message_id="m", ray_id="outside-too")
    await place.store.send("there", name="news", body=b"\x01")
    await place.store.start(workflow_id="here", type="order", input=b"\xf6", ray_id=RAY)
    driver = await place.claimed("here")
    assert (await run_workflow("here", sender, None, driver).result).output == RAY
    items = await place.items("there")
    rays = [item.get("ray_id", {}).get("S") for name, item in items.items() if name.startswith("MSG#")]
    assert rays == ["outside", "outside-too", None, RAY]
    there = await place.claimed("there")
    await there.message_driver.refresh()
    received = await there.message_driver.receive([], 10)
    assert [message.ray_id for message in received] == ["outside", "outside-too", "", RAY]


async def test_publications_have_their_publishers(place: Place) -> None:
    driver = await place.started(ray_id=RAY)
    published = [Publication(id="p1", name="progress", body=b"\x01", sent_at=place.clock.now())]
    await driver.commit(Commit(puts=[(b"k", b"v")], published=published))
    tail = await place.store.messages("progress", topic=None, after=None, limit=10)
    assert [message.ray_id for message in tail.messages] == [RAY]


async def test_a_workflow_of_an_older_build_has_none(moto_place: Place) -> None:
    await moto_place.store.start(workflow_id="w", type="order", input=b"\x01")
    await moto_place.client.update_item(
        TableName=moto_place.table,
        Key={"pk": {"S": "w"}, "sk": {"S": "HEAD"}},
        UpdateExpression="REMOVE ray_id",
    )
    assert await ray_of(moto_place, "w") == ""
    driver = await moto_place.claimed()
    await driver.commit(Commit(children=[Child(workflow_id="child", workflow_type="order", workflow_input=b"\x01")]))
    assert await ray_of(moto_place, "child") == ""
