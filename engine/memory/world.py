"""Several workflows in memory, which may start, await and send to each other, on one clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from engine.author.registry import REGISTRY, Workflow
from engine.commit import Child
from engine.entry import Message
from engine.errors import ChildRefusedError, StartConflictError, WorkflowEndedError, WorkflowNotFoundError
from engine.handle import run_workflow
from engine.keys import INPUT_KEY
from engine.lifecycle import ENDED, OVER, WorkflowState
from engine.memory.clock import VirtualClock
from engine.memory.driver import MemoryDriver
from engine.memory.jumping import while_jumping
from engine.values import decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from engine.author.registry import Registry
    from engine.commit import Commit
    from engine.driver import Peer
    from engine.memory.driver import CallHook
    from engine.result import WorkflowResult


class Published(Struct, frozen=True, kw_only=True):
    """What ``workflow_id`` has published, at ``sent_at`` (milliseconds); ``body`` is the value."""

    workflow_id: str
    name: str
    topic: str
    body: Any
    sent_at: int


class _Member(Struct, frozen=True, kw_only=True):
    """A workflow of a world: its code, and what it was started with; ``given`` only where that is not stored yet."""

    fn: Callable[..., Any]
    given: Any = None
    start: Child


class MemoryWorld:
    """Workflows by id, each with a store of its own; ``drive`` runs all of them.

    Attributes:
        clock: the clock of all; it jumps to the next alarm when nothing else can happen.
        drivers: the store of each workflow.
        results: how the latest run of each ended; an error where it failed.
        on_call: what stores made from now on call before and after each of their calls, as ``MemoryDriver`` does.
    """

    def __init__(
        self,
        clock: VirtualClock | None = None,
        *,
        workflows: Iterable[Workflow[Any]] = (),
        registry: Registry = REGISTRY,
        on_call: CallHook | None = None,
    ) -> None:
        """``workflows``, and besides them those of ``registry``, are what can be dispatched by type."""
        self.clock = clock or VirtualClock()
        self.drivers: dict[str, MemoryDriver] = {}
        self.results: dict[str, WorkflowResult[Any] | BaseException] = {}
        self.on_call = on_call
        self._known = {workflow.name: workflow for workflow in workflows}
        self._registry = registry
        self._members: dict[str, _Member] = {}
        self._unique: dict[tuple[str, frozenset[tuple[str, str]]], str] = {}
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

    def start(
        self,
        workflow_id: str,
        fn: Callable[..., Any],
        input: Any = None,  # noqa: A002 - its name
        *,
        tags: Mapping[str, str] | None = None,
        unique: bool = False,
        ray_id: str = "",
        request_id: str = "",
    ) -> str:
        """Start a workflow; ``drive`` runs it. One that is there in its place already is left as it is; its id."""
        if not isinstance(fn, Workflow) and not callable(fn):
            raise TypeError(f"a world starts a function or what @workflow has made, not {fn!r}")
        start = Child(
            workflow_id=workflow_id,
            workflow_type=fn.name if isinstance(fn, Workflow) else fn.__name__,
            workflow_input=encode(input),
            tags=dict(tags or {}),
            unique=unique,
        )
        try:
            self._check(start)
        except ChildRefusedError as refused:
            return refused.existing or workflow_id
        options: dict[str, Any] = {"clock": self.clock, "neighbours": self, "on_call": self.on_call}
        driver = MemoryDriver(**options, ray_id=ray_id, request_id=request_id)
        self._add(_Member(fn=fn, given=input, start=start), driver)
        return workflow_id

    def send(self, workflow_id: str, name: str, body: Any = None) -> None:
        """Put a message into a workflow's inbox, as somebody outside does.

        Raises:
            WorkflowNotFoundError, WorkflowEndedError: it takes none.
        """
        self._sent += 1
        sent = Message(id=f"sent-{self._sent}", name=name, body=encode(body), sent_at=self.clock.now())
        self._check_takes(workflow_id)
        self.drivers[workflow_id].message_driver.put(sent)

    def state(self, workflow_id: str) -> WorkflowState:
        """The workflow's state, as stored."""
        return self.drivers[workflow_id].state

    async def drive(self) -> None:
        """Run every workflow whenever it is due, until all have ended or wait for messages that nobody sends.

        One whose run died before it had an alarm is left as it was last committed, its error in ``results``: there is
        no sweeper here, and a test that has a run die looks at what is left, then calls ``run``.
        """
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
        member, driver = self._members[workflow_id], self.drivers[workflow_id]
        driver.awaited = ()
        handle = run_workflow(workflow_id, member.fn, member.given, driver, clock=self.clock)
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
        is_news = driver.message_driver.has_moved or any(self.drivers[one].state in ENDED for one in driver.awaited)
        return workflow_id not in self.results or is_alarm_due or is_news

    def _alarm_of(self, workflow_id: str) -> int | None:
        driver = self.drivers[workflow_id]
        return None if driver.state in ENDED else driver.alarms.get(workflow_id)

    # --- what its drivers ask of it ---------------------------------------------------------------------------------

    def peek(self, workflow_id: str) -> Peer | None:
        """How a workflow stands; None where there is none."""
        if workflow_id not in self.drivers:
            return None
        return self.drivers[workflow_id].as_peer(workflow_id, self._members[workflow_id].start.workflow_type)

    def find(self, workflow_type: str, tags: Mapping[str, str], limit: int) -> list[str]:
        """Ids of workflows of a type that have not ended and have at least ``tags``, in the order of ids."""
        found = (
            workflow_id
            for workflow_id, member in self._members.items()
            if member.start.workflow_type == workflow_type
            and member.start.tags.items() >= tags.items()
            and self.state(workflow_id) not in ENDED
        )
        return sorted(found)[:limit]

    def reserve(self, workflow_id: str) -> int:
        """A place in a workflow's inbox.

        Raises:
            WorkflowNotFoundError, WorkflowEndedError: it takes no messages.
        """
        self._check_takes(workflow_id)
        return self.drivers[workflow_id].message_driver.reserve()

    def accept(self, commit: Commit, driver: MemoryDriver) -> None:
        """Take what a commit over ``driver`` has for others, all of it, or raise and take nothing.

        Raises:
            ChildRefusedError: a child cannot be started.
            StartConflictError: it goes on after its end, and another has its place as the only one.
            UnknownTypeError: nobody knows how to run it; a test must name its workflow.
        """
        self._take_place(commit, driver)
        for child in commit.children:
            self._check(child)
        members = [_Member(fn=self._code_of(child.workflow_type), start=child) for child in commit.children]
        for outgoing in commit.outgoing:
            if outgoing.workflow_id is not None:
                self.drivers[outgoing.workflow_id].message_driver.put(outgoing.message)
        for member in members:
            stored = [(INPUT_KEY.hex(), member.start.workflow_input.hex())]
            options = {"clock": self.clock, "neighbours": self, "on_call": self.on_call, **driver.origin.known()}
            self._add(member, MemoryDriver.load(stored, **options))

    def _code_of(self, workflow_type: str) -> Workflow[Any]:
        return self._known.get(workflow_type) or self._registry.get(workflow_type)

    def _add(self, member: _Member, driver: MemoryDriver) -> None:
        start = member.start
        driver.started_at = self.clock.now()
        self.drivers[start.workflow_id] = driver
        self._members[start.workflow_id] = member
        if start.unique:
            self._unique[_place_of(start)] = start.workflow_id

    def _check(self, child: Child) -> None:
        """Raise where ``child`` cannot be started."""
        known = self._members.get(child.workflow_id)
        if known is not None:
            asked = child.workflow_type, child.workflow_input
            is_same = (known.start.workflow_type, known.start.workflow_input) == asked
            raise _refused(child, child.workflow_id if is_same else None)
        holder = self._unique.get(_place_of(child)) if child.unique else None
        if holder is None or self.state(holder) in OVER:
            return
        if not (child.replace_failed and self.state(holder) is WorkflowState.FAILED):
            raise _refused(child, holder)

    def _take_place(self, commit: Commit, driver: MemoryDriver) -> None:
        """Give a unique workflow that goes on after its end its place again; raise where another one has it."""
        if commit.state is None or commit.state in ENDED or driver.state not in ENDED:
            return
        start = next(self._members[one].start for one, known in self.drivers.items() if known is driver)
        if not start.unique:
            return
        holder = self._unique[_place_of(start)]
        if holder != start.workflow_id and self.state(holder) not in OVER:
            raise StartConflictError(
                f"{start.workflow_id!r} is unique and cannot go on: {holder!r}, of its type and tags, has its place"
            )
        self._unique[_place_of(start)] = start.workflow_id

    def _check_takes(self, workflow_id: str) -> None:
        """Raise where a workflow takes no messages."""
        if workflow_id not in self.drivers:
            raise WorkflowNotFoundError(f"no workflow has the id {workflow_id!r}")
        if (state := self.drivers[workflow_id].state) in ENDED:
            raise WorkflowEndedError(f"the workflow {workflow_id!r} is {state}")


def _place_of(start: Child) -> tuple[str, frozenset[tuple[str, str]]]:
    return start.workflow_type, frozenset(start.tags.items())


def _refused(child: Child, existing: str | None) -> ChildRefusedError:
    why = "is there already" if existing else "exists already with another type or input"
    error = ChildRefusedError(f"a workflow {existing or child.workflow_id!r} {why}")
    error.workflow_id = child.workflow_id
    error.existing = existing
    return error
