"""Names that are registered while a commit is on its way belong to the next commit, and are not taken for stored."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from engine import run_workflow
from engine.history.storage import Storage
from engine.testing import MemoryDriver

if TYPE_CHECKING:
    from engine import Context


class DistantDriver(MemoryDriver):
    """A driver whose commits begin in a task of their own, as those over a network do."""

    is_in_memory = False


async def test_names_of_branches_are_all_stored() -> None:
    async def workflow(ctx: Context, _given: Any) -> None:
        async def branch(inner: Context) -> None:
            for number in range(4):
                await inner.step(f"{inner.uuid()} {number}", asyncio.sleep, 0)

        await ctx.join("join", dict.fromkeys("abcd", branch))
        await ctx.queue.next("wait")

    driver = DistantDriver(atomic=True)
    await run_workflow("w", workflow, None, driver).result
    stored = Storage.load(await driver.list(b""))
    assert len(stored.names) == len(set(stored.names)) >= 1 + 4 + 16
