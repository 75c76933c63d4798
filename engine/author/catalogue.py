"""What an application has registered of one sort, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from engine.errors import InvalidIdError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Catalogue(Generic[T]):
    """Things of one sort, each under a name of its own; ``sort`` is how messages call one of them."""

    __slots__ = ("_found", "_sort")

    def __init__(self, sort: str) -> None:
        self._sort = sort
        self._found: dict[str, tuple[str, T]] = {}

    def add(self, name: str, thing: T, source: Callable[..., Any]) -> None:
        """Register ``thing``, which ``source`` (a function or class) defines, as ``name``.

        Raises:
            InvalidIdError: the name is taken by what another function or class defines.
        """
        origin = f"{source.__module__}.{source.__qualname__}"
        known, _ = self._found.get(name, (origin, None))
        # A module that is imported twice defines its things again; that is no conflict.
        if known != origin:
            raise InvalidIdError(f"the {self._sort} {name!r} is defined twice: {known} and {origin}")
        self._found[name] = origin, thing

    def get(self, name: str) -> T:
        """What is registered as ``name``.

        Raises:
            InvalidIdError: nothing is.
        """
        if name not in self._found:
            known = ", ".join(self.names()) or "none"
            raise InvalidIdError(f"no {self._sort} is named {name!r} (registered: {known})")
        return self._found[name][1]

    def names(self) -> list[str]:
        """Every name, sorted."""
        return sorted(self._found)
