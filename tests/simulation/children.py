"""What a program's workflows dispatch: children that do little, of whom each one is told what and for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from engine.author.activities import Activity
from engine.author.registry import Workflow
from engine.commit import Pruning
from tests.simulation.expectation import FAILURE
from tests.simulation.writing import RETRIES, draft

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine import ActivityContext, Context
    from tests.simulation.ledger import Ledger

CHILD = "child"
FLEETING = "fleeting"
BARE = "bare"
"""The types of children: nothing is forgotten of the first, all of the second, the history alone of the third."""

RETENTION_MS = 40_000
"""For how long they are kept."""


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """A child's input: the path that it was dispatched at, how long it takes, whether it fails, its descendants."""

    path: str
    sleep_s: float
    fails: bool
    generations: int


class Children:
    """The workflow function of every child."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._draft: Activity[str, dict[str, Any]] = Activity("draft", self._change, {"timeout": None})

    async def run(self, ctx: Context, errand: Errand) -> Any:
        """The workflow."""
        self._ledger.run_began(ctx.workflow_id)
        await ctx.step("first", self._body(ctx, "first"), max_retries=RETRIES, timeout=None)
        await ctx.activity(self._draft, errand.path, max_retries=RETRIES)
        if errand.sleep_s:
            await ctx.sleep("nap", errand.sleep_s)
        if errand.generations:
            younger = Errand(path=errand.path, sleep_s=1, fails=False, generations=errand.generations - 1)
            grandchild = await ctx.dispatch(CHILD, msgspec.to_builtins(younger))
            with self._ledger.awaiting(ctx.workflow_id, grandchild):
                assert await ctx.output(grandchild) == ["child", errand.path]
        await ctx.step("last", self._body(ctx, "last"), max_retries=RETRIES, timeout=None)
        if errand.fails:
            raise ValueError("the errand cannot be done")
        assert ValueError.__name__ == FAILURE
        return ["child", errand.path]

    async def _change(self, ctx: ActivityContext, path: str) -> dict[str, Any]:
        self._ledger.body_began(ctx.workflow_id, "draft")
        return await draft(ctx, self._ledger, "draft", "count", path)

    def _body(self, ctx: Context, name: str) -> Callable[[], Any]:
        async def body() -> None:
            self._ledger.body_began(ctx.workflow_id, name)
            self._ledger.body_ended(ctx.workflow_id, name)

        return body


def workflows_of(children: Children) -> dict[str, Workflow[Any]]:
    """Every type of child."""
    kept = {
        CHILD: None,
        FLEETING: Pruning(is_whole=True, after_ms=RETENTION_MS),
        BARE: Pruning(is_whole=False, after_ms=RETENTION_MS),
    }
    return {name: Workflow(name, children.run, pruning) for name, pruning in kept.items()}
