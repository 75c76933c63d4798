"""What every driver promises the engine, in memory as on AWS."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from engine.commit import Alarm, Commit, Outgoing, Reply
from engine.driver import EngineDriver
from engine.entry import Message
from engine.errors import CommitInFlightError, InboxMovedError
from engine.lifecycle import WorkflowState

if TYPE_CHECKING:
    from tests.contract.conftest import Subject

# aiohttp's advice for large bodies; botocore has them in memory anyway.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")


def message(number: int, name: str = "go") -> Message:
    return Message(id=f"m{number}", name=name, body=bytes([number]), sent_at=number)


async def pairs(driver: EngineDriver) -> dict[bytes, bytes]:
    return dict(await driver.list(b""))


async def bodies(driver: EngineDriver, *names: str, count: int = 100) -> list[bytes]:
    return [found.body for found in await driver.message_driver.receive(names, count)]


async def test_it_is_a_driver(subject: Subject) -> None:
    assert isinstance(subject.driver, EngineDriver)
    assert subject.driver.atomic_batch
    assert subject.driver.value_bytes_max >= 3_000_000


async def test_pairs_are_stored_one_by_one(subject: Subject) -> None:
    driver = subject.driver
    assert await driver.get(b"a") is None
    await driver.set(b"a", b"1")
    await driver.set(b"a", b"2")
    await driver.set(b"b", b"")
    assert await driver.get(b"a") == b"2"
    await driver.delete(b"a")
    await driver.delete(b"never there")
    assert await pairs(await subject.reloaded()) == {b"b": b""}


async def test_list_is_sorted_by_bytes_and_knows_prefixes(subject: Subject) -> None:
    keys = [b"\x02", b"\x02\x00", b"\x02\xff", b"\x02\xff\xff", b"\x03", b"", b"\x01z"]
    await subject.driver.batch([(key, key) for key in keys])
    driver = await subject.reloaded()
    assert [key for key, _ in await driver.list(b"")] == sorted(keys)
    assert [key for key, _ in await driver.list(b"\x02")] == [b"\x02", b"\x02\x00", b"\x02\xff", b"\x02\xff\xff"]
    assert await driver.list(b"\x09") == []


async def test_deletes_take_keys_prefixes_and_half_open_ranges(subject: Subject) -> None:
    driver = subject.driver
    await driver.batch([(bytes([major, minor]), b"x") for major in range(4) for minor in range(3)])
    await driver.delete_prefix(b"\x01")
    await driver.delete_range(b"\x02\x00", b"\x02\x02")
    await driver.batch_delete([b"\x03\x00", b"\x03\x02", b"\x09"])
    left = {b"\x00\x00", b"\x00\x01", b"\x00\x02", b"\x02\x02", b"\x03\x01"}
    assert set(await pairs(await subject.reloaded())) == left


async def test_a_key_both_deleted_and_put_has_its_new_value(subject: Subject) -> None:
    await subject.driver.batch([(b"a", b"old"), (b"b", b"old"), (b"c", b"old"), (b"d", b"old")])
    await subject.driver.commit(
        Commit(
            puts=[(b"a", b"new"), (b"b", b"new"), (b"c", b"first"), (b"c", b"new")],
            deletes=[b"a"],
            prefixes=[b"b"],
            ranges=[(b"c", b"e")],
        )
    )
    assert await pairs(await subject.reloaded()) == {b"a": b"new", b"b": b"new", b"c": b"new"}


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 250])
async def test_a_commit_takes_any_number_of_entries(subject: Subject, count: int) -> None:
    puts = [(number.to_bytes(2, "big"), b"v") for number in range(count)]
    await subject.driver.commit(Commit(puts=puts, state=WorkflowState.RUNNING))
    await subject.driver.commit(Commit(deletes=[key for key, _ in puts[::2]]))
    assert await pairs(await subject.reloaded()) == dict(puts[1::2])


async def test_a_commit_as_large_as_the_reference_store_takes(subject: Subject) -> None:
    size = 976 * 1024 // 300
    puts = [(number.to_bytes(2, "big"), bytes(size - 2)) for number in range(300)]
    await subject.driver.commit(Commit(puts=puts))
    assert await pairs(await subject.reloaded()) == dict(puts)


async def test_a_value_of_three_megabytes(subject: Subject) -> None:
    value = bytes(range(256)) * (3_000_000 // 256)
    await subject.driver.commit(Commit(puts=[(b"k", value)]))
    assert await (await subject.reloaded()).get(b"k") == value


async def test_two_commits_in_flight_are_refused(subject: Subject) -> None:
    if getattr(subject.driver, "is_in_memory", False):
        subject.driver.latency_s = 0.01  # type: ignore[attr-defined]
    first = asyncio.ensure_future(subject.driver.commit(Commit(puts=[(b"a", b"1")])))
    await asyncio.sleep(0)
    with pytest.raises(CommitInFlightError):
        await subject.driver.commit(Commit(puts=[(b"b", b"1")]))
    await first
    await subject.driver.commit(Commit(puts=[(b"c", b"1")]))
    assert set(await pairs(await subject.reloaded())) == {b"a", b"c"}


# --- the inbox ----------------------------------------------------------------------------------------------------


async def test_messages_come_in_the_order_of_acceptance(subject: Subject) -> None:
    inbox = subject.driver.message_driver
    for number in range(1, 6):
        await subject.send(message(number, "odd" if number % 2 else "even"))
    assert await bodies(subject.driver) == []
    await inbox.refresh()
    assert await bodies(subject.driver) == [b"\x01", b"\x02", b"\x03", b"\x04", b"\x05"]
    assert await bodies(subject.driver, "even") == [b"\x02", b"\x04"]
    assert await bodies(subject.driver, "odd", "even", count=2) == [b"\x01", b"\x02"]
    assert await bodies(subject.driver, "none") == []
    tickets = [found.ticket for found in await inbox.receive((), 5)]
    assert tickets == sorted(set(tickets))
    assert tickets[0] > 0


async def test_an_id_counts_once_also_after_it_was_consumed(subject: Subject) -> None:
    inbox = subject.driver.message_driver
    assert await inbox.add(message(1))
    assert not await inbox.add(message(1))
    await inbox.refresh()
    assert await bodies(subject.driver) == [b"\x01"]
    await subject.driver.commit(Commit(consumed=["m1"]))
    assert await bodies(subject.driver) == []
    assert not await inbox.add(message(1))
    await inbox.refresh()
    assert await bodies(subject.driver) == []


async def test_consuming_is_part_of_the_commit(subject: Subject) -> None:
    for number in (1, 2, 3):
        await subject.send(message(number))
    await subject.driver.message_driver.refresh()
    await subject.driver.commit(Commit(puts=[(b"took", b"2")], consumed=["m2"]))
    driver = await subject.reloaded()
    assert await driver.get(b"took") == b"2"
    assert await bodies(driver) == [b"\x01", b"\x03"]


async def test_a_returned_message_has_its_old_place(subject: Subject) -> None:
    for number in (1, 2, 3):
        await subject.send(message(number))
    await subject.driver.message_driver.refresh()
    [first, *_] = await subject.driver.message_driver.receive((), 1)
    await subject.driver.commit(Commit(consumed=["m1"]))
    await subject.driver.commit(Commit(returned=[first]))
    assert await bodies(subject.driver) == [b"\x01", b"\x02", b"\x03"]
    assert await bodies(await subject.reloaded()) == [b"\x01", b"\x02", b"\x03"]


async def test_a_reply_takes_the_message_out(subject: Subject) -> None:
    await subject.send(message(1))
    await subject.send(message(2))
    await subject.driver.message_driver.refresh()
    await subject.driver.commit(Commit(replies=[Reply(message_id="m1", body=b"yes")]))
    await subject.driver.message_driver.complete("m2", None)
    assert await bodies(await subject.reloaded()) == []


async def test_an_outgoing_message_to_oneself_comes_last(subject: Subject) -> None:
    await subject.send(message(1))
    await subject.driver.commit(Commit(outgoing=[Outgoing(message=message(2)), Outgoing(message=message(3))]))
    assert await bodies(await subject.reloaded()) == [b"\x01", b"\x02", b"\x03"]


async def test_a_yield_is_refused_where_a_message_came_and_nothing_is_written(subject: Subject) -> None:
    await subject.driver.message_driver.refresh()
    await subject.send(message(1))
    waits = Commit(puts=[(b"k", b"v")], yields=True, names=("go",), state=WorkflowState.SLEEPING)
    with pytest.raises(InboxMovedError):
        await subject.driver.commit(waits)
    assert await subject.driver.get(b"k") is None
    await subject.driver.message_driver.refresh()
    assert await bodies(subject.driver, "go") == [b"\x01"]
    await subject.driver.commit(waits)
    assert await subject.driver.get(b"k") == b"v"


async def test_waiting_ends_with_a_message_that_is_wanted(subject: Subject) -> None:
    class Never:
        def is_set(self) -> bool:
            return False

        async def wait(self) -> None:
            await asyncio.Event().wait()

    waiting = asyncio.ensure_future(subject.driver.wait_for_messages(("go",), Never()))
    await subject.send(message(1, "other"))
    done, _ = await asyncio.wait({waiting}, timeout=0.1)
    assert not done
    await subject.send(message(2, "go"))
    await asyncio.wait_for(waiting, 60)


async def test_waiting_ends_when_it_is_aborted(subject: Subject) -> None:
    class Signal(asyncio.Event):
        async def wait(self) -> None:  # type: ignore[override]
            await super().wait()

    signal = Signal()
    waiting = asyncio.ensure_future(subject.driver.wait_for_messages((), signal))
    await asyncio.sleep(0.05)
    signal.set()
    await asyncio.wait_for(waiting, 60)


async def test_alarms_are_set_and_cleared_without_complaint(subject: Subject) -> None:
    await subject.driver.set_alarm("w", subject.driver.clock.now() - 5000)
    await subject.driver.set_alarm("w", subject.driver.clock.now() + 5000)
    await subject.driver.clear_alarm("w")
    await subject.driver.clear_alarm("w")
    await subject.driver.commit(Commit(alarm=Alarm(None)))
