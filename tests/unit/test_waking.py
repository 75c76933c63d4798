"""Wakes beside a turn: each once, many at a time, and no failure of one is anybody else's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from engine.errors import StoreUnavailableError
from handlers.waking import WAKES_AT_ONCE, Waker, wake_all

if TYPE_CHECKING:
    from adapters.sqs import WakeQueue


class Queue:
    """A queue that takes its time, refuses some and breaks down at others."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.at_once = 0
        self.most_at_once = 0

    async def wake(self, workflow_id: str, delay_s: int) -> None:
        assert delay_s == 0
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0.001)
        self.at_once -= 1
        if workflow_id == "refused":
            raise StoreUnavailableError("no")
        if workflow_id == "broken":
            raise ZeroDivisionError
        self.sent.append(workflow_id)


@pytest.fixture
def queue() -> Queue:
    return Queue()


def as_port(queue: Queue) -> WakeQueue:
    return cast("WakeQueue", cast("Any", queue))


async def test_wakes_are_sent_while_others_go_on_and_are_all_awaited(queue: Queue) -> None:
    waker = Waker(as_port(queue))
    waker.wake(["a", "b"])
    assert queue.sent == []
    for _ in range(1000):
        if queue.sent == ["a", "b"]:
            break
        await asyncio.sleep(0.001)
    assert queue.sent == ["a", "b"]
    waker.wake(["a"])
    waker.wake([f"w{number}" for number in range(3 * WAKES_AT_ONCE)])
    waker.wake(["a"])
    await waker.settle()
    assert sorted(queue.sent) == sorted(["a", "b", "a", *(f"w{number}" for number in range(3 * WAKES_AT_ONCE))])
    assert queue.most_at_once == WAKES_AT_ONCE
    await waker.settle()


async def test_what_fails_is_told_to_the_log_alone(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    await wake_all(as_port(queue), ["refused", "a", "broken", "b"])
    assert sorted(queue.sent) == ["a", "b"]
    lost = [record for record in caplog.records if record.message == "wake lost"]
    assert sorted(vars(record)["workflow_id"] for record in lost) == ["broken", "refused"]
    await wake_all(as_port(queue), [])
