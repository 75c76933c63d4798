"""How an operation begins: under the name that the author gives it, or at the place where it stands."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final, TypeVar

from engine.history.positions import has_traces

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from engine.scope import Scope

T = TypeVar("T")

ABSENT: Final[Any] = object()
"""Stands for an argument that was not given."""

_TEXT_MAX = 200
"""Characters that an error tells of a value. Design choice: it is a line."""


class Operating:
    """What holds operations: the scope in which they are performed, and the version of those without a name."""

    __slots__ = ("_scope", "_version")

    def __init__(self, scope: Scope, version: int | None = None) -> None:
        self._scope = scope
        self._version = version

    def _perform(
        self, name: str | None, kind: str, work: Callable[[str], Coroutine[Any, Any, T]]
    ) -> Coroutine[Any, Any, T]:
        """The operation that ``work`` performs under the name it is given; one without a name is of ``kind``."""
        if name is None:
            return self._scope.operation(f"a {kind} without a name", self._placed(kind, work))
        self._refuse_version(name)
        return self._scope.operation(name, work(name))

    def _refuse_version(self, name: str) -> None:
        if self._version is not None:
            raise ValueError(f"ctx.v(n) is for operations that stand at a place and may be put in, not for {name!r}")

    async def _placed(self, kind: str, work: Callable[[str], Coroutine[Any, Any, T]]) -> T:
        scope = self._scope
        version = scope.version + (self._version or 1) - 1
        name = scope.place(lambda positions: positions.place(kind, version)).name
        try:
            return await work(name)
        except Exception as error:
            if not has_traces(scope.turn.storage, scope.key, name):
                # A replay could not tell this operation from the one after it, so the code must not go on.
                scope.turn.fail(error)
            raise


def check_function(fn: Any, what: str) -> None:
    """Raise TypeError unless ``fn`` can be called; ``what`` says whose it is."""
    if callable(fn):
        return
    made = ""
    if inspect.iscoroutine(fn):
        fn.close()
        made = f": write {fn.__name__}, without calling it, and its arguments behind it"
    raise TypeError(f"{what} takes a function and calls it, not {type(fn).__name__} {fn!r}"[:_TEXT_MAX] + made)


def label_of(name: Any, what: str) -> str | None:
    """``name`` where it is one, None where it is a function and so the first argument of an operation without a name.

    Raises:
        TypeError: it is neither; ``what`` says what was called.
    """
    if isinstance(name, str):
        return name
    if not callable(name):
        raise TypeError(f"{what} takes a name and a function, or a function alone, not {name!r}")
    return None
