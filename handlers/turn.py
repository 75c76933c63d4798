"""One turn of a claimed workflow: run it until it waits or must stop, and see that someone goes on with it.

It takes its ports as arguments and touches nothing else, so that a simulated world can run it as it is.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from engine.clock import sleep
from engine.commit import Alarm, Commit
from engine.errors import (
    AuthorError,
    CorruptHistoryError,
    DriverError,
    EvictedError,
    FencedError,
    OperatorError,
    UnknownTypeError,
    UnknownVersionError,
)
from engine.handle import run_workflow
from engine.keys import ERROR_KEY, STATE_KEY
from engine.lifecycle import ENDED, WorkflowState
from engine.limits import DEATHS_MAX
from engine.values import StoredError, encode_error
from handlers import failures, traces
from handlers.application import ApplicationBrokenError
from handlers.publishing import Publisher
from handlers.waking import Waker

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from adapters.alarms import Alarms
    from adapters.dynamodb.driver import DynamoDriver
    from adapters.dynamodb.store import Store
    from adapters.sqs import WakeQueue
    from engine.author.registry import Workflow
    from engine.driver import Clock
    from engine.handle import WorkflowHandle
    from handlers.application import WorkflowSource
    from handlers.invocation import Invocation, TurnLimits
    from handlers.publishing import Bus
    from handlers.traces import Traces

logger = logging.getLogger(__name__)

POSTPONED_MS = 300_000
"""Milliseconds after which a workflow whose type or stored format this build does not know is looked at again. Design
choice: a deploy may bring it, and each look costs a claim."""

FAULT_RETRY_MS = 5_000
"""Milliseconds after which a run that the store failed is tried again, doubled each time that nothing was committed in
between. Design choice: longer than a throttle lasts."""

FAULT_RETRY_MS_MAX = 120_000
"""The longest such pause. Design choice: what the store refuses for good costs a run, and maybe a step's body, each
time; and the alarm that is made from what is told of it needs five in a quarter of an hour."""

FAULTS_TOLD_MIN = 3
"""Runs in a row that the store failed from which on the alarm is told. Design choice: what passes by itself, such as a
throttle or a purge in the way of a child, is over by then or soon."""

FAILS = "store fails this run again and again"
"""The log message that the template's metric of faults looks for."""

ROLLBACK_RETRY_MS = 60_000
"""Milliseconds after which a rollback whose handler failed is gone on with. Design choice: somebody has to mend it."""

DIED = "earlier run died"
"""The log message that the template's metric of deaths looks for."""

OUTSTANDING_WAKE_S = 1
"""Seconds after which a workflow that went to sleep while a sender was between its ticket and its message is looked at
again. Design choice: the least that SQS delays by, and far longer than a sender takes."""

PUBLISHING_MARGIN_MS = 500
"""Milliseconds before an invocation's end at which what is not on the bus yet is given up. Design choice."""

HEARTBEATS_PER_LEASE = 3
"""How often a lease is renewed in its length, so that one lost renewal is no lost lease. Design choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPorts:
    """What a turn acts on; without a ``bus`` what is published is in the store alone. ``traces`` are told of it."""

    store: Store
    queue: WakeQueue
    alarms: Alarms
    clock: Clock
    application: WorkflowSource
    bus: Bus | None = None
    traces: Traces | None = None


class Outcome(StrEnum):
    """What became of a wake."""

    ENDED = "ended"
    """The workflow ended in this turn."""

    WAITING = "waiting"
    """It waits for an alarm or a message."""

    HANDED_ON = "handed on"
    """It was stopped with work left to do, and a wake is on its way."""

    POSTPONED = "postponed"
    """It cannot run now; the sweeper looks again later."""

    LEFT = "left"
    """Its lease runs out and then counts as a death: what went wrong may go wrong again, but not for ever."""

    FENCED = "fenced"
    """Somebody else has taken it over."""

    DROPPED = "dropped"
    """Nothing was to be done: held by somebody else, not due, ended before, or unknown."""

    FAULT = "fault"
    """The wake must come again: nobody else is sure to look in time."""


def fault_pause_ms(faults: int) -> int:
    """Milliseconds until a run is tried again that the store has failed, after as many others in a row."""
    return min(FAULT_RETRY_MS_MAX, FAULT_RETRY_MS << min(faults, FAULT_RETRY_MS_MAX.bit_length()))


class Turn:
    """A claimed workflow in our hands: run, watched, and handed on."""

    def __init__(self, ports: TurnPorts, limits: TurnLimits, invocation: Invocation, driver: DynamoDriver) -> None:
        self._ports = ports
        self._limits = limits
        self._invocation = invocation
        self._driver = driver
        self._workflow_id = driver.workflow_id
        self._began_at = ports.clock.now()
        self._seq = driver.head.seq
        self._error: BaseException | None = None
        publisher = {"workflow_id": self._workflow_id, "workflow_type": driver.type, **asdict(driver.origin)}
        self._publisher = Publisher(ports.bus, ports.clock, **publisher)
        driver.on_published = self._publisher.publish
        self._waker = Waker(ports.queue)
        driver.on_due = self._waker.wake

    async def take(self) -> Outcome:
        """Run the workflow and see to what comes after."""
        if self._driver.deaths:
            # The template counts these lines: an alarm is made from them, whatever LogLevel says.
            logger.error(DIED, extra={"workflow_id": self._workflow_id, "deaths": self._driver.deaths})
        return await self._finish(self._run())

    async def refuse(self, error: Exception) -> Outcome:
        """See to a workflow that cannot be run, because of ``error``."""
        self._error = error
        return await self._finish(self._judge(error))

    async def _finish(self, work: Coroutine[Any, Any, Outcome | None]) -> Outcome:
        try:
            outcome = await work
            if outcome is None:
                outcome = await self._settle()
        except (DriverError, FencedError) as error:
            # Handing on failed too: the lease runs out, and the workflow is due then.
            self._error = self._error or error
            outcome = Outcome.FENCED if isinstance(error, FencedError) else Outcome.FAULT
        await self._waker.settle()
        await self._publisher.settle(until=self._invocation.deadline_ms - PUBLISHING_MARGIN_MS)
        if self._error is not None and self._driver.head.state is WorkflowState.FAILED:
            failures.tell_end(self._driver.type, self._workflow_id, self._error)
        self._tell(outcome)
        return outcome

    # --- running ------------------------------------------------------------------------------------------------------

    async def _run(self) -> Outcome | None:
        """Run it; an outcome where what comes after is clear from how the run ended, else None."""
        try:
            workflow = self._ports.application.get(self._driver.type)
            is_over = await self._watched(workflow)
        except (Exception, EvictedError) as error:  # noqa: BLE001 - the author's own errors among them
            self._error = error
            return await self._judge(error)
        return None if is_over else Outcome.LEFT

    async def _judge(self, error: BaseException) -> Outcome | None:
        """What an error of the run means; None where what the last commit left says it."""
        if isinstance(error, FencedError):
            return Outcome.FENCED
        if self._has_ended or self._is_rolling_back or isinstance(error, EvictedError):
            return None
        match error:
            case UnknownTypeError() | ApplicationBrokenError() | UnknownVersionError():
                return await self._postpone()
            case CorruptHistoryError():
                return await self._set_aside(error, Outcome.FAULT)
            case DriverError():
                return await self._after_fault(error)
        # The engine could not even record it: the author's code does not fit, or there is a bug, ours or Python's.
        return await self._set_aside(error, Outcome.LEFT)

    async def _watched(self, workflow: Workflow[Any]) -> bool:
        """Run it with its lease kept alive; whether the run ended before the invocation had to give it up."""
        ports, driver = self._ports, self._driver
        told = functools.partial(failures.tell_attempt, driver.type)
        handle: WorkflowHandle[Any] = run_workflow(
            self._workflow_id, workflow, None, driver, clock=ports.clock, on_error=told
        )
        heartbeat = asyncio.create_task(self._keep_lease(handle))
        result: asyncio.Future[Any] = asyncio.ensure_future(handle.result)
        try:
            with self._invocation.running(handle):
                await asyncio.wait({result, self._invocation.given_up}, return_when=asyncio.FIRST_COMPLETED)
            if result.done():
                result.result()
            return result.done()
        finally:
            heartbeat.cancel()
            result.cancel()
            await asyncio.wait({heartbeat, result})

    async def _keep_lease(self, handle: WorkflowHandle[Any]) -> None:
        while True:
            await sleep(self._ports.clock, self._limits.lease_ms / HEARTBEATS_PER_LEASE / 1000)
            try:
                await self._driver.renew(self._limits.lease_ms)
            except FencedError:
                handle.evict(grace=0)
                return
            except DriverError as error:
                # The next beat, or the next commit, will show whether the lease is still ours.
                logger.warning("lease not renewed", extra={"workflow_id": self._workflow_id, **failures.told(error)})

    # --- what comes after -------------------------------------------------------------------------------------------

    @property
    def _has_ended(self) -> bool:
        return self._driver.head.state in ENDED

    @property
    def _is_rolling_back(self) -> bool:
        return self._driver.head.state is WorkflowState.ROLLING_BACK

    async def _settle(self) -> Outcome:
        """Arm, clear or hand on, by what the last commit left."""
        driver = self._driver
        if self._has_ended:
            await self._settle_alarm()
            return Outcome.ENDED
        if driver.lease_until:
            return await self._hand_on()
        await self._settle_alarm()
        if driver.awaits_sender:
            # Its message has come since, most likely, and the wake for it was dropped while we held the lease. The
            # sweeper would find it, half a minute and more from now.
            await self._wake(self._workflow_id, OUTSTANDING_WAKE_S)
        return Outcome.WAITING

    async def _settle_alarm(self) -> None:
        driver = self._driver
        with failures.losing_nothing("alarm not armed", self._workflow_id):
            if driver.alarm_at is not None:
                await self._ports.alarms.arm(self._workflow_id, driver.alarm_at)
            if driver.has_stale_schedule:
                await self._ports.alarms.clear(self._workflow_id)

    async def _hand_on(self) -> Outcome:
        """Give the lease up with work left to do: to a wake that follows at once, or to the sweeper."""
        now = self._ports.clock.now()
        if self._is_rolling_back and self._error is not None:
            await self._driver.release(wake_at=now + ROLLBACK_RETRY_MS)
            return Outcome.POSTPONED
        await self._driver.release(wake_at=now)
        await self._wake(self._workflow_id)
        return Outcome.HANDED_ON

    async def _postpone(self) -> Outcome:
        await self._driver.release(wake_at=self._ports.clock.now() + POSTPONED_MS)
        return Outcome.POSTPONED

    async def _after_fault(self, error: DriverError) -> Outcome:
        # A holder that cannot tell what it wrote must not write again: then this raises, and the lease runs out.
        pause_ms = fault_pause_ms(self._driver.faults)
        await self._driver.release(wake_at=self._ports.clock.now() + pause_ms, is_fault=True)
        if self._driver.faults >= FAULTS_TOLD_MIN:
            # Nobody has died and nobody is late: without this line no alarm would go off.
            fields = {"workflow_id": self._workflow_id, "faults": self._driver.faults, "pause_ms": pause_ms}
            logger.error(FAILS, extra=fields | failures.told(error))
        await self._wake(self._workflow_id, pause_ms // 1000)
        return Outcome.HANDED_ON

    async def _set_aside(self, error: BaseException, otherwise: Outcome) -> Outcome | None:
        """Fail a workflow that cannot run, visibly and for ``recover`` to go on from.

        At once where it is the author's to mend, else after some tries, each of which has counted as a death.
        """
        if self._driver.deaths < DEATHS_MAX and not isinstance(error, AuthorError):
            return otherwise
        stored = encode_error(StoredError(name=type(error).__name__, message=str(error)))
        state = WorkflowState.FAILED
        puts = [(ERROR_KEY, stored), (STATE_KEY, state.encode())]
        await self._driver.commit(Commit(puts=puts, alarm=Alarm(None), state=state))
        return None

    async def _wake(self, workflow_id: str, delay_s: int = 0) -> None:
        with failures.losing_nothing("wake lost", workflow_id):
            await self._ports.queue.wake(workflow_id, delay_s)

    def _tell(self, outcome: Outcome) -> None:
        driver = self._driver
        fields = {
            "workflow_id": self._workflow_id,
            "type": driver.type,
            "outcome": outcome,
            "state": driver.head.state,
            "epoch": driver.head.epoch,
            "wakes": driver.wakes,
            "deaths": driver.deaths,
            "faults": driver.faults,
            "commits": driver.head.seq - self._seq,
            "write_units": driver.meter.write_units,
            "read_units": driver.meter.read_units,
            "refusals": driver.meter.refusals,
            "repeats": driver.meter.repeats,
            "duration_ms": self._ports.clock.now() - self._began_at,
            "next_wake": driver.alarm_at,
            **({} if self._error is None else failures.told(self._error)),
        }
        is_odd = outcome in (Outcome.FAULT, Outcome.LEFT) or isinstance(self._error, OperatorError)
        logger.log(logging.ERROR if is_odd else logging.INFO, "run ended", extra=fields)
        traces.annotate(outcome=outcome)
        if is_odd:
            traces.mark("fault")
