"""The system clock, the one place of the engine that asks the machine for the time; and sleeping by any clock."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.driver import Clock, Timer


class SystemClock:
    """The machine's clock and the running event loop's timers."""

    def now(self) -> int:
        """Integer milliseconds since the epoch, UTC."""
        return time.time_ns() // 1_000_000  # noqa: TID251 - this is the port

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` on the running event loop after ``delay_s`` seconds."""
        return asyncio.get_running_loop().call_later(delay_s, callback)


async def sleep(clock: Clock, delay_s: float) -> None:
    """Return after ``delay_s`` seconds of ``clock``."""
    woken = asyncio.get_running_loop().create_future()
    timer = clock.call_later(delay_s, lambda: None if woken.done() else woken.set_result(None))
    try:
        await woken
    finally:
        timer.cancel()
