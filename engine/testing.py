"""Testing workflows without AWS: a driver in memory, a clock that jumps, and ``drive``, which runs to the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from engine import values
from engine.abort import AbortEvent
from engine.author.activities import ActivityContext
from engine.author.registry import Workflow
from engine.errors import UnstorableValueError
from engine.handle import run_workflow
from engine.lifecycle import WorkflowState
from engine.memory.clock import VirtualClock, VirtualTimer
from engine.memory.driver import MemoryDriver
from engine.memory.inbox import MemoryInbox
from engine.memory.jumping import while_jumping
from engine.memory.world import MemoryWorld

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.result import WorkflowResult

__all__ = ["MemoryDriver", "MemoryInbox", "MemoryWorld", "VirtualClock", "VirtualTimer", "activity_context", "drive"]


T = TypeVar("T")


async def drive(
    workflow_id: str,
    fn: Callable[..., Awaitable[T]],
    input: Any,  # noqa: A002 - the field's name
    driver: MemoryDriver,
    clock: VirtualClock,
    **options: Any,
) -> WorkflowResult[T]:
    """Run a workflow in yield mode, jumping from alarm to alarm, until it ends or waits for a message for ever.

    ``input`` may be the JSON that a caller of the API would send; the workflow gets what it asks for.

    Raises what the workflow raises when it fails, and ValueError where the driver holds another workflow already.
    """
    if driver.driven_as not in (None, workflow_id):
        raise ValueError(
            f"this driver holds the workflow {driver.driven_as!r}, whose history would be taken for that of "
            f"{workflow_id!r}; give each workflow a MemoryDriver of its own, or several a MemoryWorld"
        )
    driver.driven_as = workflow_id
    given = _as_posted(input, fn)
    while True:
        handle = run_workflow(workflow_id, fn, given, driver, clock=clock, **options)
        result = await while_jumping(handle, clock)
        if result.state is not WorkflowState.SLEEPING or result.sleep_until is None:
            return result
        clock.advance_to(result.sleep_until)


def _as_posted(given: Any, fn: Callable[..., Any]) -> Any:
    """What is stored of an input that a caller of the API sends; where that fits not, the run tells why."""
    function = fn.fn if isinstance(fn, Workflow) else fn
    try:
        return values.fit_json(values.decode(values.encode(given)), values.input_type(function, 1))
    except UnstorableValueError:
        return given


def activity_context(
    activity_name: str = "activity",
    *,
    workflow_id: str = "test",
    attempt: int = 1,
    idempotency_key: str = "test",
    state: dict[str, Any] | None = None,
    ray_id: str = "",
    request_id: str = "",
) -> ActivityContext:
    """What an activity gets as its first argument, for a test that calls it directly; its abort signal is not set.

    ``state`` is changed in place, for the test to look at.
    """
    return ActivityContext(
        workflow_id=workflow_id,
        activity_name=activity_name,
        attempt=attempt,
        idempotency_key=idempotency_key,
        abort_signal=AbortEvent(),
        state={} if state is None else state,
        ray_id=ray_id,
        request_id=request_id,
    )
