"""Work grows with what there is to do, not with its square: eight times as much takes about eight times as long."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from engine import Context, keys, replay_workflow_from_step
from engine.history.documents import Document, Documents
from engine.history.storage import Storage
from engine.testing import MemoryDriver, VirtualClock, drive

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

FEW, MANY = 400, 3200
RATIO_MAX = 24
"""Linear work gives 8 and something, quadratic work up to 64; other tests may take the processor meanwhile, and the
garbage collector may come by: the best of three is compared."""


async def one() -> int:
    return 1


async def sleeping_branches(count: int) -> float:
    async def body(ctx: Context) -> None:
        await ctx.sleep("s", 3600)

    async def workflow(ctx: Context) -> None:
        await ctx.join("j", {str(number): body for number in range(count)})

    return await _run(workflow)


async def sends_of_one_name(count: int) -> float:
    async def workflow(ctx: Context) -> None:
        for number in range(count):
            await ctx.publish("x", number)

    return await _run(workflow)


async def versions_behind_a_long_history(count: int) -> float:
    async def workflow(ctx: Context) -> None:
        for number in range(count):
            await ctx.step(f"s{number}", one)
        await ctx.sleep("s", 60)
        for number in range(count):
            await ctx.get_version(f"v{number}", 1)

    return await _run(workflow)


async def documents_looked_for(count: int) -> float:
    documents = Documents()
    places = [keys.child_key(keys.HISTORY_PREFIX, number) for number in range(count)]
    for version, place in enumerate(places, 1):
        documents.put(place, Document(version, b""))
    began = time.process_time()
    assert [documents.below(place).version for place in places] == list(range(1, count + 1))
    return time.process_time() - began


async def joins_rewound(count: int) -> float:
    async def branch(ctx: Context) -> int:
        return await ctx.step("s", one)

    async def workflow(ctx: Context) -> None:
        for number in range(count // 2):
            await ctx.join(f"j{number}", {"a": branch, "b": branch})

    clock = VirtualClock()
    driver = MemoryDriver(clock=clock)
    await drive("w", workflow, None, driver, clock)
    storage = Storage.load(await driver.list(b""))
    steps = sorted(entry.id for _, entry in storage.entries() if entry.kind.kind == "step")
    began = time.process_time()
    await replay_workflow_from_step("w", driver, steps[len(steps) // 2])
    return time.process_time() - began


async def _run(workflow: Callable[[Context], Awaitable[None]]) -> float:
    clock = VirtualClock()
    driver = MemoryDriver(clock=clock)
    began = time.process_time()
    await drive("w", workflow, None, driver, clock)
    return time.process_time() - began


@pytest.mark.parametrize(
    "measure",
    [sleeping_branches, sends_of_one_name, versions_behind_a_long_history, documents_looked_for, joins_rewound],
)
async def test_it_grows_as_what_there_is_to_do(measure: Callable[[int], Awaitable[float]]) -> None:
    few, many = [min([await measure(count) for _ in range(3)]) for count in (FEW, MANY)]
    assert many < RATIO_MAX * few
