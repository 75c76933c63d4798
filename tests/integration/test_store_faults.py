"""A store that refuses what a run writes, for good: the run is tried again, ever more rarely, and the alarm is told."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from adapters.dynamodb.store import Store
from engine.ids import Ids
from handlers.invocation import Invocation, TurnLimits
from handlers.turn import FAILS, FAULT_RETRY_MS, FAULT_RETRY_MS_MAX, FAULTS_TOLD_MIN
from handlers.worker import Batch, run_turns, turn_ports
from tests.contract.aws import Answer, Faults
from tests.integration.driven import bodies, told, wake

if TYPE_CHECKING:
    import pytest

    from tests.integration.driven import Driven
    from tests.shifted_clock import ShiftedClock

LIMITS = TurnLimits(lease_ms=60_000, evict_margin_ms=10_000, stop_margin_ms=5_000)
RUNS = 9


class Refusing:
    """A worker whose transactions are refused for good while ``refuses`` is true."""

    def __init__(self, driven: Driven, clock: ShiftedClock) -> None:
        self.refuses = True
        self._driven = driven
        self._clock = clock

    def work(self) -> None:
        """Wake ``order-1`` when its pause is over."""
        assert self._driven.wiring.process.run(self._work()) == []

    def pause_ms(self) -> int:
        """How long the run is put off that was just failed."""
        due_at = int(self._driven.cloud.head("order-1")["due_at"]["N"])
        pause_ms = due_at - self._clock.now()
        self._clock.shift(pause_ms)
        return pause_ms

    async def _work(self) -> list[str]:
        wiring, ids = self._driven.wiring, Ids(self._clock)
        client = Faults(await wiring.client("dynamodb"))
        client.chance = self._chance
        store = Store(client, wiring.settings.table, self._clock, ids, owner="refused", random=lambda: 0.0)
        ports = replace(await turn_ports(wiring), store=store)
        invocation = Invocation(self._clock, LIMITS, deadline_ms=self._clock.now() + 60_000)
        try:
            return await run_turns(ports, LIMITS, invocation, Batch([wake("order-1")]).wanted)
        finally:
            invocation.close()

    def _chance(self, operation: str) -> Any:
        return Answer("ValidationException") if self.refuses and operation == "transact_write_items" else None


def test_a_run_that_the_store_refuses_is_tried_again_ever_more_rarely_and_tells_the_alarm(
    clock: ShiftedClock, driven: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    driven.start("worker-step", "order-1")
    refusing = Refusing(driven, clock)
    pauses = []
    for _ in range(RUNS):
        refusing.work()
        pauses.append(refusing.pause_ms())
    assert pauses[:5] == [FAULT_RETRY_MS << number for number in range(5)]
    assert set(pauses[5:]) == {FAULT_RETRY_MS_MAX}
    lines = told(caplog, FAILS)
    assert [line["faults"] for line in lines] == list(range(FAULTS_TOLD_MIN, RUNS + 1))
    assert "ValidationException" in lines[0]["error"]
    assert {line["levelname"] for line in lines} == {"ERROR"}
    # Enough of them in the quarter of an hour that the alarm looks at.
    assert 900_000 // FAULT_RETRY_MS_MAX >= 5
    refusing.refuses = False
    refusing.work()
    assert driven.state("order-1") == "completed"
    assert bodies == ["order-1"] * (RUNS + 1)
    assert "faults" not in driven.cloud.head("order-1")


def test_a_refusal_that_passes_is_forgotten_with_the_next_commit(
    clock: ShiftedClock, driven: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    driven.start("worker-message", "order-1")
    refusing = Refusing(driven, clock)
    refusing.work()
    assert refusing.pause_ms() == FAULT_RETRY_MS
    refusing.refuses = False
    refusing.work()
    assert "faults" not in driven.cloud.head("order-1")
    assert told(caplog, FAILS) == []
    # As far as it has come it waits again for as short a while.
    assert driven.http.post("/workflows/order-1/messages/go", None).status == 202
    refusing.refuses = True
    refusing.work()
    assert refusing.pause_ms() == FAULT_RETRY_MS
