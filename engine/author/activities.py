"""Activities, registered step functions that know what they work for; and operations, their helpers."""

from __future__ import annotations

import functools
import inspect
import logging
import re
from typing import TYPE_CHECKING, Any, Generic, TypeVar, TypeVarTuple, Unpack, overload

from msgspec import Struct
from msgspec.structs import replace

from engine import limits, values
from engine.author.catalogue import Catalogue
from engine.author.step_options import policy_of
from engine.driver import AbortSignal
from engine.errors import InvalidIdError
from engine.history.documents import Draft
from engine.ops.attempt import current_attempt
from engine.origin import Origin
from engine.reading import must_be_readable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.author.step_options import StepOptions
    from engine.ops.attempt import StepPolicy

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
F = TypeVar("F", bound="Callable[..., Awaitable[Any]]")

_NAME = re.compile(r"[a-z0-9_]+")
_LOGGER = logging.getLogger("torpor.activity")


class ActivityContext(Struct, frozen=True, kw_only=True):
    """What an activity may know of itself.

    Attributes:
        workflow_id: the workflow that it works for; ``ray_id`` and ``request_id`` are that one's.
        activity_name: its name.
        attempt: which attempt this is, from 1.
        idempotency_key: the same for every attempt, in every process: hand it to the services that it calls.
        abort_signal: set when the run must stop, or when another branch of its race has won.
        state: the workflow's document, a copy to be changed in place. The change is kept with the value that the
            activity returns, in one commit; an attempt that fails leaves the document as it was. Where another
            activity has changed it meanwhile the attempt fails with StateConflictError.
    """

    workflow_id: str
    activity_name: str
    attempt: int
    idempotency_key: str
    abort_signal: AbortSignal
    state: dict[str, Any] = {}
    ray_id: str = ""
    request_id: str = ""

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """The logger ``torpor.activity``.

        Its records have ``workflow_id``, ``activity``, ``attempt``, and ``ray_id`` and ``request_id`` if there are any.
        """
        fields = {"workflow_id": self.workflow_id, "activity": self.activity_name, "attempt": self.attempt}
        origin = Origin(ray_id=self.ray_id, request_id=self.request_id)
        return logging.LoggerAdapter(_LOGGER, {**fields, **origin.known()})


class Activity(Generic[*Ts, T]):
    """An async function under its own name, with the options of the steps that it becomes; ``ctx.activity`` runs it.

    Attributes:
        name: the function's name.
        fn: the function, ``async def (ctx, *args)``.
    """

    __slots__ = ("__weakref__", "_options", "fn", "name", "step_fn")

    def __init__(
        self, name: str, fn: Callable[[ActivityContext, Unpack[Ts]], Awaitable[T]], options: StepOptions
    ) -> None:
        self.name = name
        self.fn = fn
        self.step_fn: Callable[..., Awaitable[T]] = functools.partial(_in_step, name, fn)
        self._options = options
        policy_of(name, options)

    def __repr__(self) -> str:
        return f"<activity {self.name!r}>"

    def __call__(self, ctx: ActivityContext, *args: *Ts) -> Awaitable[T]:
        """Call the function itself, as in a unit test or in another activity: no step, no retries, no record.

        Raises:
            TypeError: ``ctx`` is no ActivityContext; the call was meant to be ``ctx.activity(...)``.
        """
        if not isinstance(ctx, ActivityContext):
            raise TypeError(
                f"{self.name} is an activity: a workflow runs it with await ctx.activity({self.name}, ...); a test "
                "calls it with engine.testing.activity_context()"
            )
        return self.fn(ctx, *args)

    def policy(self, options: StepOptions) -> StepPolicy:
        """The policy of one step of it: as registered, but for what ``options`` says otherwise."""
        policy = policy_of(self.name, {**self._options, **options})
        return replace(policy, returns=values.return_type(self.fn)) if policy.returns is None else policy


async def _in_step(name: str, fn: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    attempt = current_attempt()
    step = attempt.context()
    with must_be_readable(attempt.turn):
        draft = attempt.draft = Draft(attempt.turn.storage.documents)
    context = ActivityContext(
        workflow_id=step.workflow_id,
        activity_name=name,
        attempt=step.attempt,
        idempotency_key=step.idempotency_key,
        abort_signal=step.abort_signal,
        state=draft.content,
        ray_id=attempt.turn.origin.ray_id,
        request_id=attempt.turn.origin.request_id,
    )
    return await fn(context, *args)


ACTIVITIES: Catalogue[Activity[*tuple[Any, ...], Any]] = Catalogue("activity")
"""Where ``@activity`` registers."""

OPERATIONS: Catalogue[Callable[..., Awaitable[Any]]] = Catalogue("operation")
"""Where ``@operation`` registers."""


@overload
def activity(fn: Callable[[ActivityContext, Unpack[Ts]], Awaitable[T]], /) -> Activity[*Ts, T]: ...


@overload
def activity(
    **options: Unpack[StepOptions],
) -> Callable[[Callable[[ActivityContext, Unpack[Ts]], Awaitable[T]]], Activity[*Ts, T]]: ...


def activity(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Register an ``async def (ctx, *args)`` as an activity of its own name, ``[a-z0-9_]``.

    Args:
        fn: the function, where the decorator is used without brackets.
        **options: those of ``ctx.step``, with ``max_retries`` (5) and ``timeout`` (30 s) as their defaults.

    Raises:
        InvalidIdError: the name is none, or taken by another function.
        TypeError: the function is not async, or an option is unknown.
    """

    def register(fn: Callable[..., Any]) -> Activity[*tuple[Any, ...], Any]:
        name = _name_of(fn, "activity")
        settings: StepOptions = {"max_retries": limits.ACTIVITY_MAX_RETRIES, **options}  # type: ignore[typeddict-item]
        made: Activity[*tuple[Any, ...], Any] = Activity(name, fn, settings)
        ACTIVITIES.add(name, made, fn)
        return made

    return register if fn is None else register(fn)


def operation(fn: F) -> F:
    """Register an async function as an operation: a helper that activities and code outside call like any function.

    Nothing of it is recorded. Workflow code that calls it does so inside a step.

    Raises:
        InvalidIdError: the name is none, or taken by another function.
        TypeError: the function is not async.
    """
    OPERATIONS.add(_name_of(fn, "operation"), fn, fn)
    return fn


def _name_of(fn: Callable[..., Any], sort: str) -> str:
    name = fn.__name__
    if not inspect.iscoroutinefunction(fn):
        raise TypeError(f"{name} must be an async function to be an {sort}; call what blocks with asyncio.to_thread")
    if _NAME.fullmatch(name) is None:
        raise InvalidIdError(f"{name!r} is no name of an {sort}: small letters, digits and _ make one")
    return name
