"""Several workflows in memory, which may send to each other, on one clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from engine.entry import Message
from engine.errors import WorkflowEndedError
from engine.handle import run_workflow
from engine.jumping import while_jumping
from engine.lifecycle import ENDED, WorkflowState
from engine.memory import MemoryDriver, not_found
from engine.values import decode, encode
from engine.virtual_clock import VirtualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engine.result import WorkflowResult


class Published(Struct, frozen=True, kw_only=True):
    """What ``workflow_id`` has published, at ``sent_at`` (milliseconds); ``body`` is the value."""

    workflow_id: str
    name: str
    topic: str
    body: Any
    sent_at: int


class MemoryWorld:
    """Workflows by id, each with a store of its own; ``drive`` runs all of them.

    Attributes:
        clock: the clock of all; it jumps to the next alarm when nothing else can happen.
        drivers: the store of each workflow.
        results: how the latest run of each ended; an error where it failed.
    """

    def __init__(self, clock: VirtualClock | None = None) -> None:
        self.clock = clock or VirtualClock()
        self.drivers: dict[str, MemoryDriver] = {}
        self.results: dict[str, WorkflowResult[Any] | BaseException] = {}
        self._workflows: dict[str, tuple[Callable[..., Any], Any]] = {}
        self._sent = 0

    @property
    def published(self) -> list[Published]:
        """What all of them have published, in the order of time."""
        made = [(workflow_id, one) for workflow_id, driver in self.drivers.items() for one in driver.published]
        made.sort(key=lambda pair: (pair[1].sent_at, pair[1].id))
        return [
            Published(
                workflow_id=workflow_id, name=one.name, topic=one.topic, body=decode(one.body), sent_at=one.sent_at
            )
            for workflow_id, one in made
        ]

    def start(self, workflow_id: str, fn: Callable[..., Any], input: Any = None) -> None:  # noqa: A002 - its name
        """Start a workflow; ``drive`` runs it. One that is there already is left as it is."""
        if workflow_id in self.drivers:
            return
        self.drivers[workflow_id] = MemoryDriver(clock=self.clock, post=self._post)
        self._workflows[workflow_id] = fn, input

    def send(self, workflow_id: str, name: str, body: Any = None) -> None:
        """Put a message into a workflow's inbox, as somebody outside does.

        Raises:
            WorkflowNotFoundError, WorkflowEndedError: it takes none.
        """
        self._sent += 1
        sent = Message(id=f"sent-{self._sent}", name=name, body=encode(body), sent_at=self.clock.now())
        self._post([(workflow_id, sent)])

    def state(self, workflow_id: str) -> WorkflowState:
        """The workflow's state, as stored."""
        return self.drivers[workflow_id].state

    async def drive(self) -> None:
        """Run every workflow whenever it is due, until all have ended or wait for messages that nobody sends."""
        while True:
            due = [workflow_id for workflow_id in self.drivers if self._is_due(workflow_id)]
            for workflow_id in due:
                await self.run(workflow_id)
            if due:
                continue
            alarms = [at for workflow_id in self.drivers if (at := self._alarm_of(workflow_id)) is not None]
            if not alarms:
                return
            self.clock.advance_to(min(alarms))

    async def run(self, workflow_id: str) -> None:
        """Run one workflow once; how it ended is in ``results``."""
        fn, given = self._workflows[workflow_id]
        handle = run_workflow(workflow_id, fn, given, self.drivers[workflow_id], clock=self.clock)
        try:
            self.results[workflow_id] = await while_jumping(handle, self.clock)
        except Exception as error:  # noqa: BLE001 - whatever the workflow raises
            self.results[workflow_id] = error

    def _is_due(self, workflow_id: str) -> bool:
        driver = self.drivers[workflow_id]
        if driver.state in ENDED:
            return False
        alarm = self._alarm_of(workflow_id)
        is_alarm_due = alarm is not None and alarm <= self.clock.now()
        return workflow_id not in self.results or is_alarm_due or driver.message_driver.has_moved

    def _alarm_of(self, workflow_id: str) -> int | None:
        driver = self.drivers[workflow_id]
        return None if driver.state in ENDED else driver.alarms.get(workflow_id)

    def _post(self, posts: Sequence[tuple[str, Message]]) -> None:
        """Deliver all of them, or raise and deliver none."""
        for workflow_id, _ in posts:
            if workflow_id not in self.drivers:
                raise not_found(workflow_id)
            if (state := self.drivers[workflow_id].state) in ENDED:
                ended = WorkflowEndedError(f"the workflow {workflow_id!r} is {state}")
                ended.workflow_id = workflow_id
                raise ended
        for workflow_id, message in posts:
            self.drivers[workflow_id].message_driver.put(message)
