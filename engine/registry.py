"""The workflows of an application, by type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from engine.errors import InvalidIdError, UnknownTypeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

F = TypeVar("F", bound="Callable[..., Awaitable[Any]]")
F_co = TypeVar("F_co", bound="Callable[..., Awaitable[Any]]", covariant=True)


class Workflow(Generic[F_co]):
    """A workflow function under its type name; calling it calls the function.

    Attributes:
        name: the type, as starts name it.
        fn: the function, ``async def (ctx, input)``.
    """

    __slots__ = ("__weakref__", "fn", "name")

    def __init__(self, name: str, fn: F_co) -> None:
        self.name = name
        self.fn = fn

    def __repr__(self) -> str:
        return f"<workflow {self.name!r}>"

    def __call__(self, *args: Any) -> Awaitable[Any]:
        """Call the function itself, as in a unit test or inside another workflow."""
        return self.fn(*args)


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
        if not workflow.name or "/" in workflow.name or not workflow.name.isprintable():
            raise InvalidIdError(f"{workflow.name!r} is no workflow type: printable text without '/' is one")
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


REGISTRY = Registry()
"""Where ``@workflow`` registers."""


def workflow(name: str, *, registry: Registry = REGISTRY) -> Callable[[F], Workflow[F]]:
    """Register an ``async def (ctx, input)`` as the workflow of type ``name``.

    Raises:
        InvalidIdError: the type is taken by another function.
    """

    def register(fn: F) -> Workflow[F]:
        registered = Workflow(name, fn)
        registry.add(registered)
        return registered

    return register
