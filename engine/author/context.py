"""What an author holds: every operation a workflow may perform, each a signature, a promise and one line."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

from engine import limits, values
from engine.author.changing import Changing
from engine.author.dispatching import Dispatching
from engine.author.knowing import Knowing
from engine.author.listening import Listening
from engine.author.operating import ABSENT, check_function, label_of
from engine.author.publishing import Publishing
from engine.author.queue_context import Queue
from engine.author.registry import Workflow
from engine.author.scope_log import ScopeLog
from engine.author.signalling import Signalling
from engine.author.stepping import Stepping
from engine.author.waiting import Waiting
from engine.entry import JoinEntry, LoopEntry, RaceEntry, RollbackCheckpointEntry
from engine.location import check_name
from engine.ops import inline, join, loop, race, recovery, rollback
from engine.ops.branch import Branch
from engine.ops.version import check_number
from engine.signature import adapt, takes_state

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable

    from engine.ops.loop import Break, Continue
    from engine.ops.race import RaceResult
    from engine.ops.recovery import BlockCatch, TryResult
    from engine.scope import Scope

S = TypeVar("S")
T = TypeVar("T")


class Context(Knowing, Stepping, Waiting, Changing, Listening, Signalling, Dispatching, Publishing):
    """The durable operations of one scope. Await each before the next; ``join`` runs them side by side."""

    __slots__ = ("log", "queue")

    def __init__(self, scope: Scope, version: int | None = None) -> None:
        super().__init__(scope, version)
        self.queue = Queue(scope, version)
        self.log = ScopeLog(scope)

    def v(self, version: int) -> Context:
        """This context for one operation without a name that newer code has put between others.

        Args:
            version: counted from the scope's, which is 1; above that of the operation behind which it is put.
        """
        check_number(f"v({version!r}): the version", version)
        return Context(self._scope, version)

    def try_block(
        self,
        name: str,
        body: Callable[[Context], Awaitable[T]],
        *,
        catch: BlockCatch = recovery.BLOCK_CATCH,
    ) -> Coroutine[Any, Any, TryResult[T]]:
        """Run ``body(ctx)`` in a scope of its own; what fails in it for good becomes a ``TryResult``."""
        check_function(body, f"try_block({name!r})")
        return self._perform(
            name, "try_block", lambda used: recovery.try_block(self._scope, used, _in_context(body), catch)
        )

    @overload
    def loop(
        self,
        name: str,
        body: Callable[..., Awaitable[Continue[Any] | Break[T] | None]],
        state: Any = ...,
        *,
        history_prune_interval: int = ...,
        history_size: int | None = ...,
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def loop(
        self,
        body: Callable[..., Awaitable[Continue[Any] | Break[T] | None]],
        state: Any = ...,
        /,
        *,
        history_prune_interval: int = ...,
        history_size: int | None = ...,
    ) -> Coroutine[Any, Any, T]: ...

    def loop(
        self,
        name: Any,
        body: Any = None,
        state: Any = None,
        *,
        history_prune_interval: int = limits.HISTORY_PRUNE_INTERVAL,
        history_size: int | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Call ``body(ctx, state)`` until it returns ``Break(value)``; ``Continue(state)`` goes on with a new state.

        Args:
            name: the loop's name, unique in its scope; left out in a scope without names.
            body: takes ``(ctx, state)``, or ``(ctx)`` alone where there is no state; None then means go on.
            state: the first state.
            history_prune_interval: iterations between two prunings, at each of which the loop commits.
            history_size: finished iterations that stay in history; as many as the interval where None.
        """
        label = label_of(name, "loop")
        if label is None:
            body, state = name, body
        check_function(body, f"loop({label!r})")
        _check_whole("loop: history_prune_interval", history_prune_interval)
        if history_size is not None:
            _check_whole("loop: history_size", history_size)
        policy = loop.LoopPolicy(
            prune_interval=max(1, history_prune_interval),
            history_size=history_size,
            state_type=values.input_type(body, 1) if takes_state(body) else values.PLAIN,
            returns=loop.break_type(values.return_type(body)),
        )
        return self._perform(
            label, LoopEntry.kind, lambda used: loop.Loop(self._scope, used, _with_state(body), policy).run(state)
        )

    @overload
    def join(
        self,
        name: str,
        branches: Mapping[str, Callable[[Context], Awaitable[Any]]],
        *,
        max_concurrency: int | None = ...,
    ) -> Coroutine[Any, Any, dict[str, Any]]: ...

    @overload
    def join(
        self,
        branches: Mapping[str, Callable[[Context], Awaitable[Any]]],
        /,
        *,
        max_concurrency: int | None = ...,
    ) -> Coroutine[Any, Any, dict[str, Any]]: ...

    def join(
        self, name: Any, branches: Any = ABSENT, *, max_concurrency: int | None = None
    ) -> Coroutine[Any, Any, dict[str, Any]]:
        """Run all branches side by side, at most ``max_concurrency`` at once, and wait for every one.

        ``name`` is left out in a scope without names.

        Raises:
            JoinError: branches failed; all others have ended too.
        """
        label, branches = (None, name) if branches is ABSENT else (name, branches)
        if max_concurrency is not None:
            _check_bound(f"join({label!r}): max_concurrency", max_concurrency)
        made = _branches(branches)
        return self._perform(label, JoinEntry.kind, lambda used: join.run(self._scope, used, made, max_concurrency))

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
        _check_bound(f"map({name!r}): concurrency", concurrency)
        check_function(body, f"map({name!r})")
        returns = values.return_type(body)
        branches = {
            str(index): Branch(body=_in_context(functools.partial(_with_item, body, item)), returns=returns)
            for index, item in enumerate(items)
        }
        return self._perform(name, JoinEntry.kind, lambda used: self._map(used, branches, concurrency))

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
        check_function(fn, "inline")
        used = name or (workflow.name if isinstance(workflow, Workflow) else fn.__name__)
        return self._perform(used, "inline", lambda used: self._inline(used, fn, given))

    async def _inline(self, name: str, fn: Callable[..., Awaitable[Any]], given: Any) -> Any:
        _, fitted = values.round_trip(given, values.input_type(fn, 1))
        body = _in_context(functools.partial(_with_item, adapt(fn), fitted))
        return await inline.run(self._scope, name, body, values.return_type(fn))

    @overload
    def race(
        self, name: str, branches: Mapping[str, Callable[[Context], Awaitable[T]]]
    ) -> Coroutine[Any, Any, RaceResult[T]]: ...

    @overload
    def race(
        self, branches: Mapping[str, Callable[[Context], Awaitable[T]]], /
    ) -> Coroutine[Any, Any, RaceResult[T]]: ...

    def race(self, name: Any, branches: Any = ABSENT) -> Coroutine[Any, Any, RaceResult[Any]]:
        """Run all branches side by side; the first to succeed wins, the others are cancelled and leave no trace.

        ``name`` is left out in a scope without names.

        Raises:
            RaceError: every branch failed.
        """
        label, branches = (None, name) if branches is ABSENT else (name, branches)
        if not branches:
            raise ValueError(f"race({label!r}) needs at least one branch")
        made = _branches(branches)
        return self._perform(label, RaceEntry.kind, lambda used: race.run(self._scope, used, made))

    def rollback_checkpoint(self, name: str | None = None) -> Coroutine[Any, Any, None]:
        """From here on, steps may have ``rollback=``; ``name`` is left out in a scope without names."""
        return self._perform(name, RollbackCheckpointEntry.kind, lambda used: rollback.checkpoint(self._scope, used))


def _in_context(body: Callable[[Context], Awaitable[T]]) -> Callable[[Scope], Awaitable[T]]:
    return lambda scope: body(Context(scope))


def _with_item(body: Callable[[Context, S], Awaitable[T]], item: S, context: Context) -> Awaitable[T]:
    return body(context, item)


def _with_state(body: Callable[..., Awaitable[Any]]) -> Callable[[Scope, Any], Awaitable[Any]]:
    adapted = adapt(body)
    return lambda scope, state: adapted(Context(scope), state)


def _branches(branches: Mapping[str, Callable[[Context], Awaitable[Any]]]) -> dict[str, Branch]:
    if not isinstance(branches, Mapping):
        raise TypeError(f"branches are a mapping of names to functions, not {type(branches).__name__}")
    for name, body in branches.items():
        check_name(name)
        check_function(body, f"the branch {name!r}")
    return {name: Branch(body=_in_context(body), returns=values.return_type(body)) for name, body in branches.items()}


def _check_whole(what: str, number: object) -> None:
    if not isinstance(number, int):
        raise TypeError(f"{what} must be an integer, not {number!r}")


def _check_bound(what: str, number: int) -> None:
    _check_whole(what, number)
    if number < 1:
        raise ValueError(f"{what} must be 1 or more, not {number}")
