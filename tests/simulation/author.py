"""The workflow function that runs any program, and its step bodies, each of which is told to the ledger."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import TYPE_CHECKING, Any

import msgspec

from engine import (
    ActivityContext,
    Break,
    Context,
    Continue,
    CriticalError,
    JoinError,
    QueueTimeoutError,
    WorkflowEndedError,
    WorkflowFailedError,
    WorkflowNotFoundError,
    message,
    step_context,
)
from engine.author.activities import Activity
from tests.simulation.children import BARE, CHILD, FLEETING, Errand
from tests.simulation.expectation import FAILURE
from tests.simulation.outside_laws import signal_name
from tests.simulation.programs import NEWER, Op, Program, message_name, place
from tests.simulation.writing import RETRIES, Writing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tests.simulation.expectation import Expectation
    from tests.simulation.ledger import Ledger

NEVER_S = 40 * 86400 * 365
BIG = "x" * 15_000

WHO = "who"
"""The tag that says whose workflow one is."""


class Author(Writing):
    """Code of one program."""

    def __init__(self, program: Program, expected: Expectation, ledger: Ledger) -> None:
        super().__init__(expected, ledger)
        self._program = program
        self._work: Activity[str, int, str] = Activity("work", self._activity_body, {"timeout": None})

    async def run(self, ctx: Context, given: Any) -> Any:
        """The workflow."""
        self._ledger.run_began(ctx.workflow_id)
        output = await self._scope(ctx, self._program.ops, "")
        if self._program.is_failing:
            raise ValueError("the program ends so")
        assert ValueError.__name__ == FAILURE
        return [given, output]

    async def _scope(self, ctx: Context, ops: list[Op], path: str) -> list[Any]:
        return [await getattr(self, f"_{op.kind}")(ctx, op, place(path, op.name)) for op in ops]

    # --- steps ------------------------------------------------------------------------------------------------------

    def _undo(self, op: Op, path: str) -> Any:
        if not op.has_rollback:
            return None

        async def undo(ctx: Any, _output: Any) -> None:
            self._ledger.undone(ctx.workflow_id, path)

        return undo

    async def _step(self, ctx: Context, op: Op, path: str) -> Any:
        ledger, workflow_id = self._ledger, ctx.workflow_id

        async def body() -> str:
            ledger.body_began(workflow_id, path)
            ledger.saw(workflow_id, f"{path}:key", step_context().idempotency_key)
            if op.variant == "flaky" and ledger.fails(workflow_id, path, op.number):
                raise ConnectionError("not yet")
            if op.variant == "slow":
                await asyncio.sleep(op.number)
            elif op.other:
                await asyncio.sleep(0.01)
            ledger.body_ended(workflow_id, path)
            return BIG if op.variant == "big" else path

        def sync_body() -> str:
            ledger.body_began(workflow_id, path)
            ledger.body_ended(workflow_id, path)
            return path

        fn: Any = sync_body if op.variant == "sync" else body
        # Without a timeout: a process may be frozen for longer than any, and that must not change how it ends.
        value = await ctx.step(
            *named(op),
            fn,
            max_retries=RETRIES,
            retry_backoff_max=5,
            timeout=None,
            ephemeral=op.variant == "ephemeral",
            rollback=self._undo(op, path),
        )
        return "big" if value == BIG else value

    async def _activity_body(self, ctx: ActivityContext, path: str, failures: int) -> str:
        self._ledger.body_began(ctx.workflow_id, path)
        self._ledger.saw(ctx.workflow_id, f"{path}:key", ctx.idempotency_key)
        if failures and self._ledger.fails(ctx.workflow_id, path, failures):
            raise ConnectionError("not yet")
        self._ledger.body_ended(ctx.workflow_id, path)
        return path

    async def _activity(self, ctx: Context, op: Op, path: str) -> Any:
        failures = op.number if op.variant == "flaky" else 0
        undo = self._undo(op, path)
        return await ctx.activity(
            self._work, path, failures, name=op.name, rollback=undo, max_retries=RETRIES, retry_backoff_max=5
        )

    async def _try_step(self, ctx: Context, op: Op, path: str) -> Any:
        async def body() -> str:
            self._ledger.body_began(ctx.workflow_id, path)
            match op.variant:
                case "critical":
                    raise CriticalError("cannot be")
                case "exhausted":
                    raise OSError("never works")
                case "timeout":
                    await asyncio.sleep(60)
            return path

        retries = 1 if op.variant == "exhausted" else RETRIES
        timeout_s = 1 if op.variant == "timeout" else None
        result = await ctx.try_step(*named(op), body, max_retries=retries, timeout=timeout_s, retry_backoff_max=5)
        return [True, result.value] if result.failure is None else [False, result.failure.kind]

    # --- waits ------------------------------------------------------------------------------------------------------

    async def _sleep(self, ctx: Any, op: Op, _path: str) -> Any:
        await ctx.sleep(*named(op), float(op.variant))
        return "sleep"

    @contextlib.contextmanager
    def _wanting(self, ctx: Context, path: str, index: int = 0) -> Iterator[None]:
        """Within the block the code waits for a message: who replays it has to send that again."""
        name, bodies = message_name(path), self._expected.bodies.get(path)
        with self._ledger.wanting(ctx.workflow_id, name, bodies and bodies[index]):
            yield

    async def _next(self, ctx: Context, op: Op, path: str) -> Any:
        is_completable = op.variant == "completable"
        name = named(op)[0] if named(op) else None
        with self._wanting(ctx, path):
            came = await ctx.queue.next(name, message_name(path), completable=is_completable)
        if is_completable:
            await came.complete(["reply", came.body])
        return came.body

    async def _listen(self, ctx: Context, op: Op, path: str) -> Any:
        kind = class_of(message_name(path))
        with self._wanting(ctx, path):
            if op.variant == "limit":
                return (await ctx.listen(kind, limit=1, name=op.name))[0].text
            return (await ctx.listen(kind, class_of("anything else"), name=op.name)).text

    async def _batch(self, ctx: Context, op: Op, path: str) -> Any:
        bodies: list[Any] = []
        number = 0
        is_completable = op.variant == "completable"
        while len(bodies) < 2:
            name, wanted = f"{op.name}-{number}", 2 - len(bodies)
            with self._wanting(ctx, path, len(bodies)):
                found = await ctx.queue.next_batch(name, message_name(path), count=wanted, completable=is_completable)
            for came in found:
                bodies.append(came.body)
                if is_completable:
                    await came.complete(["reply", came.body])
            number += 1
        return bodies

    async def _drain(self, ctx: Context, op: Op, path: str) -> Any:
        await ctx.queue.next_batch(op.name, message_name(path), count=3, timeout=op.number * 4)
        return "drain"

    async def _retake(self, ctx: Context, op: Op, path: str) -> Any:
        """A branch that loses takes the message; it must be there again for whoever asks next."""
        name = message_name(path)

        async def sleeper(inner: Context) -> None:
            await inner.sleep("sleep", op.number * 3)

        async def taker(inner: Context) -> None:
            await inner.queue.next("take", name)
            await inner.sleep("never", NEVER_S)

        await ctx.race(f"{op.name}-race", {"sleeper": sleeper, "taker": taker})
        with self._wanting(ctx, path):
            return (await ctx.queue.next(op.name, name)).body

    async def _timeout(self, ctx: Context, op: Op, path: str) -> Any:
        name = f"none:{path}"
        label = named(op)[0] if named(op) else None
        if op.other:
            return [one.body for one in await ctx.queue.next_batch(label, name, timeout=op.number)]
        try:
            return (await ctx.queue.next(label, name, timeout=op.number)).body
        except QueueTimeoutError:
            return "timed out"

    async def _send(self, ctx: Context, op: Op, path: str) -> Any:
        name = f"own:{path}"
        await ctx.queue.send(name, path)
        await ctx.publish("sent", path, topic=path)
        # A replay may forget that it was taken, and not that it was sent.
        with self._ledger.wanting(ctx.workflow_id, name, path):
            return (await ctx.queue.next(op.name, name)).body

    async def _signal(self, ctx: Context, op: Op, path: str) -> Any:
        # Every workflow of a program has a type of its own, which is its id.
        by_type = {"type": op.variant}
        target: Any = {2: {**by_type, "tags": {WHO: op.variant}}, 3: by_type}.get(op.number, {"to": op.variant})
        missing: Any = {"missing": "ignore"} if op.other else {}
        with contextlib.suppress(*(() if op.other else (WorkflowNotFoundError, WorkflowEndedError))):
            await ctx.signal(signal_name(op.variant), [ctx.workflow_id, path], **target, **missing)
        return "signal"

    async def _child(self, ctx: Context, op: Op, path: str) -> Any:
        given = Errand(
            path=path,
            sleep_s=op.number * 15 if op.variant in ("slow", "unique") else 0,
            fails=op.variant == "failing",
            generations=1 if op.variant == "family" else 0,
        )
        own = f"{ctx.workflow_id} {path}" if op.variant == "named" else None
        is_unique = op.variant == "unique"
        tags = {"pool": str(op.number), "of": "all"} if is_unique else None
        # What is forgotten is nobody's to wait for.
        kind = (CHILD, FLEETING, BARE)[op.number - 1] if op.variant == "abandoned" else CHILD
        child = await ctx.dispatch(kind, msgspec.to_builtins(given), id=own, tags=tags, unique=is_unique)
        if op.variant == "abandoned":
            return "child"
        with self._ledger.awaiting(ctx.workflow_id, child):
            try:
                output = await ctx.output(child)
            except WorkflowFailedError as error:
                return error.name
        # Whoever has the place may do the errand of another parent.
        return "unique" if is_unique else output

    async def _gather(self, ctx: Context, op: Op, _path: str) -> Any:
        await ctx.queue.next_batch(op.name, signal_name(ctx.workflow_id), count=op.number, timeout=op.number * 5)
        return "gather"

    async def _version(self, ctx: Context, op: Op, _path: str) -> Any:
        return await ctx.get_version(op.name, op.number)

    async def _check(self, ctx: Context, op: Op, _path: str) -> Any:
        return await ctx.check_version(op.number)

    async def _newer(self, ctx: Context, _op: Op, path: str) -> Any:
        async def body() -> str:
            self._ledger.body_began(ctx.workflow_id, path)
            self._ledger.body_ended(ctx.workflow_id, path)
            return path

        return await ctx.v(NEWER).step(body, max_retries=RETRIES, timeout=None)

    async def _gone(self, ctx: Context, op: Op, _path: str) -> Any:
        await ctx.removed(original_type="step" if op.other else "message")
        return "gone"

    async def _removed(self, ctx: Context, op: Op, _path: str) -> Any:
        await ctx.removed(op.name, "step" if op.other else "message")
        return "removed"

    async def _checkpoint(self, ctx: Context, op: Op, _path: str) -> Any:
        await ctx.rollback_checkpoint(op.name)
        return "checkpoint"

    async def _helpers(self, ctx: Context, _op: Op, path: str) -> Any:
        self._ledger.saw(ctx.workflow_id, path, (ctx.random(), ctx.uuid()))
        return "helpers"

    # --- what has scopes below it -----------------------------------------------------------------------------------

    async def _loop(self, ctx: Any, op: Op, path: str) -> Any:
        async def body(inner: Context, state: Any) -> Any:
            output = await self._scope(inner, op.below["body"], place(path, f"~{len(state)}"))
            state = [*state, output]
            return Break(state) if len(state) == op.number else Continue(state)

        return await ctx.loop(*named(op), body, [], history_prune_interval=op.other)

    def _failing(self, workflow_id: str, path: str) -> Callable[[], Awaitable[Any]]:
        async def body() -> Any:
            self._ledger.body_began(workflow_id, path)
            raise CriticalError("fails")

        return body

    async def _try_block(self, ctx: Context, op: Op, path: str) -> Any:
        async def body(inner: Context) -> Any:
            output = await self._scope(inner, op.below["body"], path)
            if op.variant == "fails":
                await inner.step("fails", self._failing(ctx.workflow_id, place(path, "fails")), max_retries=RETRIES)
            return output

        result = await ctx.try_block(op.name, body)
        return [True, result.value] if result.failure is None else [False, result.failure.kind]

    async def _inline(self, ctx: Context, op: Op, path: str) -> Any:
        async def other(inner: Context, given: str) -> Any:
            assert given == path
            return await self._scope(inner, op.below["body"], path)

        return await ctx.inline(other, path, name=op.name)

    _placed = _inline

    async def _map(self, ctx: Context, op: Op, path: str) -> Any:
        async def body(inner: Context, item: str) -> Any:
            return await self._scope(inner, op.below[item], place(path, item))

        return await ctx.map(op.name, list(op.below), body, concurrency=op.number)

    async def _join(self, ctx: Any, op: Op, path: str) -> Any:
        first = min(op.below)

        def branch(name: str) -> Callable[[Context], Awaitable[Any]]:
            async def body(inner: Context) -> Any:
                output = await self._scope(inner, op.below[name], place(path, name))
                if op.variant == "fails" and name == first:
                    raise LookupError(name)
                return output

            return body

        try:
            branches = {name: branch(name) for name in op.below}
            return await ctx.join(*named(op), branches, max_concurrency=op.number or None)
        except JoinError as error:
            return {name: [one.name, one.message] for name, one in error.errors.items()}

    async def _race(self, ctx: Any, op: Op, path: str) -> Any:
        winner = list(op.below)[op.number]

        def branch(name: str) -> Callable[[Context], Awaitable[Any]]:
            async def body(inner: Context) -> Any:
                output = await self._scope(inner, op.below[name], place(path, name))
                if name != winner and op.variant == "fails":
                    fails = self._failing(ctx.workflow_id, place(path, f"{name}/loses"))
                    await inner.step("loses", fails, max_retries=RETRIES)
                if name != winner:
                    await inner.sleep("for ever", NEVER_S)
                return output

            return body

        result = await ctx.race(*named(op), {name: branch(name) for name in op.below})
        return [result.winner, result.value]


def named(op: Op) -> tuple[Any, ...]:
    """The name as the first argument of an operation; none of one that is known by its place."""
    return () if op.name.startswith("{") else (op.name,)


@functools.cache
def class_of(name: str) -> Any:
    """The class of the messages of a name."""
    return message(name)(msgspec.defstruct("Text", [("text", str)]))
