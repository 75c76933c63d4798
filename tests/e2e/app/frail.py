"""Workflows that hang, starve or end their own process, and one that only rests."""

from __future__ import annotations

import os
import resource
import signal
import threading
from pathlib import Path

from probes import Plan, leave_mark  # type: ignore[import-not-found]

from engine import Context, step_context, workflow

MEGABYTE = 1024 * 1024
HEADROOM_BYTES = 64 * MEGABYTE


@workflow("resting")
async def resting(ctx: Context, plan: Plan) -> None:
    """A step, a rest, a step."""
    await ctx.step("before", leave_mark, plan.marks)
    await ctx.sleep("rest", plan.sleep_s)
    await ctx.step("after", leave_mark, plan.marks)


def hang(marks: str, linger_s: float) -> int:
    """Hold the thread that runs it, at the first attempt; gives the attempt that came to its end."""
    leave_mark(marks)
    attempt = step_context().attempt
    threading.Event().wait(linger_s if attempt == 1 else 0)
    return attempt


async def hang_everybody(marks: str, linger_s: float) -> int:
    """The same on the event loop, where it stops every other workflow, every heartbeat and every deadline."""
    return hang(marks, linger_s)


@workflow("hanging")
async def hanging(ctx: Context, plan: Plan) -> int:
    """A sync step that lasts longer than its invocation."""
    return await ctx.step("during", hang, plan.marks, plan.linger_s, timeout=None)


@workflow("blocking")
async def blocking(ctx: Context, plan: Plan) -> int:
    """An async step that does not let go of the loop until its invocation is ended by force."""
    return await ctx.step("during", hang_everybody, plan.marks, plan.linger_s, timeout=None)


def taken_bytes() -> int:
    """The address space of this process."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


async def devour(marks: str) -> None:
    """Take memory until none is left, and die of it as a function does: without a word."""
    leave_mark(marks)
    resource.setrlimit(resource.RLIMIT_AS, (taken_bytes() + HEADROOM_BYTES, resource.RLIM_INFINITY))
    hoard = []
    try:
        while True:
            hoard.append(bytearray(MEGABYTE))
    except MemoryError:
        # Where the limit is a cgroup's, as in Lambda, it is the kernel who does this.
        os.kill(os.getpid(), signal.SIGKILL)


@workflow("devouring")
async def devouring(ctx: Context, plan: Plan) -> None:
    """A step that never has enough memory."""
    await ctx.step("devour", devour, plan.marks)


@workflow("exploding")
async def exploding(ctx: Context, plan: Plan) -> None:
    """Code that ends its process outside of any step, each time it runs."""
    await ctx.step("before", leave_mark, plan.marks)
    # With a result that is not committed yet, the deaths would be the step's.
    await ctx.sleep("rest", plan.sleep_s)
    os.kill(os.getpid(), signal.SIGKILL)
