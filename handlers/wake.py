"""One wake: claim the workflow, and do what is to be done: a turn, forgetting it, telling of its end, or nothing."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from adapters.dynamodb.store import Claimed, Ended, Held, NotDue, NotFound, Outlived, Purging, Unreadable
from engine.errors import DriverError, InvalidIdError, OperatorError
from handlers import failures, logs
from handlers.forgetting import forget
from handlers.turn import OUTSTANDING_WAKE_S, Outcome, Turn
from handlers.waking import wake_all

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from adapters.dynamodb.driver import DynamoDriver
    from adapters.dynamodb.store import Claim
    from handlers.invocation import Invocation, TurnLimits
    from handlers.turn import TurnPorts

logger = logging.getLogger(__name__)

NEEDLESS = "wake not needed"
"""How each line begins that tells of a wake which had nothing to do: none of them is a loss."""

_WHY: dict[type[Claim], str] = {
    Held: "a worker has the workflow already, and looks for news itself before it lets go",
    NotDue: "nothing is due yet",
    Ended: "the workflow has ended",
    NotFound: "there is no such workflow, or no more",
}


async def take_turn(
    ports: TurnPorts, limits: TurnLimits, invocation: Invocation, workflow_id: str, alarms: Collection[int]
) -> Outcome:
    """Do what one wake asks for, and tell the log one line.

    Args:
        ports: what to act on.
        limits: how long a lease is.
        invocation: until when there is time.
        workflow_id: who is to be woken.
        alarms: the alarms that it is to be woken for, in milliseconds since the epoch; empty where it is for none.
    """
    if invocation.is_stopping:
        return await _pass_on(ports, workflow_id, alarms)
    try:
        claim = await ports.store.claim(workflow_id, lease_ms=limits.lease_ms, deadline_ms=invocation.deadline_ms)
    except (OperatorError, InvalidIdError) as error:
        logger.exception("wake failed", extra={"workflow_id": workflow_id, **failures.told(error)})
        return Outcome.FAULT
    match claim:
        case Claimed(driver):
            with _about(ports, driver):
                return await Turn(ports, limits, invocation, driver).take()
        case Unreadable(driver, reason):
            with _about(ports, driver):
                return await Turn(ports, limits, invocation, driver).refuse(reason)
        case Purging() | Outlived():
            until = invocation.deadline_ms - limits.evict_margin_ms
            told = await forget(ports.store, ports.alarms, workflow_id, claim, until=until)
            await wake_all(ports.queue, told)
            return Outcome.DROPPED
        case Ended(told):
            await wake_all(ports.queue, told)
    return await _drop(ports, workflow_id, claim, alarms)


@contextlib.contextmanager
def _about(ports: TurnPorts, driver: DynamoDriver) -> Iterator[None]:
    """Have every line of a turn, and its part of a trace, be found by what the workflow comes from."""
    origin = driver.origin.known()
    about = {"workflow_id": driver.workflow_id, "workflow_type": driver.type, **origin}
    traced = contextlib.nullcontext() if ports.traces is None else ports.traces.subsegment("turn", **about)
    with logs.about(workflow_id=driver.workflow_id, **origin), traced:
        yield


async def _pass_on(ports: TurnPorts, workflow_id: str, alarms: Collection[int]) -> Outcome:
    """Leave a wake that came too late in an invocation to the next one."""
    try:
        # As it came: an alarm that goes off early is armed again for its own wake alone.
        for alarm_at in alarms or (None,):
            await ports.queue.wake(workflow_id, 0, alarm_at=alarm_at)
    except DriverError:
        return Outcome.FAULT
    logger.info("wake passed on", extra={"workflow_id": workflow_id})
    return Outcome.DROPPED


async def _drop(ports: TurnPorts, workflow_id: str, claim: Claim, alarms: Collection[int]) -> Outcome:
    early_for = claim.due_at if isinstance(claim, NotDue) and claim.due_at in alarms else None
    if early_for is not None:
        # Only the alarm's own wake arms it again. Any other is left over from an earlier wait and would never die out.
        with failures.losing_nothing("alarm not armed again", workflow_id):
            await ports.alarms.arm(workflow_id, early_for)
    if isinstance(claim, NotDue) and claim.awaits_sender:
        # The API sends a wake while it writes the message. The sweeper would find that half a minute from now.
        with failures.losing_nothing("wake lost", workflow_id):
            await ports.queue.wake(workflow_id, OUTSTANDING_WAKE_S)
    kind = type(claim)
    fields = {"workflow_id": workflow_id, "reason": kind.__name__, "early_for": early_for}
    logger.info("%s: %s", NEEDLESS, _WHY[kind], extra=fields)
    return Outcome.DROPPED
