"""Alarms far ahead: one EventBridge Scheduler schedule a workflow, which puts a wake into the queue once."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any, Protocol

from botocore.exceptions import ClientError

from adapters.outages import outages_of
from adapters.sqs import Wake, wake_body
from engine.errors import StoreUnavailableError

NAME_LENGTH_MAX = 64
"""Characters of a schedule's name, of ``[0-9a-zA-Z-_.]``. Source: EventBridge Scheduler quota."""

_PREFIX = "torpor-"
_DIGEST_BYTES = (NAME_LENGTH_MAX - len(_PREFIX)) // 2
_TRIES = 3


class SchedulerClient(Protocol):
    """The calls of an aiobotocore EventBridge Scheduler client that we make."""

    async def create_schedule(self, **arguments: Any) -> dict[str, Any]:
        """The service's call of that name; arguments, answer and errors are its own."""

    async def update_schedule(self, **arguments: Any) -> dict[str, Any]:
        """The service's call of that name; arguments, answer and errors are its own."""

    async def delete_schedule(self, **arguments: Any) -> dict[str, Any]:
        """The service's call of that name; arguments, answer and errors are its own."""


def schedule_name(stack: str, workflow_id: str) -> str:
    """The name of a workflow's schedule: any id, of any length, in any stack, has one of its own."""
    digest = hashlib.blake2b(f"{stack}\0{workflow_id}".encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return _PREFIX + digest


def at_expression(at_s: int) -> str:
    """A one-time schedule expression for whole seconds since the epoch; it has no fractions."""
    return f"at({datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%M:%S})"


class Scheduler:
    """Sets and clears the schedules of ``stack`` in the schedule group ``group``."""

    __slots__ = ("_client", "_group", "_queue_arn", "_role_arn", "_stack")

    def __init__(self, client: SchedulerClient, group: str, role_arn: str, queue_arn: str, stack: str) -> None:
        self._client = client
        self._group = group
        self._role_arn = role_arn
        self._queue_arn = queue_arn
        self._stack = stack

    async def set(self, wake: Wake, at_s: int) -> None:
        """Have ``wake`` sent at ``at_s``, whole seconds since the epoch and still to come, instead of what was set.

        Raises:
            StoreUnavailableError: it was probably not set; the sweeper will find the workflow.
        """
        arguments = {
            "Name": schedule_name(self._stack, wake.workflow_id),
            "GroupName": self._group,
            "ScheduleExpression": at_expression(at_s),
            "ScheduleExpressionTimezone": "UTC",
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "ActionAfterCompletion": "DELETE",
            "Target": {"Arn": self._queue_arn, "RoleArn": self._role_arn, "Input": wake_body(wake)},
        }
        with outages_of("EventBridge Scheduler"):
            for _ in range(_TRIES):
                if await self._did(self._client.create_schedule(**arguments), "ConflictException"):
                    return
                # Between the two calls it may have gone off and deleted itself.
                if await self._did(self._client.update_schedule(**arguments), "ResourceNotFoundException"):
                    return
        raise StoreUnavailableError(f"the schedule of {wake.workflow_id!r} came and went at each try")

    async def clear(self, workflow_id: str) -> None:
        """Forget a workflow's schedule; no error where there is none.

        Raises:
            StoreUnavailableError: it may go off yet, as a stale wake that is dropped.
        """
        name = schedule_name(self._stack, workflow_id)
        with outages_of("EventBridge Scheduler"):
            await self._did(self._client.delete_schedule(Name=name, GroupName=self._group), "ResourceNotFoundException")

    @staticmethod
    async def _did(call: Any, unless: str) -> bool:
        try:
            await call
        except ClientError as error:
            if error.response["Error"]["Code"] == unless:
                return False
            raise
        return True
