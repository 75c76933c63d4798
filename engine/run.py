"""One run of a workflow, from load to its end: the only place that decides what becomes of a workflow."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from engine import limits, values
from engine.abort import AbortEvent
from engine.commit import Alarm, Retrying
from engine.error_info import error_info, tamed
from engine.errors import (
    CommitTooLarge,
    EvictedError,
    FencedError,
    HistoryDivergedError,
    InboxMovedError,
    OperatorError,
    RollbackCheckpointError,
    StalledError,
    UnstorableValueError,
    Yield,
    YieldSwallowedError,
)
from engine.history.flushing import Flusher
from engine.history.hooks import RunErrorEvent
from engine.history.instants import first_instant
from engine.history.storage import Storage
from engine.history.writing import write_alarm
from engine.lifecycle import WorkflowState
from engine.ops.rollback import undo_all
from engine.passage import Passage, collect, perform
from engine.result import WorkflowResult, stored_failure
from engine.scope import Scope
from engine.signature import adapt
from engine.turn import Turn
from engine.waits import failed_steps, untied

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.commit import Pruning
    from engine.driver import Clock, EngineDriver
    from engine.history.hooks import Hooks
    from engine.ids import Ids

T = TypeVar("T")

_NEVER_ROLLED_BACK = (HistoryDivergedError, YieldSwallowedError, RollbackCheckpointError, StalledError)
"""Faults of the deployed code or of its process, not of the business: history stays, and recover() goes on from it."""


class Run:
    """One run of one workflow."""

    def __init__(
        self,
        *,
        workflow_id: str,
        fn: Callable[..., Any],
        given: Any,
        driver: EngineDriver,
        is_live: bool,
        hooks: Hooks,
        clock: Clock,
        ids: Ids,
        pruning: Pruning | None = None,
    ) -> None:
        self.workflow_id = workflow_id
        self.driver = driver
        self.clock = clock
        self.hooks = hooks
        self.ids = ids
        self.abort = AbortEvent()
        self.turn: Turn | None = None
        self.is_cancelled = False
        self._fn = fn
        self._passage = Passage(body=adapt(fn), given=None, returns=values.return_type(fn))
        self._given = given
        self._is_live = is_live
        self.pruning = pruning
        self._storage = Storage()
        self._flusher: Flusher | None = None
        self._started_at = 0

    # --- from outside -----------------------------------------------------------------------------------------------

    def evict(self) -> None:
        """Ask the run to stop soon."""
        self.abort.set()
        if self.turn is not None:
            self.turn.evict()

    def stop(self) -> None:
        """Stop the run now."""
        self.evict()
        if self.turn is not None:
            self.turn.stop()

    # --- the run ----------------------------------------------------------------------------------------------------

    async def execute(self) -> WorkflowResult[Any]:
        """Run until the workflow ends, waits or must stop.

        Raises:
            EvictedError: the workflow was cancelled earlier.
            WorkflowFailedError: it had failed earlier.
            FencedError: somebody else holds the lease.
            DriverError: the store failed; state and history are as last committed.
            Exception: the workflow's own error, when it fails now.
        """
        ended = await self._load()
        if ended is not None:
            return ended
        try:
            return await self._execute()
        except CommitTooLarge as error:
            await self._fail_oversized(error)
            raise
        finally:
            if self._flusher is not None:
                self._flusher.close()
            if self._flusher is None or not self._flusher.is_busy:
                # Errors lead to frames, and those to them and the history, which need not wait for the collector too.
                self._storage.let_go()

    async def _execute(self) -> WorkflowResult[Any]:
        storage = self._storage
        await self._read_input()
        if storage.state is WorkflowState.ROLLING_BACK:
            return await self._resume_rollback()
        await self._until_start()
        storage.state = WorkflowState.RUNNING
        if self.driver.deaths >= 2 * limits.DEATHS_MAX:
            raise await self._failed(self._new_turn(), _stalled(self.driver.deaths))
        while True:
            turn = self._new_turn()
            try:
                return await self._run_once(turn)
            except InboxMovedError:
                # A message or an end came between load and yield: look again, from the top, before anyone sleeps.
                await self.driver.message_driver.refresh()
                storage.begin_run()
                storage.state = WorkflowState.RUNNING

    async def _until_start(self) -> None:
        """Let the time of a start that was put off come: its alarm may have been early."""
        until_ms: int | None = getattr(self.driver, "put_off_until", None)
        early_s = ((until_ms or 0) - self.clock.now()) / 1000
        if early_s <= 0:
            return
        over = AbortEvent(self.abort)
        # No longer than an alarm is early: our clock may be behind.
        timer = self.clock.call_later(min(early_s, self.driver.worker_poll_interval), over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    async def _load(self) -> WorkflowResult[Any] | None:
        self._storage = storage = Storage.load(await self.driver.list(b""))
        storage.pruning = self.pruning
        if not getattr(self.driver, "is_inbox_fresh", False):
            await self.driver.message_driver.refresh()
        await self.hooks.history_updated(storage)
        match storage.state:
            case WorkflowState.CANCELLED:
                raise EvictedError("the workflow was cancelled")
            case WorkflowState.COMPLETED:
                return WorkflowResult(state=WorkflowState.COMPLETED, output=self._stored_output())
            case WorkflowState.FAILED:
                raise stored_failure(storage.error)
        self._flusher = Flusher(storage, self.driver, self.clock, self.hooks, self.driver.deaths)
        started_at = self.driver.started_at
        self._started_at = first_instant(storage, self.clock.now()) if started_at is None else started_at
        return None

    def _stored_output(self) -> Any:
        output = self._storage.output
        return None if output is None else values.decode(output, values.return_type(self._fn))

    async def _read_input(self) -> None:
        """Keep the input given, or read the one kept; one that does not fit the function's type fails the workflow."""
        if self._storage.input is None:
            data = values.encode(self._given)
            Scope.root(self._new_turn()).check_bytes(len(data), "the workflow's input")
            self._storage.set_input(data)
        assert self._storage.input is not None
        try:
            given = values.decode(self._storage.input, values.input_type(self._fn, 1))
        except UnstorableValueError as error:
            unfit = UnstorableValueError(f"the workflow's input is none of the type that it declares now: {error}")
            # Its own frames come with it: this one is told of before it is raised.
            unfit.__cause__ = error
            if self._storage.state is WorkflowState.ROLLING_BACK:
                # What there is to undo cannot be found with this code; with another it can.
                raise unfit from error
            raise await self._failed(self._new_turn(), unfit) from error
        self._passage = replace(self._passage, given=given)

    def _new_turn(self, *, is_collecting: bool = False) -> Turn:
        self.turn = Turn(
            workflow_id=self.workflow_id,
            storage=self._storage,
            driver=self.driver,
            clock=self.clock,
            ids=self.ids,
            hooks=self.hooks,
            is_live=self._is_live and not is_collecting,
            is_collecting=is_collecting,
            flusher=self._flusher,
            abort=self.abort,
            started_at=self._started_at,
        )
        return self.turn

    # --- one pass through the workflow's code -------------------------------------------------------------------------

    async def _run_once(self, turn: Turn) -> WorkflowResult[Any]:
        try:
            output = await perform(turn, self._passage, self._store_sleep, is_cancelled=lambda: self.is_cancelled)
        except InboxMovedError:
            raise
        except Yield as signal:
            return await self._yielded(turn, untied(signal))
        except FencedError:
            raise
        except (EvictedError, asyncio.CancelledError) as error:
            return await self._evicted(error)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as raised:  # noqa: BLE001 - whatever workflow code raises
            ended = await self._failed(turn, tamed(raised))
            if isinstance(ended, EvictedError):
                return WorkflowResult(state=self._storage.state)
            raise ended  # noqa: B904 - what the author's code raised keeps the cause and the context that it has
        finally:
            turn.close()
        return await self._completed(output)

    async def _store_sleep(self, turn: Turn, waits: Yield) -> None:
        self._storage.state = WorkflowState.SLEEPING
        alarm = self._alarm_of(waits)
        assert self._flusher is not None
        await self._flusher.landed()
        if self._storage.has_news():
            await turn.reach(self._flusher.finish(alarm=alarm))
        await turn.reach(write_alarm(self.driver, self.workflow_id, alarm))

    # --- how it ends ------------------------------------------------------------------------------------------------

    async def _completed(self, output: tuple[bytes, Any]) -> WorkflowResult[Any]:
        data, value = output
        self._storage.state = WorkflowState.COMPLETED
        self._storage.set_output(data)
        await self._finish(Alarm(None, self.workflow_id))
        return WorkflowResult(state=WorkflowState.COMPLETED, output=value)

    async def _yielded(self, turn: Turn, signal: Yield) -> WorkflowResult[Any]:
        waits = turn.unwound or signal
        self._storage.state = WorkflowState.SLEEPING
        await self._finish(self._alarm_of(waits), waits)
        return WorkflowResult(
            state=WorkflowState.SLEEPING,
            sleep_until=waits.deadline,
            waiting_for_messages=None if waits.names is None else list(waits.names),
            waiting_for_workflows=list(waits.awaited) or None,
        )

    def _alarm_of(self, waits: Yield) -> Alarm:
        return Alarm(
            waits.deadline,
            self.workflow_id,
            tuple(
                Retrying(
                    entry_id=step.entry_id,
                    location=step.location,
                    attempts=step.attempts,
                    attempts_max=step.attempts_max,
                    error=step.error,
                    retry_at=step.deadline or 0,
                )
                for step in failed_steps(waits)
            ),
        )

    async def _evicted(self, error: BaseException) -> WorkflowResult[Any]:
        assert self._flusher is not None
        await self._flusher.landed()
        if self._flusher.failure is not None:
            raise self._flusher.failure
        if self.is_cancelled:
            self._storage.state = WorkflowState.CANCELLED
            await self._finish(Alarm(None, self.workflow_id))
        elif self._storage.is_dirty():
            # That it runs is no news: what is stored says how it was left, and with which alarm.
            await self._finish(None)
        if isinstance(error, asyncio.CancelledError) and not self.abort.is_set():
            raise error
        return WorkflowResult(state=self._storage.state)

    async def _failed(self, turn: Turn, error: Exception) -> BaseException:
        """Store the failure, undo what can be undone, and give the error to raise."""
        assert self._flusher is not None
        if self._flusher.failure is not None:
            return self._flusher.failure
        if isinstance(error, OperatorError) and not isinstance(error, StalledError):
            return error
        info = error_info(error)
        stored = values.StoredError(
            name=info.name, message=info.message, stack=info.stack, metadata=info.metadata or None
        )
        self._storage.set_error(values.encode_error(stored))
        if turn.has_checkpoint and not isinstance(error, _NEVER_ROLLED_BACK):
            evicted = await self._roll_back(turn)
            if evicted is not None:
                return evicted
        self._storage.state = WorkflowState.FAILED
        await self._finish(Alarm(None, self.workflow_id))
        if not self.hooks.is_reported(error):
            await self.hooks.failed(RunErrorEvent(workflow_id=self.workflow_id, error=info))
        return error

    async def _fail_oversized(self, error: CommitTooLarge) -> None:
        """A commit that can never be taken would be tried for ever: fail the workflow from what is stored."""
        storage = self._storage = Storage.load(await self.driver.list(b""))
        self._flusher = Flusher(storage, self.driver, self.clock, self.hooks, 0)
        storage.state = WorkflowState.FAILED
        storage.set_error(values.encode_error(values.StoredError(name=type(error).__name__, message=str(error))))
        await self._finish(Alarm(None, self.workflow_id))

    async def _finish(self, alarm: Alarm | None, waits: Yield | None = None) -> None:
        assert self._flusher is not None
        if waits is None:
            await self._flusher.finish(alarm=alarm)
        else:
            await self._flusher.finish(alarm=alarm, yields=True, names=waits.names, awaited=waits.awaited)
        if alarm is not None:
            await write_alarm(self.driver, self.workflow_id, alarm)

    # --- rollback ---------------------------------------------------------------------------------------------------

    async def _resume_rollback(self) -> WorkflowResult[Any]:
        evicted = await self._roll_back()
        if evicted is not None:
            return WorkflowResult(state=self._storage.state)
        # A failure is stored before its rollback begins; a cancellation leaves none (see WorkflowHandle.cancel).
        is_cancelled = self._storage.error is None
        self._storage.state = WorkflowState.CANCELLED if is_cancelled else WorkflowState.FAILED
        await self._finish(Alarm(None, self.workflow_id))
        if is_cancelled:
            return WorkflowResult(state=WorkflowState.CANCELLED)
        raise stored_failure(self._storage.error)

    async def _roll_back(self, failed: Turn | None = None) -> BaseException | None:
        """Undo completed steps; the eviction that cut it short, or None. ``failed`` is the turn that has just failed.

        One that goes on rolling back may do so with other code than it failed with.
        """
        self._storage.begin_run()
        undos = await collect(self._new_turn(is_collecting=True), self._passage, failed)
        if self.abort.is_set():
            # What was collected may be cut short: whoever runs the workflow next collects anew.
            return EvictedError()
        if not undos:
            return None
        turn = self._new_turn()
        if self._storage.state is not WorkflowState.ROLLING_BACK:
            self._storage.state = WorkflowState.ROLLING_BACK
            await self._finish(None)
        try:
            await undo_all(turn, undos)
        except FencedError:
            raise
        except EvictedError as evicted:
            return evicted
        return None


def _stalled(deaths: int) -> StalledError:
    return StalledError(
        f"the process died {deaths} times in a row; mend the cause (memory, an endless loop), then call recover()"
    )
