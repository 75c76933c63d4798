"""The memory driver as a plain store of pairs and alarms, which the engine's other drivers are held to as well."""

from __future__ import annotations

import pytest

from engine.testing import MemoryDriver, VirtualClock


@pytest.fixture
def driver() -> MemoryDriver:
    return MemoryDriver(clock=VirtualClock())


async def test_a_key_holds_the_last_value_set(driver: MemoryDriver) -> None:
    assert await driver.get(b"a") is None
    await driver.set(b"a", b"1")
    await driver.batch([(b"a", b"2"), (b"b", b"3")])

    assert (await driver.get(b"a"), await driver.get(b"b")) == (b"2", b"3")


async def test_keys_are_deleted_one_by_one_and_several_at_once(driver: MemoryDriver) -> None:
    await driver.batch([(key, b"") for key in (b"a", b"b", b"c", b"d")])
    await driver.delete(b"a")
    await driver.delete(b"missing")
    await driver.batch_delete([b"b", b"d", b"missing"])

    assert await driver.list(b"") == [(b"c", b"")]


async def test_a_listing_is_sorted_by_key_bytes_and_keeps_to_its_prefix(driver: MemoryDriver) -> None:
    await driver.batch([(key, key) for key in (b"n\x02", b"n\x01\x01", b"n\x01", b"m", b"n\xff", b"o")])

    assert [key for key, _ in await driver.list(b"n")] == [b"n\x01", b"n\x01\x01", b"n\x02", b"n\xff"]


async def test_deleting_a_prefix_leaves_all_others(driver: MemoryDriver) -> None:
    await driver.batch([(key, b"") for key in (b"a", b"a\x00", b"a\xff\xff", b"b")])
    await driver.delete_prefix(b"a")

    assert [key for key, _ in await driver.list(b"")] == [b"b"]


async def test_a_range_is_half_open(driver: MemoryDriver) -> None:
    await driver.batch([(key, b"") for key in (b"r0", b"r1", b"r1-child", b"r2")])
    await driver.delete_range(b"r1", b"r2")

    assert [key for key, _ in await driver.list(b"")] == [b"r0", b"r2"]


async def test_an_alarm_is_set_moved_and_cleared(driver: MemoryDriver) -> None:
    now = driver.clock.now()
    await driver.set_alarm("a", now + 1000)
    await driver.set_alarm("b", now - 1)
    await driver.set_alarm("a", now + 500)

    assert driver.alarms == {"a": now + 500, "b": now - 1}
    await driver.clear_alarm("a")
    await driver.clear_alarm("missing")
    assert driver.alarms == {"b": now - 1}


async def test_it_says_from_when_on_a_sleep_is_long(driver: MemoryDriver) -> None:
    assert driver.worker_poll_interval >= 0


async def test_what_is_dumped_can_be_loaded(driver: MemoryDriver) -> None:
    await driver.batch([(b"b", b"2"), (b"a", b"1")])
    assert driver.dump() == [("61", "31"), ("62", "32")]

    assert MemoryDriver.load(driver.dump()).dump() == driver.dump()
