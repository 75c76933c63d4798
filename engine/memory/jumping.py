"""Awaiting a run while a virtual clock jumps over all that it waits for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from engine.handle import WorkflowHandle
    from engine.memory.clock import VirtualClock
    from engine.result import WorkflowResult

T = TypeVar("T")

_IDLE_TURNS = 20
_IDLE_WAIT_S = 0.002
_WORK_WAIT_S = 1.0
"""Real seconds that steps are given when nobody waits for the virtual clock but their timeouts."""


async def while_jumping(handle: WorkflowHandle[T], clock: VirtualClock) -> WorkflowResult[T]:
    """Await the run, moving ``clock`` to its next timer whenever nothing else happens."""
    task = asyncio.ensure_future(handle.result)
    while not task.done():
        for _ in range(_IDLE_TURNS):
            await asyncio.sleep(0)
            if task.done():
                return task.result()
        # A step that works in a thread or waits for something real gets real time before its timeout is jumped to.
        await asyncio.wait([task], timeout=_IDLE_WAIT_S if handle.is_idle or clock.sleepers else _WORK_WAIT_S)
        if not task.done() and (at_ms := clock.next_timer()) is not None:
            clock.advance_to(at_ms)
    return task.result()
