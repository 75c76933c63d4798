"""The worker as a Lambda function: a batch of wakes, a turn for each workflow in it, and what must come again."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from adapters.sqs import Wake, read_wake
from handlers import bootstrap
from handlers.invocation import Invocation, TurnLimits
from handlers.turn import Outcome, TurnPorts
from handlers.wake import take_turn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from handlers.bootstrap import Wiring

logger = logging.getLogger(__name__)

CONCURRENT_TURNS_MAX = 10
"""Turns at once in one invocation. Source: the template's batch size; of a larger batch the rest waits."""


ANSWERING_MS = 200
"""Milliseconds before its deadline by which an invocation must have given up what does not end, to be able to answer.
Design choice: beyond it Lambda ends the process, and has the whole batch come again."""

GIVING_UP_MS = 2 * ANSWERING_MS
"""Milliseconds before its deadline at which turns that have not ended are left: their calls hang. Design choice: after
everything in a turn has had its own chance to give up, with as much time to end what is left as to answer."""


class Wanted(Struct, frozen=True, kw_only=True):
    """The wakes of one workflow in a batch: the alarms that they are for (milliseconds), and their message ids."""

    workflow_id: str
    alarms: frozenset[int]
    message_ids: list[str]


class Batch:
    """What a batch of SQS records asks for.

    Attributes:
        wanted: one a workflow, however many records name it.
        unreadable: message ids of records that are no wakes.
    """

    def __init__(self, records: Iterable[Mapping[str, Any]]) -> None:
        self.unreadable: list[str] = []
        found: dict[str, list[tuple[Wake, str]]] = {}
        for record in records:
            wake = read_wake(record["body"])
            if wake is None:
                self.unreadable.append(record["messageId"])
            else:
                found.setdefault(wake.workflow_id, []).append((wake, record["messageId"]))
        self.wanted = [
            Wanted(
                workflow_id=workflow_id,
                alarms=frozenset(wake.alarm_at for wake, _ in wakes if wake.alarm_at is not None),
                message_ids=[message_id for _, message_id in wakes],
            )
            for workflow_id, wakes in found.items()
        ]


class WorkerFunction:
    """The Lambda function, bound to a process and its adapters."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring

    def __call__(self, event: Mapping[str, Any], context: Any) -> dict[str, Any]:
        """Handle one batch of SQS records; the answer names those that must be delivered again."""
        clock = self._wiring.clock
        deadline_ms = clock.now() + int(context.get_remaining_time_in_millis())
        failed = self._wiring.process.run(
            self._handle(Batch(event["Records"]), deadline_ms),
            left_s=lambda: (deadline_ms - ANSWERING_MS - clock.now()) / 1000,
        )
        return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}

    async def _handle(self, batch: Batch, deadline_ms: int) -> list[str]:
        if batch.unreadable:
            logger.error("records that are no wakes", extra={"message_ids": batch.unreadable})
        settings = self._wiring.settings
        limits = TurnLimits(
            lease_ms=settings.lease_ms,
            evict_margin_ms=settings.evict_margin_ms,
            stop_margin_ms=settings.stop_margin_ms,
        )
        invocation = Invocation(self._wiring.clock, limits, deadline_ms=deadline_ms)
        try:
            with self._wiring.process.on_terminate(invocation.stop):
                failed = await run_turns(await turn_ports(self._wiring), limits, invocation, batch.wanted)
        finally:
            invocation.close()
        return [*batch.unreadable, *failed]


async def run_turns(
    ports: TurnPorts, limits: TurnLimits, invocation: Invocation, wanted: Iterable[Wanted]
) -> list[str]:
    """Take a turn for each workflow, side by side; the message ids of those that must come again.

    It returns before the invocation's deadline, whatever does not: else Lambda would have the whole batch come again.
    """
    room = asyncio.Semaphore(CONCURRENT_TURNS_MAX)

    async def turn(wake: Wanted) -> list[str]:
        async with room:
            try:
                outcome = await take_turn(ports, limits, invocation, wake.workflow_id, wake.alarms)
            except Exception:
                # A bug of ours; it must not take the other workflows of the batch with it.
                logger.exception("turn failed", extra={"workflow_id": wake.workflow_id})
                outcome = Outcome.FAULT
        return wake.message_ids if outcome is Outcome.FAULT else []

    turns = {asyncio.ensure_future(turn(wake)): wake for wake in wanted}
    if not turns:
        return []
    left_ms = max(0, invocation.deadline_ms - ports.clock.now())
    await asyncio.wait(turns, timeout=max(left_ms - GIVING_UP_MS, left_ms * 0.95) / 1000)
    failed: list[str] = []
    for running, wake in turns.items():
        if running.done():
            failed += running.result()
        else:
            # What it has committed stays. If it holds a lease, that runs out.
            logger.error("turn left", extra={"workflow_id": wake.workflow_id, "reason": "no time left"})
            running.cancel()
            failed += wake.message_ids
    return failed


async def turn_ports(wiring: Wiring) -> TurnPorts:
    """What turns act on in this process."""
    # Before any workflow is claimed: importing may take long, and stops the loop and every heartbeat with it.
    wiring.application.load()
    return TurnPorts(
        store=await wiring.store(),
        queue=await wiring.queue(),
        alarms=await wiring.alarms(),
        clock=wiring.clock,
        application=wiring.application,
        bus=wiring.bus(),
        traces=wiring.traces,
    )


@functools.cache
def _function() -> WorkerFunction:
    return WorkerFunction(bootstrap.wiring())


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Lambda's entry point."""
    return _function()(event, context)
