"""Steps, as authors perform them: plain, as results, and as activities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack, overload

from engine.author.activities import Activity
from engine.author.operating import ABSENT, Operating, check_function, label_of
from engine.author.step_options import policy_of
from engine.entry import StepEntry
from engine.ops import recovery, step

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from engine.author.step_options import StepOptions
    from engine.ops.attempt import StepPolicy
    from engine.ops.recovery import StepCatch, TryResult

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Stepping(Operating):
    """How a context does what must not be done twice."""

    __slots__ = ()

    @overload
    def step(
        self, name: str, fn: Callable[..., Awaitable[T]], /, *args: Any, **options: Unpack[StepOptions]
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def step(
        self, name: str, fn: Callable[..., T], /, *args: Any, **options: Unpack[StepOptions]
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def step(
        self, fn: Callable[..., Awaitable[T]], /, *args: Any, **options: Unpack[StepOptions]
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def step(self, fn: Callable[..., T], /, *args: Any, **options: Unpack[StepOptions]) -> Coroutine[Any, Any, T]: ...

    def step(
        self, name: Any, fn: Any = ABSENT, /, *args: Any, **options: Unpack[StepOptions]
    ) -> Coroutine[Any, Any, Any]:
        """Run ``fn(*args)`` and record its value, so that no later run calls it again.

        Args:
            name: the step's name, unique in its scope; left out in a scope without names.
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
        label, called, args, policy = _prepared("step", name, fn, args, options)
        return self._perform(label, StepEntry.kind, lambda used: step.run(self._scope, used, called, args, policy))

    @overload
    def try_step(
        self,
        name: str,
        fn: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        catch: StepCatch = ...,
        **options: Unpack[StepOptions],
    ) -> Coroutine[Any, Any, TryResult[T]]: ...

    @overload
    def try_step(
        self,
        name: str,
        fn: Callable[..., T],
        /,
        *args: Any,
        catch: StepCatch = ...,
        **options: Unpack[StepOptions],
    ) -> Coroutine[Any, Any, TryResult[T]]: ...

    @overload
    def try_step(
        self,
        fn: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        catch: StepCatch = ...,
        **options: Unpack[StepOptions],
    ) -> Coroutine[Any, Any, TryResult[T]]: ...

    @overload
    def try_step(
        self,
        fn: Callable[..., T],
        /,
        *args: Any,
        catch: StepCatch = ...,
        **options: Unpack[StepOptions],
    ) -> Coroutine[Any, Any, TryResult[T]]: ...

    def try_step(
        self,
        name: Any,
        fn: Any = ABSENT,
        /,
        *args: Any,
        catch: StepCatch = recovery.STEP_CATCH,
        **options: Unpack[StepOptions],
    ) -> Coroutine[Any, Any, TryResult[Any]]:
        """As ``step``, but a failure for good of one of the kinds in ``catch`` becomes a ``TryResult``."""
        label, called, args, policy = _prepared("try_step", name, fn, args, options)
        return self._perform(
            label,
            StepEntry.kind,
            lambda used: recovery.try_step(lambda: step.run(self._scope, used, called, args, policy), catch),
        )

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
        if not isinstance(activity, Activity):
            check_function(activity, "activity")
            raise TypeError(f"activity takes what @activity has made, not {activity!r}; a plain function is a step's")
        policy = activity.policy(options)
        return self._perform(
            activity.name if name is None else name,
            StepEntry.kind,
            lambda used: self._activity(used, activity, args, policy, has_name=name is not None),
        )

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


def _prepared(
    what: str, name: Any, fn: Any, args: tuple[Any, ...], options: StepOptions
) -> tuple[str | None, Callable[..., Any], tuple[Any, ...], StepPolicy]:
    """The step's name, if it has one; what it calls, with what, and how."""
    label = label_of(name, what)
    if label is None:
        fn, args = name, args if fn is ABSENT else (fn, *args)
    elif fn is ABSENT:
        raise TypeError(f"{what}({label!r}) needs a function")
    check_function(fn, what if label is None else f"{what}({label!r})")
    if isinstance(fn, Activity):
        return label, fn.step_fn, args, fn.policy(options)
    return label, fn, args, policy_of(label or fn.__class__.__name__, options)
