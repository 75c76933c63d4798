"""One workflow function that runs any program, and the world outside it: bodies that count, delays, messages."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

from engine import (
    Activity,
    ActivityContext,
    Break,
    Context,
    Continue,
    CriticalError,
    JoinError,
    QueueTimeoutError,
    TryResult,
)
from tests.replay.programs import Op, Program, message_name
from tests.replay.unnamed import unnamed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.testing import VirtualClock

NEVER_S = 40 * 86400 * 365


class World:
    """What step bodies touch. Without ``delays`` bodies take no time, else random turns and seconds."""

    def __init__(self, clock: VirtualClock, delays: int | None = None) -> None:
        self.clock = clock
        self.runs: Counter[str] = Counter()
        self.undone: Counter[str] = Counter()
        self.seen: dict[str, Any] = {}
        self.unequal: list[str] = []
        self._delays = None if delays is None else random.Random(delays)

    async def pause(self) -> None:
        """Take as long as this world says."""
        if self._delays is None:
            return
        for _ in range(self._delays.randint(0, 4)):
            await asyncio.sleep(0)
        if self._delays.random() < 0.3:
            await self.clock.sleep(self._delays.choice((0.001, 0.01, 1.0)))

    def saw(self, path: str, value: Any) -> None:
        """Workflow code saw ``value`` at ``path``; it must see the same whenever it is replayed."""
        if self.seen.setdefault(path, value) != value:
            self.unequal.append(path)


def workflow_of(program: Program, world: World) -> Callable[[Context, Any], Awaitable[Any]]:
    """The program as a workflow function."""

    async def workflow(ctx: Context, given: Any) -> Any:
        used = unnamed(ctx) if program.is_unnamed else ctx
        output = await _run(used, program.ops, world, "", in_loser=False)
        if program.is_failing:
            raise ValueError("the program ends so")
        return [given, output]

    return workflow


async def _run(ctx: Context, ops: list[Op], world: World, path: str, *, in_loser: bool) -> list[Any]:
    outputs = []
    for op in ops:
        here = f"{path}/{op.name}"
        if op.below:
            outputs.append(await _NESTED[op.kind](ctx, op, world, here, in_loser))
        else:
            outputs.append(await _LEAVES[op.kind](ctx, op, world, here))
    return outputs


# --- steps -----------------------------------------------------------------------------------------------------------


def _undo(op: Op, world: World, path: str) -> Callable[..., Any] | None:
    if not op.has_rollback:
        return None

    async def undo(_ctx: Any, output: Any) -> None:
        assert output == path
        world.undone[path] += 1

    return undo


async def _step(ctx: Context, op: Op, world: World, path: str) -> Any:
    async def body() -> str:
        world.runs[path] += 1
        await world.pause()
        if op.variant == "flaky" and world.runs[path] <= op.number - 1:
            raise ValueError(f"attempt {world.runs[path]}")
        if op.variant == "slow":
            await world.clock.sleep(2)
        return path

    def sync_body() -> str:
        world.runs[path] += 1
        return path

    async def activity_body(_ctx: ActivityContext) -> str:
        return await body()

    if op.variant == "activity":
        activity = Activity(op.name, activity_body, {})
        return await ctx.activity(activity, rollback=_undo(op, world, path))
    fn: Any = sync_body if op.variant == "sync" else body
    return await ctx.step(op.name, fn, ephemeral=op.variant == "ephemeral", rollback=_undo(op, world, path))


async def _try_step(ctx: Context, op: Op, world: World, path: str) -> Any:
    async def body() -> str:
        world.runs[path] += 1
        await world.pause()
        if op.variant == "critical":
            raise CriticalError("cannot be")
        if op.variant == "exhausted":
            raise OSError("never works")
        return path

    result: TryResult[Any] = await ctx.try_step(op.name, body, max_retries=1)
    if result.failure is None:
        return [result.ok, result.value]
    return [result.ok, result.failure.kind, result.failure.error.name, result.failure.error.message]


# --- waits -----------------------------------------------------------------------------------------------------------


async def _sleep(ctx: Context, op: Op, _world: World, _path: str) -> Any:
    await ctx.sleep(op.name, float(op.variant))
    return "slept"


async def _next(ctx: Context, op: Op, _world: World, path: str) -> Any:
    is_completable = op.variant == "completable"
    message = await ctx.queue.next(op.name, message_name(path), completable=is_completable)
    if is_completable:
        await message.complete(["reply", message.body])
    return message.body


async def _batch(ctx: Context, op: Op, _world: World, path: str) -> Any:
    # Two messages, one or both at a time: what arrives together is taken together.
    bodies: list[Any] = []
    while len(bodies) < 2:
        name = f"{op.name}-{len(bodies)}"
        bodies += [one.body for one in await ctx.queue.next_batch(name, message_name(path), count=2 - len(bodies))]
    return bodies


async def _timeout(ctx: Context, op: Op, _world: World, path: str) -> Any:
    if op.other:
        return [one.body for one in await ctx.queue.next_batch(op.name, f"none:{path}", timeout=op.number)]
    try:
        return await ctx.queue.next(op.name, f"none:{path}", timeout=op.number)
    except QueueTimeoutError:
        return "timed out"


async def _send(ctx: Context, op: Op, world: World, path: str) -> Any:
    name = f"own:{path}"
    await ctx.queue.send(name, path)
    message = await ctx.queue.next(op.name, name)
    world.saw(path + ":id", message.id)
    return message.body


async def _version(ctx: Context, op: Op, _world: World, _path: str) -> Any:
    return await ctx.get_version(op.name, op.number)


async def _removed(ctx: Context, op: Op, _world: World, _path: str) -> Any:
    await ctx.removed(op.name, "step" if op.other else "message")


async def _checkpoint(ctx: Context, op: Op, _world: World, _path: str) -> Any:
    await ctx.rollback_checkpoint(op.name)


async def _helpers(ctx: Context, _op: Op, world: World, path: str) -> Any:
    world.saw(path, (ctx.now(), ctx.random(), ctx.uuid()))
    return "helped"


# --- what has scopes below it ----------------------------------------------------------------------------------------


async def _loop(ctx: Context, op: Op, world: World, path: str, in_loser: bool) -> Any:  # noqa: FBT001 - one of a table
    counted = {"iteration": 0}

    async def body(inner: Context, state: Any) -> Any:
        index = len(state)
        counted["iteration"] += 1
        output = await _run(inner, op.below["body"], world, f"{path}/body/~{index}", in_loser=in_loser)
        state = [*state, output]
        return Break(state) if len(state) == op.number else Continue(state)

    return await ctx.loop(op.name, body, [], history_prune_interval=op.other, history_size=op.other - 1)


async def _try_block(ctx: Context, op: Op, world: World, path: str, in_loser: bool) -> Any:  # noqa: FBT001
    async def body(inner: Context) -> Any:
        output = await _run(inner, op.below["body"], world, f"{path}/body", in_loser=in_loser)
        if op.variant == "fails":
            await inner.step("fails", _failing(world, f"{path}/fails"))
        return output

    result = await ctx.try_block(op.name, body)
    return [result.ok, result.value, None if result.failure is None else result.failure.error.message]


def _failing(world: World, path: str) -> Callable[[], Awaitable[Any]]:
    async def body() -> Any:
        world.runs[path] += 1
        await world.pause()
        raise CriticalError(f"{path} fails")

    return body


async def _join(ctx: Context, op: Op, world: World, path: str, in_loser: bool) -> Any:  # noqa: FBT001
    def branch(name: str, *, is_failing: bool) -> Callable[[Context], Awaitable[Any]]:
        async def body(inner: Context) -> Any:
            output = await _run(inner, op.below[name], world, f"{path}/{name}", in_loser=in_loser)
            if is_failing:
                raise LookupError(name)
            return output

        return body

    first = min(op.below)
    branches = {name: branch(name, is_failing=op.variant == "fails" and name == first) for name in op.below}
    try:
        return await ctx.join(op.name, branches, max_concurrency=op.number or None)
    except JoinError as error:
        return {name: [one.name, one.message] for name, one in error.errors.items()}


async def _map(ctx: Context, op: Op, world: World, path: str, in_loser: bool) -> Any:  # noqa: FBT001
    async def body(inner: Context, item: int) -> Any:
        return await _run(inner, op.below["body"], world, f"{path}/body/~{item}", in_loser=in_loser)

    return await ctx.map(op.name, range(op.number), body, concurrency=op.other)


async def _inline(ctx: Context, op: Op, world: World, path: str, in_loser: bool) -> Any:  # noqa: FBT001
    async def body(inner: Context, given: int) -> Any:
        return [given, await _run(inner, op.below["body"], world, f"{path}/body", in_loser=in_loser)]

    return await ctx.inline(body, op.number, name=op.name)


async def _race(ctx: Context, op: Op, world: World, path: str, in_loser: bool) -> Any:  # noqa: FBT001
    def branch(name: str, *, wins: bool) -> Callable[[Context], Awaitable[Any]]:
        async def body(inner: Context) -> Any:
            output = await _run(inner, op.below[name], world, f"{path}/{name}", in_loser=in_loser or not wins)
            if not wins and op.variant == "fails":
                await inner.step("loses", _failing(world, f"{path}/{name}/loses"))
            if not wins:
                await inner.sleep("for ever", NEVER_S)
            return output

        return body

    names = list(op.below)
    result = await ctx.race(op.name, {name: branch(name, wins=index == op.number) for index, name in enumerate(names)})
    return [result.winner, result.value]


_LEAVES: dict[str, Callable[[Context, Op, World, str], Awaitable[Any]]] = {
    "step": _step,
    "try_step": _try_step,
    "sleep": _sleep,
    "next": _next,
    "batch": _batch,
    "timeout": _timeout,
    "send": _send,
    "version": _version,
    "removed": _removed,
    "checkpoint": _checkpoint,
    "helpers": _helpers,
}
_NESTED: dict[str, Callable[[Context, Op, World, str, bool], Awaitable[Any]]] = {
    "loop": _loop,
    "try_block": _try_block,
    "join": _join,
    "map": _map,
    "inline": _inline,
    "race": _race,
}
