"""Starting a run, and what its starter may do with it: message, wake, evict, cancel, recover, replay, ask."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from engine import keys, location, values
from engine.author.registry import Workflow
from engine.commit import Alarm
from engine.entry import Message
from engine.errors import InvalidIdError
from engine.history.flushing import Flusher
from engine.history.hooks import Hooks, snapshot
from engine.history.kept import parse_state
from engine.history.revival import recover_entries, rewind
from engine.history.storage import Storage
from engine.history.writing import write_alarm
from engine.ids import Ids
from engine.lifecycle import ENDED, WorkflowState
from engine.run import Run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.driver import Clock, EngineDriver, Timer
    from engine.history.hooks import ErrorHook, HistoryHook, HistorySnapshot
    from engine.result import WorkflowResult

S = TypeVar("S")
T = TypeVar("T")


class NoOutput:
    """The type of ``NO_OUTPUT``."""

    def __repr__(self) -> str:
        return "NO_OUTPUT"

    def __bool__(self) -> bool:
        return False


NO_OUTPUT = NoOutput()
"""What ``get_output`` answers while there is none, so that a workflow that returned None can be told apart."""


class WorkflowHandle(Generic[T]):
    """A run that has been started, and its workflow."""

    def __init__(self, run: Run, fn: Callable[..., Any]) -> None:
        self._run = run
        self._fn = fn
        self._task = asyncio.get_running_loop().create_task(run.execute())
        self._grace: Timer | None = None
        self._task.add_done_callback(self._ended)

    @property
    def workflow_id(self) -> str:
        """The workflow's id."""
        return self._run.workflow_id

    @property
    def result(self) -> Awaitable[WorkflowResult[T]]:
        """How the run ends; raises as the run does. Cancelling the wait does not cancel the run."""
        return asyncio.shield(self._task)

    @property
    def is_idle(self) -> bool:
        """Whether everything in the run waits, in memory, for its time or for a message."""
        return self._run.turn is not None and self._run.turn.working == 0

    async def message(self, name: str, data: Any = None, id: str | None = None) -> bool:  # noqa: A002 - the field's name
        """Put a message into the inbox; the same ``id`` again counts once, also after it was consumed (then False)."""
        check_name(name)
        body = values.encode(data)
        message = Message(id=id or self._run.ids.new(), name=name, body=body, sent_at=self._run.clock.now())
        return await self._run.driver.message_driver.add(message)

    async def wake(self) -> None:
        """Wake the workflow now: by an alarm, or in live mode by interrupting its waits."""
        if self._is_live():
            assert self._run.turn is not None
            self._run.turn.resume_all()
        else:
            await self._run.driver.set_alarm(self.workflow_id, self._run.clock.now())

    def _is_live(self) -> bool:
        turn = self._run.turn
        return turn is not None and turn.is_live and not self._task.done()

    def evict(self, grace: float | None = None) -> None:
        """Ask the run to stop: history is kept and another run goes on.

        A step in flight may finish; after ``grace`` seconds, where given, what still runs is cancelled.
        """
        self._run.evict()
        if grace is not None and not self._task.done():
            if grace <= 0:
                self._run.stop()
            else:
                self._grace = self._run.clock.call_later(grace, self._run.stop)

    async def cancel(self, *, rollback: bool = False) -> None:
        """Cancel the workflow: a run in progress ends with ``state="cancelled"``, and no later one runs it.

        With ``rollback`` its completed steps are undone first: a run in progress is stopped, the state becomes
        ``rolling_back``, and the next run, which is due at once, undoes them and ends as ``cancelled``. A step that was
        cut short is not undone. A workflow that rolls back already goes on to the end it was going to have.
        """
        if not self._task.done():
            self._run.is_cancelled = not rollback
            self._run.stop()
            await asyncio.wait([self._task])
        storage = await self._load()
        if storage.state in ENDED or (rollback and storage.state is WorkflowState.ROLLING_BACK):
            return
        if rollback:
            # The absence of an error is what tells this rollback from that of a failure.
            storage.set_error(None)
            storage.state = WorkflowState.ROLLING_BACK
            await self._write(storage, Alarm(self._run.clock.now(), self.workflow_id))
        else:
            storage.state, storage.pruning = WorkflowState.CANCELLED, self._run.pruning
            await self._write(storage, Alarm(None, self.workflow_id))

    async def recover(self) -> None:
        """Let a failed workflow go on: what had failed may be tried again. Does nothing in any other state."""
        await recover_workflow(self.workflow_id, self._run.driver)

    async def get_state(self) -> WorkflowState:
        """The workflow's state, as stored."""
        value = await self._run.driver.get(keys.STATE_KEY)
        return WorkflowState.PENDING if value is None else parse_state(value)

    async def get_output(self) -> T | NoOutput:
        """The workflow's output, or ``NO_OUTPUT`` while there is none."""
        value = await self._run.driver.get(keys.OUTPUT_KEY)
        if value is None:
            return NO_OUTPUT
        return values.decode(value, values.return_type(self._fn))  # type: ignore[no-any-return]

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if self._grace is not None:
            self._grace.cancel()
        # Whoever wants the error awaits ``result``; one that nobody awaits is no leak.
        if not task.cancelled():
            task.exception()

    async def _load(self) -> Storage:
        return Storage.load(await self._run.driver.list(b""))

    async def _write(self, storage: Storage, alarm: Alarm) -> None:
        await _write(self.workflow_id, self._run.driver, storage, alarm)


def check_name(name: str) -> None:
    """Raise where ``name`` is no message name."""
    if not name:
        raise InvalidIdError("a message needs a name")
    location.check_name(name)


@overload
def run_workflow(
    workflow_id: str,
    fn: Callable[[Any], Awaitable[T]],
    input: None = ...,
    driver: EngineDriver | None = ...,
    *,
    mode: Literal["yield", "live"] = ...,
    on_history_updated: HistoryHook | None = ...,
    on_error: ErrorHook | None = ...,
    clock: Clock | None = ...,
) -> WorkflowHandle[T]: ...


@overload
def run_workflow(
    workflow_id: str,
    fn: Callable[[Any, S], Awaitable[T]],
    input: S | None = ...,
    driver: EngineDriver | None = ...,
    *,
    mode: Literal["yield", "live"] = ...,
    on_history_updated: HistoryHook | None = ...,
    on_error: ErrorHook | None = ...,
    clock: Clock | None = ...,
) -> WorkflowHandle[T]: ...


def run_workflow(
    workflow_id: str,
    fn: Workflow[Any] | Callable[..., Awaitable[T]],
    input: Any = None,  # noqa: A002 - the field's name
    driver: EngineDriver | None = None,
    *,
    mode: Literal["yield", "live"] = "yield",
    on_history_updated: HistoryHook | None = None,
    on_error: ErrorHook | None = None,
    clock: Clock | None = None,
) -> WorkflowHandle[T]:
    """Run a workflow until it ends or, in yield mode, until it must wait. Needs a running event loop.

    Args:
        workflow_id: its id; one driver holds one workflow.
        fn: a ``Workflow``, or any ``async def (ctx, input)``.
        input: stored on the first run, and ignored ever after: later runs need not give it.
        driver: where its history lives.
        mode: ``"yield"`` ends the run at a wait; ``"live"`` waits in memory and goes on.
        on_history_updated: called with a snapshot once at load and after each commit that changed history.
        on_error: called with each error event.
        clock: what time it is; the driver's clock where None.
    """
    if driver is None:
        raise TypeError("run_workflow needs a driver, e.g. engine.testing.MemoryDriver()")
    function = fn.fn if isinstance(fn, Workflow) else fn
    time = clock or driver.clock
    run = Run(
        workflow_id=workflow_id,
        fn=function,
        given=input,
        driver=driver,
        is_live=mode == "live",
        hooks=Hooks(on_history_updated, on_error),
        clock=time,
        ids=Ids(time),
        pruning=fn.pruning if isinstance(fn, Workflow) else None,
    )
    return WorkflowHandle(run, function)


async def recover_workflow(workflow_id: str, driver: EngineDriver) -> bool:
    """Let a failed workflow go on, and wake it; False, and nothing happens, where it has not failed."""
    storage = Storage.load(await driver.list(b""))
    if storage.state is not WorkflowState.FAILED:
        return False
    recover_entries(storage)
    storage.set_error(None)
    storage.state = WorkflowState.SLEEPING
    await _write(workflow_id, driver, storage, Alarm(driver.clock.now(), workflow_id))
    return True


async def replay_workflow_from_step(
    workflow_id: str, driver: EngineDriver, entry_id: str | None = None, *, schedule_alarm: bool = True
) -> HistorySnapshot:
    """Forget a step and everything created after it, so that the next run does it again; all of it without a step.

    Raises:
        InvalidReplayError: there is no such step, or something that would remain is running.
    """
    storage = Storage.load(await driver.list(b""))
    rewind(storage, entry_id)
    storage.set_output(None)
    storage.set_error(None)
    storage.state = WorkflowState.SLEEPING
    await _write(workflow_id, driver, storage, Alarm(driver.clock.now(), workflow_id) if schedule_alarm else None)
    return snapshot(storage)


async def _write(workflow_id: str, driver: EngineDriver, storage: Storage, alarm: Alarm | None) -> None:
    flusher = Flusher(storage, driver, driver.clock, Hooks(), 0)
    await flusher.finish(alarm=alarm)
    if alarm is not None:
        await write_alarm(driver, workflow_id, alarm)
