"""A driver in memory: one workflow's namespace, inbox and alarm, held to the same contract as every other driver."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

from engine.clock import SystemClock
from engine.commit import Alarm, Commit
from engine.driver import Peer
from engine.errors import CommitInFlightError, InboxMovedError
from engine.history.kept import parse_state
from engine.keys import ERROR_KEY, OUTPUT_KEY, STATE_KEY
from engine.lifecycle import ENDED, WorkflowState
from engine.memory.inbox import MemoryInbox
from engine.memory.sorted_pairs import SortedPairs, after
from engine.origin import Origin

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from engine.commit import Child, Publication
    from engine.driver import AbortSignal, Clock
    from engine.entry import Message

    CallHook = Callable[[str, str], Awaitable[None] | None]

_VALUE_BYTES_MAX = 64 * 1024 * 1024


class Neighbours(Protocol):
    """The workflows beside a driver's own."""

    def peek(self, workflow_id: str) -> Peer | None:
        """How one stands; None where there is none."""

    def find(self, workflow_type: str, tags: Mapping[str, str], limit: int) -> list[str]:
        """As ``Peers.find``."""

    def reserve(self, workflow_id: str) -> int:
        """As ``Peers.reserve``."""

    def accept(self, commit: Commit, driver: MemoryDriver) -> None:
        """Take what a commit over ``driver`` has for others, all of it, or raise and take nothing."""


class MemoryPeers:
    """The ``Peers`` of a ``MemoryDriver``, whose calls are calls of that driver."""

    def __init__(self, call: Callable[[str], AbstractAsyncContextManager[None]], neighbours: Neighbours) -> None:
        self._call = call
        self._neighbours = neighbours

    async def peek(self, workflow_id: str) -> Peer | None:
        """How a workflow stands; None where there is none."""
        async with self._call("peek"):
            return self._neighbours.peek(workflow_id)

    async def find(self, workflow_type: str, tags: Mapping[str, str], limit: int) -> list[str]:
        """Ids of workflows of a type that have not ended and have at least ``tags``, in the order of ids."""
        async with self._call("find"):
            return self._neighbours.find(workflow_type, tags, limit)

    def check_start(self, child: Child) -> None:
        """Whatever can be named can be started."""

    async def reserve(self, workflow_id: str) -> int:
        """A place in the inbox of another workflow."""
        async with self._call("reserve"):
            return self._neighbours.reserve(workflow_id)


class _Call(AbstractAsyncContextManager[None]):
    """One call of a ``MemoryDriver``: latency, and whatever the test wants to happen before and after it."""

    __slots__ = ("_driver", "_operation")

    def __init__(self, driver: MemoryDriver, operation: str) -> None:
        self._driver = driver
        self._operation = operation

    async def __aenter__(self) -> None:
        if self._driver.latency_s:
            await asyncio.sleep(self._driver.latency_s)
        await self._tell("before")

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            await self._tell("after")

    async def _tell(self, phase: str) -> None:
        hook = self._driver.on_call
        if hook is not None:
            answer = hook(self._operation, phase)
            if inspect.isawaitable(answer):
                await answer


class MemoryDriver:
    """One workflow's namespace in memory; a driver like any other, held to the same contract.

    Attributes:
        alarms: workflow id -> integer milliseconds.
        awaited: ids of the workflows whose end it waits for, as of the last yield.
        commits: every commit that wrote something, in order.
        deaths: what the engine is told of runs that died; a test may set it, a commit resets it.
        driven_as: the workflow that ``drive`` has run on it; another one is refused.
        latency_s: seconds that every call takes.
        peers: the workflows beside it; None where it is alone.
        on_call: called with the operation's name and ``"before"`` or ``"after"``; what it raises, the call raises.
    """

    is_in_memory = True

    def __init__(
        self,
        atomic: bool = True,  # noqa: FBT001, FBT002 - the documented form is MemoryDriver(atomic=True)
        *,
        clock: Clock | None = None,
        worker_poll_interval: float = 0.1,
        value_bytes_max: int = _VALUE_BYTES_MAX,
        latency_s: float = 0.0,
        on_call: CallHook | None = None,
        neighbours: Neighbours | None = None,
        ray_id: str = "",
        request_id: str = "",
    ) -> None:
        self.atomic_batch = atomic
        self.worker_poll_interval = worker_poll_interval
        self.value_bytes_max = value_bytes_max
        self.clock: Clock = clock or SystemClock()
        self.deaths = 0
        self.started_at: int | None = None
        self.driven_as: str | None = None
        self.latency_s = latency_s
        self.on_call = on_call
        self.origin = Origin(ray_id=ray_id, request_id=request_id)
        self._neighbours = neighbours
        self.peers = None if neighbours is None else MemoryPeers(self.call, neighbours)
        self.awaited: tuple[str, ...] = ()
        self.alarms: dict[str, int] = {}
        self.commits: list[Commit] = []
        self.message_driver = MemoryInbox(self.call)
        self._pairs = SortedPairs()
        self._is_committing = False

    @classmethod
    def load(cls, pairs: Iterable[Sequence[str]], **options: Any) -> MemoryDriver:
        """A driver that holds ``pairs`` of hex key and hex value, as ``dump`` gave them."""
        driver = cls(**options)
        for key, value in pairs:
            driver._pairs.put(bytes.fromhex(key), bytes.fromhex(value))
        return driver

    def dump(self) -> list[tuple[str, str]]:
        """Every pair as hex key and hex value, sorted by key."""
        return [(key.hex(), value.hex()) for key, value in self._pairs.between(b"", None)]

    @property
    def state(self) -> WorkflowState:
        """The workflow's state, as stored."""
        stored = self._pairs.values.get(STATE_KEY)
        return WorkflowState.PENDING if stored is None else parse_state(stored)

    def as_peer(self, workflow_id: str, workflow_type: str) -> Peer:
        """The workflow as others see it."""
        stored = self._pairs.values
        return Peer(
            workflow_id=workflow_id,
            workflow_type=workflow_type,
            state=self.state,
            output=stored.get(OUTPUT_KEY),
            error=stored.get(ERROR_KEY),
        )

    @property
    def messages(self) -> list[Message]:
        """The inbox, oldest first."""
        return list(self.message_driver.messages.values())

    @property
    def published(self) -> list[Publication]:
        """What was published, in the order of the commits."""
        return [publication for commit in self.commits for publication in commit.published]

    def call(self, operation: str) -> _Call:
        """The context of one call."""
        return _Call(self, operation)

    # --- pairs ------------------------------------------------------------------------------------------------------

    async def get(self, key: bytes) -> bytes | None:
        """The value of ``key``, or None."""
        async with self.call("get"):
            return self._pairs.values.get(key)

    async def set(self, key: bytes, value: bytes) -> None:
        """Store one pair."""
        async with self.call("set"):
            self._pairs.put(key, value)

    async def delete(self, key: bytes) -> None:
        """Remove one key."""
        async with self.call("delete"):
            self._pairs.drop(key)

    async def delete_prefix(self, prefix: bytes) -> None:
        """Remove every key that starts with ``prefix``."""
        async with self.call("delete_prefix"):
            self._pairs.drop_between(prefix, after(prefix))

    async def delete_range(self, start: bytes, end: bytes) -> None:
        """Remove every key with ``start <= key < end``."""
        async with self.call("delete_range"):
            self._pairs.drop_between(start, end)

    async def list(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Every pair whose key starts with ``prefix``, sorted by key bytes."""
        async with self.call("list"):
            self._begin()
            return self._pairs.between(prefix, after(prefix))

    def _begin(self) -> None:
        """The workflow is started now, where nothing is stored of it; of what was loaded nobody knows when it was."""
        if self.started_at is None and not self._pairs.values:
            self.started_at = self.clock.now()

    async def batch(self, writes: Sequence[tuple[bytes, bytes]]) -> None:
        """Store several pairs."""
        async with self.call("batch"):
            self.commits.append(Commit(puts=[*writes]))
            self.deaths = 0
            for key, value in writes:
                self._pairs.put(key, value)

    async def batch_delete(self, keys: Sequence[bytes]) -> None:
        """Remove several keys."""
        async with self.call("batch_delete"):
            for key in keys:
                self._pairs.drop(key)

    # --- commit -----------------------------------------------------------------------------------------------------

    async def commit(self, commit: Commit) -> None:
        """Apply ``commit`` whole.

        Raises:
            InboxMovedError: it yields, and a message came since the last refresh, or an awaited workflow has ended.
            ChildRefusedError: a child cannot be started.
            StartConflictError: it goes on after its end, and another has its place as the only one.
            CommitInFlightError: another commit is in flight.
        """
        if self._is_committing:
            raise CommitInFlightError("a commit is in flight already")
        self._is_committing = True
        try:
            if self.latency_s or self.on_call is not None:
                async with self.call("commit"):
                    self._apply(commit)
            else:
                self._apply(commit)
        finally:
            self._is_committing = False

    def _apply(self, commit: Commit) -> None:
        if commit.yields and self.message_driver.has_moved:
            raise InboxMovedError("a message came since the inbox was read")
        self._meet_others(commit)
        self._begin()
        for start, end in commit.ranges:
            self._pairs.drop_between(start, end)
        for prefix in commit.prefixes:
            self._pairs.drop_between(prefix, after(prefix))
        for key in commit.deletes:
            self._pairs.drop(key)
        for key, value in commit.puts:
            self._pairs.put(key, value)
        self._move_messages(commit)
        if _writes(commit):
            self.commits.append(commit)
            self.deaths = 0
        if commit.alarm is not None:
            self._move_alarm(commit.alarm)

    def _meet_others(self, commit: Commit) -> None:
        if self._neighbours is not None:
            for workflow_id in commit.awaited:
                if (peer := self._neighbours.peek(workflow_id)) is None or peer.state in ENDED:
                    raise InboxMovedError(f"{workflow_id!r} has ended")
            self._neighbours.accept(commit, self)
        if commit.yields:
            self.awaited = commit.awaited

    def _move_messages(self, commit: Commit) -> None:
        inbox = self.message_driver
        for message_id in commit.consumed:
            inbox.remove(message_id)
        for reply in commit.replies:
            inbox.answer(reply.message_id, reply.body)
        for message in commit.returned:
            inbox.put_back(message)
        for outgoing in commit.outgoing:
            if outgoing.workflow_id is None:
                inbox.put(outgoing.message)

    def _move_alarm(self, alarm: Alarm) -> None:
        if alarm.at is None:
            self.alarms.pop(alarm.workflow_id, None)
        else:
            self.alarms[alarm.workflow_id] = alarm.at

    # --- waking -----------------------------------------------------------------------------------------------------

    async def set_alarm(self, workflow_id: str, wake_at_ms: int) -> None:
        """Wake the workflow at ``wake_at_ms``."""
        async with self.call("set_alarm"):
            self.alarms[workflow_id] = wake_at_ms

    async def clear_alarm(self, workflow_id: str) -> None:
        """Forget the alarm."""
        async with self.call("clear_alarm"):
            self.alarms.pop(workflow_id, None)

    async def wait_for_messages(self, names: Sequence[str], abort_signal: AbortSignal) -> None:
        """Return when a message of ``names`` was accepted since the last refresh, or ``abort_signal`` is set."""
        await self.message_driver.wait(names, abort_signal)


def _writes(commit: Commit) -> bool:
    return bool(
        commit.puts
        or commit.deletes
        or commit.ranges
        or commit.prefixes
        or commit.consumed
        or commit.replies
        or commit.returned
        or commit.outgoing
        or commit.children
        or commit.published
    )
