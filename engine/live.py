"""Live mode: the waits of a run stay in memory, and end when their time or their message comes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from engine.lifecycle import WorkflowState
from engine.turn import AbortEvent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.errors import Yield
    from engine.turn import Turn


async def keep_alive(turn: Turn, work: asyncio.Task[Any], store_sleep: Callable[[Yield], Awaitable[None]]) -> None:
    """Look after the waits of ``turn`` until ``work``, its root task, is done.

    ``store_sleep`` is called whenever everybody waits. Nothing is left behind by a cycle: each has its own watch, which
    ends with it.
    """
    while not work.done():
        turn.stirred.clear()
        waits = turn.pending()
        if turn.working == 0 and waits is not None and not turn.has_short_wait():
            await store_sleep(waits)
        await _until_stirred(turn, work, None if waits is None else waits.names)
        if turn.working and not turn.abort.is_set():
            turn.storage.state = WorkflowState.RUNNING


async def _until_stirred(turn: Turn, work: asyncio.Task[Any], names: tuple[str, ...] | None) -> None:
    """Return when a wait began or ended, a message of ``names`` came, or ``work`` is done."""
    watch = AbortEvent(turn.abort)
    stirred = asyncio.create_task(_stirred(turn))
    waiters = [stirred]
    if names is not None:
        waiters.append(asyncio.create_task(_arrival(turn, names, watch)))
    try:
        await asyncio.wait([work, *waiters], return_when=asyncio.FIRST_COMPLETED)
        arrived = [waiter for waiter in waiters if waiter is not stirred and waiter.done()]
        for waiter in arrived:
            waiter.result()
        if arrived and not turn.abort.is_set():
            await turn.look_again()
    finally:
        watch.set()
        for waiter in waiters:
            waiter.cancel()
        await asyncio.wait(waiters)


async def _stirred(turn: Turn) -> None:
    await turn.stirred.wait()


async def _arrival(turn: Turn, names: tuple[str, ...], watch: AbortEvent) -> None:
    await turn.reach(turn.driver.wait_for_messages(names, watch))
