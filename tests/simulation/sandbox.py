"""One process of a function: a loop that can freeze and die, a clock of its own, and the production wiring on both."""

from __future__ import annotations

import functools
import random
from typing import TYPE_CHECKING, Any

from adapters.dynamodb.store import Store
from adapters.sqs import WakeQueue
from engine.ids import Ids
from handlers.bootstrap import Settings, Wiring
from handlers.process import SETTLE_S, Process
from handlers.traces import Traces
from handlers.worker import WorkerFunction
from tests.simulation import bus, dynamo
from tests.simulation.http import HttpFunction
from tests.simulation.timeline import ProcessLoop
from tests.simulation.wire import method

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.simulation.wire import Service
    from tests.simulation.world import World

SQS_OPERATIONS = ("send_message",)
EVENTS_OPERATIONS = ("put_events",)
SCHEDULER_OPERATIONS = ("create_schedule", "update_schedule", "delete_schedule")


class SimClock:
    """A process's clock: the world's, less or more a constant."""

    def __init__(self, world: World, loop: ProcessLoop, skew_ms: int) -> None:
        self._world = world
        self._loop = loop
        self._skew_ms = skew_ms

    def now(self) -> int:
        """Integer milliseconds since the epoch, as this process believes."""
        return self._world.now_ms + self._skew_ms

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Any:
        """Call ``callback`` on this process's loop after ``delay_s`` seconds."""
        return self._loop.call_later(delay_s, callback)


class Client:
    """A client of one simulated service, with a method for each operation."""

    def __init__(self, world: World, sandbox: Sandbox, service: Service, operations: tuple[str, ...]) -> None:
        for operation in operations:
            setattr(self, operation, method(world.wire, sandbox, service, operation))


class SimProcess(Process):
    """A ``handlers.process.Process`` on a loop of the simulation."""

    def __init__(self, loop: ProcessLoop) -> None:
        self.loop: Any = loop
        self._on_terminate = []

    def start(self, work: Callable[[], Coroutine[Any, Any, Any]], done: Callable[[Any], None]) -> None:
        """Run one invocation's ``work``; ``done`` gets the finished task."""

        async def begin() -> Any:
            return await self._invocation(work(), lambda: SETTLE_S)

        self.loop.start(begin()).add_done_callback(done)

    def make_current(self) -> None:
        """Nobody here asks asyncio for "the" loop."""

    def terminate(self) -> None:
        """What SIGTERM does."""
        for callback in list(self._on_terminate):
            self.loop.call_soon(callback)


class SimWiring(Wiring):
    """The production wiring, over clients of the simulation."""

    def __init__(self, world: World, sandbox: Sandbox) -> None:
        weather = world.weather
        self.settings = Settings(
            app="",
            table=dynamo.TABLE,
            queue_url="queue",
            queue_arn="arn:queue",
            schedule_group="group",
            schedule_role_arn="arn:role",
            bus=bus.NAME,
            stack="sim",
            lease_ms=weather.lease_ms,
            evict_margin_ms=10_000,
            stop_margin_ms=5_000,
        )
        self.process = sandbox.process
        self.clock = sandbox.clock
        self.ids = Ids(self.clock)
        self.traces = Traces(self.clock, self.ids, header=lambda: None, daemon=self.settings.xray_daemon)
        self.application = world.application  # type: ignore[assignment]
        self._sandbox = sandbox
        services: dict[str, tuple[Service, tuple[str, ...]]] = {
            "dynamodb": (world.dynamo, dynamo.OPERATIONS),
            "sqs": (world.queue, SQS_OPERATIONS),
            "scheduler": (world.schedules, SCHEDULER_OPERATIONS),
            "events": (world.bus, EVENTS_OPERATIONS),
        }
        self._simulated = {
            name: Client(world, sandbox, service, operations) for name, (service, operations) in services.items()
        }
        self._store = None

    async def store(self) -> Store:
        """The table."""
        if self._store is None:
            jitter = random.Random(f"jitter {self._sandbox.name}")
            client: Any = self._simulated["dynamodb"]
            self._store = Store(
                client,
                self.settings.table,
                self.clock,
                self.ids,
                owner=self._sandbox.name,
                random=jitter.random,
            )
        return self._store

    async def queue(self) -> WakeQueue:
        """The wake queue."""
        queue: Any = self._simulated["sqs"]
        return WakeQueue(queue, self.settings.queue_url)

    async def client(self, service: str) -> Any:
        """The client of any other service."""
        return self._simulated[service]


class Sandbox:
    """A process of a function: between invocations it is frozen, and once dead it never does anything again."""

    def __init__(self, world: World, name: str, *, role: str, skew_ms: int) -> None:
        self.name = name
        self.role = role
        self.loop = ProcessLoop(world.timeline, name)
        self.clock = SimClock(world, self.loop, skew_ms)
        self.process = SimProcess(self.loop)
        self.wiring = SimWiring(world, self)
        self.worker = WorkerFunction(self.wiring)
        self.on_death: Callable[[], None] | None = None
        self.invocations = 0
        self.began_us = 0
        self.frozen_until_us = 0

    @functools.cached_property
    def api(self) -> HttpFunction:
        """The function of the HTTP API in this process."""
        return HttpFunction(self.wiring)

    @property
    def is_busy(self) -> bool:
        """Whether an invocation is under way."""
        return self.on_death is not None
