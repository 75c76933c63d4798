"""Waiting for the ends of other workflows, over DynamoDB: nobody sleeps through one, whoever dies at whatever call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from adapters.dynamodb.model.limits import LEASE_MS, NOTES_AT_ONCE, TELL_AT_ONCE
from adapters.dynamodb.store import Claimed, Ended, NotDue, Unreadable
from engine.commit import Alarm, Child, Commit
from engine.errors import InboxMovedError, StoreUnavailableError, WorkflowNotFoundError
from engine.keys import ERROR_KEY, STATE_KEY
from engine.lifecycle import ENDED, WorkflowState
from tests.contract.aws import Answer

if TYPE_CHECKING:
    from adapters.dynamodb.driver import DynamoDriver
    from tests.contract.aws import Place

LOST = ConnectionResetError("the answer is lost")
DAY_MS = 86_400_000


def ends(state: WorkflowState = WorkflowState.COMPLETED) -> Commit:
    return Commit(puts=[(STATE_KEY, state.encode()), (ERROR_KEY, b"\xa0")], alarm=Alarm(None), state=state)


def awaits(*workflow_ids: str, **more: Any) -> Commit:
    return Commit(yields=True, state=WorkflowState.SLEEPING, awaited=workflow_ids, **more)


async def begin(place: Place, *children: str) -> DynamoDriver:
    """A parent in our hands, and children that are due."""
    parent = await place.started("parent")
    some = [Child(workflow_id=child, workflow_type="ship", workflow_input=b"\x01") for child in children]
    for first in range(0, len(some), 20):
        await parent.commit(Commit(children=some[first : first + 20]))
    return parent


async def end(place: Place, workflow_id: str, state: WorkflowState = WorkflowState.COMPLETED) -> None:
    await (await place.claimed(workflow_id)).commit(ends(state))


async def test_whoever_waits_says_for_whom(place: Place) -> None:
    parent = await begin(place, "b", "a")
    described = await place.store.describe("parent")
    assert described is not None
    assert not described.awaits_others
    assert await place.store.awaited("parent") == []
    await parent.commit(awaits("b", "a"))
    described = await place.store.describe("parent")
    assert described is not None
    assert described.awaits_others
    before = place.store.meter.read_units
    assert await place.store.awaited("parent") == ["a", "b"]
    assert place.store.meter.read_units - before <= 1
    await end(place, "a")
    await (await place.claimed("parent")).commit(ends())
    described = await place.store.describe("parent")
    assert described is not None
    assert not described.awaits_others


# --- told ---------------------------------------------------------------------------------------------------------


async def by_a_commit(place: Place) -> list[str]:
    child = await place.claimed("child")
    told: list[str] = []
    child.on_due = told.extend
    await child.commit(ends(WorkflowState.FAILED))
    return told


async def by_a_cancellation(place: Place) -> list[str]:
    told: list[str] = []
    await place.store.cancel("child", on_due=told.extend)
    return told


async def by_being_set_aside(place: Place) -> list[str]:
    await place.client.delete_item(TableName=place.table, Key={"pk": {"S": "child"}, "sk": {"S": "LOG#000000000001"}})
    claim = await place.store.claim("child")
    assert isinstance(claim, Unreadable)
    told: list[str] = []
    claim.driver.on_due = told.extend
    await claim.driver.commit(ends(WorkflowState.FAILED))
    return told


@pytest.mark.parametrize("by", [by_a_commit, by_a_cancellation, by_being_set_aside])
async def test_every_end_makes_due_who_waits_for_it(place: Place, by: Any) -> None:
    parent = await begin(place, "child")
    await parent.commit(awaits("child"))
    assert await place.due() == {"child"}
    assert await by(place) == ["parent"]
    assert await place.due() == {"parent"}
    again = await place.claimed("parent")
    peer = await again.peers.peek("child")
    assert peer is not None
    assert peer.state in ENDED
    await again.commit(Commit(yields=True, names=("go",)))
    assert await place.due(ahead_ms=DAY_MS) == set()
    assert "WAITS" not in await place.items("parent")
    assert "told" not in (await place.items("parent"))["INBOX"]
    assert isinstance(await place.store.claim("parent"), NotDue)


async def test_a_yield_that_waits_for_what_has_ended_or_is_not_there_is_refused(place: Place) -> None:
    parent = await begin(place, "child", "other")
    await end(place, "child")
    for commit in (awaits("child"), awaits("nobody"), awaits("other", "child")):
        with pytest.raises(InboxMovedError):
            await parent.commit(commit)
    await parent.commit(awaits("other"))


async def test_a_note_with_what_is_purged_at_that_moment_leaves_nothing(place: Place) -> None:
    parent = await begin(place, "child")
    await end(place, "child")
    place.clock.shift_ms += DAY_MS

    async def purged() -> None:
        await place.another("two").purge("child")

    place.client.plan["update_item"] = [purged]
    with pytest.raises(InboxMovedError):
        await parent.commit(awaits("child"))
    assert await place.items("child") == {}


async def test_what_goes_on_is_not_told_of_again_to_those_who_know(place: Place) -> None:
    parent = await begin(place, "child")
    await parent.commit(awaits("child"))
    await end(place, "child", WorkflowState.FAILED)
    await (await place.claimed("parent")).commit(Commit(yields=True, names=()))
    await place.store.recover("child")
    await end(place, "child")
    assert await place.due(ahead_ms=DAY_MS) == set()


async def test_who_began_to_wait_while_the_end_was_on_its_way_is_told(place: Place) -> None:
    parent = await begin(place, "child")
    child = await place.claimed("child")
    await child.commit(Commit(puts=[(b"k", b"v")]))
    await parent.commit(awaits("child"))
    await child.commit(Commit(puts=[(b"k", b"w")]))
    await child.commit(ends())
    assert "parent" in await place.due()
    await place.claimed("parent")


async def test_many_who_wait_are_all_told_but_those_that_are_gone(place: Place) -> None:
    await place.store.start(workflow_id="child", type="ship", input=b"\x01")
    waiters = [f"w{number:02d}" for number in range(20)]
    for waiter in waiters:
        await (await place.started(waiter)).commit(awaits("child"))
    await place.store.cancel("w00")
    await place.store.cancel("w01")
    place.clock.shift_ms += DAY_MS
    await place.store.purge("w01")
    told = await by_a_commit(place)
    assert told == waiters[2:]
    assert set(waiters[2:]) <= await place.due()
    assert set(await place.items("w01")) == set()


async def test_one_who_cannot_be_told_keeps_nobody_else_from_being_told(place: Place) -> None:
    parents = [f"parent-{number:02d}" for number in range(TELL_AT_ONCE + 4)]
    await place.store.start(workflow_id="child", type="ship", input=b"\x02")
    for parent in parents:
        await (await place.started(parent)).commit(awaits("child"))
    child = await place.claimed("child")
    place.client.plan["update_item"] = [Answer("ValidationException")]
    await child.commit(ends())
    assert await place.due() == {"child", *parents[1:]}
    claim = await place.store.claim("child")
    assert claim == Ended(tuple(parents))
    assert await place.due() == set(parents)


async def test_a_waiter_that_goes_on_with_something_else_is_woken_for_nothing_and_parked(place: Place) -> None:
    parent = await begin(place, "child")
    await parent.commit(awaits("child", names=("go",)))
    await place.store.send("parent", name="go", body=b"\xf6")
    again = await place.claimed("parent")
    taken = await again.message_driver.receive((), 1)
    await again.commit(Commit(consumed=[taken[0].id], yields=True, names=("stop",)))
    await end(place, "child")
    assert await place.due() == {"parent"}
    assert isinstance(await place.store.claim("parent"), NotDue)
    assert await place.due(ahead_ms=DAY_MS) == set()


async def test_an_end_that_is_told_between_look_and_yield_is_seen(place: Place) -> None:
    parent = await begin(place, "one", "two")
    await parent.commit(awaits("one", "two"))
    await end(place, "one")
    again = await place.claimed("parent")
    await end(place, "two")
    with pytest.raises(InboxMovedError):
        await again.commit(awaits("two"))
    await again.refresh()
    with pytest.raises(InboxMovedError):
        await again.commit(awaits("two"))
    await again.commit(Commit(yields=True, names=()))


async def test_what_goes_on_after_its_end_can_be_waited_for_again(place: Place) -> None:
    parent = await begin(place, "child")
    await parent.commit(awaits("child"))
    await end(place, "child", WorkflowState.FAILED)
    await place.store.recover("child")
    again = await place.claimed("parent")
    await again.commit(awaits("child"))
    assert "parent" not in await place.due()
    await end(place, "child")
    await end_of_parent(place)


async def test_who_was_recovered_waits_anew(place: Place) -> None:
    parent = await begin(place, "child")
    await parent.commit(awaits("child"))
    await place.store.replay("parent")
    await end(place, "parent", WorkflowState.FAILED)
    await end(place, "child", WorkflowState.FAILED)
    await place.store.recover("child")
    await place.store.recover("parent")
    await (await place.claimed("parent")).commit(awaits("child"))
    await end(place, "child")
    await end_of_parent(place)


async def test_a_purged_one_is_told_of_and_its_next_life_owes_nothing(place: Place) -> None:
    parent = await begin(place, "child")
    await parent.commit(awaits("child"))
    child = await place.claimed("child")
    # The one who ends it dies before it tells.
    place.client.plan["query"] = [LOST] * 10
    await child.commit(ends())
    place.client.plan.clear()
    assert await place.due() == {"child"}
    place.clock.shift_ms += DAY_MS
    purged = await place.store.purge("child")
    assert (purged.again_at, purged.told) == (None, ("parent",))
    await place.store.start(workflow_id="child", type="ship", input=b"\x02")
    again = await place.claimed("parent")
    await again.commit(awaits("child"))
    assert set(await place.items("child")) == {"AWAIT#parent", "HEAD", "INBOX", "LOG#000000000001"}
    await end(place, "child")
    await end_of_parent(place)


async def test_an_end_that_could_not_be_told_stays_due_until_somebody_tells_it(place: Place) -> None:
    parent = await begin(place, "child")
    await parent.commit(awaits("child"))
    child = await place.claimed("child")
    place.client.plan["query"] = [LOST] * 10
    await child.commit(ends(WorkflowState.FAILED))
    place.client.plan["query"] = [LOST] * 10
    with pytest.raises(StoreUnavailableError):
        await place.store.claim("child")
    place.client.plan.clear()
    # An operator who looks in and leaves it as it is takes nothing away.
    await (await place.store.seize("child")).release(wake_at=0)
    assert await place.due() == {"child"}
    assert await place.store.claim("child") == Ended(("parent",))
    assert await place.due() == {"parent"}
    assert await place.store.claim("child") == Ended()


async def test_an_operator_who_lets_go_while_a_wake_looks_takes_no_telling_away(place: Place) -> None:
    parent = await begin(place, "child")
    await parent.commit(awaits("child"))
    child = await place.claimed("child")
    place.client.plan["query"] = [LOST] * 10
    await child.commit(ends(WorkflowState.FAILED))
    place.client.plan.clear()
    operator = await place.another("two").seize("child")

    async def let_go() -> None:
        await operator.release(wake_at=0)

    # The wake meets the operator, who has gone before it tidies up.
    place.client.plan["update_item"] = [None, let_go]
    assert await place.store.claim("child") == Ended()
    place.client.plan.clear()
    if "owner" in (await place.items("child"))["HEAD"]:
        await let_go()
    assert await place.due() == {"child"}
    assert await place.store.claim("child") == Ended(("parent",))
    assert await place.due() == {"parent"}


async def test_who_was_not_told_of_an_end_is_told_of_the_next(place: Place) -> None:
    parent = await begin(place, "child")
    await parent.commit(awaits("child"))
    child = await place.claimed("child")
    place.client.plan["query"] = [LOST] * 10
    await child.commit(ends(WorkflowState.FAILED))
    place.client.plan.clear()
    await place.store.recover("child")
    assert "parent" not in await place.due()
    await end(place, "child")
    await end_of_parent(place)


class Stalled:
    """A holder who has counted with the child and has not looked yet whether it is there, until it may ``go`` on."""

    def __init__(self, place: Place, driver: DynamoDriver) -> None:
        self._place = place
        self._driver = driver
        self._has_counted, self._may_go = asyncio.Event(), asyncio.Event()
        self._waiting: asyncio.Task[None] | None = None

    async def count(self) -> None:
        self._place.client.plan["get_item"] = [self._stall]
        self._waiting = asyncio.create_task(self._driver.commit(awaits("child")))
        await self._has_counted.wait()

    async def _stall(self) -> None:
        self._has_counted.set()
        await self._may_go.wait()

    async def go(self) -> None:
        assert self._waiting is not None, "it never counted"
        self._may_go.set()
        await self._waiting


async def test_who_waits_for_one_that_begins_is_told_though_another_who_found_nobody_tidies_up(place: Place) -> None:
    first, second = await place.started("first"), await place.started("second")
    waiting = Stalled(place, second)
    # The first has found nobody, and takes back what it has left; by then the second counts on it.
    place.client.plan["transact_write_items"] = [waiting.count]
    with pytest.raises(InboxMovedError):
        await first.commit(awaits("child"))
    await place.store.start(workflow_id="child", type="ship", input=b"\x01")
    await waiting.go()
    await end(place, "child")
    assert "second" in await place.due()
    assert (await place.items("second"))["INBOX"]["told"] == {"SS": ["child"]}


async def test_who_waits_is_told_though_a_sender_takes_its_inbox_back_at_that_moment(place: Place) -> None:
    waiting = Stalled(place, await begin(place, "child"))

    async def purge() -> None:
        await place.store.cancel("child")
        place.clock.shift_ms += DAY_MS
        await place.store.purge("child")

    place.client.plan["update_item"] = [None, purge]
    place.client.plan["transact_write_items"] = [None, None, None, waiting.count]
    with pytest.raises(WorkflowNotFoundError):
        await place.another("two").send("child", name="go", body=b"\xf6")
    place.client.plan.clear()
    await place.store.start(workflow_id="child", type="ship", input=b"\x02")
    await waiting.go()
    await end(place, "child")
    assert (await place.items("parent"))["INBOX"]["told"] == {"SS": ["child"]}


# --- many ---------------------------------------------------------------------------------------------------------


async def end_of_parent(place: Place) -> None:
    assert "parent" in await place.due()
    claim = await place.store.claim("parent")
    assert isinstance(claim, Claimed), claim
    await claim.driver.commit(ends())


async def test_who_is_purged_while_being_told_leaves_no_inbox(moto_place: Place) -> None:
    place = moto_place
    parent = await begin(place, "child", "other")
    child = await place.claimed("child")
    # It notes itself, and does not sleep: so it has no inbox yet.
    await end(place, "other")
    with pytest.raises(InboxMovedError):
        await parent.commit(awaits("child", "other"))
    assert "INBOX" not in await place.items("parent")

    async def purge() -> None:
        await place.store.cancel("parent")
        place.clock.shift_ms += DAY_MS
        await place.store.purge("parent")

    place.client.plan["update_item"] = [None, purge]
    await child.commit(ends())
    assert await place.items("parent") == {}
    assert await place.due(ahead_ms=DAY_MS) == set()


async def test_many_ends_are_waited_for_at_the_price_of_each_once(place: Place) -> None:
    children = [f"c{number:03d}" for number in range(3 * NOTES_AT_ONCE + 5)]
    parent = await begin(place, *children)
    place.client.calls.clear()
    await parent.commit(awaits(*children))
    assert len(place.client.sent("transact_write_items")) == 1
    assert len(place.client.sent("put_item")) == len(children)
    await end(place, children[0])
    again = await place.claimed("parent")
    place.client.calls.clear()
    await again.commit(awaits(*children[1:]))
    [request] = place.client.sent("transact_write_items")
    assert len(request["TransactItems"]) == 3
    assert place.client.sent("put_item") == []
    await asyncio.gather(*(end(place, child) for child in children[1:]))
    again = await place.claimed("parent")
    await again.commit(ends())
    assert set(await place.items("parent")) == {"HEAD", "INBOX"} | {
        name for name in await place.items("parent") if name.startswith("LOG#")
    }


async def test_one_of_many_that_ends_while_the_notes_are_left_is_seen(place: Place) -> None:
    children = [f"c{number:03d}" for number in range(2 * NOTES_AT_ONCE)]
    parent = await begin(place, *children)

    async def first_ends() -> None:
        await end(place, children[0])

    place.client.plan["transact_write_items"] = [first_ends]
    with pytest.raises(InboxMovedError):
        await parent.commit(awaits(*children))
    place.client.plan.clear()
    await parent.refresh()
    await parent.commit(awaits(*children[1:]))
    await end(place, children[-1])
    await end_of_parent(place)


async def test_who_would_have_been_told_asks_nobody_but_whoever_has_ended(place: Place) -> None:
    names = ["one", "two", "three"]
    parent = await begin(place, *names)
    await parent.commit(awaits(*names))
    await end(place, "two")
    again = await place.claimed("parent")
    before = again.meter.calls
    states = {name: await again.peers.peek(name) for name in names}
    assert {name for name, peer in states.items() if peer is not None and peer.state in ENDED} == {"two"}
    # HEAD, and what it has returned: of the one that has ended alone.
    assert again.meter.calls - before == 3
    # Whoever does not wait for a sign, but asks again and again, is not put off with what was known.
    await end(place, "one")
    asked = await again.peers.peek("one")
    assert asked is not None
    assert asked.state in ENDED
    with pytest.raises(InboxMovedError):
        await again.commit(awaits("one", "three"))
    await again.refresh()
    asked = await again.peers.peek("one")
    assert asked is not None
    assert asked.state in ENDED


async def test_an_end_between_a_look_and_the_yield_is_not_taken_for_granted(place: Place) -> None:
    parent = await begin(place, "child")
    await parent.commit(awaits("child"))
    await place.store.wake("parent")
    again = await place.claimed("parent")
    peer = await again.peers.peek("child")
    assert peer is not None
    assert peer.state not in ENDED
    await end(place, "child")
    with pytest.raises(InboxMovedError):
        await again.commit(awaits("child"))
    await again.refresh()
    peer = await again.peers.peek("child")
    assert peer is not None
    assert peer.state in ENDED


# --- whoever dies -------------------------------------------------------------------------------------------------


class Died(BaseException):
    """The process is gone."""


async def parent_turn(driver: DynamoDriver) -> None:
    """What an engine does with a workflow that dispatches two others, waits for both and ends."""
    if await driver.get(b"dispatched") is None:
        children = [Child(workflow_id=name, workflow_type="ship", workflow_input=b"\x01") for name in ("one", "two")]
        await driver.commit(Commit(puts=[(b"dispatched", b"")], children=children))
    while True:
        waits = []
        for name in ("one", "two"):
            peer = await driver.peers.peek(name)
            if peer is not None and peer.state not in ENDED:
                waits.append(name)
        if not waits:
            await driver.commit(ends())
            return
        try:
            await driver.commit(awaits(*waits))
        except InboxMovedError:
            await driver.refresh()
            continue
        return


async def due_now(place: Place) -> set[str]:
    """As a sweeper sees it, for the price of one call that is not counted."""
    answer = await place.client._client.scan(TableName=place.table)
    due = [item for item in answer["Items"] if "due_at" in item]
    return {item["pk"]["S"] for item in due if int(item["due_at"]["N"]) <= place.clock.now()}


async def go_on(place: Place, rounds: int) -> None:
    """A sweeper and workers, for so many minutes."""
    for number in range(rounds):
        store = place.another(f"worker {number}")
        for workflow_id in sorted(await due_now(place), reverse=True):
            claim = await store.claim(workflow_id)
            if isinstance(claim, Claimed):
                await (parent_turn(claim.driver) if workflow_id == "parent" else claim.driver.commit(ends()))
        place.clock.shift_ms += LEASE_MS + 1000


async def life(place: Place, *, dies_at: int | None, is_done: bool) -> int:
    """How many calls a life takes; where it dies, before or after its call ``dies_at``, it is gone on with."""
    await place.store.start(workflow_id="parent", type="order", input=b"\x01")
    calls = 0

    def chance(_operation: str) -> Any:
        nonlocal calls
        calls += 1
        if calls - 1 != dies_at:
            return None
        return ("after", Died()) if is_done else Died()

    place.client.chance = chance
    try:
        await go_on(place, 4)
    except Died:
        place.client.chance = lambda _operation: None
        place.clock.shift_ms += LEASE_MS + 1000
        await go_on(place, 6)
    place.client.chance = lambda _operation: None
    return calls


async def check_all_over(place: Place) -> None:
    for workflow_id in ("parent", "one", "two"):
        description = await place.store.describe(workflow_id)
        assert description is not None
        assert description.state is WorkflowState.COMPLETED, workflow_id
    place.clock.shift_ms += DAY_MS
    assert await due_now(place) == set()


async def test_a_family_ends_whoever_dies_at_whatever_call(ministack_place: Place) -> None:
    count = await life(ministack_place, dies_at=None, is_done=False)
    await check_all_over(ministack_place)
    assert count > 20
    for dies_at in range(count):
        for is_done in (False, True):
            for workflow_id in ("parent", "one", "two"):
                for sort_key in await ministack_place.items(workflow_id):
                    key = {"pk": {"S": workflow_id}, "sk": {"S": sort_key}}
                    await ministack_place.client.delete_item(TableName=ministack_place.table, Key=key)
            await life(ministack_place, dies_at=dies_at, is_done=is_done)
            try:
                await check_all_over(ministack_place)
            except AssertionError as error:
                raise AssertionError(f"died at call {dies_at}, {is_done=}") from error
