"""What each thing costs in write units, on the emulator that bills as AWS does. Records are under 1 KB."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from adapters.dynamodb.model.expressions import item_bytes
from adapters.dynamodb.model.items import Head
from adapters.dynamodb.model.limits import FIND_PAGE_ITEMS
from adapters.dynamodb.model.tags import tag_items
from adapters.dynamodb.store import NotDue
from adapters.dynamodb.table import Table
from engine.commit import Alarm, Child, Commit, Outgoing, Publication
from engine.entry import Message
from engine.lifecycle import WorkflowState

if TYPE_CHECKING:
    from typing import Any

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
    costs: list[float] = []
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


async def test_a_wait_for_an_end_and_the_end(ministack_place: Place) -> None:
    place = ministack_place
    parent = await place.started("parent")
    children = [Child(workflow_id=f"c{number}", workflow_type="order", workflow_input=b"\x01") for number in range(4)]
    await parent.commit(Commit(children=children))
    awaits = Commit(puts=STEP.puts, yields=True, awaited=("c0",), state=WorkflowState.SLEEPING)
    # A yield, 7; WAITS, 2; a note with the other and its count, 1 each.
    assert await cost_of(parent, awaits) == 7 + 2 + 2
    ended = Commit(puts=STEP.puts, alarm=Alarm(None), state=WorkflowState.COMPLETED)
    child = await place.claimed("c0")
    # What it costs without anybody who waits; then the waiter's INBOX and its place in the index, and HEAD leaving it.
    assert await cost_of(child, ended) == 9 + 5
    parent = await place.claimed("parent")
    several = Commit(puts=STEP.puts, yields=True, awaited=("c1", "c2", "c3"), state=WorkflowState.SLEEPING)
    costs = [await cost_of(parent, several)]
    place.clock.shift_ms += 60_000
    await place.store.wake("parent")
    costs.append(await cost_of(await place.claimed("parent"), several))
    # Notes that stand are not left again.
    assert costs == [8 + 2 + 2 * 3, 7]


async def test_a_signal(ministack_place: Place) -> None:
    place = ministack_place
    sender = await place.started("sender")
    await (await place.started("target")).commit(Commit(yields=True, names=()))
    costs = []
    for _ in range(2):
        before = sender.meter.write_units
        ticket = await sender.peers.reserve("target")
        message = Message(id="m", name="go", body=bytes(100), sent_at=place.clock.now(), ticket=ticket)
        await sender.commit(Commit(puts=STEP.puts, outgoing=[Outgoing(workflow_id="target", message=message)]))
        costs.append(sender.meter.write_units - before)
    # A step, 4; the message, 2; a ticket, 1, and 1 for its place in the index, where it is not there already.
    assert costs == [8, 7]


async def test_what_it_costs_to_find_one_of_ten_thousand(ministack_place: Place) -> None:
    place = ministack_place
    puts: list[dict[str, Any]] = []
    for number in range(10_000):
        tags = {"tenant": "one", "order": f"{number:05d}", "day": f"{number % 1000}"}
        head = Head(workflow_id=f"w{number:05d}", type="order", tags=tags, created_at=0, updated_at=0)
        puts += tag_items(head)
    table = Table(place.client, place.table, place.clock, random=lambda: 0.0)
    for first in range(0, len(puts), 2500):
        await table.batch_write(puts[first : first + 2500], [])

    async def found(tags: dict[str, str], limit: int) -> tuple[int, int]:
        place.client.calls.clear()
        ids = await place.store.find("order", tags, limit=limit)
        return len(ids), len(place.client.calls)

    assert await found({"order": "07000"}, 10) == (1, 1)
    assert await found({"day": "7", "tenant": "one"}, 10) == (10, 1)
    assert await found({"tenant": "one"}, 1) == (1, 1)
    # The other way round every item of the tenant is read.
    assert await found({"tenant": "one", "order": "09999"}, 1) == (1, 10_000 // FIND_PAGE_ITEMS)
    of_the_tenant = sum(item_bytes(item) for item in puts if item["pk"]["S"].endswith("=one"))
    assert 150 < of_the_tenant / 4096 < 250


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
    # Ticket 1, of the first one also its index 1; message 1; with an id message and memory of it in a transaction.
    assert costs == [6, 2, 5]
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
