"""Live mode: the waits of a run stay in memory, and end when their time, message or other workflow's end comes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from engine.abort import AbortEvent
from engine.clock import sleep
from engine.lifecycle import ENDED, WorkflowState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.driver import Peers
    from engine.errors import Yield
    from engine.turn import Turn


async def keep_alive(turn: Turn, work: asyncio.Task[Any], store_sleep: Callable[[Yield], Awaitable[None]]) -> None:
    """Look after the waits of ``turn`` until ``work``, its root task, is done.

    ``store_sleep`` is called whenever everybody waits. Nothing is left behind by a cycle: each has its own watch, which
    ends with it.
    """
    peeking = _Peeking(turn)
    while not work.done():
        turn.stirred.clear()
        waits = turn.pending()
        if turn.working == 0 and waits is not None and not turn.has_short_wait():
            await store_sleep(waits)
        await _until_stirred(turn, work, waits, peeking)
        if turn.working and not turn.abort.is_set():
            turn.storage.state = WorkflowState.RUNNING


async def _until_stirred(turn: Turn, work: asyncio.Task[Any], waits: Yield | None, peeking: _Peeking) -> None:
    """Return when a wait began or ended, what ``waits`` says has come, or ``work`` is done."""
    watch = AbortEvent(turn.abort)
    stirred = asyncio.create_task(_stirred(turn))
    waiters = [stirred]
    if waits is not None and waits.names is not None:
        waiters.append(asyncio.create_task(_arrival(turn, waits.names, watch)))
    if waits is not None and waits.awaited:
        waiters.append(asyncio.create_task(peeking.until_ended(waits.awaited)))
    try:
        await asyncio.wait([work, *waiters], return_when=asyncio.FIRST_COMPLETED)
        arrived = [waiter for waiter in waiters if waiter is not stirred and waiter.done()]
        for waiter in arrived:
            waiter.result()
        if arrived and not turn.abort.is_set():
            await turn.look_again()
            turn.resume_workflow_waits()
    finally:
        watch.set()
        for waiter in waiters:
            waiter.cancel()
        await asyncio.wait(waiters)


async def _stirred(turn: Turn) -> None:
    await turn.stirred.wait()


async def _arrival(turn: Turn, names: tuple[str, ...], watch: AbortEvent) -> None:
    await turn.reach(turn.driver.wait_for_messages(names, watch), is_wait=True)


class _Peeking:
    """Looks at other workflows at the driver's interval, however often the waits of the run begin and end."""

    __slots__ = ("_looked_at", "_turn")

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._looked_at = turn.clock.now()

    async def until_ended(self, awaited: tuple[str, ...]) -> None:
        """Return when one of ``awaited`` has ended, or is not there."""
        turn = self._turn
        peers: Peers = turn.driver.peers  # type: ignore[attr-defined]  # optional; who waits for others has found it
        while True:
            await self._pause()
            self._looked_at = turn.clock.now()
            for workflow_id in awaited:
                peer = await turn.reach(peers.peek(workflow_id))
                if peer is None or peer.state in ENDED:
                    return

    async def _pause(self) -> None:
        turn = self._turn
        delay_s = turn.driver.worker_poll_interval - (turn.clock.now() - self._looked_at) / 1000
        await sleep(turn.clock, max(0.0, delay_s))
