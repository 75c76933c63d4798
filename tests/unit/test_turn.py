"""Parking: who works, who waits, when a run yields, and how several waits become one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.abort import AbortEvent
from engine.entry import Message
from engine.errors import (
    DriverError,
    EvictedError,
    FencedError,
    HistoryDivergedError,
    MessageWaitError,
    SleepError,
    StepFailedError,
    Yield,
)
from engine.history.hooks import Hooks
from engine.history.storage import Storage
from engine.ids import Ids
from engine.testing import MemoryDriver, VirtualClock
from engine.turn import Turn
from engine.waits import merge

CLOCK_MS = 1_000_000


def turn_of(**options: Any) -> tuple[Turn, VirtualClock]:
    clock = VirtualClock(CLOCK_MS)
    driver = MemoryDriver(clock=clock, worker_poll_interval=options.pop("poll", 0.1))
    turn = Turn(
        workflow_id="w", storage=Storage(), driver=driver, clock=clock, ids=Ids(clock), hooks=Hooks(), **options
    )
    return turn, clock


@pytest.mark.parametrize(
    ("signals", "deadline", "names"),
    [
        ([SleepError(5), SleepError(3)], 3, None),
        ([MessageWaitError(["a"]), MessageWaitError(["b", "a"])], None, ("a", "b")),
        ([MessageWaitError(["a"]), MessageWaitError([])], None, ()),
        ([SleepError(5), MessageWaitError(["a"])], 5, ("a",)),
        ([SleepError(5, ["b"]), StepFailedError("s", 1, 4), MessageWaitError(["a"])], 4, ("b", "a")),
        ([SleepError(5, [])], 5, ()),
    ],
)
def test_several_waits_are_the_earliest_deadline_and_all_names(
    signals: list[Yield], deadline: int | None, names: tuple[str, ...] | None
) -> None:
    merged = merge(signals)
    assert merged is not None
    assert (merged.deadline, merged.names) == (deadline, names)


def test_no_wait_is_none() -> None:
    assert merge([]) is None


async def test_the_last_one_to_park_ends_the_run_for_all() -> None:
    turn, _ = turn_of()
    turn.enter()
    first = asyncio.ensure_future(turn.park(SleepError(CLOCK_MS + 5000)))
    await asyncio.sleep(0)
    assert not turn.is_unwinding
    second = asyncio.ensure_future(turn.park(MessageWaitError(["a"])))
    results = await asyncio.gather(first, second, return_exceptions=True)
    assert turn.is_unwinding
    assert [type(result) for result in results] == [SleepError, MessageWaitError]
    assert turn.unwound is not None
    assert (turn.unwound.deadline, turn.unwound.names) == (CLOCK_MS + 5000, ("a",))


async def test_while_somebody_works_a_deadline_is_answered_in_memory() -> None:
    turn, clock = turn_of()
    turn.enter()
    parked = asyncio.ensure_future(turn.park(SleepError(CLOCK_MS + 5000)))
    await asyncio.sleep(0)
    clock.advance(5)
    await parked
    assert turn.working == 2
    assert not turn.is_unwinding


async def test_a_wait_that_is_due_never_yields() -> None:
    turn, _ = turn_of()
    await turn.park(SleepError(CLOCK_MS))
    assert (turn.working, turn.is_unwinding) == (1, False)


@pytest.mark.parametrize(("remaining_ms", "stays"), [(99, True), (100, False), (5000, False)])
async def test_a_short_sleep_stays_in_memory(remaining_ms: int, *, stays: bool) -> None:
    turn, clock = turn_of()
    parked = asyncio.ensure_future(turn.park(SleepError(CLOCK_MS + remaining_ms), is_short=True))
    await asyncio.sleep(0)
    assert turn.is_unwinding is not stays
    clock.advance(10)
    if stays:
        await parked
    else:
        with pytest.raises(SleepError):
            await parked


async def test_a_retry_is_never_short() -> None:
    turn, _ = turn_of(poll=60)
    with pytest.raises(StepFailedError):
        await turn.park(StepFailedError("s", 1, CLOCK_MS + 10))


async def test_live_waits_stay_whatever_their_length() -> None:
    turn, clock = turn_of(is_live=True)
    parked = asyncio.ensure_future(turn.park(SleepError(CLOCK_MS + 40 * 86_400_000)))
    await asyncio.sleep(0)
    for _ in range(40):
        assert not parked.done()
        clock.advance(86_400)
        await asyncio.sleep(0)
    await parked
    assert clock.next_timer() is None


async def test_the_end_of_a_task_that_works_lets_those_who_wait_decide() -> None:
    turn, _ = turn_of()
    turn.enter()
    parked = asyncio.ensure_future(turn.park(MessageWaitError(["a"])))
    await asyncio.sleep(0)
    turn.leave()
    with pytest.raises(MessageWaitError):
        await parked


async def test_who_begins_to_wait_for_a_message_as_another_wait_is_over_is_looked_after_too() -> None:
    turn, clock = turn_of(poll=0.05)
    turn.enter()
    slept = asyncio.ensure_future(turn.park(SleepError(CLOCK_MS + 20), is_short=True))
    await asyncio.sleep(0)
    # Code of the workflow's own keeps the event loop busy: time passes, and no timer goes off.
    timers, clock._timers = clock._timers, []
    clock.advance(0.06)
    clock._timers = timers
    waiting = asyncio.ensure_future(turn.park(MessageWaitError(["a"])))
    await slept
    await turn.driver.message_driver.add(Message(id="m", name="a", body=b"\0", sent_at=CLOCK_MS))
    for _ in range(3):
        clock.advance(0.05)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await asyncio.wait_for(waiting, 60)


async def test_a_cancelled_wait_counts_as_working_again() -> None:
    turn, _ = turn_of()
    turn.enter()
    parked = asyncio.ensure_future(turn.park(MessageWaitError(["a"])))
    await asyncio.sleep(0)
    assert turn.working == 1
    parked.cancel()
    await asyncio.wait([parked])
    assert (turn.working, turn.pending()) == (2, None)


async def test_eviction_ends_every_wait_and_refuses_the_next() -> None:
    turn, _ = turn_of(is_live=True)
    parked = asyncio.ensure_future(turn.park(SleepError(CLOCK_MS + 5000)))
    await asyncio.sleep(0)
    turn.evict()
    with pytest.raises(EvictedError):
        await parked
    with pytest.raises(EvictedError):
        turn.check()
    with pytest.raises(EvictedError):
        await turn.park(SleepError(CLOCK_MS + 5000))


async def test_waking_lets_everybody_look_again() -> None:
    turn, _ = turn_of(is_live=True)
    turn.enter()
    waits = [asyncio.ensure_future(turn.park(signal)) for signal in (SleepError(CLOCK_MS + 9), MessageWaitError(["a"]))]
    await asyncio.sleep(0)
    turn.resume_message_waits()
    await waits[1]
    assert not waits[0].done()
    turn.resume_all()
    await waits[0]
    assert turn.working == 2


async def test_the_first_fatal_error_ends_the_run_whatever_comes_later() -> None:
    turn, _ = turn_of()
    first, second = HistoryDivergedError("a"), HistoryDivergedError("b")
    turn.fail(first)
    turn.fail(second)
    with pytest.raises(HistoryDivergedError, match="a"):
        turn.check()


async def test_an_error_of_the_driver_is_an_eviction_for_workflow_code() -> None:
    turn, _ = turn_of()

    async def broken() -> None:
        raise DriverError("gone")

    with pytest.raises(EvictedError):
        await turn.reach(broken())
    assert isinstance(turn.flusher.failure, DriverError)
    turn.flusher.failure = FencedError()
    with pytest.raises(FencedError):
        turn.check()


async def test_an_abort_signal_is_set_with_its_parent() -> None:
    parent = AbortEvent()
    child = AbortEvent(parent)
    waiting = asyncio.ensure_future(child.wait())
    await asyncio.sleep(0)
    parent.set()
    await waiting
    assert child.is_set()
    other = AbortEvent(AbortEvent())
    other.set()
    await other.wait()


async def test_draining_ends_every_task() -> None:
    turn, _ = turn_of()
    task = turn.spawn(asyncio.Event().wait)
    await asyncio.sleep(0)
    await turn.drain()
    assert task.cancelled()
    assert not turn.tasks
