"""Messages of one workflow to another: a place in the inbox first, then the message in the sender's commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from adapters.dynamodb.model.limits import OUTSTANDING_MAX_MS, SEND_SLOW_MS
from adapters.dynamodb.store import NotDue
from engine.commit import Commit, Outgoing
from engine.entry import Message
from engine.errors import StoreUnavailableError, WorkflowEndedError, WorkflowNotFoundError
from engine.lifecycle import WorkflowState

if TYPE_CHECKING:
    from adapters.dynamodb.driver import DynamoDriver
    from tests.contract.aws import Place

WAITS = Commit(yields=True, names=("go",), state=WorkflowState.SLEEPING)


async def signal_to(driver: DynamoDriver, target: str, body: bytes = b"", message_id: str = "s1") -> Outgoing:
    """A message that has its place in the inbox of ``target``."""
    sent_at = driver.clock.now()
    ticket = await driver.peers.reserve(target)
    message = Message(id=message_id, name="go", body=body, sent_at=sent_at, ticket=ticket)
    return Outgoing(workflow_id=target, message=message)


async def waiting(place: Place, target: str = "target") -> None:
    """Somebody who sleeps until a message comes."""
    await place.store.start(workflow_id=target, type="order", input=b"")
    await (await place.claimed(target)).commit(WAITS)


async def test_a_signal_rides_in_the_senders_commit(place: Place) -> None:
    await waiting(place)
    driver = await place.started()
    outgoing = await signal_to(driver, "target", b"\x09")
    await driver.commit(Commit(puts=[(b"k", b"v")], outgoing=[outgoing]))
    assert driver.made_due == {"target"}
    assert await place.due() == {"target"}
    target = await place.claimed("target")
    [found] = await target.message_driver.receive((), 9)
    assert (found.id, found.body, found.ticket) == ("s1", b"\x09", 1)


async def test_a_signal_keeps_the_place_that_it_had_before_its_commit(place: Place) -> None:
    await waiting(place)
    driver = await place.started()
    outgoing = await signal_to(driver, "target")
    await place.store.send("target", name="go", body=b"\x02", message_id="s2")
    await driver.commit(Commit(outgoing=[outgoing]))
    target = await place.claimed("target")
    assert [found.id for found in await target.message_driver.receive((), 9)] == ["s1", "s2"]


async def test_a_place_whose_sender_dies_holds_nobody_up_for_good(place: Place) -> None:
    await waiting(place)
    await (await place.started()).peers.reserve("target")
    assert await place.due() == {"target"}
    await take_looks(place, "target")


async def test_a_signal_that_took_too_long_asks_to_be_looked_at(place: Place) -> None:
    await waiting(place)
    driver = await place.started()
    outgoing = await signal_to(driver, "target")

    async def stall() -> None:
        await take_looks(place, "target")

    place.client.plan["transact_write_items"] = [stall]
    await driver.commit(Commit(outgoing=[outgoing]))
    assert "target" in await place.due()
    target = await place.claimed("target")
    assert [found.id for found in await target.message_driver.receive((), 9)] == ["s1"]


async def test_a_signal_whose_place_was_given_up_before_its_commit_takes_another(place: Place) -> None:
    await waiting(place)
    driver = await place.started()
    outgoing = await signal_to(driver, "target")
    await take_looks(place, "target")
    await driver.commit(Commit(outgoing=[outgoing]))
    assert await place.due() >= {"target"}
    target = await place.claimed("target")
    assert [(found.id, found.ticket) for found in await target.message_driver.receive((), 9)] == [("s1", 2)]


@pytest.mark.parametrize("is_divided", [True, False])
async def test_signals_stay_in_order_where_the_first_of_them_takes_another_place(
    place: Place, *, is_divided: bool
) -> None:
    await waiting(place)
    await waiting(place, "other")
    driver = await place.started()
    signals = [await signal_to(driver, "target", message_id="s1")]
    place.clock.shift_ms += SEND_SLOW_MS - 5_000
    signals += [await signal_to(driver, "target", message_id=f"s{number}") for number in (2, 3)]
    signals.append(await signal_to(driver, "other", message_id="o1"))
    place.clock.shift_ms += 6_000
    for commit in [signals[:1], signals[1:]] if is_divided else [signals]:
        await driver.commit(Commit(outgoing=commit))
    target = await place.claimed("target")
    assert [found.id for found in await target.message_driver.receive((), 9)] == ["s1", "s2", "s3"]
    # Nobody else pays for it.
    assert (await place.items("other"))["INBOX"]["n"]["N"] == "1"


async def test_a_signal_that_is_too_late_for_its_target_is_asked_for_anew(place: Place) -> None:
    target = await place.started("target")
    driver = await place.started()
    outgoing = await signal_to(driver, "target")
    await target.commit(Commit(state=WorkflowState.FAILED))
    place.clock.shift_ms += SEND_SLOW_MS + 1
    with pytest.raises(StoreUnavailableError, match="too late for 'target'"):
        await driver.commit(Commit(puts=[(b"k", b"v")], outgoing=[outgoing]))
    await driver.release(wake_at=driver.clock.now())
    again = await place.claimed()
    assert await again.get(b"k") is None
    with pytest.raises(WorkflowEndedError):
        await again.peers.reserve("target")


async def test_who_has_ended_since_has_the_message_all_the_same(place: Place) -> None:
    target = await place.started("target")
    driver = await place.started()
    outgoing = await signal_to(driver, "target")
    await target.commit(Commit(state=WorkflowState.FAILED))
    await driver.commit(Commit(outgoing=[outgoing]))
    items = await place.items("target")
    assert [item["id"]["S"] for key, item in items.items() if key.startswith("MSG#")] == ["s1"]


async def take_looks(place: Place, workflow_id: str) -> None:
    """Somebody looks at a workflow, and again when the outstanding ticket is given up."""
    assert await place.store.claim(workflow_id) == NotDue(None, awaits_sender=True)
    place.clock.shift_ms += OUTSTANDING_MAX_MS
    assert await place.store.claim(workflow_id) == NotDue(None)
    assert workflow_id not in await place.due(ahead_ms=10**9)


async def test_there_is_no_place_with_nobody(place: Place) -> None:
    driver = await place.started()
    await place.store.start(workflow_id="ended", type="order", input=b"")
    await (await place.claimed("ended")).commit(Commit(state=WorkflowState.COMPLETED))
    for target, error in (("never", WorkflowNotFoundError), ("", WorkflowNotFoundError), ("ended", WorkflowEndedError)):
        with pytest.raises(error):
            await driver.peers.reserve(target)
