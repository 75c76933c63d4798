"""The testing kit: a clock that moves when told to, a driver in memory, and a drive from alarm to alarm."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

import pytest

from engine import Context, UnstorableValueError, WorkflowState, run_workflow
from engine.commit import Alarm, Commit, Outgoing, Reply
from engine.entry import Message
from engine.errors import CommitInFlightError, InboxMovedError, StoreUnavailableError
from engine.testing import MemoryDriver, MemoryWorld, VirtualClock, drive


def message(name: str, ticket: int = 0) -> Message:
    return Message(id=f"id {name}", name=name, body=b"\xf6", sent_at=1, ticket=ticket)


def test_a_clock_calls_in_order_each_at_its_time() -> None:
    clock = VirtualClock(0)
    calls: list[tuple[str, int]] = []
    for name, delay in [("late", 2.0), ("early", 1.0), ("never", 1.5), ("negative", -5)]:
        timer = clock.call_later(delay, lambda name=name: calls.append((name, clock.now())))  # type: ignore[misc]
        if name == "never":
            timer.cancel()
    assert clock.next_timer() == 0
    clock.advance(10)
    assert calls == [("negative", 0), ("early", 1000), ("late", 2000)]
    assert (clock.now(), clock.next_timer()) == (10_000, None)
    clock.advance_to(5)
    assert clock.now() == 10_000


async def test_a_sleep_on_the_clock_leaves_nothing_when_it_is_cancelled() -> None:
    clock = VirtualClock()
    task = asyncio.ensure_future(clock.sleep(5))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert clock.next_timer() is None


async def test_a_year_passes_in_a_moment() -> None:
    clock = VirtualClock()
    driver = MemoryDriver(clock=clock)

    async def year(ctx: Context) -> str:
        for month in range(12):
            await ctx.sleep(f"month {month}", 30 * 86_400)
        return "done"

    result = await drive("w", year, None, driver, clock)
    assert (result.state, result.output) == (WorkflowState.COMPLETED, "done")
    assert clock.now() - VirtualClock().now() == 360 * 86_400_000


@dataclass(frozen=True)
class Payment:
    amount: Decimal
    at: datetime


@pytest.mark.parametrize(
    "given",
    [
        {"amount": "9.90", "at": "2026-11-30T08:00:00Z"},
        {"amount": Decimal("9.90"), "at": datetime(2026, 11, 30, 8, tzinfo=UTC)},
        Payment(Decimal("9.90"), datetime(2026, 11, 30, 8, tzinfo=UTC)),
    ],
)
async def test_a_drive_takes_the_json_that_a_caller_would_send(given: Any) -> None:
    async def pay(ctx: Context, payment: Payment) -> Payment:
        await ctx.sleep("replayed", 60)
        return payment

    clock = VirtualClock()
    result = await drive("w", pay, given, MemoryDriver(clock=clock), clock)
    assert result.output == Payment(Decimal("9.90"), datetime(2026, 11, 30, 8, tzinfo=UTC))


async def test_a_drive_tells_of_json_that_does_not_fit() -> None:
    async def pay(_ctx: Context, payment: Payment) -> Payment:
        return payment

    clock = VirtualClock()
    with pytest.raises(UnstorableValueError, match="amount"):
        await drive("w", pay, {"amount": "much", "at": "2026-11-30T08:00:00Z"}, MemoryDriver(clock=clock), clock)


async def test_a_drive_moves_over_what_a_run_itself_waits_for() -> None:
    clock = VirtualClock()

    async def slow() -> int:
        await clock.sleep(20)
        return 1

    result = await drive("w", lambda ctx: ctx.step("s", slow), None, MemoryDriver(clock=clock), clock)
    assert result.output == 1


async def test_what_was_dumped_can_be_loaded() -> None:
    driver = MemoryDriver()
    await driver.batch([(b"b", b"2"), (b"a", b"1")])
    assert driver.dump() == [("61", "31"), ("62", "32")]
    assert MemoryDriver.load(driver.dump(), atomic=False).dump() == driver.dump()


@pytest.mark.parametrize("first", ["sleep", "step"])
async def test_a_history_that_was_loaded_later_is_replayed_at_its_own_time(first: str) -> None:
    clock = VirtualClock()
    seen: list[Any] = []

    async def work(ctx: Context) -> str:
        seen.append(ctx.now())
        if first == "step":
            await ctx.step("s", asyncio.sleep, 0)
        await ctx.sleep("night", 3600)
        seen.append(ctx.now())
        await ctx.sleep("day", 3600)
        return "done"

    driver = MemoryDriver(clock=clock)
    await run_workflow("w", work, None, driver, clock=clock).result
    clock.advance(5 * 86_400)
    loaded = MemoryDriver.load(driver.dump(), clock=clock)
    assert (await drive("w", work, None, loaded, clock)).output == "done"
    start, later = seen[0], seen[0] + timedelta(hours=1)
    assert seen == [start, start, later, start, later]


async def test_deletes_apply_before_puts_and_ranges_exclude_their_end() -> None:
    driver = MemoryDriver()
    await driver.batch([(key, b"old") for key in (b"a", b"b", b"b\xff", b"c", b"d")])
    await driver.commit(Commit(deletes=[b"a"], prefixes=[b"b"], ranges=[(b"c", b"d")], puts=[(b"a", b"new")]))
    assert await driver.list(b"") == [(b"a", b"new"), (b"d", b"old")]
    await driver.delete(b"a")
    await driver.delete(b"a")
    assert await driver.get(b"a") is None


async def test_a_second_commit_in_flight_is_refused() -> None:
    driver = MemoryDriver(latency_s=0.01)
    first = asyncio.ensure_future(driver.commit(Commit(puts=[(b"a", b"1")])))
    await asyncio.sleep(0)
    with pytest.raises(CommitInFlightError):
        await driver.commit(Commit(puts=[(b"b", b"1")]))
    await first


async def test_a_yield_is_refused_while_the_inbox_has_moved() -> None:
    driver = MemoryDriver()
    await driver.message_driver.refresh()
    assert await driver.message_driver.add(message("a"))
    with pytest.raises(InboxMovedError):
        await driver.commit(Commit(yields=True, puts=[(b"a", b"1")]))
    assert driver.dump() == []
    await driver.message_driver.refresh()
    await driver.commit(Commit(yields=True, puts=[(b"a", b"1")], alarm=Alarm(7, workflow_id="w")))
    assert driver.alarms == {"w": 7}
    await driver.commit(Commit(alarm=Alarm(None, workflow_id="w")))
    assert driver.alarms == {}


async def test_messages_are_accepted_once_and_return_to_their_place() -> None:
    driver = MemoryDriver()
    inbox = driver.message_driver
    for name in "abc":
        assert await inbox.add(message(name))
    assert not await inbox.add(message("a"))
    assert await inbox.receive((), 9) == []
    await inbox.refresh()
    taken = (await inbox.receive(["b", "c"], 1))[0]
    await driver.commit(Commit(consumed=[taken.id]))
    assert [one.name for one in driver.messages] == ["a", "c"]
    await driver.commit(Commit(returned=[taken]))
    assert [one.name for one in driver.messages] == ["a", "b", "c"]
    await driver.commit(Commit(consumed=[taken.id]))
    assert await inbox.add(taken)
    assert [one.name for one in driver.messages] == ["a", "b", "c"]
    await driver.commit(
        Commit(replies=[Reply(message_id="id a", body=b"\x01")], outgoing=[Outgoing(message=message("d"))])
    )
    assert [one.name for one in driver.messages] == ["b", "c", "d"]
    assert inbox.replies == {"id a": b"\x01"}
    await inbox.complete("id b", None)
    await inbox.complete("unheard", None)
    assert [one.name for one in driver.messages] == ["c", "d"]


async def test_a_commit_resets_the_deaths_and_one_that_says_nothing_does_not() -> None:
    driver = MemoryDriver()
    driver.deaths = 3
    await driver.commit(Commit())
    assert (driver.deaths, driver.commits) == (3, [])
    await driver.commit(Commit(puts=[(b"a", b"1")]))
    assert driver.deaths == 0


@pytest.mark.parametrize(("phase", "is_stored"), [("before", False), ("after", True)])
async def test_failures_can_be_injected_before_and_after_a_call(phase: str, *, is_stored: bool) -> None:
    def fail(_operation: str, when: str) -> None:
        if when == phase:
            raise StoreUnavailableError("as asked")

    driver = MemoryDriver(on_call=fail)
    with pytest.raises(StoreUnavailableError):
        await driver.commit(Commit(puts=[(b"a", b"1")]))
    driver.on_call = None
    assert (await driver.get(b"a") is not None) is is_stored


async def test_waiting_for_messages_ends_with_one_of_the_names_or_the_signal() -> None:
    driver = MemoryDriver()

    class Signal:
        def __init__(self) -> None:
            self.event = asyncio.Event()

        def is_set(self) -> bool:
            return self.event.is_set()

        async def wait(self) -> Any:
            await self.event.wait()

    signal = Signal()
    waiting = asyncio.ensure_future(driver.wait_for_messages(["b"], signal))
    await driver.message_driver.add(message("a"))
    await asyncio.sleep(0.001)
    assert not waiting.done()
    await driver.message_driver.add(message("b"))
    await waiting
    await driver.message_driver.refresh()
    waiting = asyncio.ensure_future(driver.wait_for_messages((), signal))
    await asyncio.sleep(0.001)
    assert not waiting.done()
    signal.event.set()
    await waiting


async def test_a_driver_that_holds_one_workflow_is_not_driven_as_another() -> None:
    async def work(ctx: Context, _input: None) -> str:
        return await ctx.step("s", lambda: ctx.workflow_id)

    clock = VirtualClock()
    driver = MemoryDriver(clock=clock)
    assert (await drive("a", work, None, driver, clock)).output == "a"
    assert (await drive("a", work, None, driver, clock)).output == "a"
    with pytest.raises(ValueError, match=r"holds the workflow 'a'.*MemoryDriver of its own"):
        await drive("b", work, None, driver, clock)


async def test_a_world_starts_what_can_be_called() -> None:
    with pytest.raises(TypeError, match="a function or what @workflow has made, not 'order'"):
        MemoryWorld().start("a", cast("Any", "order"))
