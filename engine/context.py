"""What an author holds: every operation a workflow may perform, each a signature, a promise and one line."""

from __future__ import annotations

import functools
import random
import uuid
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack, overload

from engine import limits, values
from engine.activities import Activity
from engine.durations import check_duration, milliseconds, to_datetime
from engine.listening import Listening
from engine.ops import inline, join, loop, race, recovery, rollback, sleep, step, version
from engine.ops.branch import Branch
from engine.queue_context import Queue
from engine.registry import Workflow
from engine.scope_log import ScopeLog
from engine.signature import adapt, takes_state
from engine.step_options import policy_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
    from datetime import datetime

    from engine.driver import AbortSignal
    from engine.durations import Duration
    from engine.ops.attempt import StepPolicy
    from engine.ops.loop import Break, Continue
    from engine.ops.race import RaceResult
    from engine.ops.recovery import StepFailureKind, TryResult
    from engine.scope import Scope
    from engine.step_options import StepOptions

S = TypeVar("S")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Context(Listening):
    """The durable operations of one scope. Await each before the next; ``join`` runs them side by side."""

    __slots__ = ("log", "queue")

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self.queue = Queue(scope)
        self.log = ScopeLog(scope)

    # --- operations --------------------------------------------------------------------------------------------------

    def try_block(
        self,
        name: str,
        body: Callable[[Context], Awaitable[T]],
        *,
        catch: Collection[Any] = recovery.BLOCK_CATCH,
    ) -> Coroutine[Any, Any, TryResult[T]]:
        """Run ``body(ctx)`` in a scope of its own; a failure of a step, join or race in it becomes a ``TryResult``."""
        return self._scope.operation(name, recovery.try_block(self._scope, name, _in_context(body), catch))

    def loop(
        self,
        name: str,
        body: Callable[..., Awaitable[Continue[Any] | Break[T] | None]],
        state: Any = None,
        *,
        history_prune_interval: int = limits.HISTORY_PRUNE_INTERVAL,
        history_size: int | None = None,
    ) -> Coroutine[Any, Any, T]:
        """Call ``body(ctx, state)`` until it returns ``Break(value)``; ``Continue(state)`` goes on with a new state.

        Args:
            name: the loop's name, unique in its scope.
            body: takes ``(ctx, state)``, or ``(ctx)`` alone where there is no state; None then means go on.
            state: the first state.
            history_prune_interval: iterations between two prunings, at each of which the loop commits.
            history_size: finished iterations that stay in history; as many as the interval where None.
        """
        policy = loop.LoopPolicy(
            prune_interval=max(1, history_prune_interval),
            history_size=history_size,
            state_type=values.input_type(body, 1) if takes_state(body) else values.PLAIN,
        )
        work = loop.Loop(self._scope, name, _with_state(body), policy).run(state)
        return self._scope.operation(name, work)

    def join(
        self,
        name: str,
        branches: Mapping[str, Callable[[Context], Awaitable[Any]]],
        *,
        max_concurrency: int | None = None,
    ) -> Coroutine[Any, Any, dict[str, Any]]:
        """Run all branches side by side, at most ``max_concurrency`` at once, and wait for every one.

        Raises:
            JoinError: branches failed; all others have ended too.
        """
        if max_concurrency is not None and max_concurrency < 1:
            raise ValueError(f"join({name!r}): max_concurrency must be 1 or more, not {max_concurrency}")
        return self._scope.operation(name, join.run(self._scope, name, _branches(branches), max_concurrency))

    def map(
        self,
        name: str,
        items: Iterable[S],
        body: Callable[[Context, S], Awaitable[T]],
        *,
        concurrency: int = limits.MAP_CONCURRENCY,
    ) -> Coroutine[Any, Any, list[T]]:
        """Run ``body(ctx, item)`` for every item, at most ``concurrency`` at once; the values, in the items' order.

        Items are told apart by their index, so a replay must come with as many as the first run.

        Raises:
            JoinError: bodies failed, named by their index; all others have ended too.
        """
        if concurrency < 1:
            raise ValueError(f"map({name!r}): concurrency must be 1 or more, not {concurrency}")
        returns = values.return_type(body)
        branches = {
            str(index): Branch(body=_in_context(functools.partial(_with_item, body, item)), returns=returns)
            for index, item in enumerate(items)
        }
        return self._scope.operation(name, self._map(name, branches, concurrency))

    async def _map(self, name: str, branches: dict[str, Branch], concurrency: int) -> list[Any]:
        return list((await join.run(self._scope, name, branches, concurrency)).values())

    @overload
    def inline(
        self, workflow: Workflow[Callable[[Context], Awaitable[T]]], /, *, name: str | None = ...
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def inline(
        self, workflow: Workflow[Callable[[Context, S], Awaitable[T]]], given: S, /, *, name: str | None = ...
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def inline(
        self, workflow: Callable[[Context], Awaitable[T]], /, *, name: str | None = ...
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def inline(
        self, workflow: Callable[[Context, S], Awaitable[T]], given: S, /, *, name: str | None = ...
    ) -> Coroutine[Any, Any, T]: ...

    def inline(
        self,
        workflow: Workflow[Any] | Callable[..., Awaitable[Any]],
        given: Any = None,
        /,
        *,
        name: str | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Run another workflow's function in a scope of this one: no new workflow, one history; its value.

        Args:
            workflow: what ``@workflow`` made, or a plain workflow function.
            given: its input, read as the type it declares.
            name: the scope's name; by default the workflow's type, or the function's name.

        Raises:
            UnstorableValueError: the input or the value does not fit its declared type.
            Exception: what the other workflow raises, as it is.
        """
        fn = workflow.fn if isinstance(workflow, Workflow) else workflow
        used = name or (workflow.name if isinstance(workflow, Workflow) else fn.__name__)
        return self._scope.operation(used, self._inline(used, fn, given))

    async def _inline(self, name: str, fn: Callable[..., Awaitable[Any]], given: Any) -> Any:
        _, fitted = values.round_trip(given, values.input_type(fn, 1))
        body = _in_context(functools.partial(_with_item, adapt(fn), fitted))
        return await inline.run(self._scope, name, body, values.return_type(fn))

    def race(
        self, name: str, branches: Mapping[str, Callable[[Context], Awaitable[T]]]
    ) -> Coroutine[Any, Any, RaceResult[T]]:
        """Run all branches side by side; the first to succeed wins, the others are cancelled and leave no trace.

        Raises:
            RaceError: every branch failed.
        """
        if not branches:
            raise ValueError(f"race({name!r}) needs at least one branch")
        return self._scope.operation(name, race.run(self._scope, name, _branches(branches)))

    def rollback_checkpoint(self, name: str) -> Coroutine[Any, Any, None]:
        """From here on, steps may have ``rollback=``."""
        return self._scope.operation(name, rollback.checkpoint(self._scope, name))

def _in_context(body: Callable[[Context], Awaitable[T]]) -> Callable[[Scope], Awaitable[T]]:
    return lambda scope: body(Context(scope))


def _with_item(body: Callable[[Context, S], Awaitable[T]], item: S, context: Context) -> Awaitable[T]:
    return body(context, item)


def _with_state(body: Callable[..., Awaitable[Any]]) -> Callable[[Scope, Any], Awaitable[Any]]:
    adapted = adapt(body)
    return lambda scope, state: adapted(Context(scope), state)


def _branches(branches: Mapping[str, Callable[[Context], Awaitable[Any]]]) -> dict[str, Branch]:
    return {name: Branch(body=_in_context(body), returns=values.return_type(body)) for name, body in branches.items()}
