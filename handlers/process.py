"""One process of a function: the event loop it keeps over invocations, and how it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

logger = logging.getLogger(__name__)

T = TypeVar("T")

SETTLE_ROUNDS_MAX = 5
"""How often what an invocation left running is cancelled before we give up on it. Design choice."""

SETTLE_S = 1.0
"""Seconds that all these rounds may take where there is so much time. Design choice."""


class Process:
    """An event loop that outlives invocations, so that clients and their connections do too.

    Nothing that one invocation started is still running when the next one begins: ``settle`` cancels it and waits.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._on_terminate: list[Callable[[], None]] = []

    def run(self, work: Coroutine[Any, Any, T], *, left_s: Callable[[], float] = lambda: SETTLE_S) -> T:
        """Run one invocation's ``work`` to its end and leave nothing behind; raises what ``work`` raises.

        ``left_s`` says how many seconds there are for what it has left running, once it is asked.
        """
        return self.loop.run_until_complete(self._invocation(work, left_s))

    async def _invocation(self, work: Coroutine[Any, Any, T], left_s: Callable[[], float]) -> T:
        try:
            return await work
        finally:
            await self.settle(within_s=left_s())

    def make_current(self) -> None:
        """Have whoever asks asyncio for "the" loop, as Mangum does, find this one."""
        asyncio.set_event_loop(self.loop)

    async def settle(self, *, within_s: float = SETTLE_S) -> None:
        """Cancel and await every other task of the loop, for ``within_s`` seconds and no more than ``SETTLE_S``.

        A task that refuses to end is logged by name.
        """
        round_s = min(SETTLE_S, max(0.0, within_s)) / SETTLE_ROUNDS_MAX
        for _ in range(SETTLE_ROUNDS_MAX):
            leftovers = asyncio.all_tasks() - {asyncio.current_task()}
            if not leftovers:
                return
            for task in leftovers:
                task.cancel()
            done, _ = await asyncio.wait(leftovers, timeout=round_s)
            for task in done:
                _tell_failure(task)
        names = sorted(task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()})
        if names:
            logger.error("tasks refuse to end", extra={"tasks": names})

    @contextlib.contextmanager
    def on_terminate(self, callback: Callable[[], None]) -> Iterator[None]:
        """Within the block, SIGTERM calls ``callback`` on the loop instead of ending the process."""
        self._on_terminate.append(callback)
        try:
            yield
        finally:
            self._on_terminate.remove(callback)

    def listen_for_sigterm(self) -> None:
        """Take SIGTERM over; does nothing outside the main thread, where Python cannot."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._terminate)

    def _terminate(self, signum: int, _frame: object) -> None:
        if self.loop.is_running():
            for callback in self._on_terminate:
                self.loop.call_soon_threadsafe(callback)
            return
        # Between invocations there is nothing to save: die as one would without us.
        signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)

    def close(self) -> None:
        """End the loop; for tests and tools, since Lambda never says that a process is over."""
        if self.loop.is_closed():
            return
        self.loop.run_until_complete(self.settle())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        asyncio.set_event_loop(None)


def _tell_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.warning("a leftover task failed", extra={"task": task.get_name(), "error": type(error).__name__})
