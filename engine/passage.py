"""One passage through a workflow's code in one turn: for what it does, or only for what could be undone."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from engine.author.context import Context
from engine.error_info import tamed
from engine.errors import ControlFlow, EvictedError, HistoryDivergedError, OperatorError
from engine.history.mismatch import swallowed
from engine.live import keep_alive
from engine.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.errors import Yield
    from engine.turn import Turn


_log = logging.getLogger("torpor")


class Passage(Struct, frozen=True, kw_only=True):
    """A workflow's ``body``, called with a context and the input ``given``; ``returns`` is its output's type."""

    body: Any
    given: Any
    returns: Any


async def perform(
    turn: Turn,
    passage: Passage,
    store_sleep: Callable[[Turn, Yield], Awaitable[None]],
    *,
    is_cancelled: Callable[[], bool],
) -> tuple[bytes, Any]:
    """Run the code to its end; the stored form of its output, and the output as it will be read back.

    Raises:
        Yield: it has to wait, and the turn is not live.
        EvictedError: it had to stop.
        Exception: it failed.
    """
    root = Scope.root(turn)
    work = turn.spawn(lambda: _root(turn, root, passage, is_cancelled))
    try:
        if turn.is_live:
            await keep_alive(turn, work, lambda waits: store_sleep(turn, waits))
        await asyncio.wait([work])
    except asyncio.CancelledError:
        turn.stop()
        raise
    finally:
        await turn.drain()
        if work.done() and not work.cancelled():
            # Where something else ends the run, nobody will ask how this ended.
            work.exception()
    if work.cancelled() and not turn.abort.is_set():
        raise RuntimeError("the workflow's own code cancelled the task that runs it: cancel only tasks of your own")
    return root.store(work.result(), passage.returns, "the workflow")


async def _root(turn: Turn, root: Scope, passage: Passage, is_cancelled: Callable[[], bool]) -> Any:
    """Call the code, and hold what it does with the engine's signals to the rules."""
    try:
        value = await passage.body(Context(root), passage.given)
    except ControlFlow:
        # As it was raised: unless something else has ended the run meanwhile.
        _raise_fatal(turn)
        raise
    except asyncio.CancelledError:
        raise
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        # Whatever workflow code raises.
        _raise_fatal(turn)
        if turn.is_unwinding:
            raise turn.fail(swallowed(root.describe())) from error
        if turn.is_refusing:
            raise EvictedError from None
        raise tamed(error)  # noqa: B904 - it has its cause
    _raise_fatal(turn)
    if turn.is_unwinding:
        raise turn.fail(swallowed(root.describe()))
    if turn.is_refusing:
        turn.check()
        raise EvictedError
    root.close()
    if is_cancelled():
        raise EvictedError
    return value


async def collect(turn: Turn, passage: Passage, failed: Turn | None) -> list[Any]:
    """The undos of every completed step, from a read-only replay that ends where history does.

    Those that the turn which has just ``failed`` came past are among them, wherever its code has left an operation
    without a record, as by a timeout of its own, and the replay ended there.

    Raises:
        HistoryDivergedError, OperatorError: the code does not fit a history that it has not just failed with, or that
            cannot be read; steps to undo may be missing.
    """
    root = Scope.root(turn)
    work = turn.spawn(lambda: passage.body(Context(root), passage.given))
    await asyncio.wait([work])
    await turn.drain()
    if not work.cancelled():
        # Whatever the code did on its way to the frontier has happened before, and was dealt with then.
        work.exception()
    undos = turn.undos
    turn.close()
    if isinstance(turn.fatal, (HistoryDivergedError, OperatorError)):
        if failed is None:
            # What has just failed had replayed this far. Code that never did may miss steps that have to be undone.
            raise turn.fatal
        _log.warning(
            "workflow %s undoes what its last run came past; undos of what earlier runs did may be missing: %s",
            turn.workflow_id,
            turn.fatal,
        )
    passed = {} if failed is None else failed.undos
    # What is gone with its branch is nothing to undo.
    passed = {entry_id: undo for entry_id, undo in passed.items() if turn.storage.find_metadata(entry_id) is not None}
    return [*undos.values(), *(undo for entry_id, undo in passed.items() if entry_id not in undos)]


def _raise_fatal(turn: Turn) -> None:
    if turn.fatal is not None:
        raise turn.fatal
