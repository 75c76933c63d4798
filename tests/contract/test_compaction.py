"""Folding the log: nothing is lost wherever it stops, and what is replaced goes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from adapters.dynamodb.model.limits import ATTEMPTS_MAX, COMPACT_DEAD_BYTES_MIN
from adapters.dynamodb.store import Held
from engine.commit import Commit
from engine.errors import CorruptHistoryError, FencedError, StoreUnavailableError
from tests.contract.aws import Answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adapters.dynamodb.driver import DynamoDriver
    from tests.contract.aws import Place

pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")

BIG = COMPACT_DEAD_BYTES_MIN // 2


async def churn(driver: DynamoDriver, count: int = 4) -> dict[bytes, bytes]:
    """Write one key again and again, so that dead bytes outweigh live ones; what should be there after it."""
    for number in range(count):
        await driver.commit(Commit(puts=[(b"big", bytes([number]) * BIG), (bytes([number]), b"v")]))
    return {b"big": bytes([count - 1]) * BIG} | {bytes([number]): b"v" for number in range(count)}


async def stored(place: Place) -> dict[bytes, bytes]:
    pairs = dict(await place.store.history("w"))
    return {key: value for key, value in pairs.items() if not key.startswith(b"\x15")}


def names(items: Mapping[str, object], prefix: str) -> list[str]:
    return [name for name in items if name.startswith(prefix)]


async def test_the_log_is_replaced_by_a_snapshot(place: Place) -> None:
    driver = await place.started()
    expected = await churn(driver, 12)
    items = await place.items()
    assert len(names(items, "LOG#")) < 6
    assert len(names(items, "SNAP#")) == 1
    assert await stored(place) == expected
    place.clock.shift_ms += 120_000
    again = await place.claimed()
    assert {key: value for key, value in await again.list(b"") if not key.startswith(b"\x15")} == expected
    expected |= await churn(again, 6)
    assert await stored(place) == expected


async def test_a_snapshot_larger_than_an_item(place: Place) -> None:
    driver = await place.started()
    for number in range(4):
        await driver.commit(Commit(puts=[(b"live%d" % number, bytes([number]) * 200_000)]))
    for number in range(8):
        await driver.commit(Commit(puts=[(b"churn", bytes([number]) * 200_000)]))
    assert len(names(await place.items(), "SNAP#")) > 2
    expected = {b"live%d" % number: bytes([number]) * 200_000 for number in range(4)}
    assert await stored(place) == expected | {b"churn": bytes([7]) * 200_000}


@pytest.mark.parametrize("write", [1, 2])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_death_at_each_write_loses_nothing(moto_place: Place, write: int, when: str) -> None:
    place = moto_place
    driver = await place.started()
    expected = await churn(driver, 3)
    death = ConnectionResetError("dies")
    step = death if when == "before" else ("after", death)
    # The first write is the snapshot, the last the deletion; both are batches.
    rest = [ConnectionResetError("dies")] * 100
    place.client.plan["batch_write_item"] = [None] * (write - 1) + [step, *rest]
    place.client.plan["update_item"] = rest if write == 1 else []
    place.client.plan["transact_write_items"] = list(rest)
    with pytest.raises(StoreUnavailableError):
        await driver.commit(Commit(puts=[(b"big", b"lost")]))
    place.client.plan.clear()
    place.clock.shift_ms += 120_000
    assert await stored(place) == expected
    driver = await place.claimed()
    expected |= await churn(driver, 5)
    assert await stored(place) == expected
    for number in range(10):
        expected[b"big"] = bytes([number]) * BIG
        await driver.commit(Commit(puts=[(b"big", expected[b"big"])]))
    items = await place.items()
    # What an interrupted folding left over went with a later one.
    assert len(names(items, "LOG#")) < 6
    assert len(names(items, "SNAP#")) == 1


async def test_a_fenced_holder_cannot_fold(place: Place) -> None:
    dead = await place.started()
    await churn(dead, 3)
    place.clock.shift_ms += 120_000
    driver = await place.claimed(store=place.another("two"))
    await driver.commit(Commit(puts=[(b"new", b"1")]))
    before = await stored(place)
    with pytest.raises(FencedError):
        await dead.commit(Commit(puts=[(b"big", b"zombie")]))
    assert await stored(place) == before
    place.clock.shift_ms += 120_000
    assert await (await place.claimed()).get(b"new") == b"1"


async def test_deletions_that_keep_failing_do_not_stop_the_workflow(moto_place: Place) -> None:
    place = moto_place
    driver = await place.started()
    await churn(driver, 3)
    throttled = Answer("ProvisionedThroughputExceededException")
    place.client.plan["batch_write_item"] = [None] + [throttled] * ATTEMPTS_MAX
    await driver.commit(Commit(puts=[(b"k", b"v")]))
    assert await driver.get(b"k") == b"v"


async def test_a_folding_that_fails_is_put_off_and_the_commit_goes_on(moto_place: Place) -> None:
    place = moto_place
    driver = await place.started()
    expected = await churn(driver, 3)
    place.client.plan["batch_write_item"] = [Answer("ThrottlingException")] * ATTEMPTS_MAX
    place.client.calls.clear()
    await driver.commit(Commit(puts=[(b"k", b"v")]))
    await driver.commit(Commit(puts=[(b"k", b"w")]))
    assert len(place.client.sent("batch_write_item")) == ATTEMPTS_MAX
    assert await stored(place) == expected | {b"k": b"w"}
    expected |= await churn(driver, 8)
    assert len(names(await place.items(), "SNAP#")) == 1
    assert await stored(place) == expected | {b"k": b"w"}


async def test_a_lost_pointer_to_a_snapshot_does_no_harm(moto_place: Place) -> None:
    place = moto_place
    driver = await place.started()
    expected = await churn(driver, 3)
    place.client.plan["update_item"] = [("after", ConnectionResetError("lost"))] * ATTEMPTS_MAX
    await driver.commit(Commit(puts=[(b"k", b"v")]))
    place.client.plan.clear()
    expected |= {b"k": b"v"}
    assert await stored(place) == expected
    # The snapshot that was pointed at has another number of parts than the next one.
    await driver.commit(Commit(puts=[(b"wide", bytes(400_000))]))
    await driver.commit(Commit(deletes=[b"wide"]))
    place.client.plan["update_item"] = [("after", ConnectionResetError("lost"))] * ATTEMPTS_MAX
    await driver.commit(Commit(puts=[(b"wide", bytes(400_000))]))
    await driver.commit(Commit(deletes=[b"wide"]))
    place.client.plan.clear()
    expected |= await churn(driver, 9)
    assert await stored(place) == expected
    place.clock.shift_ms += 120_000
    again = await place.claimed()
    expected |= await churn(again, 9)
    assert await stored(place) == expected
    assert len(names(await place.items(), "SNAP#")) == 1


async def test_a_snapshot_with_a_part_missing_is_named(moto_place: Place) -> None:
    place = moto_place
    driver = await place.started()
    await churn(driver, 8)
    [snapshot] = names(await place.items(), "SNAP#")
    await place.client.delete_item(TableName=place.table, Key={"pk": {"S": "w"}, "sk": {"S": snapshot}})
    with pytest.raises(CorruptHistoryError, match="'w' lacks a part"):
        await place.store.history("w")


async def test_a_folding_that_takes_longer_than_a_lease_keeps_it(place: Place) -> None:
    driver = await place.started()
    expected = await churn(driver, 3)
    beats: list[asyncio.Task[None]] = []

    async def slow() -> None:
        # A partition takes a megabyte a second; meanwhile the lease is renewed, as it is beside a long step.
        place.clock.shift_ms += 40_000
        beats.append(asyncio.create_task(driver.renew()))
        await asyncio.wait(beats, timeout=0.2)
        assert isinstance(await place.another("two").claim("w"), Held)

    place.client.plan["batch_write_item"] = [slow, slow]
    await driver.commit(Commit(puts=[(b"k", b"v")]))
    await asyncio.gather(*beats)
    assert len(names(await place.items(), "SNAP#")) == 1
    assert await stored(place) == expected | {b"k": b"v"}
