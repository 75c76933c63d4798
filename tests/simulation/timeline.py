"""Virtual time: one queue of events for the whole world, and an event loop for each process, which can freeze and die.

Nothing here waits, opens a socket or starts a thread: when nothing is ready, time jumps to the next timer.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from asyncio import events
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

SECOND_US = 1_000_000
_CLOSES_MAX = 64


class Handle:
    """A call to be made: of a process (``loop``), or of the world itself (None)."""

    __slots__ = ("args", "at_us", "callback", "context", "is_cancelled", "loop")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
        loop: ProcessLoop | None,
        at_us: int,
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.loop = loop
        self.at_us = at_us
        self.is_cancelled = False

    def cancel(self) -> None:
        """Forget the call."""
        self.is_cancelled = True

    def cancelled(self) -> bool:
        """Whether it was forgotten."""
        return self.is_cancelled

    def when(self) -> float:
        """When it is to be made, in seconds of virtual time."""
        return self.at_us / SECOND_US


class Timeline:
    """What happens next in the world, in the order of time, then of asking; ``now_us`` is in microseconds."""

    def __init__(self) -> None:
        self.now_us = 0
        self.steps = 0
        self._ready: deque[Handle] = deque()
        self._later: list[tuple[int, int, Handle]] = []
        self._order = 0

    @property
    def now_s(self) -> float:
        """Seconds since the start of the world."""
        return self.now_us / SECOND_US

    def soon(self, handle: Handle) -> None:
        """Make a call now, after those that are ready already."""
        self._ready.append(handle)

    def at(self, handle: Handle) -> None:
        """Make a call at its time."""
        self._order += 1
        heapq.heappush(self._later, (max(handle.at_us, self.now_us), self._order, handle))

    def after(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Handle:
        """Have the world itself call ``callback`` in ``delay_s`` seconds."""
        handle = Handle(callback, args, None, None, self.now_us + int(delay_s * SECOND_US))
        self.at(handle)
        return handle

    def step(self) -> bool:
        """Make the next call; False where there is none."""
        while True:
            if self._ready:
                handle = self._ready.popleft()
            elif self._later:
                at_us, _, handle = heapq.heappop(self._later)
                self.now_us = max(self.now_us, at_us)
            else:
                return False
            if handle.is_cancelled:
                continue
            self.steps += 1
            if handle.loop is None:
                handle.callback(*handle.args)
            else:
                handle.loop.perform(handle)
            return True


class ProcessLoop:
    """The event loop of one process, as far as asyncio asks for one.

    Dead, it does nothing ever again; frozen, what it has to do waits for the thaw.
    """

    def __init__(self, timeline: Timeline, name: str) -> None:
        self.timeline = timeline
        self.name = name
        self.is_dead = False
        self.is_frozen = False
        self.errors: list[dict[str, Any]] = []
        self._stash: list[Handle] = []
        self._tasks: list[asyncio.Task[Any]] = []

    def perform(self, handle: Handle) -> None:
        """Make a call of this process."""
        if self.is_dead:
            return
        if self.is_frozen:
            self._stash.append(handle)
            return
        loop: Any = self
        events._set_running_loop(loop)
        try:
            assert handle.context is not None
            handle.context.run(handle.callback, *handle.args)
        finally:
            events._set_running_loop(None)

    def thaw(self) -> None:
        """Go on with everything that came up while it was frozen."""
        self.is_frozen = False
        stash, self._stash = self._stash, []
        for handle in stash:
            self.timeline.soon(handle)

    def dismantle(self) -> None:
        """Let go of what a dead process had in hand; its ``finally`` blocks run, but reach nothing any more."""
        self.is_dead = True
        for task in self._tasks:
            if not task.done():
                _close(task.get_coro())
            asyncio.tasks._unregister_task(task)
        self._tasks.clear()
        self._stash.clear()

    # --- what asyncio asks of a loop ------------------------------------------------------------------------------

    def call_soon(self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None) -> Any:
        handle = Handle(
            callback, args, contextvars.copy_context() if context is None else context, self, self.timeline.now_us
        )
        self.timeline.soon(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        # Rounded up, so that whoever waits for an instant does not look a moment before it.
        at_us = self.timeline.now_us + max(0, -int(-delay * SECOND_US // 1))
        handle = Handle(callback, args, contextvars.copy_context() if context is None else context, self, at_us)
        self.timeline.at(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def time(self) -> float:
        return self.timeline.now_s

    def create_future(self) -> asyncio.Future[Any]:
        loop: Any = self
        return asyncio.Future(loop=loop)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> Any:
        if len(self._tasks) > 64:
            self._forget_done()
        loop: Any = self
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, name=name or "task", context=context)
        self._tasks.append(task)
        return task

    def _forget_done(self) -> None:
        # asyncio knows them all until they are collected, and looks at each whenever it is asked for a loop's tasks.
        for task in self._tasks:
            if task.done():
                asyncio.tasks._unregister_task(task)
        self._tasks = [task for task in self._tasks if not task.done()]

    def run_in_executor(self, _executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """There are no threads: the function runs at once, and is seen to have taken a millisecond."""
        future = self.create_future()
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001 - as an executor would
            self.call_later(0.001, lambda error=error: None if future.done() else future.set_exception(error))
        else:
            self.call_later(0.001, lambda: None if future.done() else future.set_result(result))
        return future

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run ``work`` as a task of this process, from outside of it."""
        task: asyncio.Task[Any] = self.create_task(work)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.is_dead:
            self.errors.append(context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.is_dead

    def is_closed(self) -> bool:
        return False


def _close(work: Any) -> None:
    """Close a coroutine from the inside out, however often its ``finally`` blocks want to wait for something else."""
    for _ in range(_CLOSES_MAX):
        inner = getattr(work, "cr_await", None) or getattr(work, "gi_yieldfrom", None)
        if hasattr(inner, "close"):
            _close(inner)
        try:
            work.close()
        except BaseException:  # noqa: BLE001, S112 - whatever a block of a dead process says, nobody hears it
            continue
        return
