"""removed: operations that the code no longer has are passed over, and anything else unvisited is a divergence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from engine import Break, HistoryDivergedError, WorkflowFailedError, recover_workflow

if TYPE_CHECKING:
    from engine import Context
    from tests.unit.behaviours.world import World


async def earlier(ctx: Context, _given: Any) -> None:
    async def once(_inner: Context, _state: int) -> Any:
        return Break("done")

    async def branch(inner: Context) -> str:
        await inner.step("inside", lambda: 1)
        return "ok"

    await ctx.step("old step", lambda: "old")
    await ctx.loop("old loop", once, state=0)
    await ctx.sleep("old sleep", 0)
    await ctx.queue.next_batch("old listen", names=["old"], timeout=60)
    await ctx.join("old join", {"branch": branch})
    await ctx.race("old race", {"branch": branch})
    await ctx.rollback_checkpoint("old checkpoint")
    await ctx.get_version("old version", 2)
    await ctx.sleep("stays", 60)


KINDS = {
    "old step": "step",
    "old loop": "loop",
    "old sleep": "sleep",
    "old listen": "message",
    "old join": "join",
    "old race": "race",
    "old checkpoint": "rollback_checkpoint",
    "old version": "version_check",
}


def later(kinds: dict[str, str]) -> Any:
    async def workflow(ctx: Context, _given: Any) -> str:
        for name, kind in kinds.items():
            await ctx.removed(name, kind)
        await ctx.sleep("stays", 60)
        return "updated"

    return workflow


async def test_removed_operations_of_every_kind_are_passed_over(yielding: World) -> None:
    await yielding.send("old", 1)
    await yielding.once(earlier)

    assert (await yielding.through(later(KINDS))).output == "updated"


async def test_what_was_never_there_leaves_a_placeholder(world: World) -> None:
    assert (await world.through(later(KINDS))).output == "updated"
    assert sorted(entry.kind.kind for entry in world.entries()) == ["removed"] * len(KINDS) + ["sleep"]


@pytest.mark.parametrize("name", KINDS)
async def test_an_operation_that_is_gone_without_a_word_diverges(yielding: World, name: str) -> None:
    """The reference does not look at the root's leftovers; ours does, and names the place and the remedy."""
    await yielding.send("old", 1)
    await yielding.once(earlier)
    stored = yielding.labels()

    with pytest.raises(HistoryDivergedError, match=rf"{name}.*removed"):
        await yielding.through(later({key: kind for key, kind in KINDS.items() if key != name}))

    assert stored == yielding.labels()
    assert await yielding.state() == "failed"


async def test_a_placeholder_of_another_kind_diverges(yielding: World) -> None:
    await yielding.send("old", 1)
    await yielding.once(earlier)

    with pytest.raises(HistoryDivergedError, match="old step"):
        await yielding.through(later({**KINDS, "old step": "sleep"}))


async def test_a_fixed_deploy_recovers_what_diverged(yielding: World) -> None:
    """The reference rolls a divergence back; to ours it is a fault of the code, and history stays as it is."""
    await yielding.send("old", 1)
    await yielding.once(earlier)
    with pytest.raises(HistoryDivergedError):
        await yielding.through(later({}))
    with pytest.raises(WorkflowFailedError):
        await yielding.through(later(KINDS))

    assert await recover_workflow(yielding.id, yielding.driver)

    assert (await yielding.through(later(KINDS))).output == "updated"
