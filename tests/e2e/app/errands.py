"""Workflows that each have a worker make one kind of call."""

from __future__ import annotations

from dataclasses import dataclass

from engine import Context, workflow

FAR_S = 7200.0
BIG_BYTES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """Whom to signal, where it signals: by id, or the first of a type."""

    to: str = ""
    type: str = ""


@workflow("patient")
async def patient(ctx: Context, _errand: Errand) -> None:
    """Two waits, each with an alarm that takes a schedule; the word ``end`` spares it the second."""
    first = await ctx.queue.next_batch("first", ["word"], timeout=FAR_S)
    if first and first[0].body != "end":
        await ctx.queue.next_batch("second", ["word"], timeout=FAR_S)


def nothing() -> None:
    """A result of no size."""


def much() -> bytes:
    """A result that makes a log worth folding once it is forgotten."""
    return bytes(BIG_BYTES)


@workflow("bulky")
async def bulky(ctx: Context, _errand: Errand) -> None:
    """A small result, then a big one."""
    await ctx.step("small", nothing)
    await ctx.step("big", much)


@workflow("signalling")
async def signalling(ctx: Context, errand: Errand) -> bool:
    """A message to another workflow, or to whichever is the first of a type."""
    if errand.type:
        return await ctx.signal("word", type=errand.type)
    return await ctx.signal("word", to=errand.to)


@workflow("child")
async def child(ctx: Context, _errand: Errand) -> str:
    """What it hears, once somebody says a word to it."""
    return str((await ctx.queue.next("word", ["word"])).body)


@workflow("parent")
async def parent(ctx: Context, errand: Errand) -> list[str]:
    """Two children, of which one may be somebody else's, and what they come to."""
    own = await ctx.dispatch("child", errand, tags={"of": "one"})
    shared = await ctx.dispatch("child", errand, tags={"of": "all"}, unique=True)
    return [await ctx.output(own, returns=str), await ctx.output(shared, returns=str)]
