"""One workflow's life on a memory driver and a clock that jumps, run in either mode, and what is stored of it."""

from __future__ import annotations

import asyncio
from collections import Counter as Counts
from typing import TYPE_CHECKING, Any

import cbor2

from engine import bare, keys, run_workflow
from engine.entry import Message, StepEntry
from engine.errors import StoreUnavailableError
from engine.lifecycle import ENDED
from engine.location import render
from engine.testing import MemoryDriver, VirtualClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from engine import Failure, TryResult, WorkflowHandle, WorkflowResult
    from engine.commit import Commit
    from engine.entry import Entry, EntryMetadata

Pairs = list[tuple[str, str]]
ROUNDS_MAX = 500
THREAD_WAIT_S = 0.005


class Counter(Counts[str]):
    """Step bodies that count how often they ran."""

    def note(self, name: str) -> int:
        """Count one run; how many there were."""
        self[name] += 1
        return self[name]

    def giving(self, name: str, value: Any) -> Callable[[], Awaitable[Any]]:
        """A body that returns ``value``."""

        async def body() -> Any:
            self.note(name)
            return value

        return body

    def raising(self, name: str, error: Exception) -> Callable[[], Awaitable[Any]]:
        """A body that raises ``error``."""

        async def body() -> Any:
            self.note(name)
            raise error

        return body

    def failing(self, name: str, times: int, then: Any = None) -> Callable[[], Awaitable[Any]]:
        """A body that fails in its first runs, then returns ``then``."""

        async def body() -> Any:
            if self.note(name) <= times:
                raise ValueError(f"attempt {self[name]} of {name}")
            return then

        return body

    def blocking(self, name: str, times: int, then: Any = None) -> Callable[[], Awaitable[Any]]:
        """A body that never ends in its first runs, then returns ``then``."""

        async def body() -> Any:
            if self.note(name) <= times:
                await asyncio.Event().wait()
            return then

        return body


def failed(found: TryResult[Any]) -> Failure:
    """The failure of what did not succeed."""
    assert not found.ok
    assert found.failure is not None
    return found.failure


class RecordingDriver(MemoryDriver):
    """A memory driver that keeps its store after every write and whose n-th commit can be made to fail."""

    failing_commit: int | None = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.moments: list[Pairs] = []
        self.batches: list[list[tuple[bytes, bytes]]] = []
        self._begun = 0

    async def commit(self, commit: Commit) -> None:
        """Apply ``commit``, or fail where this one was chosen to."""
        self._begun += 1
        if self.failing_commit == self._begun:
            raise StoreUnavailableError("a commit that was made to fail")
        await super().commit(commit)
        self.moments.append(self.dump())

    async def batch(self, writes: Any) -> None:
        """Store several pairs, and remember them as one batch."""
        self.batches.append(list(writes))
        await super().batch(writes)


class World:
    """One workflow on one driver. ``mode`` is how its runs are made; in either, time passes only where it must."""

    id = "wf-1"

    def __init__(self, mode: str, *, atomic: bool = True) -> None:
        self.mode = mode
        self.clock = VirtualClock()
        self.driver = RecordingDriver(atomic=atomic, clock=self.clock)
        self.errors: list[Any] = []
        self._handle: WorkflowHandle[Any] | None = None

    # --- running ------------------------------------------------------------------------------------------------------

    def start(self, fn: Any, given: Any = None, **options: Any) -> WorkflowHandle[Any]:
        """Begin one run."""
        options = {"mode": self.mode, "on_error": self.errors.append, **options}
        self._handle = run_workflow(self.id, fn, given, self.driver, **options)
        return self._handle

    async def settle(self) -> None:
        """Let everything happen that needs no time to pass."""
        for _ in range(ROUNDS_MAX):
            for _ in range(100):
                await asyncio.sleep(0)
            if not self._has_threads():
                break
            await asyncio.sleep(THREAD_WAIT_S)

    def _has_threads(self) -> bool:
        """Whether a function of the latest run is at work in a thread, which takes real time."""
        turn = self._handle._run.turn if self._handle else None
        return turn is not None and turn.threads > 0

    async def once(self, fn: Any, given: Any = None, **options: Any) -> WorkflowResult[Any]:
        """One run in yield mode, up to its end or its first wait."""
        return await self._finish(self.start(fn, given, mode="yield", **options))

    async def through(
        self, fn: Any, given: Any = None, handle: WorkflowHandle[Any] | None = None, **options: Any
    ) -> WorkflowResult[Any]:
        """Run the workflow, from wait to wait, until it has ended or only a message could wake it."""
        return await self.drive(handle or self.start(fn, given, **options), fn, given, **options)

    async def live_through(self, fn: Any, given: Any = None) -> WorkflowResult[Any]:
        """One run whose waits in memory are passed by moving the clock; it must end by itself."""
        return await self._finish(self.start(fn, given))

    async def drive(
        self, handle: WorkflowHandle[Any], fn: Any, given: Any = None, **options: Any
    ) -> WorkflowResult[Any]:
        """Go on from a run that has begun, as ``through`` does."""
        result = await self._finish(handle)
        for _ in range(ROUNDS_MAX):
            if result.state in ENDED or (result.sleep_until is None and not self._wanted(result)):
                return result
            if result.sleep_until is not None and not self._wanted(result):
                self.clock.advance(max(0, result.sleep_until - self.clock.now()) / 1000)
            result = await self._finish(self.start(fn, given, **options))
        raise AssertionError(f"the workflow did not end within {ROUNDS_MAX} runs")

    def _wanted(self, result: WorkflowResult[Any]) -> bool:
        names = result.waiting_for_messages
        return names is not None and any(not names or name in names for name in self.inbox())

    def is_over(self, handle: WorkflowHandle[Any]) -> bool:
        """Whether a run has ended."""
        return handle._task.done()

    async def _finish(self, handle: WorkflowHandle[Any]) -> WorkflowResult[Any]:
        """The result of a run; whenever nothing else can happen, the clock moves to the next timer."""
        result = asyncio.ensure_future(handle.result)
        for _ in range(ROUNDS_MAX):
            await self.settle()
            await asyncio.wait([result], timeout=THREAD_WAIT_S)
            if result.done():
                return result.result()
            if (timer := self.clock.next_timer()) is not None:
                self.clock.advance_to(timer)
        result.cancel()
        raise AssertionError("the run did not end, and no timer is left that could end it")

    # --- the outside --------------------------------------------------------------------------------------------------

    async def send(self, name: str, body: Any, id: str | None = None) -> None:  # noqa: A002 - what it is
        """Put a message into the inbox."""
        self._sent = getattr(self, "_sent", 0) + 1
        message = Message(id=id or f"sent-{self._sent}", name=name, body=cbor2.dumps(body), sent_at=self.clock.now())
        assert await self.driver.message_driver.add(message)

    def inbox(self) -> list[str]:
        """The names of the messages in the inbox, oldest first."""
        return [message.name for message in self.driver.messages]

    def replies(self) -> dict[str, Any]:
        """What was answered to completable messages, by their id."""
        found = self.driver.message_driver.replies
        return {message_id: cbor2.loads(body) for message_id, body in found.items() if body is not None}

    @property
    def alarm(self) -> int | None:
        """When the workflow will be woken, in milliseconds, or None."""
        return self.driver.alarms.get(self.id)

    def fail_commit(self, number: int) -> None:
        """Let the ``number``-th commit from now on fail."""
        self.driver.failing_commit = self.driver._begun + number

    # --- what is stored -----------------------------------------------------------------------------------------------

    def stored(self, pairs: Pairs | None = None) -> dict[bytes, bytes]:
        """The store as bytes."""
        return {bytes.fromhex(key): bytes.fromhex(value) for key, value in pairs or self.driver.dump()}

    async def state(self) -> str:
        """The stored state."""
        value = await self.driver.get(keys.STATE_KEY)
        return "pending" if value is None else value.decode()

    def entries(self, pairs: Pairs | None = None) -> list[Entry]:
        """Every entry of the history, in the order of its keys."""
        stored = self.stored(pairs)
        return [bare.decode_entry(stored[key]) for key in sorted(stored) if key.startswith(keys.HISTORY_PREFIX)]

    def metadata(self) -> dict[str, EntryMetadata]:
        """The metadata of entries, by entry id."""
        return {
            keys.parse_metadata_key(key): bare.decode_metadata(value)
            for key, value in self.stored().items()
            if key.startswith(keys.METADATA_PREFIX)
        }

    def by_label(self, pairs: Pairs | None = None) -> dict[str, Entry]:
        """The entries by their place, as ``loop/~2/step``."""
        stored = self.stored(pairs)
        names = [stored[key].decode() for key in sorted(stored) if key.startswith(keys.NAMES_PREFIX)]
        return {render(entry.location, names): entry for entry in self.entries(pairs)}

    def labels(self, pairs: Pairs | None = None) -> set[str]:
        """The places of all entries."""
        return set(self.by_label(pairs))

    def moments(self) -> Iterator[Pairs]:
        """The store after every commit."""
        return iter(self.driver.moments)

    def step(self, label: str) -> tuple[StepEntry, EntryMetadata]:
        """A step's entry and metadata."""
        entry = self.by_label()[label]
        assert isinstance(entry.kind, StepEntry)
        return entry.kind, self.metadata()[entry.id]

    def step_id(self, label: str) -> str:
        """The id of a step's entry."""
        return self.by_label()[label].id
