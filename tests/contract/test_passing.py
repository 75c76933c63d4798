"""Many unread messages that nobody waits for: wakes for further ones read these alone, and none of use is missed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from adapters.dynamodb import lease
from adapters.dynamodb.model.limits import OUTSTANDING_MAX_MS, PASSED_UNREAD_MIN
from adapters.dynamodb.store import Claimed, NotDue
from engine.commit import Alarm, Commit
from engine.lifecycle import WorkflowState
from tests.contract.aws import Answer

if TYPE_CHECKING:
    from tests.contract.aws import Place

MANY = 5
"""Unread messages that are many here."""

WAITS = Commit(yields=True, names=("go",), state=WorkflowState.SLEEPING)


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "PASSED_UNREAD_MIN", MANY)


async def send(place: Place, name: str, body: bytes = b"\x01", count: int = 1) -> None:
    for _ in range(count):
        await place.store.send("w", name=name, body=body)


async def full(place: Place, unread: int = MANY) -> None:
    """A workflow that waits for ``go``, and has others unread."""
    driver = await place.started()
    await send(place, "other", count=unread)
    await driver.refresh()
    await driver.commit(WAITS)


async def read(place: Place, claims: int = 1) -> int:
    """How many items so many claims, for which there is nothing to do, have got from queries."""
    count = 0
    operation = place.client._client.query

    async def counted(**arguments: Any) -> Any:
        nonlocal count
        answer = await operation(**arguments)
        count += len(answer["Items"])
        return answer

    place.client._client.query = counted
    try:
        for _ in range(claims):
            assert isinstance(await place.store.claim("w"), NotDue)
    finally:
        place.client._client.query = operation
    return count


async def test_a_wake_for_what_nobody_waits_for_reads_the_new_messages_alone(moto_place: Place) -> None:
    place = moto_place
    await full(place)
    for _ in range(3):
        await send(place, "other")
        # Its own, and no other item of the partition: neither its history nor what is unread.
        assert await read(place) == 1
    assert await read(place) == 0
    await send(place, "go", b"\x07")
    driver = await place.claimed()
    found = await driver.message_driver.receive(["go"], 10)
    assert [message.body for message in found] == [b"\x07"]
    assert len(await driver.message_driver.receive([], 100)) == MANY + 4


async def test_one_with_few_unread_is_loaded_as_ever(moto_place: Place) -> None:
    await full(moto_place, MANY - 1)
    await send(moto_place, "other")
    assert await read(moto_place) > MANY
    # By now there are as many.
    await send(moto_place, "other")
    assert await read(moto_place) == 1


async def test_when_its_time_has_come_all_are_there_whatever_it_asks_for(moto_place: Place) -> None:
    place = moto_place
    driver = await place.started()
    await send(place, "other", count=MANY)
    await driver.refresh()
    wake_at = place.clock.now() + 60_000
    await driver.commit(Commit(alarm=Alarm(wake_at), yields=True, names=("go",), state=WorkflowState.SLEEPING))
    await send(place, "other")
    assert await read(place) == 1
    place.clock.shift_ms += 60_000
    driver = await place.claimed()
    assert len(await driver.message_driver.receive(["other"], 100)) == MANY + 1


async def test_a_slow_sender_under_an_older_ticket_is_heard(moto_place: Place) -> None:
    place = moto_place
    await full(place)
    other = place.another("two")

    async def slowly() -> None:
        # Its ticket is given up for lost, and messages behind it are looked at.
        await send(place, "other")
        assert isinstance(await other.claim("w"), NotDue)
        place.clock.shift_ms += OUTSTANDING_MAX_MS
        await send(place, "other")
        assert isinstance(await other.claim("w"), NotDue)

    place.client.plan["put_item"] = [slowly]
    await place.store.send("w", name="go", body=b"\x07")
    driver = await place.claimed()
    assert [message.body for message in await driver.message_driver.receive(["go"], 10)] == [b"\x07"]


async def test_messages_that_come_while_it_is_given_back_are_not_missed(moto_place: Place) -> None:
    place = moto_place
    await full(place)
    await send(place, "other")
    names = iter(["other", "go"])

    async def meanwhile() -> None:
        await send(place, next(names), b"\x07")

    place.client.plan["transact_write_items"] = [meanwhile, meanwhile]
    driver = await place.claimed()
    assert [message.body for message in await driver.message_driver.receive(["go"], 10)] == [b"\x07"]


async def test_messages_that_keep_coming_end_the_looking(moto_place: Place) -> None:
    place = moto_place
    await full(place)

    async def meanwhile() -> None:
        await send(place, "other")

    place.client.plan["transact_write_items"] = [meanwhile] * 20
    assert isinstance(await place.store.claim("w"), Claimed)


async def test_what_went_back_to_its_old_place_before_the_process_died_is_there(moto_place: Place) -> None:
    place = moto_place
    await full(place)
    await send(place, "go", b"\x07")
    driver = await place.claimed()
    [message] = await driver.message_driver.receive(["go"], 1)
    await driver.commit(Commit(consumed=[message.id]))
    await driver.commit(Commit(returned=[message]))
    await driver._hold.release(place.clock.now() + 3_600_000)
    # Ahead of its time, and without any new ticket: history has changed since it yielded, so it is looked at whole.
    assert (await place.items())["HEAD"].get("unread") is None
    driver = await place.claimed()
    assert [found.body for found in await driver.message_driver.receive(["go"], 10)] == [b"\x07"]


async def test_an_end_that_is_told_of_is_heard(moto_place: Place) -> None:
    place = moto_place
    await place.store.start(workflow_id="child", type="order", input=b"\x01")
    driver = await place.started()
    await send(place, "other", count=MANY)
    await driver.refresh()
    await driver.commit(Commit(yields=True, names=("go",), awaited=("child",), state=WorkflowState.SLEEPING))
    await send(place, "other")
    assert await read(place) == 1
    await place.store.cancel("child")
    await place.store.claim("child")
    assert isinstance(await place.store.claim("w"), Claimed)


async def test_a_failure_in_between_leaves_it_to_be_claimed_again(moto_place: Place) -> None:
    place = moto_place
    await full(place)
    await send(place, "other")
    place.client.plan["transact_write_items"] = [("after", Answer("InternalServerError"))]
    assert isinstance(await place.store.claim("w"), NotDue)
    await send(place, "go")
    assert isinstance(await place.store.claim("w"), Claimed)


def test_what_counts_as_many_is_worth_a_look() -> None:
    # A message of a hundred bytes is a fortieth of a read unit, one of a kilobyte a quarter.
    assert PASSED_UNREAD_MIN * 100 > 2 * 4096
