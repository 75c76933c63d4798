"""Starting, claiming and giving up: who may run a workflow, and that one that can go on is always due."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from adapters.dynamodb.model.limits import LEASE_MS
from adapters.dynamodb.store import Claimed, Ended, Held, NotDue, NotFound
from engine.commit import Alarm, Commit
from engine.errors import FencedError, InvalidIdError, StartConflictError, ValueTooLargeError
from engine.keys import INPUT_KEY
from engine.lifecycle import WorkflowState

if TYPE_CHECKING:
    from tests.contract.aws import Place

WAITS = Commit(yields=True, names=("go",), state=WorkflowState.SLEEPING)


# --- starting -----------------------------------------------------------------------------------------------------


async def test_a_start_counts_once(place: Place) -> None:
    first = await place.store.start(workflow_id="w", type="order", input=b"\x01", tags={"customer": "7"})
    again = await place.another("two").start(workflow_id="w", type="order", input=b"\x01")
    assert (first.created, again.created) == (True, False)
    assert await place.due() == {"w"}
    driver = await place.claimed()
    assert await driver.list(b"") == [(INPUT_KEY, b"\x01")]
    assert (driver.type, driver.tags, driver.deaths, driver.wakes) == ("order", {"customer": "7"}, 0, 1)
    assert driver.started_at == driver.head.created_at


@pytest.mark.parametrize(("workflow_type", "workflow_input"), [("order", b"\x02"), ("other", b"\x01")])
async def test_another_start_under_the_same_id_is_a_conflict(
    place: Place, workflow_type: str, workflow_input: bytes
) -> None:
    await place.store.start(workflow_id="w", type="order", input=b"\x01")
    before = await place.items()
    with pytest.raises(StartConflictError):
        await place.store.start(workflow_id="w", type=workflow_type, input=workflow_input)
    assert await place.items() == before


async def test_a_later_start_is_due_then(place: Place) -> None:
    start_at = place.clock.now() + 60_000
    await place.store.start(workflow_id="w", type="order", input=b"\x01", start_at=start_at)
    assert await place.due() == set()
    assert await place.due(ahead_ms=60_001) == {"w"}
    assert await place.store.claim("w") == NotDue(start_at)
    assert await place.due(ahead_ms=60_001) == {"w"}
    place.clock.shift_ms += 60_000
    await place.claimed()


async def test_a_start_in_the_past_is_due_now(place: Place) -> None:
    await place.store.start(workflow_id="w", type="order", input=b"\x01", start_at=5)
    assert isinstance(await place.store.claim("w"), Claimed)


async def test_what_cannot_be_started_leaves_nothing(place: Place) -> None:
    with pytest.raises(ValueTooLargeError):
        await place.store.start(workflow_id="w", type="order", input=bytes(3_000_001))
    for arguments in ({"workflow_id": ""}, {"type": ""}, {"tags": {"": "x"}}):
        with pytest.raises(InvalidIdError):
            await place.store.start(**{"workflow_id": "w", "type": "order", "input": b""} | arguments)
    assert await place.items() == {}


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_the_largest_input_comes_back(place: Place) -> None:
    given = bytes(range(256)) * (3_000_000 // 256)
    await place.store.start(workflow_id="w", type="order", input=given)
    assert await (await place.claimed()).get(INPUT_KEY) == given


IDS = ["a", "a/b", "a#b", "HEAD", "INBOX", "LOG#000000000001", "ä", "a ", " a", "😀", "A", "TYPES", "DEDUP#1"]


async def test_no_id_touches_another(place: Place) -> None:
    for number, workflow_id in enumerate(IDS):
        await place.store.start(workflow_id=workflow_id, type="order", input=bytes([number]))
        await place.store.send(workflow_id, name="go", body=bytes([number]), message_id="same")
    assert await place.due() == set(IDS)
    for number, workflow_id in enumerate(IDS):
        driver = await place.claimed(workflow_id)
        assert await driver.list(b"") == [(INPUT_KEY, bytes([number]))]
        assert [found.body for found in await driver.message_driver.receive((), 9)] == [bytes([number])]
        await driver.commit(Commit(prefixes=[b""], consumed=["same"], state=WorkflowState.COMPLETED))
    assert await place.due() == set()
    page = await place.store.list(limit=100)
    assert {item.workflow_id for item in page.items} == set(IDS)


# --- claiming -----------------------------------------------------------------------------------------------------


async def test_only_one_of_two_holds_it(place: Place) -> None:
    await place.store.start(workflow_id="w", type="order", input=b"\x01")
    driver = await place.claimed()
    assert await place.another("two").claim("w") == Held(driver.lease_until)
    assert await place.due() == set()
    assert await place.due(ahead_ms=LEASE_MS + 1) == {"w"}


async def test_a_claim_of_nothing_is_nothing(place: Place) -> None:
    assert await place.store.claim("never") == NotFound()
    assert await place.items("never") == {}


async def test_no_lease_goes_past_the_deadline(place: Place) -> None:
    await place.store.start(workflow_id="w", type="order", input=b"\x01")
    deadline_ms = place.clock.now() + 10_000
    claim = await place.store.claim("w", lease_ms=60_000, deadline_ms=deadline_ms)
    assert isinstance(claim, Claimed)
    assert claim.driver.lease_until == deadline_ms
    await claim.driver.renew(60_000)
    assert claim.driver.lease_until == deadline_ms


async def test_after_a_death_another_takes_over_and_the_dead_cannot_write(place: Place) -> None:
    dead = await place.started()
    await dead.commit(Commit(puts=[(b"k", b"1")]))
    place.clock.shift_ms += LEASE_MS + 1
    driver = await place.claimed(store=place.another("two"))
    assert (driver.deaths, driver.wakes) == (1, 2)
    assert await driver.get(b"k") == b"1"
    for write in (dead.commit(Commit(puts=[(b"k", b"zombie")])), dead.renew(), dead.release(wake_at=0)):
        with pytest.raises(FencedError):
            await write
    with pytest.raises(FencedError):
        await dead.set(b"k", b"zombie")
    await driver.commit(Commit(puts=[(b"j", b"2")]))
    assert driver.deaths == 0
    assert await place.store.history("w") == [(INPUT_KEY, b"\x01"), (b"j", b"2"), (b"k", b"1")]


async def test_deaths_add_up_until_a_commit(place: Place) -> None:
    await place.started()
    for deaths in (1, 2, 3):
        place.clock.shift_ms += LEASE_MS + 1
        driver = await place.claimed()
        assert driver.deaths == deaths
    await driver.release(wake_at=place.clock.now())
    driver = await place.claimed()
    assert driver.deaths == 3
    await driver.commit(Commit(puts=[(b"k", b"1")]))
    await driver.release(wake_at=place.clock.now())
    assert (await place.claimed()).deaths == 0


async def test_a_heartbeat_keeps_a_lease(place: Place) -> None:
    driver = await place.started()
    for _ in range(3):
        place.clock.shift_ms += LEASE_MS - 10_000
        await driver.renew()
        assert isinstance(await place.another("two").claim("w"), Held)
        assert await place.due() == set()


async def test_commits_keep_a_lease_too(place: Place) -> None:
    driver = await place.started()
    for number in range(4):
        place.clock.shift_ms += LEASE_MS - 25_000
        await driver.commit(Commit(puts=[(b"k", bytes([number]))]))
        assert isinstance(await place.another("two").claim("w"), Held)


async def test_an_eviction_leaves_it_due(place: Place) -> None:
    driver = await place.started()
    now = place.clock.now()
    await driver.release(wake_at=now)
    assert await place.due() == {"w"}
    driver = await place.claimed()
    assert driver.deaths == 0
    await driver.release(wake_at=now + 60_000)
    assert await place.store.claim("w") == NotDue(now + 60_000)
    assert await place.due() == set()
    place.clock.shift_ms += 60_000
    assert await place.due() == {"w"}
    await place.claimed()


# --- sleeping and ending ------------------------------------------------------------------------------------------


async def test_who_has_given_it_up_writes_no_more(place: Place) -> None:
    driver = await place.started()
    await driver.release(wake_at=place.clock.now())
    # What was left running, because it hears of no end, comes to its commit.
    with pytest.raises(FencedError):
        await driver.commit(Commit(puts=[(b"k", b"v")]))
    with pytest.raises(FencedError):
        await driver.renew()
    assert (await place.claimed(store=place.another("two"))).deaths == 0


async def test_a_sleeper_is_due_at_its_alarm(place: Place) -> None:
    driver = await place.started()
    wake_at = place.clock.now() + 5000
    await driver.commit(Commit(alarm=Alarm(wake_at), yields=True, state=WorkflowState.SLEEPING))
    assert driver.alarm_at == wake_at
    assert await place.store.claim("w") == NotDue(wake_at)
    description = await place.store.describe("w")
    assert description is not None
    assert (description.wake_at, description.is_running, description.wakes) == (wake_at, False, 2)
    place.clock.shift_ms += 4500
    # A wake may be up to a second early: the rest is waited for in memory.
    await place.claimed()


async def test_an_alarm_that_went_off_does_not_go_off_again(place: Place) -> None:
    driver = await place.started()
    await driver.commit(Commit(alarm=Alarm(place.clock.now() + 100), yields=True, state=WorkflowState.SLEEPING))
    place.clock.shift_ms += 1000
    driver = await place.claimed()
    assert driver.alarm_at is None
    await driver.commit(WAITS)
    assert await place.due(ahead_ms=10**9) == set()
    assert await place.store.claim("w") == NotDue(None)


async def test_an_alarm_set_in_the_past_goes_off_at_once(place: Place) -> None:
    driver = await place.started()
    await driver.set_alarm("w", place.clock.now() - 5000)
    await driver.commit(Commit(yields=True, state=WorkflowState.SLEEPING))
    assert await place.due() == {"w"}
    await place.claimed()


async def test_an_alarm_outlives_an_eviction(place: Place) -> None:
    driver = await place.started()
    wake_at = place.clock.now() + 60_000
    await driver.commit(Commit(alarm=Alarm(wake_at), yields=True, state=WorkflowState.SLEEPING))
    await place.store.wake("w")
    driver = await place.claimed()
    await driver.commit(Commit(puts=[(b"k", b"1")]))
    await driver.commit(Commit(yields=True))
    assert driver.alarm_at == wake_at
    assert await place.store.claim("w") == NotDue(wake_at)


@pytest.mark.parametrize("state", [WorkflowState.COMPLETED, WorkflowState.FAILED, WorkflowState.CANCELLED])
async def test_ended_is_ended(place: Place, state: WorkflowState) -> None:
    driver = await place.started()
    await driver.commit(Commit(puts=[(b"k", b"1")], alarm=Alarm(place.clock.now() + 5), state=state))
    assert (driver.alarm_at, driver.lease_until) == (None, 0)
    stored = await place.items()
    assert await place.due(ahead_ms=10**9) == set()
    assert await place.store.claim("w") == Ended()
    assert not (await place.store.start(workflow_id="w", type="order", input=b"\x01")).created
    assert await place.items() == stored


async def test_what_is_left_of_an_ended_workflow_in_the_index_goes_with_the_next_wake(place: Place) -> None:
    driver = await place.started()
    await driver.commit(Commit(state=WorkflowState.COMPLETED))
    for sort_key in ("HEAD", "INBOX"):
        await place.client.update_item(
            TableName=place.table,
            Key={"pk": {"S": "w"}, "sk": {"S": sort_key}},
            UpdateExpression="SET due_shard = :shard, due_at = :at",
            ExpressionAttributeValues={":shard": {"S": "01"}, ":at": {"N": "1"}},
        )
    assert await place.due() == {"w"}
    assert await place.store.claim("w") == Ended()
    assert await place.due() == set()


async def test_a_far_alarm_says_when_its_schedule_has_become_pointless(place: Place) -> None:
    driver = await place.started()
    await driver.commit(Commit(alarm=Alarm(place.clock.now() + 3_600_000), names=(), yields=True))
    assert not driver.has_stale_schedule
    await place.store.send("w", name="go", body=b"")
    driver = await place.claimed()
    await driver.commit(Commit(puts=[(b"k", b"1")]))
    assert not driver.has_stale_schedule
    await driver.commit(Commit(state=WorkflowState.COMPLETED, alarm=Alarm(None)))
    assert driver.has_stale_schedule


async def test_a_near_alarm_never_had_a_schedule(place: Place) -> None:
    driver = await place.started()
    await driver.commit(Commit(alarm=Alarm(place.clock.now() + 800_000), names=(), yields=True))
    await place.store.send("w", name="go", body=b"")
    driver = await place.claimed()
    await driver.commit(Commit(state=WorkflowState.COMPLETED, alarm=Alarm(None)))
    assert not driver.has_stale_schedule
