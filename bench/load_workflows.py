"""The workflows that load is put on: many small ones, and one with a busy inbox that keeps its own accounts."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

from engine import Break, Context, Continue, workflow

BATCH = 50
"""Messages that the collector takes at once. Design choice: under what one commit can move."""


@workflow("errand")
async def errand(ctx: Context, number: int) -> int:
    """A step, a message, a step that says how long the message took, and the end."""
    await ctx.step("set-out", set_out, number)
    message = await ctx.queue.next("wait", names=["go"])
    await ctx.step("arrive", arrive, [message.body["sent_ns"]])
    return number


@workflow("brief")
async def brief(ctx: Context, number: int) -> int:
    """One step, and the end."""
    return await ctx.step("set-out", set_out, number)


@workflow("idler")
async def idler(ctx: Context, seconds: float) -> None:
    """Sleeps, and reads none of the messages that it is sent."""
    await ctx.sleep("doze", seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """How many messages the collector is to get, and how many of them from each sender."""

    messages: int
    per_sender: int


@dataclass(slots=True, kw_only=True)
class Accounts:
    """What the collector has got: the next number due from each sender, and every message that was not it."""

    taken: int = 0
    next_of: dict[str, int] = field(default_factory=dict)
    astray: list[list[Any]] = field(default_factory=list)


@workflow("collector")
async def collector(ctx: Context, expected: Expected) -> Accounts:
    """Take messages until all are there; a message that is not its sender's next one is put on record."""

    async def body(ctx: Context, accounts: Accounts) -> Continue[Accounts] | Break[Accounts]:
        batch = await ctx.queue.next_batch("some", ["item"], count=BATCH)
        for message in batch:
            sender, number = message.body["sender"], message.body["number"]
            if accounts.next_of.get(sender, 0) != number:
                accounts.astray.append([sender, number])
            accounts.next_of[sender] = number + 1
        accounts.taken += len(batch)
        await ctx.step("arrive", arrive, [message.body["sent_ns"] for message in batch])
        return Break(accounts) if accounts.taken >= expected.messages else Continue(accounts)

    return await ctx.loop("messages", body, Accounts())


async def set_out(number: int) -> int:
    """As little as a step can do."""
    await asyncio.sleep(0)
    return number


async def arrive(sent_ns: list[int]) -> None:
    """Print how long messages took from being sent until a step after them runs."""
    now_ns = time.time_ns()  # noqa: TID251 - what is measured
    print(json.dumps({"took_ms": [round((now_ns - each) / 1e6, 1) for each in sent_ns]}), flush=True)
