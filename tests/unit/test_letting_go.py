"""What a run had in memory is gone with it: nobody waits for the garbage collector to find a long history."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from engine import Break, Context, CriticalError, run_workflow
from engine.history.storage import Storage
from engine.testing import MemoryDriver, VirtualClock

if TYPE_CHECKING:
    from collections.abc import Iterator


class Much:
    """Stands for what is large: it is held by workflow code wherever that code is."""


async def waiting(ctx: Context) -> None:
    await ctx.queue.next("q")


async def sleeping(ctx: Context) -> None:
    await ctx.sleep("s", 3600)


async def retrying(ctx: Context) -> None:
    async def failing() -> None:
        raise ValueError("not yet")

    await ctx.step("s", failing, retry_backoff_base=100, retry_backoff_max=1000)


async def joining(ctx: Context) -> None:
    await ctx.join("j", {"a": sleeping, "b": waiting})


async def racing(ctx: Context) -> None:
    await ctx.race("r", {"a": sleeping, "b": joining})


async def won(ctx: Context) -> None:
    async def quick(_ctx: Context) -> int:
        return 1

    await ctx.race("r", {"a": sleeping, "b": quick})


async def trying(ctx: Context) -> None:
    await ctx.try_block("t", joining)


async def looping(ctx: Context) -> None:
    async def body(ctx: Context) -> Break[None]:
        await racing(ctx)
        return Break(None)

    await ctx.loop("l", body)


async def catching(ctx: Context) -> None:
    async def failing() -> None:
        raise CriticalError("no")

    await ctx.try_step("s", failing)
    await ctx.sleep("t", 3600)


async def returning(ctx: Context) -> None:
    async def quick() -> int:
        return 1

    await ctx.step("s", quick)


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _histories() -> int:
    return sum(type(one) is Storage and bool(one.entry_keys) for one in gc.get_objects())


@pytest.mark.parametrize(
    "body",
    [catching, waiting, sleeping, retrying, joining, racing, won, trying, looping, returning],
    ids=lambda body: body.__name__,
)
async def test_a_run_that_has_ended_or_waits_leaves_nothing_in_memory(body: Any) -> None:
    held: list[weakref.ref[Much]] = []

    async def workflow(ctx: Context) -> None:
        much = Much()
        held.append(weakref.ref(much))
        await body(ctx)
        assert much

    histories = _histories()
    clock = VirtualClock()
    driver = MemoryDriver(clock=clock)
    for _ in range(2):
        await run_workflow("w", workflow, None, driver, clock=clock).result
        # The loop lets go of the last calls of tasks some turns later.
        for _ in range(3):
            await asyncio.sleep(0)
    assert held
    assert [one() for one in held] == [None] * len(held)
    assert _histories() == histories
