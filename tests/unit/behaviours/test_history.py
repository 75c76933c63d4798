"""Snapshots of the history for observers: at load, and after each flush that changed it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine import Context
    from tests.unit.behaviours.world import World


async def workflow(ctx: Context, _given: Any) -> Any:
    await ctx.step("hello", lambda: "world")
    return await ctx.step("again", lambda: "world")


async def test_observers_see_every_change(world: World) -> None:
    seen: list[Any] = []

    await world.through(workflow, on_history_updated=seen.append)

    assert seen[0].entries == []
    sizes = [len(snapshot.entries) for snapshot in seen]
    assert sizes == sorted(sizes)
    last = seen[-1]
    assert [(entry.kind.kind, last.name_registry[entry.location[-1]]) for entry in last.entries] == [
        ("step", "hello"),
        ("step", "again"),
    ]
    assert {last.entry_metadata[entry.id].status.name for entry in last.entries} == {"COMPLETED"}


async def test_a_hook_that_raises_harms_nobody(world: World) -> None:
    def raises(_snapshot: Any) -> None:
        raise RuntimeError("a bug of the observer")

    assert (await world.through(workflow, on_history_updated=raises)).output == "world"
