"""A start under the id of a workflow that is being purged: at once, with the inbox that is there and nothing else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from adapters.dynamodb.model.limits import OUTSTANDING_MAX_MS, SUCCESSION_MS
from adapters.dynamodb.store import Claimed
from engine.errors import FencedError, StartConflictError, WorkflowNotEndedError
from tests.contract.aws import Answer
from tests.contract.test_purge import ended

if TYPE_CHECKING:
    from adapters.dynamodb.start import Started
    from adapters.dynamodb.store import Store
    from tests.contract.aws import Place


async def followed(store: Store, workflow_input: bytes = b"\x02") -> Started:
    return await store.start(workflow_id="w", type="other", input=workflow_input, may_follow=True)


async def bodies(place: Place) -> list[bytes]:
    driver = await place.claimed()
    return [message.body for message in await driver.message_driver.receive([], 10)]


async def test_an_id_is_free_at_once_and_nothing_of_the_earlier_life_is_seen(place: Place) -> None:
    await ended(place)
    assert (await place.store.purge("w")).again_at is not None
    assert (await followed(place.store)).created
    assert not (await followed(place.store)).created
    assert set(await place.items()) == {"HEAD", "INBOX", "LOG#000000000001"}
    assert not (await place.store.send("w", name="go", body=b"\x03", message_id="once")).duplicate
    driver = await place.claimed()
    assert [message.body for message in await driver.message_driver.receive([], 10)] == [b"\x03"]
    assert [value for _, value in await driver.list(b"")] == [b"\x02"]


async def test_the_rest_of_the_purge_has_nothing_to_do_any_more(moto_place: Place) -> None:
    place = moto_place
    await ended(place)
    progress = await place.store.purge("w")
    await followed(place.store)
    assert progress.again_at is not None
    place.clock.shift_ms += progress.again_at - place.clock.now()
    with pytest.raises(WorkflowNotEndedError):
        await place.store.purge("w", is_begun=True)
    assert isinstance(await place.store.claim("w"), Claimed)


async def test_a_message_whose_sender_was_slow_is_for_the_later_life_and_counts_once(moto_place: Place) -> None:
    place = moto_place
    await place.started()
    other = place.another("two")

    async def meanwhile() -> None:
        # It has its place in the inbox of the earlier life, and its message is not there yet.
        await other.cancel("w")
        assert (await other.purge("w")).again_at is not None
        assert (await followed(other)).created
        assert not (await other.send("w", name="go", body=b"\x07")).duplicate

    place.client.plan["put_item"] = [meanwhile]
    await place.store.send("w", name="go", body=b"\x06")
    assert await bodies(place) == [b"\x06", b"\x07"]


async def test_a_sender_that_never_comes_back_is_waited_for_no_longer_than_in_any_life(moto_place: Place) -> None:
    place = moto_place
    await place.started()
    place.client.plan["put_item"] = [Answer("ValidationException")]
    with pytest.raises(Exception, match="w"):
        await place.store.send("w", name="go", body=b"\x06")
    await place.store.cancel("w")
    await place.store.purge("w")
    await followed(place.store)
    driver = await place.claimed()
    assert driver._inbox.account.is_outstanding
    place.clock.shift_ms += OUTSTANDING_MAX_MS
    await driver.refresh()
    assert not driver._inbox.account.is_outstanding


async def test_of_two_starts_at_once_one_is_it_and_another_input_is_refused(place: Place) -> None:
    await ended(place)
    await place.store.purge("w")
    # Only pauses that outlast a call keep them from getting in each other's way again.
    place.clock.haste = 1
    stores = [place.another(f"s{number}") for number in range(4)]
    answers = await asyncio.gather(*(followed(store) for store in stores))
    assert [started.created for started in answers].count(True) == 1
    with pytest.raises(StartConflictError, match="another input"):
        await followed(place.store, b"\x09")


async def test_starts_that_take_a_purge_out_of_each_others_hands_come_to_an_end(moto_place: Place) -> None:
    place = moto_place
    await ended(place)
    await place.store.purge("w")
    # Who has said in HEAD that it goes on with the purge, in this order.
    marks: list[Any] = []

    async def the_other_goes_on_with_the_purge() -> None:
        for _ in range(20):
            if marks[-1:] != [asyncio.current_task()]:
                break
            await asyncio.sleep(0.001)
        # By then it has come there.
        await asyncio.sleep(0.01)

    def chance(operation: str) -> Any:
        if operation == "update_item":
            marks.append(asyncio.current_task())
        return the_other_goes_on_with_the_purge if operation == "transact_write_items" else None

    place.client.chance = chance
    place.clock.haste = 1
    answers = await asyncio.gather(*(followed(place.another(name)) for name in ("one", "two")))
    assert sorted(started.created for started in answers) == [False, True]


async def test_what_a_purge_has_left_is_deleted_first(moto_place: Place) -> None:
    place = moto_place
    await ended(place, rows=260)
    await place.store.purge("w", until=0)
    assert len(await place.items()) > 100
    assert (await followed(place.store)).created
    assert set(await place.items()) == {"HEAD", "INBOX", "LOG#000000000001"}


async def test_a_start_that_would_have_to_delete_too_much_is_refused(moto_place: Place) -> None:
    place = moto_place
    await ended(place, rows=300)
    await place.store.purge("w", until=0)

    async def slowly() -> None:
        place.clock.shift_ms += SUCCESSION_MS

    place.client.plan["transact_write_items"] = [None, slowly]
    with pytest.raises(StartConflictError, match="being purged"):
        await followed(place.store)


async def test_who_was_frozen_in_the_purge_deletes_nothing_of_the_later_life(moto_place: Place) -> None:
    place = moto_place
    await ended(place, rows=120)

    async def meanwhile() -> None:
        assert (await followed(place.another("two"))).created

    place.client.plan["transact_write_items"] = [None, meanwhile]
    with pytest.raises(FencedError):
        await place.store.purge("w")
    assert set(await place.items()) == {"HEAD", "INBOX", "LOG#000000000001"}
    assert await place.claimed() is not None


async def test_a_holder_of_the_earlier_life_writes_nothing_into_the_later_one(moto_place: Place) -> None:
    place = moto_place
    driver = await place.started()
    await place.another("two").cancel("w")
    await place.store.purge("w")
    await followed(place.store)
    with pytest.raises(FencedError):
        await driver.set_alarm("w", 1)


async def test_a_start_whose_answer_was_lost_knows_that_it_was_the_one(moto_place: Place) -> None:
    place = moto_place
    await ended(place)
    await place.store.purge("w")
    # Refused for the HEAD that is there; then the one that counts.
    place.client.plan["transact_write_items"] = [None, ("after", Answer("InternalServerError"))]
    assert (await followed(place.store)).created
