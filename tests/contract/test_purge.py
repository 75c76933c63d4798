"""Purging: page after page, HEAD last; no old row is ever seen by a new life, and no other id is touched (case B08)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from adapters.alarms import Delay, decide
from adapters.dynamodb.model.limits import ALARM_EARLY_MS, OUTSTANDING_MAX_MS
from adapters.dynamodb.store import Ended, NotFound, Purging
from engine import values
from engine.commit import Alarm, Commit
from engine.errors import (
    FencedError,
    StartConflictError,
    StoreUnavailableError,
    WorkflowEndedError,
    WorkflowNotEndedError,
    WorkflowNotFoundError,
)
from engine.handle import run_workflow
from engine.keys import OUTPUT_KEY
from engine.lifecycle import WorkflowState
from tests.contract.aws import Answer

if TYPE_CHECKING:
    from engine.author.context import Context
    from tests.contract.aws import Place

DAY_MS = 86_400_000
LOST = ConnectionResetError("the answer is lost")
IDS = ["a", "a/b", "a#b", "a\u00e4\u20ac\U0001f600", "wf-1", "wf-10", "HEAD", "x" * 255]


async def ended(place: Place, workflow_id: str = "w", rows: int = 3, size: int = 10) -> None:
    """A workflow that has ended, with so many further items of its log as an interrupted clean-up may leave."""
    driver = await place.started(workflow_id)
    await place.store.send(workflow_id, name="go", body=b"\x01", message_id="once")
    items = [
        {"pk": {"S": workflow_id}, "sk": {"S": f"LOG#{1000 + number:012d}"}, "b": {"B": bytes(size)}}
        for number in range(rows)
    ]
    each = max(1, min(25, 500_000 // size))
    for start in range(0, rows, each):
        requests = [{"PutRequest": {"Item": item}} for item in items[start : start + each]]
        await place.client.batch_write_item(RequestItems={place.table: requests})
    puts = [(OUTPUT_KEY, b"\x01")]
    await driver.commit(Commit(puts=puts, alarm=Alarm(None), state=WorkflowState.COMPLETED))


async def purged(place: Place, workflow_id: str = "w") -> int:
    """Purge until all is gone; how many calls that took."""
    for calls in range(1, 10):
        progress = await place.store.purge(workflow_id)
        if progress.again_at is None:
            return calls
        place.clock.shift_ms += max(0, progress.again_at - place.clock.now())
    raise AssertionError("the purge does not end")


async def test_nothing_is_left_and_the_id_can_be_used_anew(place: Place) -> None:
    await ended(place)
    assert len(await place.items()) > 5
    assert await purged(place) == 2
    assert await place.items() == {}
    assert await place.due(ahead_ms=10**9) == set()
    assert await place.store.claim("w") == NotFound()
    with pytest.raises(WorkflowNotFoundError):
        await place.store.purge("w")
    assert (await place.store.start(workflow_id="w", type="other", input=b"\x02")).created
    driver = await place.claimed()
    assert await driver.list(b"k") == []
    assert not (await place.store.send("w", name="go", body=b"\x01", message_id="once")).duplicate


@pytest.mark.parametrize("workflow_id", IDS)
async def test_ids_of_every_kind_never_touch_another_workflow(moto_place: Place, workflow_id: str) -> None:
    for each in IDS:
        await ended(moto_place, each, rows=1)
    before = {each: await moto_place.items(each) for each in IDS}
    await purged(moto_place, workflow_id)
    for each in IDS:
        assert await moto_place.items(each) == ({} if each == workflow_id else before[each])
    page = await moto_place.store.list()
    assert {item.workflow_id for item in page.items} == set(IDS) - {workflow_id}


async def test_only_what_has_ended_is_purged(place: Place) -> None:
    await place.started()
    before = await place.items()
    with pytest.raises(WorkflowNotEndedError):
        await place.store.purge("w")
    with pytest.raises(WorkflowNotFoundError):
        await place.store.purge("never")
    assert await place.items() == before


async def test_what_is_being_purged_is_gone_but_its_id_is_not_free(place: Place) -> None:
    await ended(place)
    progress = await place.store.purge("w")
    assert progress.again_at is not None
    assert 0 < progress.again_at - place.clock.now() <= OUTSTANDING_MAX_MS + ALARM_EARLY_MS
    assert set(await place.items()) == {"HEAD", "INBOX"}
    assert await place.store.describe("w") is None
    assert (await place.store.list()).items == []
    assert await place.store.claim("w") == Purging()
    for call in (
        place.store.history("w"),
        place.store.output("w"),
        place.store.replay("w"),
        place.store.recover("w"),
        place.store.seize("w"),
    ):
        with pytest.raises(WorkflowNotFoundError):
            await call
    with pytest.raises(StartConflictError, match="purged"):
        await place.store.start(workflow_id="w", type="order", input=b"\x01")
    with pytest.raises(WorkflowEndedError):
        await place.store.send("w", name="go", body=b"")
    # Whoever began it may die: the sweeper finds it, and whoever is woken goes on.
    assert await place.due(ahead_ms=120_000) == {"w"}


async def test_a_message_whose_sender_was_slow_goes_too(moto_place: Place) -> None:
    await ended(moto_place)
    progress = await moto_place.store.purge("w")
    late = {"pk": {"S": "w"}, "sk": {"S": "MSG#000000000009"}, "id": {"S": "m"}, "name": {"S": "go"}}
    await moto_place.client.put_item(TableName=moto_place.table, Item={**late, "body": {"B": b""}})
    assert progress.again_at is not None
    moto_place.clock.shift_ms += OUTSTANDING_MAX_MS
    assert (await moto_place.store.purge("w")).again_at is None
    assert await moto_place.items() == {}


@pytest.mark.parametrize("killed_after", range(6))
@pytest.mark.parametrize("is_applied", [True, False])
async def test_a_purge_killed_after_any_page_is_gone_on_from(
    moto_place: Place, killed_after: int, *, is_applied: bool
) -> None:
    await ended(moto_place, rows=260)
    await ended(moto_place, "w0")
    moto_place.clock.shift_ms += OUTSTANDING_MAX_MS
    kept = await moto_place.items("w0")
    error = Answer("ValidationException")
    moto_place.client.plan["transact_write_items"] = [None] * killed_after + [("after", error) if is_applied else error]
    if killed_after < 4:
        with pytest.raises(StoreUnavailableError):
            await moto_place.store.purge("w")
        if not (killed_after == 3 and is_applied):
            assert "HEAD" in await moto_place.items()
            with pytest.raises(StartConflictError):
                await moto_place.store.start(workflow_id="w", type="order", input=b"\x01")
            moto_place.client.plan.clear()
            await purged(moto_place)
    else:
        await purged(moto_place)
    assert await moto_place.items() == {}
    assert await moto_place.items("w0") == kept


async def test_two_who_purge_fence_each_other_and_never_delete_a_later_life(moto_place: Place) -> None:
    place = moto_place
    await ended(place, rows=120)
    place.clock.shift_ms += OUTSTANDING_MAX_MS

    async def meanwhile() -> None:
        # The first one is frozen before its second page; another one comes to the end, and the id is used anew.
        other = place.another("two")
        assert (await other.purge("w")).again_at is None
        await ended(place, rows=120)

    place.client.plan["transact_write_items"] = [None, meanwhile]
    with pytest.raises(FencedError):
        await place.store.purge("w")
    assert await place.store.claim("w") == Ended()
    assert len([name for name in await place.items() if name.startswith("LOG#")]) == 122
    assert await place.store.output("w") == b"\x01"


@pytest.mark.parametrize("lives_again", [False, True])
async def test_a_first_sender_that_was_stalled_makes_no_inbox_of_nobodys(
    moto_place: Place, *, lives_again: bool
) -> None:
    place = moto_place
    await place.store.start(workflow_id="w", type="order", input=b"\x01")

    async def meanwhile() -> None:
        # It has seen that the workflow is there, and that nobody has written to it yet.
        other = place.another("two")
        await other.cancel("w")
        place.clock.shift_ms += OUTSTANDING_MAX_MS
        assert (await other.purge("w")).again_at is None
        if lives_again:
            await other.start(workflow_id="w", type="order", input=b"\x01")

    place.client.plan["update_item"] = [None, meanwhile]
    if lives_again:
        await place.store.send("w", name="go", body=b"\x02")
        assert await place.claimed() is not None
        return
    with pytest.raises(WorkflowNotFoundError):
        await place.store.send("w", name="go", body=b"\x02")
    assert await place.items() == {}
    with pytest.raises(WorkflowNotFoundError):
        await place.store.send("w", name="go", body=b"\x03")


@pytest.mark.ministack
async def test_a_second_sender_that_was_stalled_makes_none_either(ministack_place: Place) -> None:
    place = ministack_place

    async def purge() -> None:
        await place.store.cancel("w")
        place.clock.shift_ms += OUTSTANDING_MAX_MS
        assert (await place.store.purge("w")).again_at is None

    for _ in range(2):
        await place.store.start(workflow_id="w", type="order", input=b"\x01")
        place.client.plan["update_item"] = [None, purge]
        with pytest.raises(WorkflowNotFoundError):
            await place.store.send("w", name="go", body=b"\x02")
        # The same again within ten minutes, under the same token, would be taken for done.
        assert await place.items() == {}


async def test_the_alarm_for_the_rest_of_a_purge_is_not_early(moto_place: Place) -> None:
    await ended(moto_place)
    last_word_at = moto_place.clock.now() + OUTSTANDING_MAX_MS
    progress = await moto_place.store.purge("w")
    assert progress.again_at is not None
    alarm = decide(progress.again_at, moto_place.clock.now())
    assert isinstance(alarm, Delay)
    moto_place.clock.shift_ms += alarm.delay_s * 1000
    assert moto_place.clock.now() >= last_word_at
    assert (await moto_place.store.purge("w")).again_at is None


async def test_who_goes_on_with_a_purge_never_begins_one(moto_place: Place) -> None:
    place = moto_place
    await ended(place)
    place.clock.shift_ms += OUTSTANDING_MAX_MS
    with pytest.raises(WorkflowNotEndedError):
        await place.store.purge("w", is_begun=True)

    async def meanwhile() -> None:
        # The one who goes on has seen that it is being purged, and is stalled; by now another one has lived and ended.
        await purged(place)
        await ended(place)

    await place.store.purge("w", until=0)
    assert await place.store.claim("w") == Purging()
    place.client.plan["update_item"] = [meanwhile]
    with pytest.raises(WorkflowNotEndedError):
        await place.store.purge("w", is_begun=True)
    assert await place.store.output("w") == b"\x01"


async def test_a_purge_comes_back_when_its_time_is_up(moto_place: Place) -> None:
    await ended(moto_place, rows=220)
    moto_place.clock.shift_ms += OUTSTANDING_MAX_MS
    progress = await moto_place.store.purge("w", until=0)
    assert progress.again_at is not None
    assert progress.again_at <= moto_place.clock.now()
    assert 100 < len(await moto_place.items()) < 150
    assert (await moto_place.store.purge("w")).again_at is None


async def test_large_items_go_in_transactions_that_hold_them(place: Place) -> None:
    await ended(place, rows=12, size=390_000)
    place.clock.shift_ms += OUTSTANDING_MAX_MS
    assert (await place.store.purge("w")).again_at is None
    assert await place.items() == {}


async def test_b08_a_new_life_runs_every_step_again_with_its_own_input(moto_place: Place) -> None:
    ran: list[str] = []

    async def workflow(ctx: Context, given: str) -> str:
        for number in range(130):
            await ctx.step(f"s{number}", lambda: ran.append(given))
        return given

    async def live(given: str) -> str | None:
        await moto_place.store.start(workflow_id="x", type="order", input=values.encode(given))
        driver = await moto_place.claimed("x")
        result = await run_workflow("x", workflow, None, driver, mode="yield").result
        return result.output

    assert await live("old") == "old"
    moto_place.clock.shift_ms += OUTSTANDING_MAX_MS
    moto_place.client.plan["transact_write_items"] = [None, None, Answer("ValidationException")]
    with pytest.raises(StoreUnavailableError):
        await moto_place.store.purge("x")
    await purged(moto_place, "x")
    ran.clear()
    assert await live("new") == "new"
    assert ran == ["new"] * 130


async def test_what_a_purge_costs(ministack_place: Place) -> None:
    place = ministack_place
    await ended(place, rows=20, size=100)
    items = len(await place.items())
    before = place.store.meter.write_units
    place.clock.shift_ms += OUTSTANDING_MAX_MS
    assert (await place.store.purge("w")).again_at is None
    assert place.store.meter.write_units - before <= 2 * items + 10


async def test_an_inbox_made_for_who_is_gone_by_one_who_died_is_taken_back_by_the_next_wake(place: Place) -> None:
    await place.started()

    async def purge() -> None:
        await place.store.cancel("w")
        place.clock.shift_ms += DAY_MS
        await place.store.purge("w")
        place.client.plan["get_item"] = [LOST] * 10

    place.client.plan["update_item"] = [None, purge]
    with pytest.raises(StoreUnavailableError):
        await place.another("two").send("w", name="go", body=b"\xf6")
    place.client.plan.clear()
    assert set(await place.items()) == {"INBOX"}
    assert await place.due() == {"w"}
    assert await place.store.claim("w") == NotFound()
    assert await place.items() == {}
    assert await place.due(ahead_ms=DAY_MS) == set()
