"""One workflow on a memory driver and a virtual clock, for tests that look at what an operation stores and commits."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from engine import WorkflowState, bare, keys, run_workflow, values
from engine.entry import Message
from engine.location import render
from engine.testing import MemoryDriver, VirtualClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine import WorkflowHandle, WorkflowResult
    from engine.entry import Entry, EntryMetadata

WORKFLOW_ID = "wf-1"
RUNS_MAX = 200


class Bench:
    """A workflow, its store, its clock, and how often step bodies ran."""

    def __init__(self, driver: MemoryDriver | None = None, **options: Any) -> None:
        self.clock = VirtualClock()
        self.driver = driver or MemoryDriver(clock=self.clock, **options)
        if driver is not None:
            driver.clock = self.clock
        self.runs: Counter[str] = Counter()
        self.events: list[Any] = []
        self._sent = 0

    # --- step bodies ------------------------------------------------------------------------------------------------

    def giving(self, name: str, value: Any = None, *, takes_s: float = 0) -> Callable[[], Awaitable[Any]]:
        """A body that returns ``value`` after ``takes_s`` seconds of the clock."""

        async def body() -> Any:
            self.runs[name] += 1
            if takes_s:
                await self.clock.sleep(takes_s)
            return value

        return body

    def raising(
        self, name: str, error: Exception, times: int = 10**9, then: Any = None
    ) -> Callable[[], Awaitable[Any]]:
        """A body that raises ``error`` in its first ``times`` runs, then returns ``then``."""

        async def body() -> Any:
            self.runs[name] += 1
            if self.runs[name] <= times:
                raise error
            return then

        return body

    # --- running ----------------------------------------------------------------------------------------------------

    def start(self, fn: Any, given: Any = None, **options: Any) -> WorkflowHandle[Any]:
        """Begin a run."""
        return run_workflow(WORKFLOW_ID, fn, given, self.driver, on_error=self.events.append, **options)

    async def idle(self, handle: WorkflowHandle[Any]) -> None:
        """Return when nothing can happen any more unless the clock moves or a message comes."""
        loop: Any = asyncio.get_running_loop()
        while not handle._task.done():
            await asyncio.sleep(0)
            turn = handle._run.turn
            if turn is not None and turn.threads:
                await asyncio.wait([handle._task], timeout=0.001)
            elif not loop._ready:
                return

    async def finish(self, handle: WorkflowHandle[Any]) -> WorkflowResult[Any]:
        """The end of a run; the clock moves to the next timer whenever nothing else happens."""
        while True:
            await self.idle(handle)
            if handle._task.done():
                return await handle.result
            timer = self.clock.next_timer()
            assert timer is not None, "the run hangs"
            self.clock.advance_to(timer)

    async def once(self, fn: Any, given: Any = None, **options: Any) -> WorkflowResult[Any]:
        """One run."""
        return await self.finish(self.start(fn, given, **options))

    async def through(self, fn: Any, given: Any = None, **options: Any) -> WorkflowResult[Any]:
        """Runs from alarm to alarm, until the workflow ends or waits for a message alone."""
        for _ in range(RUNS_MAX):
            result = await self.once(fn, given, **options)
            if result.state is not WorkflowState.SLEEPING or result.sleep_until is None:
                return result
            self.clock.advance_to(result.sleep_until)
        raise AssertionError("does not end")

    def send(self, name: str, body: Any = None, id: str | None = None) -> bool:  # noqa: A002 - the field's name
        """Put a message into the inbox, as somebody outside does."""
        self._sent += 1
        message = Message(id=id or f"m{self._sent}", name=name, body=values.encode(body), sent_at=self.clock.now())
        return self.driver.message_driver.put(message)

    # --- what is stored ---------------------------------------------------------------------------------------------

    @property
    def alarm(self) -> int | None:
        return self.driver.alarms.get(WORKFLOW_ID)

    def stored(self) -> dict[bytes, bytes]:
        return {bytes.fromhex(key): bytes.fromhex(value) for key, value in self.driver.dump()}

    def state(self) -> str | None:
        value = self.stored().get(keys.STATE_KEY)
        return None if value is None else value.decode()

    def entries(self) -> dict[str, Entry]:
        """Entries by place, as ``loop/~2/step``."""
        stored = self.stored()
        names = [value.decode() for key, value in sorted(stored.items()) if key.startswith(keys.NAMES_PREFIX)]
        found = [bare.decode_entry(value) for key, value in stored.items() if key.startswith(keys.HISTORY_PREFIX)]
        return {render(entry.location, names): entry for entry in found}

    def metadata(self, place: str) -> EntryMetadata:
        return bare.decode_metadata(self.stored()[keys.metadata_key(self.entries()[place].id)])
