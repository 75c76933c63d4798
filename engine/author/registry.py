"""The workflows of an application, by type."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar

from engine import limits
from engine.commit import Pruning
from engine.durations import milliseconds
from engine.errors import InvalidIdError, UnknownTypeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.durations import Duration

P = ParamSpec("P")
R = TypeVar("R", bound="Awaitable[Any]")
F = TypeVar("F", bound="Callable[..., Awaitable[Any]]")
F_co = TypeVar("F_co", bound="Callable[..., Awaitable[Any]]", covariant=True)


_NOT_IN_TYPES = frozenset("/?")
"""What ends a type in an address: for API Gateway a question mark ends a path, however it is written."""


def is_type(name: str) -> bool:
    """Whether ``name`` can be a workflow type: printable text that an address can say."""
    return bool(name) and name.isprintable() and _NOT_IN_TYPES.isdisjoint(name)


class Workflow(Generic[F_co]):
    """A workflow function under its type name; calling it calls the function.

    Attributes:
        name: the type, as starts name it.
        fn: the function, ``async def (ctx, input)``.
        pruning: what is to be forgotten of one that has ended, and when; None where nothing is.
    """

    __slots__ = ("__weakref__", "fn", "name", "pruning")

    def __init__(self, name: str, fn: F_co, pruning: Pruning | None = None) -> None:
        self.name = name
        self.fn = fn
        self.pruning = pruning

    def __repr__(self) -> str:
        return f"<workflow {self.name!r}>"

    @property
    def __wrapped__(self) -> F_co:
        """The function, for whoever asks what this takes and gives: a workflow may be a branch or a loop's body."""
        return self.fn

    def __call__(self: Workflow[Callable[P, R]], *args: P.args, **options: P.kwargs) -> R:
        """Call the function itself, as in a unit test or inside another workflow."""
        return self.fn(*args, **options)


class Registry:
    """Workflows by type; a type may be registered once."""

    __slots__ = ("_workflows",)

    def __init__(self) -> None:
        self._workflows: dict[str, Workflow[Any]] = {}

    def add(self, workflow: Workflow[Any]) -> None:
        """Register ``workflow``.

        Raises:
            InvalidIdError: its type is taken by another function, or is no usable name.
        """
        if not is_type(workflow.name):
            raise InvalidIdError(f"{workflow.name!r} is no workflow type: printable text without '/' and '?' is one")
        known = self._workflows.get(workflow.name)
        # A module that is imported twice defines its workflows again; that is no conflict.
        if known is not None and _origin(known) != _origin(workflow):
            raise InvalidIdError(f"two workflows of type {workflow.name!r}: {_origin(known)} and {_origin(workflow)}")
        self._workflows[workflow.name] = workflow

    def get(self, name: str) -> Workflow[Any]:
        """The workflow of type ``name``.

        Raises:
            UnknownTypeError: there is none.
        """
        try:
            return self._workflows[name]
        except KeyError:
            known = ", ".join(sorted(self._workflows)) or "none"
            raise UnknownTypeError(f"no workflow of type {name!r} is registered (registered: {known})") from None

    def names(self) -> list[str]:
        """Every type, sorted."""
        return sorted(self._workflows)


def _origin(workflow: Workflow[Any]) -> str:
    return f"{workflow.fn.__module__}.{workflow.fn.__qualname__}"


def _is_async(fn: Callable[..., Any]) -> bool:
    """Whether a call of ``fn`` gives what can be awaited; decorators that say what they wrap are looked through."""
    if not callable(fn):
        return False
    found = inspect.unwrap(fn)
    return inspect.iscoroutinefunction(found) or inspect.iscoroutinefunction(type(found).__call__)


def _name_of(fn: object) -> str:
    return getattr(fn, "__name__", None) or repr(fn)


def _pruning(prune: str, retention: Duration | None) -> Pruning | None:
    if prune not in ("none", "all", "history"):
        raise ValueError(f'prune is "none", "all" or "history", not {prune!r}')
    if prune == "none":
        if retention is not None:
            raise ValueError('a retention without prune="all" or prune="history" would delete nothing')
        return None
    after_ms = milliseconds(limits.RETENTION_S if retention is None else retention)
    if after_ms < 0:
        raise ValueError(f"a retention is 0 or more, not {retention!r}")
    return Pruning(is_whole=prune == "all", after_ms=after_ms)


REGISTRY = Registry()
"""Where ``@workflow`` registers."""


def workflow(
    name: str,
    *,
    prune: Literal["none", "all", "history"] = "none",
    retention: Duration | None = None,
    registry: Registry = REGISTRY,
) -> Callable[[F], Workflow[F]]:
    """Register an ``async def (ctx, input)`` as the workflow of type ``name``.

    Args:
        name: the type.
        prune: what is deleted of one that has completed or was cancelled, a while after that: ``"all"`` of it, its
            ``"history"`` alone, so that its input, output and document stay, or nothing. One that has failed stays.
        retention: that while; 7 days where it is left out.
        registry: where to register.

    Raises:
        InvalidIdError: the type is taken by another function.
        TypeError, ValueError: the name is no text, the function is not async, or ``prune`` or ``retention`` is none.
    """
    if not isinstance(name, str):
        shown = getattr(name, "__name__", "order")
        raise TypeError(f'a workflow is registered under the name of a type: write @workflow("{shown}")')
    pruning = _pruning(prune, retention)

    def register(fn: F) -> Workflow[F]:
        if not _is_async(fn):
            raise TypeError(f"{_name_of(fn)} must be an async function to be a workflow: async def (ctx, input)")
        registered = Workflow(name, fn, pruning)
        registry.add(registered)
        return registered

    return register
