"""Activities that change their workflow's document, some failing, some slow, and the code that looks at it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from engine.author.activities import Activity
from tests.simulation.foreseen import change

if TYPE_CHECKING:
    from engine import ActivityContext, Context
    from tests.simulation.expectation import Expectation
    from tests.simulation.ledger import Ledger
    from tests.simulation.programs import Op

RETRIES = 60
"""More than anyone can kill: where a process dies in it, that is charged to the step."""

SPOILT = "spoilt"
"""A key that only attempts write which fail."""


PACES_S = {"slow": 1.0, "count": 0.05}
"""How long activities take to change it that do not at once, while others may change it too."""


async def draft(ctx: ActivityContext, ledger: Ledger, path: str, variant: str, key: str) -> dict[str, Any]:
    """Change the document; the answer says which of the ledger's drafts it is."""
    before = dict(ctx.state)
    if variant in PACES_S:
        await asyncio.sleep(PACES_S[variant])
    change(ctx.state, variant, key, path)
    return {"path": path, "draft": ledger.drafted(path, before, dict(ctx.state))}


class Writing:
    """The part of an author's code that has to do with the document."""

    def __init__(self, expected: Expectation, ledger: Ledger) -> None:
        self._expected = expected
        self._ledger = ledger
        self._draft: Activity[str, str, int, dict[str, Any]] = Activity("draft", self._change, {"timeout": None})

    async def _change(self, ctx: ActivityContext, path: str, variant: str, failures: int) -> dict[str, Any]:
        ledger = self._ledger
        ledger.body_began(ctx.workflow_id, path)
        if variant == "hopeless" or ledger.fails(ctx.workflow_id, path, failures):
            ctx.state[SPOILT] = path
            if failures > 1:
                # Longer than the hopeless may take; the others may take their time.
                await asyncio.sleep(3)
            raise ConnectionError("not yet")
        made = await draft(ctx, ledger, path, variant, self._expected.document.key(path))
        ledger.body_ended(ctx.workflow_id, path)
        return made

    async def _write(self, ctx: Context, op: Op, path: str) -> Any:
        failures = op.number if op.variant in ("flaky", "hopeless") else 0
        options: dict[str, Any] = {"max_retries": RETRIES, "retry_backoff_max": 5}
        # What is not stored before its iteration is forgotten leaves nobody a trace of where it went.
        options["ephemeral"] = op.variant == "ephemeral" and "~" not in path
        if op.variant != "hopeless":
            await ctx.activity(self._draft, path, op.variant, failures, name=op.name, **options)
            return path

        async def body(inner: Context) -> None:
            options["max_retries"], options["timeout"] = 1, 2
            await inner.activity(self._draft, path, op.variant, failures, name="fails", **options)

        result = await ctx.try_block(op.name, body)
        assert result.failure is not None
        return path

    async def _look(self, ctx: Context, _op: Op, path: str) -> Any:
        seen = dict(ctx.state)
        self._ledger.looked(ctx.workflow_id, path, seen)
        return {key: seen.get(key) for key in self._expected.document.sights[path].certain}
