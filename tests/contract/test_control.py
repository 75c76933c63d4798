"""Looking at workflows and reaching into them from outside."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any

import pytest

from adapters.dynamodb.model.items import ACTIVE, LIST_GROUPS
from adapters.dynamodb.model.limits import LIST_SHARDS, OUTSTANDING_MAX_MS
from adapters.dynamodb.store import Ended, NotDue, Unreadable
from engine import values
from engine.commit import Alarm, Commit
from engine.errors import (
    CorruptHistoryError,
    FencedError,
    InvalidIdError,
    UnknownVersionError,
    WorkflowEndedError,
    WorkflowNotFoundError,
)
from engine.handle import run_workflow
from engine.keys import ERROR_KEY, INPUT_KEY, OUTPUT_KEY, STATE_KEY
from engine.lifecycle import WorkflowState

if TYPE_CHECKING:
    from datetime import datetime

    from engine.author.context import Context
    from tests.contract.aws import Place

WAITS = Commit(yields=True, names=("go", "stop"), state=WorkflowState.SLEEPING)


# --- looking ------------------------------------------------------------------------------------------------------


async def test_a_description_says_what_head_says(place: Place) -> None:
    assert await place.store.describe("w") is None
    driver = await place.started(tags={"customer": "7"})
    described = await place.store.describe("w")
    assert described is not None
    assert (described.type, described.tags, described.state) == ("order", {"customer": "7"}, WorkflowState.PENDING)
    assert (described.is_running, described.wakes, described.seq) == (True, 1, 1)
    await driver.commit(WAITS)
    described = await place.store.describe("w")
    assert described is not None
    assert (described.state, described.waiting_for, described.is_running) == (
        WorkflowState.SLEEPING,
        ("go", "stop"),
        False,
    )
    assert described.created_at <= described.updated_at
    driver = await place.store.seize("w")
    await driver.commit(Commit(state=WorkflowState.COMPLETED))
    described = await place.store.describe("w")
    assert described is not None
    assert described.ended_at == described.updated_at
    assert described.waiting_for is None


async def test_output_and_error_are_read_without_a_lease(place: Place) -> None:
    driver = await place.started()
    assert await place.store.output("w") is None
    await driver.commit(Commit(puts=[(OUTPUT_KEY, b"\xf6")], state=WorkflowState.COMPLETED))
    assert await place.store.output("w") == b"\xf6"
    found = await place.store.outcome("w")
    assert (found.state, found.output, found.error) == (WorkflowState.COMPLETED, b"\xf6", None)
    driver = await place.started("failed")
    await driver.commit(Commit(puts=[(ERROR_KEY, b"\xa0")], state=WorkflowState.FAILED))
    assert (await place.store.outcome("failed")).error == b"\xa0"
    for look in (place.store.output("never"), place.store.history("never"), place.store.outcome("never")):
        with pytest.raises(WorkflowNotFoundError):
            await look


async def test_workflows_are_listed_by_type_and_state_the_youngest_first(place: Place) -> None:
    assert (await place.store.list()).items == []
    for number in range(12):
        place.clock.shift_ms += 1
        await place.store.start(workflow_id=f"w{number}", type="order" if number % 2 else "other", input=b"")
    ends = {3: WorkflowState.COMPLETED, 4: WorkflowState.FAILED, 5: WorkflowState.CANCELLED, 6: WorkflowState.SLEEPING}
    for number, state in ends.items():
        await (await place.claimed(f"w{number}")).commit(Commit(state=state))

    async def listed(**arguments: object) -> list[str]:
        page = await place.store.list(**arguments)  # type: ignore[arg-type]
        return [item.workflow_id for item in page.items]

    assert await listed() == [f"w{number}" for number in reversed(range(12))]
    assert await listed(type="order") == ["w11", "w9", "w7", "w5", "w3", "w1"]
    assert await listed(type="never") == []
    assert await listed(state=WorkflowState.FAILED) == ["w4"]
    assert await listed(state=WorkflowState.SLEEPING) == ["w6"]
    assert await listed(type="order", state=WorkflowState.CANCELLED) == ["w5"]
    assert await listed(type="order", state=WorkflowState.FAILED) == []


async def test_a_cursor_goes_on_where_a_page_ended_also_among_equals(moto_place: Place) -> None:
    place = moto_place
    ids = [f"w{number:02d}" for number in range(17)]
    for number, workflow_id in enumerate(ids):
        place.clock.shift_ms += number % 3 == 0
        await place.store.start(workflow_id=workflow_id, type="order", input=b"")
    cursor, found = None, []
    for _ in range(20):
        page = await place.store.list(limit=4, cursor=cursor)
        assert len(page.items) <= 4
        found += [item.workflow_id for item in page.items]
        cursor = page.cursor
        if cursor is None:
            break
    assert len(found) == len(ids)
    assert set(found) == set(ids)
    with pytest.raises(InvalidIdError, match="cursor"):
        await place.store.list(cursor="nonsense")


@pytest.mark.parametrize("told", ["1#" + "x" * 2000, "1#", "1#a\0b", "-1#w", f"{10**15}#w", "w", "\xff"])
async def test_what_is_no_cursor_is_refused_before_the_table_does(moto_place: Place, told: str) -> None:
    cursor = base64.urlsafe_b64encode(told.encode("latin-1")).decode()
    with pytest.raises(InvalidIdError):
        await moto_place.store.list(type="order", cursor=cursor)
    assert moto_place.client.sent("query") == []


async def test_one_that_ends_while_it_is_listed_is_listed_once(moto_place: Place) -> None:
    place = moto_place
    driver = await place.started("w")
    ending: list[asyncio.Task[None]] = []

    async def end() -> None:
        # The queries of all groups are under way at once; those of the active ones are over by now.
        await asyncio.sleep(0.2)
        await driver.commit(Commit(state=WorkflowState.COMPLETED))

    async def meanwhile() -> None:
        if not ending:
            ending.append(asyncio.create_task(end()))
        await ending[0]

    groups = [meanwhile if group == WorkflowState.COMPLETED else None for group in LIST_GROUPS]
    place.client.plan["query"] = groups * LIST_SHARDS
    assert [item.workflow_id for item in (await place.store.list(type="order")).items] == ["w"]
    assert ending


async def test_one_that_is_purged_and_started_anew_while_it_is_listed_is_listed_once(place: Place) -> None:
    driver = await place.started("w")
    await driver.commit(Commit(state=WorkflowState.COMPLETED))
    place.clock.shift_ms += OUTSTANDING_MAX_MS
    starting: list[asyncio.Task[None]] = []

    async def start_anew() -> None:
        # What has ended is listed by now.
        await asyncio.sleep(0.2)
        await place.store.purge("w")
        await place.store.start(workflow_id="w", type="order", input=b"")

    async def meanwhile() -> None:
        if not starting:
            starting.append(asyncio.create_task(start_anew()))
        await starting[0]

    place.client.plan["query"] = [meanwhile if group == ACTIVE else None for group in LIST_GROUPS] * LIST_SHARDS
    [listed] = (await place.store.list(type="order")).items
    assert listed.state is WorkflowState.PENDING
    assert starting


async def test_the_longest_overdue_come_first(place: Place) -> None:
    for number in range(6):
        await place.store.start(workflow_id=f"w{number}", type="order", input=b"")
        place.clock.shift_ms += 10
    now = place.clock.now()
    found = await place.store.overdue(now=now, limit_per_shard=10)
    assert [entry.workflow_id for entry in found] == [f"w{number}" for number in range(6)]
    assert all(entry.due_at <= now for entry in found)
    assert len(await place.store.overdue(now=now, limit_per_shard=1)) <= 6
    await place.store.send("w0", name="go", body=b"")
    assert len(await place.store.overdue(now=place.clock.now(), limit_per_shard=10)) == 6


# --- telling ------------------------------------------------------------------------------------------------------


async def test_a_wake_makes_a_sleeper_due(place: Place) -> None:
    driver = await place.started()
    await place.store.wake("w")
    wake_at = place.clock.now() + 60_000
    await driver.commit(Commit(alarm=Alarm(wake_at), yields=True, state=WorkflowState.SLEEPING))
    assert await place.due() == set()
    await place.store.wake("w")
    assert await place.due() == {"w"}
    driver = await place.claimed()
    await driver.commit(Commit(yields=True))
    assert await place.store.claim("w") == NotDue(wake_at)
    await (await place.store.seize("w")).commit(Commit(state=WorkflowState.COMPLETED))
    with pytest.raises(WorkflowEndedError):
        await place.store.wake("w")
    with pytest.raises(WorkflowNotFoundError):
        await place.store.wake("never")


async def test_a_wake_begins_nothing_before_its_time(place: Place) -> None:
    start_at = place.clock.now() + 60_000
    await place.store.start(workflow_id="w", type="order", input=b"", start_at=start_at)
    await place.store.wake("w")
    assert await place.due() == set()
    assert await place.store.claim("w") == NotDue(start_at)
    place.clock.shift_ms += 60_000
    await place.store.wake("w")
    await place.claimed()


async def test_what_is_put_off_begins_at_its_time_and_not_when_it_was_started(place: Place) -> None:
    seen: list[datetime] = []

    async def workflow(ctx: Context) -> None:
        seen.append(ctx.now())
        await ctx.queue.next("wait", ["go"])

    start_at = place.clock.now() + 60_000
    await place.store.start(workflow_id="w", type="order", input=values.encode(None), start_at=start_at)
    # The alarm comes early, as SQS has whole seconds.
    place.clock.shift_ms += 59_500
    await run_workflow("w", workflow, None, await place.claimed(), clock=place.clock).result
    place.clock.shift_ms += 60_000
    await place.store.send("w", name="go", body=values.encode(None))
    await run_workflow("w", workflow, None, await place.claimed(), clock=place.clock).result
    assert [round(began.timestamp() * 1000) for began in seen] == [start_at] * 2


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_what_is_had_begin_before_its_time_begins_then(place: Place, *, is_cancelled: bool) -> None:
    start_at = place.clock.now() + 60_000
    await place.store.start(workflow_id="w", type="order", input=values.encode(None), start_at=start_at)
    if is_cancelled:
        await place.store.cancel("w")
    await place.store.replay("w", None)
    driver = await place.claimed()
    assert driver.put_off_until is None
    assert driver.started_at is not None
    assert driver.started_at <= place.clock.now()


async def test_cancelling_fences_the_one_who_runs_it(place: Place) -> None:
    driver = await place.started()
    await driver.commit(Commit(alarm=Alarm(place.clock.now() + 5)))
    await place.store.cancel("w")
    with pytest.raises(FencedError):
        await driver.commit(Commit(puts=[(OUTPUT_KEY, b"\x01")], state=WorkflowState.COMPLETED))
    assert dict(await place.store.history("w")) == {INPUT_KEY: b"\x01", STATE_KEY: b"cancelled"}
    described = await place.store.describe("w")
    assert described is not None
    assert (described.state, described.wake_at, described.deaths) == (WorkflowState.CANCELLED, None, 0)
    assert await place.due(ahead_ms=10**9) == set()
    assert await place.store.claim("w") == Ended()
    before = await place.items()
    assert not await place.store.cancel("w")
    assert await place.items() == before


async def test_cancelling_a_far_sleeper_says_that_its_schedule_is_left(place: Place) -> None:
    driver = await place.started()
    await driver.commit(Commit(alarm=Alarm(place.clock.now() + 10**8), yields=True, state=WorkflowState.SLEEPING))
    assert await place.store.cancel("w")


@pytest.mark.parametrize(("ahead_ms", "schedules"), [(10**8, 1), (60_000, 0)])
async def test_cancelling_a_start_that_was_put_off_says_whether_its_schedule_is_left(
    place: Place, ahead_ms: int, schedules: int
) -> None:
    start_at = place.clock.now() + ahead_ms
    plan: dict[str, Any] = {"workflow_id": "w", "type": "order", "input": b"\x01"}
    assert (await place.store.start(**plan, start_at=start_at)).put_off_until == start_at
    # Said again it is what it was, whenever the repetition says.
    assert (await place.store.start(**plan, start_at=start_at + 1)).put_off_until == start_at
    assert await place.store.cancel("w") is bool(schedules)
    assert (await place.store.start(**plan, start_at=start_at)).put_off_until is None


@pytest.mark.parametrize("state", [WorkflowState.COMPLETED, WorkflowState.FAILED])
async def test_what_has_ended_otherwise_cannot_be_cancelled(place: Place, state: WorkflowState) -> None:
    driver = await place.started()
    await driver.commit(Commit(state=state))
    before = await place.items()
    with pytest.raises(WorkflowEndedError):
        await place.store.cancel("w")
    with pytest.raises(WorkflowNotFoundError):
        await place.store.cancel("never")
    assert await place.items() == before


@pytest.mark.parametrize(("record", "error"), [(b"\xff", CorruptHistoryError), (b"\x81\x02", UnknownVersionError)])
async def test_a_history_that_cannot_be_read_can_be_given_up_failed_and_cancelled(
    place: Place, record: bytes, error: type[Exception]
) -> None:
    driver = await place.started()
    await driver.commit(Commit(puts=[(b"k", b"v")], alarm=Alarm(place.clock.now()), yields=True))
    log_key = {"pk": {"S": "w"}, "sk": {"S": "LOG#000000000002"}}
    await place.client.put_item(TableName=place.table, Item={**log_key, "b": {"B": record}})
    for _ in range(2):
        claim = await place.store.claim("w")
        assert isinstance(claim, Unreadable)
        assert isinstance(claim.error, error)
        await claim.driver.release(wake_at=place.clock.now())
    for look in (place.store.history("w"), place.store.output("w"), place.store.seize("w")):
        with pytest.raises(error):
            await look
    await place.store.cancel("w")
    described = await place.store.describe("w")
    assert described is not None
    assert described.state is WorkflowState.CANCELLED


# --- running on the real engine -----------------------------------------------------------------------------------


class Shop:
    """An author's workflow whose second step works only once it was mended."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_mended = False

    async def reserve(self) -> str:
        self.calls.append("reserve")
        return "r1"

    async def charge(self) -> int:
        self.calls.append("charge")
        if not self.is_mended:
            raise ValueError("card")
        return 42

    async def workflow(self, ctx: Context, order: str) -> dict[str, object]:
        reservation = await ctx.step("reserve", self.reserve)
        message = await ctx.queue.next("go", "go")
        amount = await ctx.step("charge", self.charge, max_retries=0)
        return {"order": order, "reservation": reservation, "said": message.body, "amount": amount}

    async def run(self, place: Place, workflow_id: str = "w") -> WorkflowState:
        driver = await place.claimed(workflow_id)
        handle = run_workflow(workflow_id, self.workflow, None, driver)
        return (await handle.result).state


async def test_a_workflow_runs_sleeps_fails_recovers_and_is_replayed(place: Place) -> None:
    shop = Shop()
    await place.store.start(workflow_id="w", type="order", input=values.encode("o1"))
    assert await shop.run(place) is WorkflowState.SLEEPING
    assert await place.due(ahead_ms=10**9) == set()
    await place.store.send("w", name="go", body=values.encode("please"))
    with pytest.raises(Exception, match="charge"):
        await shop.run(place)
    described = await place.store.describe("w")
    assert described is not None
    assert described.state is WorkflowState.FAILED
    with pytest.raises(WorkflowEndedError):
        await place.store.send("w", name="go", body=b"")

    shop.is_mended = True
    assert await place.store.recover("w")
    assert not await place.store.recover("w")
    assert await place.due() == {"w"}
    assert await shop.run(place) is WorkflowState.COMPLETED
    output = await place.store.output("w")
    assert output is not None
    expected = {"order": "o1", "reservation": "r1", "said": "please", "amount": 42}
    assert values.decode(output) == expected
    assert shop.calls == ["reserve", "charge", "charge"]

    snapshot = await place.store.replay("w")
    assert snapshot.entries == []
    assert await place.store.output("w") is None
    assert await shop.run(place) is WorkflowState.SLEEPING
    await place.store.send("w", name="go", body=values.encode("again"))
    assert await shop.run(place) is WorkflowState.COMPLETED
    assert shop.calls[3:] == ["reserve", "charge"]


async def test_recovering_what_has_not_failed_writes_nothing(place: Place) -> None:
    driver = await place.started()
    before = await place.items()
    assert not await place.store.recover("w")
    assert await place.items() == before
    await driver.commit(Commit(puts=[(b"k", b"v")]))
    with pytest.raises(WorkflowNotFoundError):
        await place.store.recover("never")


async def test_of_two_who_recover_the_slower_does_not_fence_the_run(place: Place) -> None:
    await (await place.started()).commit(Commit(puts=[(STATE_KEY, b"failed")], state=WorkflowState.FAILED))
    other, runs = place.another("two"), []

    async def the_other_is_faster() -> None:
        assert await other.recover("w")
        runs.append(await place.claimed(store=other))

    place.client.plan["update_item"] = [the_other_is_faster]
    assert not await place.store.recover("w")
    await runs[0].commit(Commit(puts=[(b"k", b"v")]))
