"""One life of a program on one store, through waits, crashes, evictions and delays, and what it left."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

from engine import WorkflowState, bare, keys, message_record, run_workflow, values
from engine.entry import JoinEntry, LoopEntry, Message, MessageEntry, RaceEntry, SleepEntry
from engine.errors import StoreUnavailableError, WorkflowFailedError
from engine.location import render
from engine.testing import MemoryDriver, VirtualClock
from tests.replay.interpreter import World, workflow_of

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from engine import WorkflowHandle, WorkflowResult
    from engine.entry import Entry, EntryMetadata
    from tests.replay.programs import Op, Program

WORKFLOW_ID = "wf-1"
RUNS_MAX = 400
WRITES = ("commit", "batch", "batch_delete", "delete_range", "add", "complete")

Phase = Literal["before", "after"]


class NarrowDriver(MemoryDriver):
    """A driver whose commits have room for little, so that most of them are divided."""

    commit_bytes_max = 1200
    commit_messages_max = 2


class Life:
    """A program's life. ``crash``: a write and a phase at which the store fails once; ``evicts``: after each commit."""

    def __init__(
        self,
        program: Program,
        *,
        atomic: bool = True,
        narrow: bool = False,
        mode: Literal["yield", "live"] = "yield",
        crash: tuple[int, Phase] | None = None,
        evicts: bool = False,
        delays: int | None = None,
    ) -> None:
        self.program = program
        self.clock = VirtualClock()
        self.world = World(self.clock, delays)
        kind = NarrowDriver if narrow else MemoryDriver
        self.driver = kind(atomic=atomic, clock=self.clock, on_call=self._called)
        self.writes = 0
        self.crashes = 0
        self.outcome: Any = None
        self._mode = mode
        self._crash = crash
        self._evicts = evicts
        self._latency = None if delays is None else random.Random(delays + 1)
        self._remaining = Counter(program.messages)
        self.losing = losing_paths(program.ops)
        self._handle: WorkflowHandle[Any] | None = None
        early = random.Random(program.seed)
        for name, count in program.messages.items():
            # Those of a batch are all there at the start, so that it takes the same ones whenever it looks.
            if count > 1 or early.random() < 0.5:
                for _ in range(count):
                    self.send(name)

    # --- the store misbehaves ---------------------------------------------------------------------------------------

    def _called(self, operation: str, phase: str) -> Awaitable[None] | None:
        if operation in WRITES:
            self.writes += phase == "before"
            if self._crash == (self.writes, phase):
                self._crash = None
                self.crashes += 1
                raise StoreUnavailableError(f"{operation} {self.writes}: a failure {phase} it")
            if self._evicts and phase == "after" and operation in ("commit", "batch") and self._handle is not None:
                self._handle.evict()
        return None if self._latency is None else self._lag(self._latency.randint(0, 3))

    async def _lag(self, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)

    # --- messages ---------------------------------------------------------------------------------------------------

    def send(self, name: str) -> None:
        """Put the next message of ``name`` into the inbox."""
        number = self.program.messages[name] - self._remaining[name]
        self._remaining[name] -= 1
        body = values.encode(f"{name}#{number}")
        message = Message(id=f"sent {name} {number}", name=name, body=body, sent_at=self.clock.now())
        assert self.driver.message_driver.put(message)

    def _deliver(self, names: list[str] | None) -> bool:
        for name in sorted(names or ()):
            assert all(message.name != name for message in self.driver.messages), f"asleep, but {name} is there"
        wanted = [name for name in sorted(names or ()) if self._remaining[name]]
        if wanted:
            self.send(wanted[0])
        return bool(wanted)

    # --- living -----------------------------------------------------------------------------------------------------

    async def live(self) -> Life:
        """Run until the workflow has ended."""
        fn = workflow_of(self.program, self.world)
        for _ in range(RUNS_MAX):
            self._handle = handle = run_workflow(
                WORKFLOW_ID, fn, "given", self.driver, mode=self._mode, clock=self.clock
            )
            try:
                result = await self._settled(handle)
            except StoreUnavailableError:
                self.driver.deaths += 1
                continue
            except Exception as error:
                if self._stored_state() is not WorkflowState.FAILED:
                    raise
                name = error.name if isinstance(error, WorkflowFailedError) else type(error).__name__
                self.outcome = ["failed", name, str(error).removeprefix(f"{name}: ")]
                return self
            if result.state is WorkflowState.COMPLETED:
                self.outcome = ["completed", result.output]
                return self
            if result.sleep_until is not None or result.waiting_for_messages is not None:
                self._pass_time(result)
        raise AssertionError(f"not over after {RUNS_MAX} runs")

    def _pass_time(self, result: WorkflowResult[Any]) -> None:
        assert self._stored_state() is WorkflowState.SLEEPING
        assert self.driver.alarms.get(WORKFLOW_ID) == result.sleep_until
        if not self._deliver(result.waiting_for_messages):
            assert result.sleep_until is not None, f"asleep for ever: {result}"
            self.clock.advance_to(result.sleep_until)

    async def _settled(self, handle: WorkflowHandle[Any]) -> WorkflowResult[Any]:
        task = handle._task
        while True:
            await _idle(handle)
            if task.done():
                return task.result()
            turn = handle._run.turn
            waits = None if turn is None or turn.working else turn.pending()
            if waits is not None and self._mode == "live" and self._deliver(list(waits.names or ())):
                continue
            timer = self.clock.next_timer()
            assert timer is not None, f"hangs: working={turn and turn.working}, waits={waits}"
            self.clock.advance_to(timer)

    # --- what is left -----------------------------------------------------------------------------------------------

    def _stored_state(self) -> WorkflowState:
        value = dict(self.driver.dump()).get(keys.STATE_KEY.hex())
        return WorkflowState.PENDING if value is None else WorkflowState(bytes.fromhex(value).decode())

    def history(self) -> dict[str, Any]:
        """What is stored, by place, without ids and times."""
        pairs = {bytes.fromhex(key): bytes.fromhex(value) for key, value in self.driver.dump()}
        names = [value.decode() for key, value in sorted(pairs.items()) if key.startswith(keys.NAMES_PREFIX)]
        found: dict[str, Any] = {}
        metadata = {
            keys.parse_metadata_key(key): bare.decode_metadata(value)
            for key, value in pairs.items()
            if key.startswith(keys.METADATA_PREFIX)
        }
        for key, value in pairs.items():
            if key.startswith(keys.HISTORY_PREFIX):
                entry = bare.decode_entry(value)
                found[render(entry.location, names)] = _timeless(entry, metadata.pop(entry.id, None))
        # A crash between the deletes of a driver that is not atomic leaves metadata that nobody looks at.
        assert not metadata or (self.crashes and not self.driver.atomic_batch), "metadata of entries that are gone"
        return found

    def inbox(self) -> Counter[str]:
        """The names of the messages in the inbox."""
        return Counter(message.name for message in self.driver.messages)


async def _idle(handle: WorkflowHandle[Any]) -> None:
    """Return when nothing can happen in this loop any more unless the clock moves or a message comes."""
    loop: Any = asyncio.get_running_loop()
    while not handle._task.done():
        await asyncio.sleep(0)
        turn = handle._run.turn
        if turn is not None and turn.threads:
            # A function in a thread gets its time before the clock is moved over its head.
            await asyncio.wait([handle._task], timeout=0.001)
        elif not loop._ready:
            return


def _timeless(entry: Entry, metadata: EntryMetadata | None) -> Any:
    described = None if metadata is None else (metadata.status.name, metadata.error, metadata.rollback_error)
    match entry.kind:
        case SleepEntry(state=state):
            return ["sleep", state.name]
        case MessageEntry(name=name, data=data):
            record = message_record.decode(name, data)
            return ["message", name, repr(record.body), record.is_completed]
        case RaceEntry(winner=winner, branches=branches):
            return ["race", winner, branches[winner] if winner else sorted(branches)]
        case JoinEntry(branches=branches):
            return ["join", {name: (one.status.name, one.output, one.error) for name, one in branches.items()}]
        case LoopEntry(state=state, iteration=iteration, output=output):
            return ["loop", state, iteration, output, described]
        case kind:
            return [kind, described]


def losing_paths(ops: list[Op], path: str = "") -> list[str]:
    """The branches that lose their race, as paths without iterations; each ends with a slash."""
    found: list[str] = []
    for op in ops:
        for index, (branch, below) in enumerate(op.below.items()):
            here = f"{path}/{op.name}/{branch}"
            if op.kind == "race" and index != op.number:
                found.append(f"{here}/")
            else:
                found += losing_paths(below, here)
    return found
