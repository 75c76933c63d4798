"""Workflows whose bodies leave marks outside of history, so that tests can count what really ran.

Deployed to the local stack, whose functions are processes of this machine: a mark is a line in a file that the test
named.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import ears  # type: ignore[import-not-found]

from engine import Context, RollbackContext, step_context, workflow

ears.listen()

VERSION = "first"
"""Replaced by the test that deploys another build."""


LOOK_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where to leave marks, and how long or how often to do what the workflow does."""

    marks: str = os.devnull
    linger_s: float = 0.0
    sleep_s: float = 1.0
    sleeps: int = 1


def leave_mark(marks: str) -> None:
    """One line: the step, the attempt, the process."""
    step = step_context()
    with Path(marks).open("a") as file:
        file.write(f"{step.step_name} {step.attempt} {os.getpid()}\n")


async def linger(marks: str, linger_s: float) -> int:
    """Take long at the first attempt, or until a test has had enough; gives the attempt that came to its end."""
    leave_mark(marks)
    attempt = step_context().attempt
    for _ in range(round(linger_s / LOOK_S) if attempt == 1 else 0):
        if is_enough(marks):
            break
        await asyncio.sleep(LOOK_S)
    return attempt


def is_enough(marks: str) -> bool:
    """Whether a test has said so."""
    return Path(marks).with_suffix(".enough").exists()


@workflow("lingering")
async def lingering(ctx: Context, plan: Plan) -> int:
    """A step, a long one, another."""
    await ctx.step("before", leave_mark, plan.marks)
    attempt = await ctx.step("during", linger, plan.marks, plan.linger_s, timeout=None)
    await ctx.step("after", leave_mark, plan.marks)
    return attempt


@workflow("sleeping")
async def sleeping(ctx: Context, plan: Plan) -> int:
    """So many sleeps in a row, and a mark at the end."""
    for number in range(plan.sleeps):
        await ctx.sleep(f"sleep-{number}", plan.sleep_s)
    await ctx.step("woken", leave_mark, plan.marks)
    return plan.sleeps


@workflow("listening")
async def listening(ctx: Context, plan: Plan) -> list[str]:
    """Every ``word`` up to the word ``end``, each noted by a step."""
    words: list[str] = []
    while "end" not in words:
        message = await ctx.queue.next(f"word-{len(words)}", ["word"])
        words.append(message.body)
        await ctx.step(f"note-{len(words)}", leave_mark, plan.marks)
    return words


def version() -> str:
    """The build that runs."""
    return VERSION


@workflow("upgraded")
async def upgraded(ctx: Context, _plan: Plan) -> list[str]:
    """The build before and after a wait."""
    before = await ctx.step("before", version)
    await ctx.queue.next("wait", ["go"])
    return [before, await ctx.step("after", version)]


@workflow("undoing")
async def undoing(ctx: Context, plan: Plan) -> None:
    """Two steps that can be undone, and a wait for ever."""

    def undo(_rollback_ctx: RollbackContext, output: str) -> None:
        with Path(plan.marks).open("a") as file:
            file.write(f"undo-{output} 1 {os.getpid()}\n")

    await ctx.rollback_checkpoint("from-here")
    for name in ("first", "second"):
        await ctx.step(name, mark_and_return, plan.marks, name, rollback=undo)
    await ctx.queue.next("wait", ["go"])


def mark_and_return(marks: str, value: str) -> str:
    """A mark, and ``value``."""
    leave_mark(marks)
    return value


@workflow("telling")
async def telling(ctx: Context, _plan: Plan) -> int:
    """Every ``word`` up to the word ``end``, each published as it comes."""
    told = 0
    while True:
        message = await ctx.queue.next(f"word-{told}", ["word"])
        await ctx.publish("word", {"word": message.body}, topic=ctx.workflow_id)
        told += 1
        if message.body == "end":
            return told
