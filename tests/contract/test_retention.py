"""What is kept of a workflow that has ended: for a while all of it, and then as much as its type says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from adapters.dynamodb.model.items import DUE_SHARD_NAMES
from adapters.dynamodb.model.limits import LEASE_MS, SEEN_LOOK_MS, TELL_AT_ONCE
from adapters.dynamodb.purge import Purge
from adapters.dynamodb.store import Ended, Outlived, Purging
from engine import ActivityContext, Context, inspect, values
from engine.author.activities import Activity
from engine.author.registry import Registry, workflow
from engine.commit import Alarm, Commit, Pruning
from engine.errors import (
    CorruptHistoryError,
    FencedError,
    InvalidReplayError,
    StoreUnavailableError,
    WorkflowNotEndedError,
)
from engine.handle import run_workflow
from engine.history.documents import Document, encode
from engine.keys import HISTORY_PREFIX, document_key
from engine.lifecycle import WorkflowState
from tests.contract.aws import Answer

if TYPE_CHECKING:
    from tests.contract.aws import Place

DAY_MS = 86_400_000
REGISTRY = Registry()


async def count(ctx: ActivityContext) -> int:
    ctx.state["count"] = ctx.state.get("count", 0) + 1
    return 7


COUNT: Activity[int] = Activity("count", count, {})


async def body(ctx: Context, fails: bool) -> int:  # noqa: FBT001 - a workflow's input
    for number in range(3):
        await ctx.activity(COUNT, name=f"count-{number}")
        await ctx.step(f"step-{number}", lambda: "x" * 1000)
    if fails:
        raise ValueError("refused")
    return 7


WHOLE = workflow("whole", prune="all", retention=DAY_MS // 1000, registry=REGISTRY)(body)
HISTORY = workflow("history", prune="history", retention=DAY_MS // 1000, registry=REGISTRY)(body)


async def ended(place: Place, flow: Any, *, fails: bool = False) -> None:
    """A workflow that has run to its end."""
    await place.store.start(workflow_id="w", type="order", input=values.encode(fails))
    handle = run_workflow("w", flow, None, await place.claimed())
    if not fails:
        assert (await handle.result).output == 7
        return
    with pytest.raises(ValueError, match="refused"):
        await handle.result


async def outlived(place: Place) -> list[str]:
    found = [
        await place.store.outlived(shard, now=place.clock.now(), limit=10) for shard in range(len(DUE_SHARD_NAMES))
    ]
    return [each for ids in found for each in ids]


async def what_is_kept(place: Place) -> dict[bytes, bytes]:
    return dict(await place.store.history("w"))


# --- the while -------------------------------------------------------------------------------------------------------


async def test_for_a_while_all_is_kept_and_nobody_is_late(place: Place) -> None:
    await ended(place, WHOLE)
    found = await place.store.describe("w")
    assert found is not None
    assert found.ended_at is not None
    assert found.prune_at == found.ended_at + DAY_MS
    place.clock.shift_ms += DAY_MS - 10_000
    assert await place.store.claim("w") == Ended()
    assert await outlived(place) == []
    with pytest.raises(WorkflowNotEndedError):
        await place.store.purge("w", is_outlived=True)
    assert not await place.store.forget_history("w")
    place.clock.shift_ms += 20_000
    assert await outlived(place) == ["w"]
    assert await place.due(ahead_ms=10**10) == set()
    assert await place.store.claim("w") == Outlived(is_whole=True)


async def test_without_a_retention_all_stays(place: Place) -> None:
    await ended(place, body)
    place.clock.shift_ms += 1000 * DAY_MS
    assert await place.store.claim("w") == Ended()
    assert await outlived(place) == []


async def test_the_end_costs_no_more_than_without(ministack_place: Place) -> None:
    units = []
    for workflow_id, pruning in (("with", Pruning(is_whole=True, after_ms=DAY_MS)), ("without", None)):
        driver = await ministack_place.started(workflow_id)
        before = driver.meter.write_units
        state = WorkflowState.COMPLETED
        await driver.commit(Commit(puts=[(b"k", b"v")], alarm=Alarm(None), state=state, pruning=pruning))
        units.append(driver.meter.write_units - before)
    # It moves in the index instead of leaving it: what is put there is the one unit more.
    assert units[0] - units[1] in (0, 1)


@pytest.mark.parametrize("flow", [WHOLE, HISTORY])
async def test_what_has_failed_stays(moto_place: Place, flow: Any) -> None:
    await ended(moto_place, flow, fails=True)
    moto_place.clock.shift_ms += 1000 * DAY_MS
    assert await outlived(moto_place) == []
    assert await moto_place.store.claim("w") == Ended()
    assert await moto_place.store.recover("w")


async def test_what_is_cancelled_is_kept_as_long(moto_place: Place) -> None:
    await moto_place.started()
    pruning = Pruning(is_whole=False, after_ms=DAY_MS)
    asked: list[str] = []

    def pruning_of(workflow_type: str) -> Pruning:
        asked.append(workflow_type)
        return pruning

    await moto_place.store.cancel("w", pruning_of=pruning_of)
    assert asked == ["order"]
    moto_place.clock.shift_ms += DAY_MS + 1
    assert await moto_place.store.claim("w") == Outlived(is_whole=False)


# --- all of it -------------------------------------------------------------------------------------------------------


async def test_all_of_it_goes_as_in_any_purge(place: Place) -> None:
    await ended(place, WHOLE)
    place.clock.shift_ms += DAY_MS + 1
    assert await place.store.purge("w", is_outlived=True) == Purge()
    assert await place.items() == {}
    assert await outlived(place) == []
    assert (await place.store.start(workflow_id="w", type="order", input=b"\x02")).created
    assert [key for key, _ in await (await place.claimed()).list(b"")] == [b"\x15\x03\x15\x04"]


async def test_what_somebody_sleeps_for_is_kept_until_that_one_has_looked(place: Place) -> None:
    async def waits(ctx: Context, _given: Any) -> int:
        return int(await ctx.output("w"))

    await place.store.start(workflow_id="w", type="order", input=values.encode(False))  # noqa: FBT003 - its input
    await place.store.start(workflow_id="waits", type="order", input=values.encode(None))
    sleeper = run_workflow("waits", waits, None, await place.claimed("waits"))
    assert (await sleeper.result).state is WorkflowState.SLEEPING
    assert (await run_workflow("w", WHOLE, None, await place.claimed()).result).output == 7
    place.clock.shift_ms += DAY_MS + 1
    # A worker away for a day: it was told of the end, and has not come to look.
    with pytest.raises(WorkflowNotEndedError, match="has yet to look"):
        await place.store.purge("w", is_outlived=True)
    # Those who never look do not keep the others from being found.
    assert await outlived(place) == []
    place.clock.shift_ms += SEEN_LOOK_MS
    assert await outlived(place) == ["w"]
    looks = run_workflow("waits", waits, None, await place.claimed("waits"))
    assert (await looks.result).output == 7
    assert await place.store.purge("w", is_outlived=True) == Purge(None)


async def test_whether_many_have_looked_is_asked_many_at_a_time(moto_place: Place) -> None:
    place = moto_place
    await ended(place, WHOLE)
    notes = [{"pk": {"S": "w"}, "sk": {"S": f"AWAIT#{number:03d}"}} for number in range(5 * TELL_AT_ONCE)]
    for note in notes:
        await place.client.put_item(TableName=place.table, Item=note)
    place.clock.shift_ms += DAY_MS
    under_way: list[int] = [0]

    async def slow() -> None:
        under_way.append(under_way[-1] + 1)
        await asyncio.sleep(0.01)
        under_way.append(under_way[-1] - 1)

    place.client.chance = lambda operation: slow if operation == "get_item" else None
    assert await place.store.purge("w", is_outlived=True) == Purge()
    # One after the other, tens of thousands take longer than any invocation.
    assert max(under_way) == TELL_AT_ONCE


async def test_a_purge_that_is_cut_short_is_gone_on_from(moto_place: Place) -> None:
    await ended(moto_place, WHOLE)
    moto_place.clock.shift_ms += DAY_MS + 1
    moto_place.client.plan["transact_write_items"] = [Answer("ValidationException")]
    with pytest.raises(StoreUnavailableError):
        await moto_place.store.purge("w", is_outlived=True)
    assert await moto_place.store.claim("w") == Purging()
    assert await moto_place.due(ahead_ms=120_000) == {"w"}
    assert await moto_place.store.purge("w") == Purge()
    assert await moto_place.items() == {}


# --- the history alone -----------------------------------------------------------------------------------------------


async def test_of_a_forgotten_history_the_outcome_and_the_document_stay(place: Place) -> None:
    await ended(place, HISTORY)
    before = await place.items()
    size_before = sum(len(item["b"]["B"]) for item in before.values() if "b" in item)
    place.clock.shift_ms += DAY_MS + 1
    assert await place.store.claim("w") == Outlived(is_whole=False)
    assert await place.store.forget_history("w")
    items = await place.items()
    assert not [name for name in items if name.startswith("LOG#")]
    assert sum(len(item["b"]["B"]) for item in items.values() if "b" in item) < size_before // 10
    told = inspect.describe((await what_is_kept(place)).items())
    assert (told.input, told.output, told.document, told.operations) == (False, 7, {"count": 3}, ())
    found = await place.store.describe("w")
    assert found is not None
    assert (found.state, found.prune_at, found.is_running) == ("completed", None, False)
    assert found.pruned_at is not None
    # Nobody has to look at it any more.
    assert await outlived(place) == []
    assert await place.due(ahead_ms=10**10) == set()
    assert await place.store.claim("w") == Ended()
    assert not await place.store.forget_history("w")
    assert [item.workflow_id for item in (await place.store.list()).items] == ["w"]


@pytest.mark.parametrize("is_applied", [True, False])
async def test_a_forgetting_that_is_killed_at_any_write_is_gone_on_from(moto_place: Place, *, is_applied: bool) -> None:
    writes = ("update_item", "transact_write_items", "batch_write_item")
    killings = 0
    for fatal in range(1, 12):
        place = moto_place
        await ended(place, HISTORY)
        place.clock.shift_ms += DAY_MS + 1
        error = Answer("ValidationException")
        calls = 0

        def chance(operation: str, fatal: int = fatal, error: Answer = error) -> Any:
            nonlocal calls
            calls += operation in writes
            if operation not in writes or calls != fatal:
                return None
            return ("after", error) if is_applied else error

        place.client.chance = chance
        was_killed = False
        try:
            await place.store.forget_history("w")
        except StoreUnavailableError:
            was_killed = True
        place.client.chance = lambda _operation: None
        killings += was_killed
        if was_killed:
            # Until its lease is over nobody else is at it; then whoever is woken begins again.
            place.clock.shift_ms += LEASE_MS + 1
            found = await place.store.describe("w")
            assert found is not None
            if found.pruned_at is None:
                assert "w" in {*await outlived(place), *await place.due()}
                assert await place.store.claim("w") == Outlived(is_whole=False)
                assert await place.store.forget_history("w")
        told = inspect.describe((await what_is_kept(place)).items())
        assert (told.output, told.document, told.operations) == (7, {"count": 3}, ())
        assert not [name for name in await place.items() if name.startswith("LOG#")]
        assert await outlived(place) == []
        assert await place.due(ahead_ms=10**10) == set()
        place.clock.shift_ms += DAY_MS
        await place.store.purge("w")
        if calls < fatal:
            break
    assert killings >= 4


async def test_of_two_who_forget_at_once_one_does(moto_place: Place) -> None:
    await ended(moto_place, HISTORY)
    moto_place.clock.shift_ms += DAY_MS + 1
    other = moto_place.another("two")

    async def meanwhile() -> None:
        assert not await other.forget_history("w")
        moto_place.clock.shift_ms += LEASE_MS + 1
        assert await other.forget_history("w")

    moto_place.client.plan["transact_write_items"] = [meanwhile]
    with pytest.raises(FencedError):
        await moto_place.store.forget_history("w")
    told = inspect.describe((await what_is_kept(moto_place)).items())
    assert (told.output, told.document, told.operations) == (7, {"count": 3}, ())


async def test_a_history_that_cannot_be_read_stays_and_is_not_tried_again(moto_place: Place) -> None:
    await ended(moto_place, HISTORY)
    for name, item in (await moto_place.items()).items():
        if name.startswith("LOG#"):
            await moto_place.client.put_item(TableName=moto_place.table, Item={**item, "b": {"B": b"\xff"}})
    moto_place.clock.shift_ms += DAY_MS + 1
    with pytest.raises(CorruptHistoryError):
        await moto_place.store.forget_history("w")
    assert await moto_place.store.claim("w") == Ended()
    assert await outlived(moto_place) == []
    assert await moto_place.due(ahead_ms=10**10) == set()
    found = await moto_place.store.describe("w")
    assert found is not None
    assert (found.pruned_at, found.is_running) == (None, False)


# --- going on before or after ----------------------------------------------------------------------------------------


async def test_what_goes_on_is_kept_from_its_next_end_on(moto_place: Place) -> None:
    await ended(moto_place, HISTORY)
    moto_place.clock.shift_ms += DAY_MS - 10_000
    await moto_place.store.replay("w")
    found = await moto_place.store.describe("w")
    assert found is not None
    assert (found.prune_at, found.ended_at) == (None, None)
    moto_place.clock.shift_ms += DAY_MS
    assert await outlived(moto_place) == []
    assert (await run_workflow("w", HISTORY, None, await moto_place.claimed()).result).output == 7
    found = await moto_place.store.describe("w")
    assert found is not None
    assert found.ended_at is not None
    assert found.prune_at == found.ended_at + DAY_MS
    assert await moto_place.store.claim("w") == Ended()


async def test_what_was_forgotten_can_begin_anew(moto_place: Place) -> None:
    await ended(moto_place, HISTORY)
    moto_place.clock.shift_ms += DAY_MS + 1
    await moto_place.store.forget_history("w")
    with pytest.raises(InvalidReplayError):
        await moto_place.store.replay("w", "some-step")
    await moto_place.store.replay("w")
    found = await moto_place.store.describe("w")
    assert found is not None
    assert found.pruned_at is None
    driver = await moto_place.claimed()
    assert dict(await driver.list(b"")).get(document_key(HISTORY_PREFIX)) is None
    assert (await run_workflow("w", HISTORY, None, driver).result).output == 7
    assert inspect.describe((await what_is_kept(moto_place)).items()).document == {"count": 3}


async def test_an_operator_who_has_it_keeps_it(moto_place: Place) -> None:
    await ended(moto_place, WHOLE)
    moto_place.clock.shift_ms += DAY_MS + 1
    driver = await moto_place.store.seize("w")
    assert await moto_place.store.claim("w") == Ended()
    with pytest.raises(WorkflowNotEndedError):
        await moto_place.store.purge("w", is_outlived=True)
    assert not await moto_place.store.forget_history("w")
    # One who lets it be, or dies, leaves it where it was.
    await driver.release(wake_at=moto_place.clock.now())
    assert await outlived(moto_place) == ["w"]
    await moto_place.store.seize("w")
    moto_place.clock.shift_ms += LEASE_MS + 1
    assert await moto_place.store.claim("w") == Outlived(is_whole=True)


async def test_an_operator_who_dies_before_its_time_leaves_it_where_it_was(moto_place: Place) -> None:
    await ended(moto_place, WHOLE)
    await moto_place.store.seize("w")
    assert await moto_place.due(ahead_ms=LEASE_MS + 1) == {"w"}
    moto_place.clock.shift_ms += LEASE_MS + 1
    assert await moto_place.store.claim("w") == Ended()
    assert await moto_place.due(ahead_ms=10**10) == set()
    moto_place.clock.shift_ms += DAY_MS
    assert await outlived(moto_place) == ["w"]


async def test_a_version_beside_no_entry_is_the_document(moto_place: Place) -> None:
    driver = await moto_place.started()
    stored = encode(Document(4, values.encode({"count": 3})))
    await driver.commit(Commit(puts=[(document_key(HISTORY_PREFIX), stored)]))
    assert inspect.describe(await driver.list(b"")).document == {"count": 3}
