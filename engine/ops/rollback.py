"""Rollback: checkpoints before which nothing may register an undo, and the undos run in reverse order of completion."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from engine import values
from engine.calling import begin, gave_up, is_async
from engine.entry import Entry, RollbackCheckpointEntry, StepEntry
from engine.error_info import error_info, error_message, tamed
from engine.errors import ControlFlow, EntryInProgressError, EvictedError
from engine.history.hooks import RollbackErrorEvent

if TYPE_CHECKING:
    from engine.abort import AbortEvent
    from engine.scope import Scope
    from engine.turn import Turn


class Undo(Struct, frozen=True, kw_only=True):
    """A completed step that can be undone.

    Its output is read as ``returns``. ``completed_at`` is no earlier than that of what its scope had done before
    (milliseconds): another machine's clock may have been behind.
    """

    entry: Entry
    name: str
    returns: Any
    handler: Callable[..., Any]
    completed_at: int


class RollbackContext:
    """What a rollback handler gets: the workflow's id, and whether to stop."""

    __slots__ = ("_turn", "abort_signal", "workflow_id")

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self.workflow_id: str = turn.workflow_id
        self.abort_signal: AbortEvent = turn.abort

    def is_evicted(self) -> bool:
        """Whether the run must stop."""
        return self._turn.abort.is_set()


async def checkpoint(scope: Scope, name: str) -> None:
    """From here on, steps of this scope and of those it opens may have ``rollback=``."""
    _, entry = scope.open(name, RollbackCheckpointEntry)
    if entry is None:
        scope.act()
        scope.record(name, RollbackCheckpointEntry(name=name))
        await scope.turn.recorded()
    scope.checkpoint = scope.turn.has_checkpoint = True


def order(undos: list[Undo]) -> list[Undo]:
    """The order in which to undo: the last completed first; where times are equal, what a replay comes to last."""
    return sorted(undos, key=lambda undo: undo.completed_at)[::-1]


def _output_of(undo: Undo) -> Any:
    # Read once more: the workflow's code may have changed what it was given.
    kind = undo.entry.kind
    return values.decode(kind.output, undo.returns) if isinstance(kind, StepEntry) and kind.output is not None else None


async def _call(turn: Turn, undo: Undo, context: RollbackContext) -> None:
    try:
        await begin(turn, undo.handler, (context, _output_of(undo)))
    except asyncio.CancelledError as error:
        if failure := gave_up(error):
            raise failure  # noqa: B904 - it has its cause
        raise
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except ControlFlow as signal:
        if context.is_evicted():
            raise
        # That of the workflow's context: the pass through its code is over.
        raise EntryInProgressError(
            f"the undo of {undo.name!r} performed an operation of the workflow, which is over: do the work in it"
        ) from signal
    except BaseException as error:  # noqa: BLE001 - a handler is foreign code
        raise tamed(error)  # noqa: B904 - it has its cause


async def undo_all(turn: Turn, undos: list[Undo]) -> None:
    """Run the handlers, one commit each, so that a run that is cut short goes on where it stopped.

    Raises:
        Exception: a handler failed; the remaining ones have not run.
        EvictedError: the run must stop.
    """
    context = RollbackContext(turn)
    for undo in order(undos):
        turn.check()
        metadata = turn.storage.find_metadata(undo.entry.id)
        assert metadata is not None
        if metadata.rollback_completed_at is not None:
            continue
        try:
            await _until_evicted(turn, undo, context)
        except ControlFlow:
            raise
        except Exception as error:
            failed = msgspec.structs.replace(metadata, rollback_error=error_message(error))
            turn.storage.put_metadata(undo.entry.id, failed)
            turn.storage.is_urgent = True
            await turn.flusher.flush()
            await turn.hooks.failed(
                RollbackErrorEvent(workflow_id=turn.workflow_id, step_name=undo.name, error=error_info(error))
            )
            turn.hooks.mark_reported(error)
            raise
        done = msgspec.structs.replace(metadata, rollback_completed_at=turn.clock.now(), rollback_error=None)
        turn.storage.put_metadata(undo.entry.id, done)
        turn.storage.is_urgent = True
        await turn.flusher.flush()


async def _until_evicted(turn: Turn, undo: Undo, context: RollbackContext) -> None:
    work = turn.spawn(lambda: _call(turn, undo, context))
    stop = asyncio.ensure_future(turn.abort.wait())
    try:
        await asyncio.wait([work, stop], return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and not is_async(undo.handler):
            # A thread cannot be stopped, and whoever runs the workflow next would do the same beside it: until the hard
            # end of the eviction, which cancels ``work``, it may finish.
            await asyncio.wait([work])
        if not work.done() or work.cancelled():
            raise EvictedError
        await work
    finally:
        work.cancel()
        stop.cancel()
        await asyncio.wait([work, stop])
