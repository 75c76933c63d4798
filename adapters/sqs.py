"""The wake queue: messages that hint at a workflow that may go on. They may be lost, late, repeated or reordered."""

from __future__ import annotations

import json
from typing import Any, Protocol

from adapters.outages import outages_of

DELAY_S_MAX = 900
"""Longest ``DelaySeconds``. Source: SQS quota."""


class SqsClient(Protocol):
    """The one call of an aiobotocore SQS client that we make."""

    async def send_message(self, **arguments: Any) -> dict[str, Any]: ...  # noqa: D102


def wake_body(workflow_id: str) -> str:
    """The body of a wake, as the worker reads it, whoever sends it."""
    return json.dumps({"workflow_id": workflow_id}, ensure_ascii=False)


def parse(body: str) -> str | None:
    """The workflow id in the body of a wake, or None where it is no wake."""
    try:
        found = json.loads(body)
    except ValueError:
        return None
    workflow_id = found.get("workflow_id") if isinstance(found, dict) else None
    return workflow_id if isinstance(workflow_id, str) else None


class WakeQueue:
    """Sends wakes to the standard queue at ``queue_url``."""

    __slots__ = ("_client", "_queue_url")

    def __init__(self, client: SqsClient, queue_url: str) -> None:
        self._client = client
        self._queue_url = queue_url

    async def wake(self, workflow_id: str, delay_s: int = 0) -> None:
        """Have a workflow looked at in ``delay_s`` seconds, 0 to 900.

        Raises:
            ValueError: the delay is outside of what SQS takes.
            StoreUnavailableError: the wake was probably not sent; the sweeper will find the workflow.
        """
        if not 0 <= delay_s <= DELAY_S_MAX:
            raise ValueError(f"a wake can be delayed by 0 to {DELAY_S_MAX} seconds, not by {delay_s}")
        with outages_of("SQS"):
            await self._client.send_message(
                QueueUrl=self._queue_url, MessageBody=wake_body(workflow_id), DelaySeconds=delay_s
            )
