"""What each thing costs in write units, on the emulator that bills as AWS does. Records are under 1 KB."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from adapters.dynamodb.store import NotDue
from engine.commit import Alarm, Child, Commit, Publication
from engine.lifecycle import WorkflowState

if TYPE_CHECKING:
    from adapters.dynamodb.driver import DynamoDriver
    from tests.contract.aws import Place

STEP = Commit(puts=[(b"entry", bytes(100)), (b"metadata", bytes(100)), (b"name", b"charge")])


async def cost_of(driver: DynamoDriver, commit: Commit) -> float:
    before = driver.meter.write_units
    await driver.commit(commit)
    return driver.meter.write_units - before


async def test_a_start(ministack_place: Place) -> None:
    store = ministack_place.store
    await store.start(workflow_id="first", type="order", input=b"\x01")
    before = store.meter.write_units
    await store.start(workflow_id="w", type="order", input=b"\x01")
    assert store.meter.write_units - before == 6
    before = store.meter.write_units
    await store.start(workflow_id="w", type="order", input=b"\x01")
    assert store.meter.write_units == before


async def test_tags_a_place_and_children(ministack_place: Place) -> None:
    place = ministack_place
    driver = await place.started("first")
    costs = []
    for tags, unique in (({"customer": "7"}, False), ({"customer": "7", "city": "Ulm"}, False), ({"a": "b"}, True)):
        before = place.store.meter.write_units
        workflow_id = f"w{len(costs)}"
        await place.store.start(workflow_id=workflow_id, type="order", input=b"\x01", tags=tags, unique=unique)
        costs.append(place.store.meter.write_units - before)
    # Each tag is two, and so is a place; both again with the end.
    assert costs == [8, 10, 10]
    ended = Commit(puts=STEP.puts, alarm=Alarm(None), state=WorkflowState.COMPLETED)
    assert await cost_of(await place.claimed("w1"), ended) == 9 + 4
    assert await cost_of(await place.claimed("w2"), ended) == 9 + 4
    assert await cost_of(await place.started("w3"), ended) == 9
    child = Child(workflow_id="child", workflow_type="order", workflow_input=b"\x01")
    assert await cost_of(driver, Commit(puts=STEP.puts, children=[child])) == 4 + 6
    before = driver.meter.read_units
    assert await driver.peers.find("order", {"customer": "7"}, 10) == ["w0"]
    await driver.peers.peek("child")
    assert driver.meter.read_units - before == 2


async def test_a_claim_a_step_a_yield_and_an_end(ministack_place: Place) -> None:
    driver = await ministack_place.started()
    assert driver.meter.write_units == 3
    assert await cost_of(driver, STEP) == 4
    assert await cost_of(driver, Commit(puts=[(bytes([key]), b"v") for key in range(100)])) == 4
    assert await cost_of(driver, Commit(puts=STEP.puts, state=WorkflowState.RUNNING)) == 4
    waits = Commit(puts=STEP.puts, yields=True, names=("go",), state=WorkflowState.SLEEPING)
    assert await cost_of(driver, waits) == 7
    ended = Commit(puts=STEP.puts, alarm=Alarm(None), state=WorkflowState.COMPLETED)
    assert await cost_of(driver, ended) == 8
    assert await cost_of(driver, Commit(alarm=Alarm(None))) == 0


@pytest.mark.parametrize(("has_record", "units"), [(True, 8), (False, 6)])
async def test_a_yield_with_an_alarm_moves_in_the_index(
    ministack_place: Place, *, has_record: bool, units: int
) -> None:
    driver = await ministack_place.started()
    alarm = Alarm(ministack_place.clock.now() + 5000)
    puts = STEP.puts if has_record else []
    assert await cost_of(driver, Commit(puts=puts, alarm=alarm, yields=True)) == units


async def test_a_message(ministack_place: Place) -> None:
    place = ministack_place
    driver = await place.started()
    await driver.commit(Commit(yields=True, names=()))
    costs = []
    for message_id in ("first", None, "once"):
        before = place.store.meter.write_units
        await place.store.send("w", name="go", body=bytes(500), message_id=message_id)
        costs.append(place.store.meter.write_units - before)
    # Ticket 1 and its index 2 (the first one: 1), message 1; with an id message and memory of it in a transaction.
    assert costs == [6, 4, 7]
    driver = await place.claimed()
    taken = await driver.message_driver.receive((), 1)
    assert await cost_of(driver, Commit(puts=STEP.puts, consumed=[taken[0].id])) == 6
    assert await cost_of(driver, Commit(puts=STEP.puts, yields=True, names=())) == 8


async def test_a_publication(ministack_place: Place) -> None:
    driver = await ministack_place.started()
    now = ministack_place.clock.now()
    published = [Publication(id=f"id-{number}", name="progress", body=bytes(500), sent_at=now) for number in range(3)]
    # Two units a kilobyte of each, on top of what the commit costs anyway.
    assert await cost_of(driver, Commit(puts=STEP.puts, published=published[:1])) == 6
    assert await cost_of(driver, Commit(puts=STEP.puts, published=published[1:])) == 8


async def test_a_wake_for_nothing(ministack_place: Place) -> None:
    place = ministack_place
    driver = await place.started()
    await driver.commit(Commit(yields=True, alarm=Alarm(place.clock.now() + 60_000)))
    assert isinstance(await place.store.claim("w"), NotDue)


async def test_a_loop_costs_little_more_than_its_steps(ministack_place: Place) -> None:
    driver = await ministack_place.started()
    count = 400
    before = driver.meter.write_units
    for number in range(count):
        puts = [(b"state", bytes(80)), (b"entry%d" % (number % 20), bytes(80))]
        await driver.commit(Commit(puts=puts))
    units = (driver.meter.write_units - before) / count
    assert 4 < units < 5.2
    assert len(await ministack_place.items()) < 300
