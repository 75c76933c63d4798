"""Sending over HTTP to whoever has certain tags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.values import encode
from handlers.calls import Answer, members, text, texts
from handlers.operations import hint, message_id_of
from handlers.origins import origin_of
from handlers.problems import INVALID_BODY, INVALID_PARAMETER, Problem
from handlers.traces import annotate

if TYPE_CHECKING:
    from handlers.calls import Call
    from handlers.operations import Ports

SIGNAL_MEMBERS = frozenset({"body", "id", "tags", "type"})


async def signal(ports: Ports, call: Call) -> Answer:
    """Post a message to the first workflow of a type that has all of some tags; 202 when it is accepted."""
    given = members(call.value(), SIGNAL_MEMBERS)
    workflow_type = text(given.get("type"), "type")
    if workflow_type is None:
        raise Problem(INVALID_BODY, 'Say the "type" of the workflow, and the "tags" that it must have.')
    named, message_id = text(given.get("id"), "id"), message_id_of(call)
    if None not in (named, message_id) and named != message_id:
        raise Problem(INVALID_PARAMETER, 'The member "id" and the Idempotency-Key differ; send one of them.')
    origin = origin_of(call, ports.ids)
    sent = await ports.store.signal(
        workflow_type,
        texts(given.get("tags"), "tags"),
        name=call.path["name"],
        body=encode(given.get("body")),
        message_id=message_id if named is None else named,
        sent_at=ports.clock.now(),
        origin=origin,
    )
    annotate(workflow_id=sent.workflow_id, workflow_type=workflow_type, ray_id=origin.ray_id)
    await hint(ports, sent.workflow_id)
    told = {"message_id": sent.accepted.message_id, "duplicate": sent.accepted.duplicate}
    return Answer(status=202, value={"workflow_id": sent.workflow_id, **told})
