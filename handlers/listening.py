"""Listening to what workflows publish, over HTTP: one look at the tail of a name, or a wait for what comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.values import decode
from handlers.calls import Answer, instant, wait_for
from handlers.origins import told_origin

if TYPE_CHECKING:
    from adapters.dynamodb.store import Tail, Told
    from handlers.calls import Call
    from handlers.operations import Ports

WAIT_MAX_S = 20.0
"""Longest wait of one call, in seconds. Design choice: a look costs more than at a workflow, and an HTTP API gives up
after 30."""

POLL_FIRST_S = 0.2
"""Seconds between the first two looks; they double from there to ``calls.POLL_MAX_S``. Design choice: a look without a
topic reads four partitions."""


async def messages(ports: Ports, call: Call) -> Answer:
    """What was lately published under a name: the last messages, or those after a cursor; waits for one if asked to."""
    name, topic = call.path["name"], call.query.get("topic")
    limit, wait_s = call.limit(), call.number("wait", 0.0, WAIT_MAX_S)
    looks: list[Tail] = []

    async def look() -> Tail | None:
        # Each look but the first goes on where the last one came to: nothing is missed in between, and little is read.
        after = looks[-1].cursor if looks else call.query.get("after")
        looks.append(await ports.store.messages(name, topic=topic, after=after, limit=limit))
        return looks[-1] if looks[-1].messages else None

    await wait_for(ports.clock, call, look, wait_s=wait_s, first_s=POLL_FIRST_S)
    found = [_told(message) for message in looks[-1].messages]
    has_gap = any(each.has_gap for each in looks)
    return Answer(value={"messages": found, "next": looks[-1].cursor, "has_gap": has_gap})


def _told(message: Told) -> dict[str, Any]:
    return {
        "id": message.id,
        "topic": message.topic,
        "body": decode(message.body),
        "sent_at": instant(message.sent_at),
        "workflow_id": message.workflow_id,
        **told_origin(message.origin),
    }
