"""Where a function's process is put together: the one reader of the environment, and the wiring of adapters to it."""

from __future__ import annotations

import asyncio
import functools
import os
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.clock import SystemClock
from engine.ids import Ids
from handlers import logs
from handlers.application import Application
from handlers.process import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from adapters.alarms import Alarms
    from adapters.dynamodb.store import Store
    from adapters.sqs import WakeQueue
    from engine.driver import Clock
    from engine.registry import Workflow

LEASE_S = 60.0
EVICT_MARGIN_S = 10.0
STOP_MARGIN_S = 5.0
"""Where the environment says nothing: the template's own defaults, in seconds."""

CONNECT_TIMEOUT_S = 2.0
READ_TIMEOUT_S = 5.0
"""Seconds until a call to AWS is given up and tried again. Design choice: AWS answers in milliseconds, and a connection
that a frozen process kept may be dead."""

CONNECTIONS_MAX = 50
"""Connections of one client. Design choice: a batch of workflows whose branches all commit at once."""


class SettingsError(Exception):
    """A variable of the environment is missing or not what it must be; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the environment says.

    Attributes:
        app: TORPOR_APP, the modules that register the workflows.
        table: TORPOR_TABLE, the table's name.
        queue_url: TORPOR_QUEUE_URL, the wake queue.
        queue_arn: TORPOR_QUEUE_ARN, the same as the target of schedules.
        schedule_group: TORPOR_SCHEDULE_GROUP, where schedules are made.
        schedule_role_arn: TORPOR_SCHEDULE_ROLE_ARN, as whom Scheduler sends wakes.
        stack: TORPOR_STACK, the stack's name.
        lease_ms: TORPOR_LEASE_SECONDS, in milliseconds.
        evict_margin_ms: TORPOR_EVICT_MARGIN_SECONDS: so long before the deadline runs are asked to stop.
        stop_margin_ms: TORPOR_STOP_MARGIN_SECONDS: so long before it they are stopped.
        log_level: LOG_LEVEL.
        is_native_json: Lambda writes the log as JSON itself.
    """

    app: str
    table: str
    queue_url: str
    queue_arn: str = ""
    schedule_group: str = ""
    schedule_role_arn: str = ""
    stack: str = ""
    lease_ms: int
    evict_margin_ms: int
    stop_margin_ms: int
    log_level: str = "INFO"
    is_native_json: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read the environment (the process's own where none is given).

        Raises:
            SettingsError: a variable is missing, no number, or out of bounds.
        """
        variables = os.environ if environment is None else environment
        settings = cls(
            app=variables.get("TORPOR_APP", ""),
            table=_required(variables, "TORPOR_TABLE"),
            queue_url=_required(variables, "TORPOR_QUEUE_URL"),
            queue_arn=variables.get("TORPOR_QUEUE_ARN", ""),
            schedule_group=variables.get("TORPOR_SCHEDULE_GROUP", ""),
            schedule_role_arn=variables.get("TORPOR_SCHEDULE_ROLE_ARN", ""),
            stack=variables.get("TORPOR_STACK", ""),
            lease_ms=_milliseconds(variables, "TORPOR_LEASE_SECONDS", LEASE_S),
            evict_margin_ms=_milliseconds(variables, "TORPOR_EVICT_MARGIN_SECONDS", EVICT_MARGIN_S),
            stop_margin_ms=_milliseconds(variables, "TORPOR_STOP_MARGIN_SECONDS", STOP_MARGIN_S),
            log_level=variables.get("LOG_LEVEL", "INFO"),
            is_native_json=variables.get("AWS_LAMBDA_LOG_FORMAT", "").upper() == "JSON",
        )
        if settings.stop_margin_ms >= settings.evict_margin_ms:
            raise SettingsError("TORPOR_STOP_MARGIN_SECONDS must be less than TORPOR_EVICT_MARGIN_SECONDS.")
        return settings


def _required(variables: Mapping[str, str], name: str) -> str:
    value = variables.get(name, "")
    if not value:
        raise SettingsError(f"{name} is not set; the template sets it on every function.")
    return value


def _milliseconds(variables: Mapping[str, str], name: str, default_s: float) -> int:
    text = variables.get(name, "") or str(default_s)
    try:
        milliseconds = int(float(text) * 1000)
    except (ValueError, OverflowError):
        milliseconds = 0
    if milliseconds <= 0:
        raise SettingsError(f'{name} must be a number of seconds above 0, not "{text}".')
    return milliseconds
