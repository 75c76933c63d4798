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

    # --- what a workflow may know ------------------------------------------------------------------------------------

    @property
    def workflow_id(self) -> str:
        """The workflow's id."""
        return self._scope.turn.workflow_id

    @property
    def abort_signal(self) -> AbortSignal:
        """Set when this run must stop, or when another branch of the race that this context lies in has won."""
        return self._scope.abort

    def is_evicted(self) -> bool:
        """Whether this run must stop."""
        return self._scope.turn.abort.is_set()

    def now(self) -> datetime:
        """The instant of the latest finished operation, else of the workflow's start (UTC); equal on replay."""
        return to_datetime(self._scope.now())

    def random(self) -> float:
        """A number in [0, 1), different at every call and equal on replay."""
        return random.Random(self._scope.chance()).random()  # noqa: S311 - seeded, and meant to be repeatable

    def uuid(self) -> uuid.UUID:
        """A UUID (version 4 in form), different at every call and equal on replay."""
        return uuid.UUID(bytes=self._scope.chance()[:16], version=4)

    # --- operations --------------------------------------------------------------------------------------------------

    @overload
    def step(
        self, name: str, fn: Callable[..., Awaitable[T]], *args: Any, **options: Unpack[StepOptions]
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def step(
        self, name: str, fn: Callable[..., T], *args: Any, **options: Unpack[StepOptions]
    ) -> Coroutine[Any, Any, T]: ...

    def step(
        self, name: str, fn: Callable[..., Any], *args: Any, **options: Unpack[StepOptions]
    ) -> Coroutine[Any, Any, Any]:
        """Run ``fn(*args)`` and record its value, so that no later run calls it again.

        Args:
            name: the step's name, unique in its scope.
            fn: a function, async or not; one that is not runs in a thread and cannot be cut short. An activity brings
                its options along.
            *args: its arguments.
            **options: ``max_retries`` (3) further attempts after the first; ``retry_backoff_base`` (0.1) and
                ``retry_backoff_max`` (30): before attempt n+1 it waits min(max, base * 2**n) seconds;
                ``retry_jitter`` (False); ``timeout`` (30 s; None for none) for one attempt; ``retry_on_timeout``
                (False); ``ephemeral`` (False): the record may wait for a later commit; ``rollback``: called with
                ``(rollback_ctx, output)`` if the workflow fails later; ``returns``: the type of the value, else
                ``fn``'s annotation.

        Raises:
            StepExhaustedError: every attempt failed.
            CriticalError: ``fn`` raised it (or a subclass), timed out, or returned what cannot be stored.
            RollbackError: ``fn`` raised it.
        """
        called, policy = _called(name, fn, options)
        return self._scope.operation(name, step.run(self._scope, name, called, args, policy))

    def activity(
        self,
        activity: Activity[*Ts, T],
        *args: *Ts,
        name: str | None = None,
        **options: Unpack[StepOptions],
    ) -> Coroutine[Any, Any, T]:
        """Run ``activity`` as a step of its name, with the options it was registered with.

        Args:
            activity: what ``@activity`` made of a function.
            *args: its arguments after the context.
            name: the step's name; needed where the same activity is used twice in this scope.
            **options: as for ``step``; they take the place of those registered.

        Raises:
            StepError, RollbackError: as for ``step``.
        """
        used = activity.name if name is None else name
        work = self._activity(used, activity, args, activity.policy(options), has_name=name is not None)
        return self._scope.operation(used, work)

    async def _activity(
        self, name: str, activity: Activity[*Ts, T], args: tuple[Any, ...], policy: StepPolicy, *, has_name: bool
    ) -> T:
        if not has_name and self._scope.has_used(name):
            raise self._scope.diverged(
                f"the activity {name!r} is used twice; give the second use a name of its own: "
                f"ctx.activity({name}, ..., name=...)"
            )
        answer: T = await step.run(self._scope, name, activity.step_fn, args, policy)
        return answer

    def try_step(
        self,
        name: str,
        fn: Callable[..., Any],
        *args: Any,
        catch: tuple[StepFailureKind, ...] | Collection[StepFailureKind] = recovery.STEP_CATCH,
        **options: Unpack[StepOptions],
    ) -> Coroutine[Any, Any, TryResult[Any]]:
        """As ``step``, but a failure for good of one of the kinds in ``catch`` becomes a ``TryResult``."""
        called, policy = _called(name, fn, options)
        work = recovery.try_step(lambda: step.run(self._scope, name, called, args, policy), catch)
        return self._scope.operation(name, work)

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

    def sleep(self, name: str, duration: Duration) -> Coroutine[Any, Any, None]:
        """Sleep for ``duration`` (a timedelta or seconds) from when this is first reached; up to a hundred years."""
        deadline = self._scope.turn.clock.now() + milliseconds(duration)
        return self._scope.operation(name, sleep.run(self._scope, name, max(0, deadline)))

    def sleep_until(self, name: str, instant: datetime) -> Coroutine[Any, Any, None]:
        """Sleep until ``instant``, an aware datetime.

        Raises:
            ValueError: the datetime is naive.
        """
        if instant.tzinfo is None:
            raise ValueError(
                f"sleep_until({name!r}) needs an aware datetime; add a time zone, e.g. tzinfo=datetime.UTC"
            )
        deadline = round(instant.timestamp() * 1000)
        check_duration((deadline - self._scope.turn.clock.now()) / 1000)
        return self._scope.operation(name, sleep.run(self._scope, name, max(0, deadline)))

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

    def removed(self, name: str, original_type: str) -> Coroutine[Any, Any, None]:
        """Say that the operation ``name`` is gone from the code, so that histories which have it still replay.

        ``original_type`` is one of step, loop, sleep, message, rollback_checkpoint, join, race, version_check.
        """
        return self._scope.operation(name, version.removed(self._scope, name, original_type))

    def get_version(self, name: str, latest: int) -> Coroutine[Any, Any, int]:
        """The version that this run is pinned to here: ``latest`` for new runs, 1 for those already past it."""
        return self._scope.operation(name, version.get_version(self._scope, name, latest))


def _called(name: str, fn: Callable[..., Any], options: StepOptions) -> tuple[Callable[..., Any], StepPolicy]:
    return (fn.step_fn, fn.policy(options)) if isinstance(fn, Activity) else (fn, policy_of(name, options))


def _in_context(body: Callable[[Context], Awaitable[T]]) -> Callable[[Scope], Awaitable[T]]:
    return lambda scope: body(Context(scope))


def _with_item(body: Callable[[Context, S], Awaitable[T]], item: S, context: Context) -> Awaitable[T]:
    return body(context, item)


def _with_state(body: Callable[..., Awaitable[Any]]) -> Callable[[Scope, Any], Awaitable[Any]]:
    adapted = adapt(body)
    return lambda scope, state: adapted(Context(scope), state)


def _branches(branches: Mapping[str, Callable[[Context], Awaitable[Any]]]) -> dict[str, Branch]:
    return {name: Branch(body=_in_context(body), returns=values.return_type(body)) for name, body in branches.items()}
