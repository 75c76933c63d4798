"""The wake queue: messages that hint at a workflow that may go on. They may be lost, late, repeated or reordered."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError
from msgspec import Struct

from adapters.outages import outages_of

if TYPE_CHECKING:
    from adapters.short_way import ShortWay

TARGET = "AmazonSQS"
"""What stands before an operation's name in a call by the short way. Source: the service's model, ``targetPrefix``."""

DELAY_S_MAX = 900
"""Longest ``DelaySeconds``. Source: SQS quota."""


class SqsClient(Protocol):
    """The one call of an aiobotocore SQS client that we make."""

    async def send_message(self, **arguments: Any) -> dict[str, Any]:
        """The service's call of that name; arguments, answer and errors are its own."""


class ShortSqs:
    """SQS by the short way, and by the generic client, which tries again, whatever the first try meets.

    A message may so be sent twice. A wake is a hint, and may.
    """

    __slots__ = ("_generic", "_way")

    def __init__(self, way: ShortWay, generic: SqsClient) -> None:
        self._way = way
        self._generic = generic

    async def send_message(self, **arguments: Any) -> dict[str, Any]:
        """See ``SqsClient``."""
        try:
            return await self._way.call("SendMessage", arguments)
        except (ClientError, BotoCoreError):
            return await self._generic.send_message(**arguments)


class Wake(Struct, frozen=True, kw_only=True):
    """A hint that a workflow may go on.

    ``alarm_at`` is the alarm that it was sent for, in milliseconds since the epoch; None where it was no alarm.
    """

    workflow_id: str
    alarm_at: int | None = None


def wake_body(wake: Wake) -> str:
    """The body of a wake, whoever sends it."""
    body: dict[str, Any] = {"workflow_id": wake.workflow_id}
    if wake.alarm_at is not None:
        body["alarm_at"] = wake.alarm_at
    # In ASCII, since SQS refuses some characters of Unicode that an id may hold, and then would at every try. And
    # without "<": EventBridge Scheduler puts words of its own in place of "<aws.scheduler.execution-id>" and its like.
    return json.dumps(body).replace("<", "\\u003c")


def read_wake(body: str) -> Wake | None:
    """The wake that a body says, or None where it is no wake."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        # Nested deeper than the parser goes; a batch must survive whatever is put into its queue.
        return None
    match found:
        case {"workflow_id": str(workflow_id), "alarm_at": int(alarm_at)}:
            return Wake(workflow_id=workflow_id, alarm_at=alarm_at)
        case {"workflow_id": str(workflow_id)}:
            return Wake(workflow_id=workflow_id)
    return None


class WakeQueue:
    """Sends wakes to the standard queue at ``queue_url``."""

    __slots__ = ("_client", "_queue_url")

    def __init__(self, client: SqsClient, queue_url: str) -> None:
        self._client = client
        self._queue_url = queue_url

    async def wake(self, workflow_id: str, delay_s: int = 0, *, alarm_at: int | None = None) -> None:
        """Have a workflow looked at in ``delay_s`` seconds, 0 to 900; ``alarm_at`` is the alarm that this is for.

        Raises:
            ValueError: the delay is outside of what SQS takes.
            StoreUnavailableError: the wake was probably not sent; the sweeper will find the workflow.
        """
        if not 0 <= delay_s <= DELAY_S_MAX:
            raise ValueError(f"a wake can be delayed by 0 to {DELAY_S_MAX} seconds, not by {delay_s}")
        with outages_of("SQS"):
            body = wake_body(Wake(workflow_id=workflow_id, alarm_at=alarm_at))
            await self._client.send_message(QueueUrl=self._queue_url, MessageBody=body, DelaySeconds=delay_s)
