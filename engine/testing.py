"""Testing workflows without AWS: a driver in memory, a clock that jumps, and ``drive``, which runs to the end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from engine.activities import ActivityContext
from engine.handle import run_workflow
from engine.lifecycle import WorkflowState
from engine.memory import MemoryDriver, MemoryInbox
from engine.turn import AbortEvent
from engine.virtual_clock import VirtualClock, VirtualTimer

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.handle import WorkflowHandle
    from engine.result import WorkflowResult

__all__ = ["MemoryDriver", "MemoryInbox", "VirtualClock", "VirtualTimer", "activity_context", "drive"]

_IDLE_TURNS = 20
_IDLE_WAIT_S = 0.002
_WORK_WAIT_S = 1.0
"""Real seconds that steps are given when nobody waits for the virtual clock but their timeouts."""


async def drive(
    workflow_id: str,
    fn: Callable[..., Any],
    input: Any,  # noqa: A002 - the field's name
    driver: MemoryDriver,
    clock: VirtualClock,
    **options: Any,
) -> WorkflowResult[Any]:
    """Run a workflow in yield mode, jumping from alarm to alarm, until it ends or waits for a message for ever.

    Raises what the workflow raises when it fails.
    """
    while True:
        handle = run_workflow(workflow_id, fn, input, driver, clock=clock, **options)
        result: WorkflowResult[Any] = await _while_jumping(handle, clock)
        if result.state is not WorkflowState.SLEEPING or result.sleep_until is None:
            return result
        clock.advance_to(result.sleep_until)


def activity_context(
    activity_name: str = "activity", *, workflow_id: str = "test", attempt: int = 1, idempotency_key: str = "test"
) -> ActivityContext:
    """What an activity gets as its first argument, for a test that calls it directly; its abort signal is not set."""
    return ActivityContext(
        workflow_id=workflow_id,
        activity_name=activity_name,
        attempt=attempt,
        idempotency_key=idempotency_key,
        abort_signal=AbortEvent(),
    )


async def _while_jumping(handle: WorkflowHandle[Any], clock: VirtualClock) -> WorkflowResult[Any]:
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
