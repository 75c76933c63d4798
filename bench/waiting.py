"""The workflow whose latency is measured: it waits for a message, and its next step says when its body began."""

from __future__ import annotations

import json
import time
from typing import Any

from engine import Context, workflow


@workflow("waiting")
async def waiting(ctx: Context, sample: str) -> None:
    """Wait for ``go``, then run a step that prints ``{"sample": ..., "at_ns": ...}``."""
    await ctx.queue.next("wait", names=["go"])
    await ctx.step("mark", mark, sample)


async def mark(sample: str) -> None:
    """Say that the workflow has got here."""
    at_ns = time.time_ns()  # noqa: TID251 - what is measured
    told: dict[str, Any] = {"sample": sample, "at_ns": at_ns}
    print(json.dumps(told), flush=True)
