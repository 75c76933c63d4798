"""Our engine as the reference is asked: run from a moment on, from alarm to alarm, keeping what every commit left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cbor2

from engine import run_workflow
from engine.entry import Message
from engine.errors import TorporError, WorkflowFailedError
from engine.lifecycle import ENDED
from engine.testing import MemoryDriver, VirtualClock
from tests.interop.cases import Sent
from tests.interop.outcome import Outcome, Snapshot
from tests.interop.workflows import WORKFLOWS, World

if TYPE_CHECKING:
    from engine import Context
    from engine.commit import Commit

ID = "interop"
ROUNDS_MAX = 200


class Recorder(MemoryDriver):
    """A memory driver that keeps the whole store and inbox after every commit."""

    def __init__(self, start: Snapshot) -> None:
        self.virtual_clock = VirtualClock(start_ms=start.now)
        super().__init__(clock=self.virtual_clock)
        self.snapshots: list[Snapshot] = []
        self.upcoming = sorted(start.messages, key=lambda message: message.at)

    async def commit(self, commit: Commit) -> None:
        """Apply ``commit`` and keep what it left."""
        await super().commit(commit)
        self.snapshots.append(self.snapshot())

    def snapshot(self) -> Snapshot:
        """This moment."""
        there = [
            Sent(id=message.id, name=message.name, body=cbor2.loads(message.body), at=message.sent_at)
            for message in self.messages
        ]
        return Snapshot(kv=self.dump(), messages=[*there, *self.upcoming], now=self.clock.now())

    async def deliver(self) -> None:
        """Put into the inbox what has arrived by now."""
        while self.upcoming and self.upcoming[0].at <= self.clock.now():
            sent = self.upcoming.pop(0)
            message = Message(id=sent.id, name=sent.name, body=cbor2.dumps(sent.body), sent_at=sent.at)
            await self.message_driver.add(message)


async def run(workflow: str, given: Any, start: Snapshot) -> Outcome:
    """Run a workflow of the suite from a moment on until it has ended or nothing is left to wait for."""
    driver = Recorder(start)
    await driver.batch([(bytes.fromhex(key), bytes.fromhex(value)) for key, value in start.kv])
    world = World(driver.clock.now)

    async def bound(ctx: Context, stored: Any) -> Any:
        return await WORKFLOWS[workflow](ctx, stored, world)

    state, result, threw = "pending", None, None
    for _ in range(ROUNDS_MAX):
        await driver.deliver()
        try:
            found = await run_workflow(ID, bound, given, driver).result
        except WorkflowFailedError as error:
            state, threw = "failed", {"name": error.name, "message": error.message}
            break
        except TorporError as error:
            state, threw = "failed", {"name": type(error).__name__, "message": str(error)}
            break
        state, result = found.state, found.output
        times = [found.sleep_until, *(sent.at for sent in driver.upcoming[:1])]
        waits = [time for time in times if time is not None]
        if state in ENDED or not waits:
            break
        driver.virtual_clock.advance_to(min(waits))
    return Outcome(state=state, result=result, threw=threw, kv=driver.dump(), ran=world.ran, snapshots=driver.snapshots)
