"""Waiting on a clock that may not be the machine's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.driver import Clock


async def pause(clock: Clock, delay_s: float) -> None:
    """Return after ``delay_s`` seconds of ``clock``; cancelling leaves no timer behind."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(delay_s, lambda: None if over.done() else over.set_result(None))
    try:
        await over
    finally:
        timer.cancel()
