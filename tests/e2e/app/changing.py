"""Workflows whose next builds differ: a test replaces some lines."""

from __future__ import annotations

from probes import Plan, version  # type: ignore[import-not-found]

from engine import Context, workflow


@workflow("gated")
async def gated(ctx: Context, _plan: Plan) -> list[str]:
    """In the next build a check comes first, behind a gate."""
    done: list[str] = []
    # Here the next build has a gate.
    done.append(await ctx.step("reserve", version))
    await ctx.queue.next("wait", ["go"])
    done.append(await ctx.step("charge", version))
    return done


@workflow("ungated")
async def ungated(ctx: Context, _plan: Plan) -> list[str]:
    """In the next build its first step is a sleep of the same name, and nothing says since when."""
    done: list[str] = []
    done.append(await ctx.step("reserve", version))  # the next build sleeps instead
    await ctx.queue.next("wait", ["go"])
    done.append(await ctx.step("charge", version))
    return done


@workflow("placed")
async def placed(ctx: Context, _plan: Plan) -> list[str]:
    """Its operations have no names; the next build puts one in, drops one and asks which way a workflow has gone."""
    done = [await ctx.step(version)]
    # Here the next build puts a step in.
    done.append(await ctx.step(version))  # the next build drops this one
    # Here the next build checks the version.
    done.append(await ctx.step(version))
    await ctx.queue.next(names=["go"])
    done.append(await ctx.step(version))
    return done


@workflow("forgotten")
async def forgotten(ctx: Context, _plan: Plan) -> str:
    """The next build does not know this type; the one after it does."""
    await ctx.queue.next("wait", ["go"])
    return await ctx.step("charge", version)
