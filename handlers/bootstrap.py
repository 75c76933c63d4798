"""Where a function's process is put together: the one reader of the environment, and the wiring of adapters to it."""

from __future__ import annotations

import functools
import gc
import os
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adapters.alarms import Alarms
from adapters.dynamodb.store import Store
from adapters.events import EventBus
from adapters.scheduler import Scheduler
from adapters.sqs import WakeQueue
from engine.author.registry import REGISTRY
from engine.clock import SystemClock
from engine.ids import Ids
from handlers import logs
from handlers.application import Application
from handlers.clients import Clients
from handlers.process import Process
from handlers.traces import Traces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from adapters.events import Event
    from adapters.sqs import Wake
    from engine.driver import Clock

LEASE_S = 60.0
EVICT_MARGIN_S = 10.0
STOP_MARGIN_S = 5.0
"""Where the environment says nothing: the template's own defaults, in seconds."""


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
        bus: TORPOR_BUS, the event bus that workflows publish on; empty where there is none.
        schedule_role_arn: TORPOR_SCHEDULE_ROLE_ARN, as whom Scheduler sends wakes.
        stack: TORPOR_STACK, the stack's name.
        lease_ms: TORPOR_LEASE_SECONDS, in milliseconds.
        evict_margin_ms: TORPOR_EVICT_MARGIN_SECONDS: so long before the deadline runs are asked to stop.
        stop_margin_ms: TORPOR_STOP_MARGIN_SECONDS: so long before it they are stopped.
        xray_daemon: AWS_XRAY_DAEMON_ADDRESS where TORPOR_TRACING is ``Active``; empty where nothing is to be traced.
        log_level: LOG_LEVEL.
        is_native_json: Lambda writes the log as JSON itself.
    """

    app: str
    table: str
    queue_url: str
    queue_arn: str = ""
    schedule_group: str = ""
    schedule_role_arn: str = ""
    bus: str = ""
    stack: str = ""
    lease_ms: int
    evict_margin_ms: int
    stop_margin_ms: int
    xray_daemon: str = ""
    log_level: str = "INFO"
    is_native_json: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read the environment (the process's own where none is given).

        Raises:
            SettingsError: a variable is missing, no number, or out of bounds.
        """
        variables = os.environ if environment is None else environment  # noqa: TID251 - this is the place
        settings = cls(
            app=variables.get("TORPOR_APP", ""),
            table=_required(variables, "TORPOR_TABLE"),
            queue_url=_required(variables, "TORPOR_QUEUE_URL"),
            queue_arn=variables.get("TORPOR_QUEUE_ARN", ""),
            schedule_group=variables.get("TORPOR_SCHEDULE_GROUP", ""),
            schedule_role_arn=variables.get("TORPOR_SCHEDULE_ROLE_ARN", ""),
            bus=variables.get("TORPOR_BUS", ""),
            stack=variables.get("TORPOR_STACK", ""),
            lease_ms=_milliseconds(variables, "TORPOR_LEASE_SECONDS", LEASE_S),
            evict_margin_ms=_milliseconds(variables, "TORPOR_EVICT_MARGIN_SECONDS", EVICT_MARGIN_S),
            stop_margin_ms=_milliseconds(variables, "TORPOR_STOP_MARGIN_SECONDS", STOP_MARGIN_S),
            xray_daemon=variables.get("AWS_XRAY_DAEMON_ADDRESS", "") if _is_traced(variables) else "",
            log_level=variables.get("LOG_LEVEL", "INFO"),
            is_native_json=variables.get("AWS_LAMBDA_LOG_FORMAT", "").upper() == "JSON",
        )
        if settings.stop_margin_ms >= settings.evict_margin_ms:
            raise SettingsError("TORPOR_STOP_MARGIN_SECONDS must be less than TORPOR_EVICT_MARGIN_SECONDS.")
        return settings


def _is_traced(variables: Mapping[str, str]) -> bool:
    # A caller's trace may be sampled though this stack's parameter says that it wants none, and has no right to tell.
    return variables.get("TORPOR_TRACING") == "Active"


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


# --- wiring -------------------------------------------------------------------------------------------------------


class Wiring:
    """One process's adapters: each is made when first asked for, on the process's loop, and kept.

    Attributes:
        settings: what the environment says.
        process: the event loop.
        clock: the machine's.
        ids: where new ids come from.
        application: the author's workflows.
        traces: what invocations do, for X-Ray.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.process = Process()
        self.clock: Clock = SystemClock()
        self.ids = Ids(self.clock)
        self.application = Application(settings.app, REGISTRY.get, self.clock)
        self.traces = Traces(self.clock, self.ids, header=_trace, daemon=settings.xray_daemon)
        self._clients = Clients(self.clock, trace=_trace)
        self._store: Store | None = None

    async def store(self) -> Store:
        """The table."""
        if self._store is None:
            client = await self._clients.dynamodb()
            # Jitter wants spread, not secrecy; a process of its own seed is what keeps two from retrying in step.
            jitter = random.Random()  # noqa: S311
            owner = f"{self.settings.stack or 'torpor'}-{self.ids.new()}"
            self._store = Store(client, self.settings.table, self.clock, self.ids, owner=owner, random=jitter.random)
        return self._store

    async def queue(self) -> WakeQueue:
        """The wake queue."""
        return WakeQueue(await self._clients.sqs(), self.settings.queue_url)

    async def alarms(self) -> Alarms:
        """The alarms; the client of EventBridge Scheduler is made at the first that is far."""
        return Alarms(await self.queue(), LateScheduler(self), self.clock)

    def bus(self) -> LateBus | None:
        """The event bus, or None where there is none; its client is made at the first publication."""
        return LateBus(self) if self.settings.bus else None

    async def client(self, service: str) -> Any:
        """The one aiobotocore client of a service; it lives as long as the process."""
        return await self._clients.generic(service)

    def close(self) -> None:
        """Close every client and the loop; for tests and tools."""
        self.process.loop.run_until_complete(self._clients.close())
        self.process.close()


def _trace() -> str | None:
    # Lambda's runtime sets it anew for each invocation.
    return os.environ.get("_X_AMZN_TRACE_ID")  # noqa: TID251 - this is the place


class LateScheduler:
    """EventBridge Scheduler whose client is made at its first call: most processes never make one."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring

    async def set(self, wake: Wake, at_s: int) -> None:
        """See ``Scheduler.set``."""
        await (await self._scheduler()).set(wake, at_s)

    async def clear(self, workflow_id: str) -> None:
        """See ``Scheduler.clear``."""
        await (await self._scheduler()).clear(workflow_id)

    async def _scheduler(self) -> Scheduler:
        settings = self._wiring.settings
        return Scheduler(
            await self._wiring.client("scheduler"),
            group=settings.schedule_group,
            role_arn=settings.schedule_role_arn,
            queue_arn=settings.queue_arn,
            stack=settings.stack,
        )


class LateBus:
    """The event bus whose client is made at its first call: most workflows publish nothing."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring

    async def put(self, events: Sequence[Event]) -> None:
        """See ``EventBus.put``."""
        wiring = self._wiring
        await EventBus(await wiring.client("events"), wiring.settings.bus, wiring.clock).put(events)


@functools.cache
def wiring() -> Wiring:
    """The wiring of this process, from the environment; its log appears and it listens for SIGTERM from here on."""
    settings = Settings.from_environment()
    # What the imports have made lives as long as the process: no collection need look at it again.
    gc.freeze()
    logs.set_up(settings.log_level, native_json=settings.is_native_json)
    made = Wiring(settings)
    made.process.listen_for_sigterm()
    return made
