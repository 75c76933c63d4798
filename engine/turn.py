"""One run of one workflow, as all its scopes share it: the storage, the ports, who works, who waits, what stops it.

A task of the run either *works* or *waits*. A wait is data - a ``Yield`` that says until when, for which messages or
for which workflows - parked here with a future. When the last working task parks, the run is idle: in yield mode every
wait is then raised where it stands, so that the workflow unwinds and the run ends; in live mode, and for sleeps too
short to be worth a yield, the waits stay in memory until their time comes, their message, or their workflow's end.

Deciding is synchronous, so nothing can slip between a decision and its effect; the one thing that is awaited here is
the driver.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from engine import limits
from engine.abandoning import held
from engine.abort import AbortEvent
from engine.errors import DriverError, EvictedError, FencedError, StalledError
from engine.history.flushing import Flusher
from engine.origin import UNKNOWN
from engine.waits import Wait, Waits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.driver import Clock, EngineDriver, Timer
    from engine.errors import Yield
    from engine.history.hooks import Hooks
    from engine.history.storage import Storage
    from engine.ids import Ids
    from engine.origin import Origin

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)


class Turn:
    """What the scopes of one run share.

    Attributes:
        is_live: waits are kept in memory instead of ending the run.
        is_collecting: this is the read-only replay that collects undos; it ends where history does.
        is_unwinding: the run has decided to yield; every operation raises until it has ended.
        unwound: with ``is_unwinding``: all that the run waits for.
        fatal: the error that ends the run whatever workflow code does with it.
        working: tasks that work at this moment, the run's own among them; the others wait.
        threads: functions of steps and undos that run in threads right now.
        is_refusing: workflow code has been told that this run must stop, so what it returns means nothing.
        undos: how to undo each step that this run came past, by its entry's id; iterations that are over left out.
        has_checkpoint: a rollback checkpoint was passed, so there may be something to undo.
        stirred: set whenever a wait began or ended; live mode looks at it.
        looks: how often the inbox was read anew; whoever found nothing in an earlier reading of it asks again.
    """

    def __init__(
        self,
        *,
        workflow_id: str,
        storage: Storage,
        driver: EngineDriver,
        clock: Clock,
        ids: Ids,
        hooks: Hooks,
        is_live: bool = False,
        is_collecting: bool = False,
        flusher: Flusher | None = None,
        abort: AbortEvent | None = None,
        started_at: int | None = None,
    ) -> None:
        self.workflow_id = workflow_id
        self.storage = storage
        self.driver = driver
        self.clock = clock
        self.ids = ids
        self.hooks = hooks
        self.is_live = is_live
        self.is_collecting = is_collecting
        self.is_unwinding = False
        self.unwound: Yield | None = None
        self.is_stopping = False
        self.is_closed = False
        self.is_guarded = driver.deaths >= limits.DEATHS_MAX
        self.fatal: BaseException | None = None
        self.started_at = clock.now() if started_at is None else started_at
        self.abort = abort or AbortEvent()
        self.is_refusing = False
        self.has_checkpoint = False
        self.undos: dict[str, Any] = {}
        self.threads = 0
        self.working = 1
        self.looks = 0
        self.stirred = asyncio.Event()
        # A dictionary for its order: what ends several of them does so in the order in which they began.
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self._is_first_id = True
        self._waits = Waits()
        self._timer: Timer | None = None
        self._timer_at = 0
        self._lookout: Timer | None = None
        self._is_looking = False
        self.flusher = flusher or Flusher(storage, driver, clock, hooks, driver.deaths)
        self.flusher.on_failure = self.evict

    @property
    def origin(self) -> Origin:
        """Who began the workflow, as far as the driver knows."""
        origin: Origin = getattr(self.driver, "origin", UNKNOWN)
        return origin

    # --- may I go on? ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise what ends this run, if anything does."""
        if self.fatal is not None:
            raise self.fatal
        if self.flusher.failure is not None or self.abort.is_set():
            self.is_refusing = True
            failure = self.flusher.failure
            raise failure if isinstance(failure, FencedError) else EvictedError
        if self.is_closed:
            raise EvictedError

    def fail(self, error: E) -> E:
        """Remember ``error`` as what ends this run, even if workflow code swallows it; the first one stays."""
        if self.fatal is None:
            self.fatal = error
            # Nobody goes on waiting in memory in a run that has ended.
            for wait in self._waits.all():
                self._resume(wait, EvictedError())
        return error

    async def before_acting(self) -> None:
        """Commit what must be committed before anything acts, and let nothing act in a run that must stop."""
        if self.storage.is_urgent or self.flusher.is_busy:
            await self.flush()
        self.check()

    async def recorded(self) -> None:
        """Something was recorded: commit it before anything else acts, or at once where the driver is not atomic."""
        self.storage.close_group()
        # What waits behind a slow commit must not become more than one can take: a later change may need it whole.
        if self.flusher.is_atomic and not self.flusher.is_backed_up:
            self.flusher.flush_later()
        else:
            await self.flush()

    async def flush(self) -> None:
        """Commit what is urgent. A driver's error ends the run: workflow code sees an eviction, not the error."""
        try:
            await self.flusher.flush()
        except Exception as error:
            raise EvictedError from error

    async def reach(self, answer: Awaitable[T], *, is_wait: bool = False) -> T:
        """What the driver answers: soon, unless ``is_wait``. Its errors end the run, as those of a flush do."""
        calls = 0 if is_wait else 1
        self.flusher.asking += calls
        try:
            return await answer
        except Exception as error:
            self.flusher.failure = self.flusher.failure or error
            self.evict()
            raise EvictedError from error
        finally:
            self.flusher.asking -= calls

    async def look_again(self) -> None:
        """Read the inbox anew, for everybody: a yield commit is checked against what this saw."""
        await self.reach(self.driver.message_driver.refresh())
        self.resume_message_waits()

    def guard(self, *, is_step: bool) -> None:
        """Let a workflow whose process died again and again go on only where a step can be charged for it."""
        # Where branches run side by side, the one that kills the process may be a step that has not started yet.
        if self.flusher.deaths >= limits.DEATHS_MAX and not is_step and len(self.tasks) <= 1:
            deaths = self.flusher.deaths
            raise self.fail(
                StalledError(
                    f"the process died {deaths} times in a row with no step in flight; mend the cause (memory, an "
                    "endless loop in workflow code), then call recover()"
                )
            )
        self.is_guarded = False

    @property
    def charge(self) -> int:
        """Deaths to charge to a step that starts now; none once this run has committed."""
        return self.flusher.deaths

    def new_id(self) -> str:
        """A new entry id, behind every id that this workflow has."""
        after = self.storage.latest_id() if self._is_first_id else None
        self._is_first_id = False
        return self.ids.new(after)

    # --- waiting ----------------------------------------------------------------------------------------------------

    async def park(self, signal: Yield, *, is_short: bool = False) -> None:
        """Wait for what ``signal`` says, in memory or by ending the run; returns when it is time to look again.

        ``is_short`` marks a wait that is not worth a yield when little of it remains.
        """
        if self.is_collecting:
            raise signal
        self.check()
        wait = Wait(signal, is_short=is_short)
        self._waits.add(wait)
        self.stirred.set()
        self.working -= 1
        try:
            if self.working == 0:
                self._settle()
            if not wait.future.done():
                # Even where others were resumed just now: they work, and this one is waited for beside them.
                self._arm(signal.deadline)
                self._look_out()
            # A wait in memory must be as durable as one that ends the run: its deadline is fixed from here on.
            if not wait.future.done() and self.storage.is_urgent:
                await self.flush()
            await wait.future
        finally:
            self._waits.discard(wait)
            if not wait.is_resumed:
                self.working += 1
            wait.forget()

    def enter(self, count: int = 1) -> None:
        """``count`` more tasks work."""
        self.working += count

    def leave(self) -> None:
        """One task works no more (it has ended, or waits for others of this run)."""
        self.working -= 1
        if self.working == 0:
            self._settle()

    def _settle(self) -> None:
        """Nobody works: decide what becomes of those who wait."""
        if self.resume_due() or not self._waits or self.is_live or self.has_short_wait():
            return
        self.is_unwinding = True
        # What ends the run is at hand, and commits everything; a process that was frozen here must not do so before.
        self.flusher.rest()
        self.unwound = self.pending()
        for wait in self._waits.all():
            self._resume(wait, wait.signal)

    def has_short_wait(self) -> bool:
        """Whether a wait is so nearly over that the run stays for it: a sleep, or any where alarms come early."""
        soon = self.clock.now() + self.driver.worker_poll_interval * 1000
        # Yielding to an alarm that comes early would only run the workflow again before its time, and again.
        is_any = getattr(self.driver, "wakes_early", False)
        return self._waits.has_short(soon, is_any=is_any)

    def resume_due(self) -> bool:
        """End the waits whose deadline has passed; whether there were any."""
        due = self._waits.due(self.clock.now())
        for wait in due:
            self._resume(wait)
        return bool(due)

    def resume_message_waits(self) -> None:
        """The inbox was read anew: end every wait for messages, so that each looks again."""
        self.looks += 1
        for wait in self._waits.for_messages():
            self._resume(wait)

    def resume_workflow_waits(self, count: int | None = None) -> None:
        """End every wait for other workflows, or the ``count`` that began first, so that each looks again."""
        for wait in self._waits.for_workflows()[:count]:
            self._resume(wait)

    def resume_all(self) -> None:
        """End every wait, so that each looks again."""
        for wait in self._waits.all():
            self._resume(wait)

    def _resume(self, wait: Wait, error: BaseException | None = None) -> None:
        if wait.future.done():
            return
        wait.is_resumed = True
        self.working += 1
        self._waits.discard(wait)
        self.stirred.set()
        if error is None:
            wait.future.set_result(None)
        else:
            wait.future.set_exception(error)

    def pending(self) -> Yield | None:
        """Everything waited for, as one yield."""
        return self._waits.pending()

    # --- the one timer ----------------------------------------------------------------------------------------------

    def _arm(self, deadline: int | None) -> None:
        """See that the timer goes off by ``deadline`` (milliseconds), if there is one."""
        if deadline is None:
            return
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        delay_s = max(0, deadline - self.clock.now()) / 1000
        self._timer = self.clock.call_later(min(delay_s, limits.TIMER_MAX_S), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.resume_due()
        self._arm(self._waits.earliest())

    # --- while others work --------------------------------------------------------------------------------------------

    def _look_out(self) -> None:
        """See that a wait for a message or an end is looked at again while others work; in live mode it is told."""
        if self.is_live or self._is_looking or self._lookout is not None or not self._waits.is_listening():
            return
        self._lookout = self.clock.call_later(self.driver.worker_poll_interval, self._on_lookout)

    def _on_lookout(self) -> None:
        self._lookout = None
        if self.is_closed or self.is_unwinding or self.abort.is_set():
            return
        # Asking the store is not work: where many do, and each look has them ask again, all of them would never wait.
        if self.working <= self.flusher.asking:
            self._look_out()
        elif self._waits.is_listening():
            # A look is work: the run must not yield to a message that it is about to see.
            self._is_looking = True
            self.enter()
            self.spawn(self._look)

    async def _look(self) -> None:
        try:
            with suppress(EvictedError):
                if await self.reach(self._has_looked()):
                    self.resume_message_waits()
                    self.resume_workflow_waits(limits.LOOKOUT_WORKFLOWS_MAX)
        finally:
            self._is_looking = False
            if not self.is_closed:
                self._look_out()
                self.leave()

    async def _has_looked(self) -> bool:
        # Work is not lost to a look on the side: the next one, or a commit, shows whether the store stays away.
        with suppress(DriverError):
            await self.driver.message_driver.refresh()
            return True
        return False

    # --- stopping ---------------------------------------------------------------------------------------------------

    def evict(self) -> None:
        """Ask the run to stop: waits end at once, a step in flight may finish, no operation starts."""
        self.abort.set()
        self.is_refusing = self.is_refusing or bool(self._waits)
        for wait in self._waits.all():
            self._resume(wait, EvictedError())

    def stop(self) -> None:
        """Stop the run now: what is in flight is cancelled."""
        self.is_stopping = True
        self.evict()
        for task in list(self.tasks):
            task.cancel()

    def close(self) -> None:
        """Let go of every timer. Who still acts is a task that the run knows nothing of, and goes no further."""
        for timer in (self._timer, self._lookout):
            if timer is not None:
                timer.cancel()
        self._timer = self._lookout = None
        self.is_closed = True
        # Their handlers may lead back here: a circle, which would keep the whole history in memory.
        self.undos = {}
        self.flusher.rest()

    def spawn(self, work: Callable[[], Any]) -> asyncio.Task[Any]:
        """Run ``work()`` (a coroutine) as a task of this run, which ``stop`` cancels."""
        task = asyncio.get_running_loop().create_task(held(work))
        self.tasks[task] = None
        task.add_done_callback(lambda task: self.tasks.pop(task, None))
        return task

    async def drain(self) -> None:
        """Cancel and await every task that this run left behind."""
        for task in list(self.tasks):
            task.cancel()
            with suppress(BaseException):
                await task
