"""The resume function: events that EventBridge, or a schedule, hands to Lambda directly become messages and wakes.

The turn itself is the worker's: there it shares the queue's bound on workers, their time, and their rights.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from adapters.dynamodb.model.naming import check_id
from adapters.dynamodb.model.origins import is_ray_id, is_request_id
from adapters.events import MESSAGE
from engine.errors import CallerError, InvalidIdError
from engine.origin import Origin
from engine.values import encode
from handlers import bootstrap, logs
from handlers.traces import annotate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adapters.dynamodb.store import Store
    from adapters.sqs import WakeQueue
    from engine.driver import Clock
    from handlers.bootstrap import Wiring

logger = logging.getLogger(__name__)


class UnreadableEventError(Exception):
    """An event names no workflow; raised, so that Lambda keeps it in the dead-letter queue for someone to see."""


class ResumeFunction:
    """The Lambda function, bound to a process and its adapters."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring

    def __call__(self, event: Mapping[str, Any], _context: Any) -> None:
        """Handle one event; raises where it must be delivered again, or is none of ours."""
        self._wiring.process.run(self._handle(event))

    async def _handle(self, event: Mapping[str, Any]) -> None:
        wiring = self._wiring
        with wiring.traces.subsegment("event"):
            await resume(await wiring.store(), await wiring.queue(), wiring.clock, event)


async def resume(store: Store, queue: WakeQueue, clock: Clock, event: Any) -> None:
    """Do what ``event`` asks for: an EventBridge event with a ``detail``, or the bare payload of a schedule.

    Raises:
        UnreadableEventError: it names no workflow, or is a message that says nothing by which it is known again.
        UnstorableValueError: it is a message whose body has no stored form.
        StoreUnavailableError: it must be delivered again; a message then still counts once.
    """
    origin = _origin_of(event)
    annotate(**origin.known())
    with logs.about(**origin.known()):
        await _resume(store, queue, clock, event, origin)


async def _resume(store: Store, queue: WakeQueue, clock: Clock, event: Any, origin: Origin) -> None:
    match event:
        case {"detail-type": kind, "detail": {"name": str(name)} as detail} if kind == MESSAGE and _has_target(detail):
            posted_to = await _post(store, clock, event, name, origin)
            if posted_to is None:
                return
            workflow_id = posted_to
        case {"detail": {"workflow_id": str(workflow_id)}} | {"workflow_id": str(workflow_id)}:
            if not _is_an_id(workflow_id):
                return
        case _:
            raise UnreadableEventError("an event has no text workflow_id in its detail")
    annotate(workflow_id=workflow_id)
    await queue.wake(workflow_id, 0)
    logger.info("event taken", extra={"workflow_id": workflow_id, "detail_type": event.get("detail-type")})


def _origin_of(event: Any) -> Origin:
    """What an event, and the message in it, come from: the ray id of its sender, and the event itself."""
    known: dict[str, str] = {}
    match event:
        case {"id": request_id} if is_request_id(request_id):
            known["request_id"] = request_id
    match event:
        case {"detail": {"ray_id": ray_id}} if is_ray_id(ray_id):
            known["ray_id"] = ray_id
    return Origin(**known)


def _key_of(event: Mapping[str, Any]) -> str:
    """What a message is known by: the id its sender gave it, else the event's own, the same at each delivery."""
    key = event["detail"].get("id") or event.get("id")
    if key is None:
        raise UnreadableEventError("an event that is a message has no id, neither its own nor one in its detail")
    return str(key)


def _has_target(detail: Mapping[str, Any]) -> bool:
    match detail:
        case {"workflow_id": str()} | {"type": str(), "tags": {}}:
            return True
    return False


def _is_an_id(workflow_id: str) -> bool:
    try:
        check_id(workflow_id)
    except CallerError as error:
        logger.warning("event refused", extra={"error": type(error).__name__})
        return False
    return True


async def _post(store: Store, clock: Clock, event: Mapping[str, Any], name: str, origin: Origin) -> str | None:
    """Put an event's message into an inbox, and say whose that is; None where nobody will ever take it."""
    detail, message_id = event["detail"], _key_of(event)
    message: dict[str, Any] = {
        "name": name,
        "body": encode(detail.get("body")),
        "message_id": message_id,
        "sent_at": clock.now(),
        "origin": origin,
    }
    target = detail.get("workflow_id")
    try:
        if isinstance(target, str):
            await store.send(target, **message)
            return target
        if not detail["tags"]:
            raise InvalidIdError("a message by type needs tags, or it might go to any workflow of that type")
        return (await store.signal(detail["type"], detail["tags"], **message)).workflow_id
    except CallerError as error:
        logger.warning(
            "event refused", extra={"workflow_id": target, "message_id": message_id, "error": type(error).__name__}
        )
        return None


@functools.cache
def _function() -> ResumeFunction:
    return ResumeFunction(bootstrap.wiring())


def handler(event: dict[str, Any], context: Any) -> None:
    """Lambda's entry point."""
    _function()(event, context)
