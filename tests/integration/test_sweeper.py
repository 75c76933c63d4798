"""The sweeper function: who is overdue is woken, whoever lost the wake before."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from handlers.sweeper import PATIENCE_MS, SweeperFunction, sweep
from tests.integration.lambda_event import LambdaContext, recorded

if TYPE_CHECKING:
    import pytest

    from handlers.bootstrap import Wiring
    from tests.integration.conftest import Cloud
    from tests.shifted_clock import ShiftedClock


class AheadClock:
    """The machine's clock, moved ahead."""

    def __init__(self, wiring: Wiring, ahead_ms: int) -> None:
        self._clock = wiring.clock
        self._ahead_ms = ahead_ms

    def now(self) -> int:
        return self._clock.now() + self._ahead_ms

    def call_later(self, delay_s: float, callback: Any) -> Any:
        return self._clock.call_later(delay_s, callback)


def start(wiring: Wiring, workflow_id: str, start_at: int | None = None) -> None:
    async def started() -> None:
        store = await wiring.store()
        await store.start(workflow_id=workflow_id, type="swept", input=b"\xf6", start_at=start_at)

    wiring.process.run(started())


def swept(wiring: Wiring, ahead_ms: int) -> dict[str, int]:
    async def run() -> dict[str, int]:
        return await sweep(await wiring.store(), await wiring.queue(), AheadClock(wiring, ahead_ms))

    return wiring.process.run(run())


def woken(cloud: Cloud) -> list[str]:
    """Who; a wake whose answer was long in coming is sent again, and none the worse for it."""
    return sorted({json.loads(record["body"])["workflow_id"] for record in cloud.wakes()})


def test_what_nobody_woke_is_woken_after_a_little_patience(clock: ShiftedClock, wiring: Wiring, cloud: Cloud) -> None:
    for number in range(30):
        start(wiring, f"order-{number:02}")
    start(wiring, "later", clock.now() + 3_600_000)
    function = SweeperFunction(wiring)
    assert function(recorded("scheduled"), LambdaContext()) == {"overdue": 0, "woken": 0}
    assert swept(wiring, PATIENCE_MS + 1_000) == {"overdue": 30, "woken": 30}
    assert woken(cloud) == [f"order-{number:02}" for number in range(30)]


def test_a_message_whose_wake_was_lost_makes_its_workflow_overdue(wiring: Wiring, cloud: Cloud) -> None:
    start(wiring, "sleeper", wiring.clock.now() + 3_600_000)

    async def send() -> None:
        store = await wiring.store()
        await store.send("sleeper", name="go", body=b"\x01")

    wiring.process.run(send())
    assert swept(wiring, PATIENCE_MS + 1_000) == {"overdue": 1, "woken": 1}
    assert woken(cloud) == ["sleeper"]


def test_a_workflow_whose_holder_died_is_overdue_when_the_lease_ends(wiring: Wiring, cloud: Cloud) -> None:
    start(wiring, "order-1")

    async def claim_and_die() -> None:
        store = await wiring.store()
        await store.claim("order-1", lease_ms=60_000, deadline_ms=None)

    wiring.process.run(claim_and_die())
    assert swept(wiring, PATIENCE_MS + 1_000)["overdue"] == 0
    assert swept(wiring, PATIENCE_MS + 61_000)["overdue"] == 1
    assert woken(cloud) == ["order-1"]


def test_a_queue_out_of_reach_is_told_and_the_next_sweep_tries_again(
    wiring: Wiring, cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    start(wiring, "order-1")
    cloud.client("sqs").delete_queue(QueueUrl=cloud.queue_url)
    assert swept(wiring, PATIENCE_MS + 1_000) == {"overdue": 1, "woken": 0}
    assert [record.levelname for record in caplog.records if record.message == "swept"] == ["ERROR"]
    cloud.client("sqs").create_queue(QueueName=cloud.queue_url.rpartition("/")[2])
    assert swept(wiring, PATIENCE_MS + 1_000) == {"overdue": 1, "woken": 1}


def test_five_sweeps_share_one_loop_and_leave_nothing_behind(wiring: Wiring) -> None:
    function = SweeperFunction(wiring)
    for _ in range(5):
        function(recorded("scheduled"), LambdaContext())
        assert asyncio.all_tasks(wiring.process.loop) == set()
