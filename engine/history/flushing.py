"""How changes reach the driver: one commit at a time, shared by all who need it, shielded from cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import types
from typing import TYPE_CHECKING, Any

from engine import keys, limits
from engine.errors import ChildRefusedError, EvictedError
from engine.history import writing
from engine.history.changes import Room

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from engine.commit import Alarm, Commit
    from engine.driver import Clock, EngineDriver, Timer
    from engine.history.hooks import Hooks
    from engine.history.storage import Storage


class Flusher:
    """Commits what a storage has gathered.

    Attributes:
        deaths: the driver's count of runs that died, until this run has committed; then 0.
        failure: what the driver raised; once set, nothing more is written.
        on_failure: called when that is set, so that nobody goes on waiting in a run that cannot go on.
        asking: calls to the driver whose answers the run goes on with; what waits for the next commit waits for them.
        is_closed: the run has ended; whoever still acts is refused, and nothing more is written.
    """

    __slots__ = (
        "_clock",
        "_dirty_since",
        "_driver",
        "_hooks",
        "_in_flight",
        "_storage",
        "_timer",
        "asking",
        "deaths",
        "failure",
        "is_atomic",
        "is_closed",
        "on_failure",
        "room",
    )

    def __init__(self, storage: Storage, driver: EngineDriver, clock: Clock, hooks: Hooks, deaths: int) -> None:
        self._storage = storage
        self._driver = driver
        self._clock = clock
        self._hooks = hooks
        self._in_flight: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        self._dirty_since = 0
        self.deaths = deaths
        self.asking = 0
        self.failure: BaseException | None = None
        self.on_failure: Callable[[], None] = _nobody
        self.is_atomic = driver.atomic_batch
        self.is_closed = False
        self.room = room_of(driver)

    @property
    def is_busy(self) -> bool:
        """Whether a commit is in flight."""
        return self._in_flight is not None

    @property
    def is_full(self) -> bool:
        """Whether as much waits to be committed as one commit can move."""
        return self.room is not None and self._storage.fills(self.room)

    @property
    def is_backed_up(self) -> bool:
        """Whether a commit is being written, and as much waits behind it as the next one can move."""
        return self._storage.has_gathered and self.is_full

    async def flush(self) -> None:
        """Return once everything urgent at the call is committed, with whatever else is dirty by then."""
        if self._in_flight is not None:
            # What is in flight was gathered before; what is dirty now goes with the next commit, shared by all waiting.
            await self._joined()
        while True:
            if self._in_flight is not None:
                await self._joined()
            elif self._storage.is_urgent and self.failure is None and not self.is_closed:
                await self._shielded(self._write(self._storage.gather(self.room)))
            self._refuse()
            if not self._storage.is_partial:
                return

    async def flush_all(self) -> None:
        """Return once everything that is dirty at the call is committed, urgent or not."""
        self._storage.is_urgent = self._storage.is_urgent or self._storage.is_dirty()
        await self.flush()

    async def finish(
        self,
        *,
        alarm: Alarm | None,
        yields: bool = False,
        names: tuple[str, ...] | None = None,
        awaited: tuple[str, ...] = (),
    ) -> None:
        """Commit everything together with the state and the alarm: the commit that ends a run or a step of its life."""
        while True:
            await self.landed()
            self._refuse()
            commit = self._storage.gather(self.room, alarm=alarm, yields=yields, names=names, awaited=awaited)
            is_partial = self._storage.is_partial
            await self._shielded(self._write(commit))
            if not (is_partial or self._storage.is_partial):
                return

    def flush_later(self) -> None:
        """Commit soon even if the workflow's code neither goes on nor returns; raises EvictedError once closed."""
        if self.is_closed:
            raise EvictedError
        if self.is_full:
            self.flush_now()
        now = self._clock.now()
        self._dirty_since = now
        if self._timer is None:
            self._timer = self._clock.call_later(limits.RESULT_FLUSH_DELAY_S, self._on_timer)

    def flush_now(self) -> None:
        """Start committing, without waiting for it."""
        if self._in_flight is None and self.failure is None and not self.is_closed and self._storage.is_dirty():
            self._in_flight = asyncio.get_running_loop().create_task(self._background())

    def close(self) -> None:
        """The run has ended. A task of the author's own may outlive it; what it does is no part of the workflow."""
        self.is_closed = True
        # Whoever was to be told refers to this too: a circle, which would keep the whole history in memory.
        self.on_failure = _nobody
        self.rest()

    def rest(self) -> None:
        """Let go of the timer: a pass through the code is over, and what ends the run commits the remainder."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self.is_closed:
            raise EvictedError

    def _on_timer(self) -> None:
        self._timer = None
        if not self._storage.is_urgent:
            return
        age_s = (self._clock.now() - self._dirty_since) / 1000
        if age_s < (limits.RESULT_FLUSH_DELAY_MAX_S if self.asking else limits.RESULT_FLUSH_DELAY_S / 2):
            self._timer = self._clock.call_later(limits.RESULT_FLUSH_DELAY_S, self._on_timer)
        else:
            self.flush_now()

    async def _background(self) -> None:
        # The failure is kept for whoever acts next; a task of ours that nobody awaits must not raise.
        try:
            with contextlib.suppress(Exception, EvictedError):
                await self._write(self._storage.gather(self.room))
                while self._storage.is_partial and not self.is_closed:
                    await self._write(self._storage.gather(self.room))
        finally:
            self._in_flight = None

    async def landed(self) -> None:
        """Return when no commit is in flight."""
        while self._in_flight is not None:
            await self._joined()

    async def _joined(self) -> None:
        assert self._in_flight is not None
        await asyncio.wait([self._in_flight])

    async def _shielded(self, write: Coroutine[Any, Any, None]) -> None:
        """Run ``write`` so that cancelling the caller does not cancel it: it may carry a sibling's record."""
        try:
            # A driver in memory has written by the first step; only one that really waits needs a task of its own.
            # (Its first step must not depend on the task it runs in, which is why drivers declare themselves.)
            if getattr(self._driver, "is_in_memory", False):
                write = _resumed(write, write.send(None))
        except StopIteration:
            return
        task = self._in_flight = asyncio.get_running_loop().create_task(write)
        task.add_done_callback(self._landed)
        await asyncio.shield(task)

    def _landed(self, task: asyncio.Task[None]) -> None:
        if self._in_flight is task:
            self._in_flight = None
        if not task.cancelled():
            task.exception()

    def _write(self, commit: Commit) -> Coroutine[Any, Any, None]:
        """Write what was gathered just now: a task begins later, when others may have registered further names."""
        return self._written(commit, len(self._storage.names))

    async def _written(self, commit: Commit, names_count: int) -> None:
        storage = self._storage
        while True:
            changes_history = bool(commit.puts or commit.deletes or commit.ranges)
            try:
                if self.is_atomic:
                    await self._driver.commit(commit)
                else:
                    await writing.write_in_batches(self._driver, commit)
            except BaseException as error:
                storage.restore()
                if isinstance(error, ChildRefusedError) and storage.refuse(error, commit):
                    # Nothing was written. Whoever wanted the child has recorded it by now: the same again, without.
                    names_count = len(storage.names)
                    commit = storage.gather(
                        self.room,
                        alarm=commit.alarm,
                        yields=commit.yields,
                        names=commit.names,
                        awaited=commit.awaited,
                    )
                    continue
                if writing.is_failure(error):
                    self.failure = error
                    self.on_failure()
                raise
            break
        storage.settled(names_count, commit.state)
        if changes_history or commit.consumed:
            self.deaths = 0
        if self._hooks.wants_history and _touches_history(commit):
            await self._hooks.history_updated(storage)


def _nobody() -> None:
    """Nobody needs to be told."""


def _touches_history(commit: Commit) -> bool:
    if commit.deletes or commit.ranges:
        return True
    fields = (keys.STATE_KEY, keys.OUTPUT_KEY, keys.ERROR_KEY, keys.INPUT_KEY)
    return any(key not in fields for key, _ in commit.puts)


def room_of(driver: EngineDriver) -> Room | None:
    """What one commit of ``driver`` may carry, or None where it does not say."""
    bytes_max: int | None = getattr(driver, "commit_bytes_max", None)
    messages_max: int | None = getattr(driver, "commit_messages_max", None)
    if bytes_max is None and messages_max is None:
        return None
    return Room(bytes_max=bytes_max or limits.U64_MAX, messages_max=messages_max or limits.U64_MAX)


@types.coroutine
def _resumed(work: Coroutine[Any, Any, None], awaited: Any) -> Generator[Any, Any, None]:
    """Go on with ``work``, which has already been started and now waits for ``awaited``."""
    while True:
        error: BaseException | None = None
        try:
            sent = yield awaited
        except BaseException as thrown:  # noqa: BLE001 - handed on to where it belongs
            error = thrown
        try:
            awaited = work.send(sent) if error is None else work.throw(error)
        except StopIteration:
            return
