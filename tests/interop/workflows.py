"""The workflows of the interop suite, for our engine; their twins are in ``workflows.mjs``: same names, same bodies.

Each takes the context, the input and a world. ``world.step`` runs a step whose body notes its label, the step's place
in the history as ``loop/~2/step``; whether a body may run again is judged by those labels. What a body does may depend
on the input and the clock only, so that both engines see the same world.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from operator import mul
from typing import Any

from engine import Break, Context, Continue, CriticalError, Failure, TryResult

Body = Callable[[], Any]


class World:
    """What the workflows share with their twins: a clock and the labels of the bodies that ran."""

    def __init__(self, now: Callable[[], int]) -> None:
        self.ran: list[str] = []
        self.now = now

    async def step(self, ctx: Context, name: str, body: Body, label: str | None = None, **options: Any) -> Any:
        return await ctx.step(name, self._noted(label or name, body), **options)

    async def try_step(self, ctx: Context, name: str, body: Body, **options: Any) -> Any:
        return await ctx.try_step(name, self._noted(name, body), **options)

    def undo(self, label: str) -> Callable[[Any, Any], Awaitable[None]]:
        async def handler(_ctx: Any, _output: Any) -> None:
            self.ran.append(f"undo {label}")

        return handler

    def _noted(self, label: str, body: Body) -> Callable[[], Awaitable[Any]]:
        async def run() -> Any:
            self.ran.append(label)
            return body()

        return run


def failed(found: TryResult[Any]) -> Failure:
    assert found.failure is not None
    return found.failure


def failing(error: Exception) -> Body:
    def body() -> None:
        raise error

    return body


async def steps(ctx: Context, given: Any, world: World) -> Any:
    first = await world.step(ctx, "first", lambda: given["n"] + 1)
    nothing = await world.step(ctx, "nothing", lambda: None)
    halves = await world.step(ctx, "halves", lambda: [0.5, -1.25, "köln", {"deep": [True, None]}], ephemeral=True)
    last = await world.step(ctx, "last", lambda: first * 2)
    return {"first": first, "nothing": nothing, "halves": halves, "last": last, "started": given["n"] < world.now()}


async def values(ctx: Context, given: Any, world: World) -> Any:
    when = await world.step(ctx, "when", lambda: datetime.fromtimestamp(1767322800, UTC))
    data = await world.step(ctx, "bytes", lambda: bytes([0, 1, 254, 255]))
    unordered = await world.step(ctx, "set", lambda: {3})
    large = await world.step(ctx, "large", lambda: 2**32 - 1)
    await ctx.sleep("rest", 1)
    return {
        "when": int(when.timestamp() * 1000),
        "bytes": list(data),
        "set": list(unordered),
        "large": large,
        "float": given["float"],
    }


async def loop(ctx: Context, given: Any, world: World) -> Any:
    async def body(body_ctx: Context, state: Any) -> Any:
        i = state["i"]
        if i == given["rounds"]:
            return Break(state["total"])
        added = await world.step(body_ctx, "add", lambda: i * 3, f"sum/~{i}/add")
        return Continue({"total": state["total"] + added, "i": i + 1})

    return await ctx.loop("sum", body, state={"total": 0, "i": 0}, history_prune_interval=4, history_size=2)


async def nested(ctx: Context, given: Any, world: World) -> Any:
    async def outer(outer_ctx: Context, state: Any) -> Any:
        rows = state["rows"]
        row = len(rows)
        if row == 2:
            return Break(rows)

        async def inner(inner_ctx: Context, inner_state: Any) -> Any:
            cells = inner_state["cells"]
            column = len(cells)
            if column == 3:
                return Break(cells)
            place = f"outer/~{row}/inner/~{column}/cell"
            cell = await world.step(inner_ctx, "cell", lambda: row * 10 + column + given["n"], place)
            return Continue({"cells": [*cells, cell]})

        # The reference cannot replay a scope in which a loop has ended and left iterations: keep none.
        cells = await outer_ctx.loop("inner", inner, state={"cells": []}, history_size=0)
        await world.step(outer_ctx, "row", lambda: row, f"outer/~{row}/row")
        return Continue({"rows": [*rows, cells]})

    return await ctx.loop("outer", outer, state={"rows": []})


async def sleep(ctx: Context, given: Any, world: World) -> Any:
    before = await world.step(ctx, "before", lambda: "b")
    await ctx.sleep("nap", 5)
    after = await world.step(ctx, "after", lambda: "a")
    await ctx.sleep_until("until", datetime.fromtimestamp(given["until"] / 1000, UTC))
    return before + after


async def retries(ctx: Context, given: Any, world: World) -> Any:
    def body() -> str:
        if world.now() < given["healthy_at"]:
            raise ValueError("not yet")
        return "up"

    flaky = await world.step(ctx, "flaky", body)
    return await world.step(ctx, "then", lambda: f"{flaky}!")


async def join(ctx: Context, given: Any, world: World) -> Any:
    # The reference forgets a name that is used for the first time while a flush of a sibling is under way.
    for name in ("wait", "s2", "inner", "a", "b", "x"):
        await world.step(ctx, name, lambda: None)

    async def quick(branch: Context) -> Any:
        return await world.step(branch, "q", lambda: given["n"], "all/quick/q")

    async def slow(branch: Context) -> Any:
        await world.step(branch, "s1", lambda: 1, "all/slow/s1")
        await branch.sleep("wait", 2)
        return await world.step(branch, "s2", lambda: 2, "all/slow/s2")

    def inner(name: str) -> Callable[[Context], Awaitable[Any]]:
        return lambda branch: world.step(branch, "x", lambda: name, f"all/nested/inner/{name}/x")

    async def nested_join(branch: Context) -> Any:
        return await branch.join("inner", {"a": inner("a"), "b": inner("b")})

    joined = await ctx.join("all", {"quick": quick, "slow": slow, "nested": nested_join})
    return {"joined": joined, "end": await world.step(ctx, "end", lambda: "end")}


async def join_failing(ctx: Context, given: Any, world: World) -> Any:
    for name in ("wait", "b"):
        await world.step(ctx, name, lambda: None)  # as above

    async def good(branch: Context) -> Any:
        return await world.step(branch, "g", lambda: given["n"], "guard/both/good/g")

    async def bad(branch: Context) -> Any:
        await branch.sleep("wait", 0.5)
        return await world.step(branch, "b", failing(CriticalError("broken")), "guard/both/bad/b")

    async def guard(block: Context) -> Any:
        return await block.join("both", {"good": good, "bad": bad})

    outcome = await ctx.try_block("guard", guard)
    await ctx.sleep("after", 1)
    failure = failed(outcome)
    return {"ok": outcome.ok, "source": failure.source, "name": failure.name}


async def race(ctx: Context, given: Any, world: World) -> Any:
    async def work(branch: Context) -> Any:
        return await world.step(branch, "w", lambda: given["n"], "quick/work/w")

    async def limit(branch: Context) -> Any:
        await branch.sleep("limit", 3600)
        return "late"

    async def long(branch: Context) -> Any:
        await branch.sleep("nap", 5)
        return await world.step(branch, "l", lambda: "long", "naps/long/l")

    async def short(branch: Context) -> Any:
        await branch.sleep("nap", 1)
        return await world.step(branch, "s", lambda: "short", "naps/short/s")

    first = await ctx.race("quick", {"work": work, "limit": limit})
    second = await ctx.race("naps", {"long": long, "short": short})
    return {
        "first": {"winner": first.winner, "value": first.value},
        "second": {"winner": second.winner, "value": second.value},
        "end": await world.step(ctx, "end", lambda: "end"),
    }


async def queue(ctx: Context, _given: Any, world: World) -> Any:
    one = await ctx.queue.next("one", names=["a"])
    kept = await world.step(ctx, "kept", lambda: one.body)
    many = await ctx.queue.next_batch("many", names=["b", "c"], count=3, timeout=10)
    none = await ctx.queue.next_batch("none", names=["never"], timeout=2)
    last = await ctx.queue.next("any")
    return {
        "one": one.body,
        "kept": kept,
        "many": [[message.id, message.name, message.body] for message in many],
        "none": none,
        "any": last.name,
    }


async def completable(ctx: Context, _given: Any, world: World) -> Any:
    answers = []
    for index in (0, 1):
        message = await ctx.queue.next(f"ask{index}", names=["ask"], completable=True)
        body = message.body
        answers.append(await world.step(ctx, f"answer{index}", partial(mul, body, 2)))
        await message.complete({"answer": answers[index]})
    await ctx.sleep("rest", 1)
    return answers


async def rollback(ctx: Context, given: Any, world: World) -> Any:
    await world.step(ctx, "before", lambda: 0)
    await ctx.rollback_checkpoint("from here")
    await world.step(ctx, "reserve", lambda: given["n"], rollback=world.undo("reserve"))
    await ctx.sleep("think", 1)
    await world.step(ctx, "charge", lambda: given["n"] * 2, rollback=world.undo("charge"))
    await world.step(ctx, "ship", failing(CriticalError("no stock")))


async def try_step(ctx: Context, given: Any, world: World) -> Any:
    bad = await world.try_step(ctx, "bad", failing(ValueError("down")), max_retries=1)
    good = await world.try_step(ctx, "good", lambda: given["n"])
    await ctx.sleep("rest", 1)
    await world.step(ctx, "end", lambda: None)
    failure = failed(bad)
    return {
        "bad": [bad.ok, failure.kind, failure.name, failure.attempts, failure.error.message],
        "good": [good.ok, good.value],
    }


async def try_block(ctx: Context, given: Any, world: World) -> Any:
    async def block(block_ctx: Context) -> None:
        await world.step(block_ctx, "fine", lambda: 1, "block/fine")
        await block_ctx.sleep("rest", 1)
        await world.step(block_ctx, "fails", failing(ValueError("down")), "block/fails", max_retries=0)

    async def other(block_ctx: Context) -> Any:
        return await world.step(block_ctx, "fine", lambda: given["n"], "other/fine")

    outcome = await ctx.try_block("block", block)
    fine = await ctx.try_block("other", other)
    await ctx.sleep("rest", 1)
    failure = failed(outcome)
    return {
        "failure": [outcome.ok, failure.source, failure.name, failure.kind, failure.error.message],
        "fine": [fine.ok, fine.value],
    }


async def version(ctx: Context, given: Any, world: World) -> Any:
    pinned = await ctx.get_version("flow", 3)
    made = await world.step(ctx, "made", lambda: pinned * given["n"])
    await ctx.sleep("rest", 1)
    return {"version": pinned, "made": made}


async def removed(ctx: Context, given: Any, world: World) -> Any:
    await ctx.removed("old step", "step")
    await ctx.removed("old sleep", "sleep")
    made = await world.step(ctx, "made", lambda: given["n"])
    await ctx.sleep("rest", 1)
    return made


async def before(ctx: Context, given: Any, world: World) -> Any:
    """What an earlier deployment ran; ``after`` continues what this one wrote."""
    old = await world.step(ctx, "old step", lambda: given["n"])
    await ctx.sleep("old sleep", 1)
    await ctx.sleep("rest", 1)
    return await world.step(ctx, "last", lambda: old + 1)


async def after(ctx: Context, given: Any, world: World) -> Any:
    way = await ctx.get_version("new way", 2)
    await ctx.removed("old step", "step")
    await ctx.removed("old sleep", "sleep")
    await ctx.sleep("rest", 1)
    return await world.step(ctx, "last", lambda: f"{given['n']}, version {way}")


WORKFLOWS: dict[str, Callable[[Context, Any, World], Awaitable[Any]]] = {
    function.__name__: function
    for function in (
        steps,
        values,
        loop,
        nested,
        sleep,
        retries,
        join,
        join_failing,
        race,
        queue,
        completable,
        rollback,
        try_step,
        try_block,
        version,
        removed,
        before,
        after,
    )
}
