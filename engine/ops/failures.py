"""Failures that come again: authors' errors, made anew from what history keeps, and those of which it keeps nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import CriticalError, RollbackError

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.entry import Entry, EntryKind
    from engine.scope import Scope

Kind = type[CriticalError] | type[RollbackError]


def opened(scope: Scope, name: str, kind: type[EntryKind], begin: Callable[[], object]) -> Entry | None:
    """As ``scope.open``, where ``begin`` may fail before anything is recorded: the entry there, or None.

    Code may catch that and go on. Then so does the replay that collects undos: what came after is to be undone too.
    """
    if scope.turn.is_collecting and scope.turn.storage.find_below(scope.key, name) is None:
        scope.claim(name)
        begin()
        scope.frontier(name)
    return scope.open(name, kind)[1]


def critical_class(name: str) -> Kind | None:
    """The class ``name`` among those that say "do not try again", wherever an author defined it; None for others."""
    waiting: list[Kind] = [CriticalError, RollbackError]
    while waiting:
        kind = waiting.pop()
        if kind.__name__ == name and _IS_OURS not in vars(kind):
            return kind
        waiting.extend(kind.__subclasses__())
    return None


def made_again(kind: Kind, message: str) -> CriticalError | RollbackError:
    """An error of ``kind`` with this message; a plain one in its place where its class cannot be made so."""
    try:
        error = _bare(kind, message)
        # Its class may make the text of what history does not have, or put more to it once again.
        return error if _text_of(error) == message else _bare(_with_the_text_given(kind), message)
    except Exception:  # noqa: BLE001 - an author's class may do anything
        base = RollbackError if issubclass(kind, RollbackError) else CriticalError
        return base(f"{kind.__name__}: {message}")


def _bare(kind: Kind, message: str) -> CriticalError | RollbackError:
    """An error of ``kind`` without a call of its constructor, which may ask for more than a message."""
    try:
        error = Exception.__new__(kind)
    except TypeError:
        # It has a second base whose errors are laid out in another way, such as OSError.
        error = kind.__new__(kind)
    Exception.__init__(error, message)
    return error


def _text_of(error: Exception) -> str | None:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an author's class may do anything
        return None


_IS_OURS = "__torpor_is_ours__"
_made: dict[Kind, Kind] = {}


def _with_the_text_given(kind: Kind) -> Kind:
    """``kind``, but for a ``__str__`` that gives what the error was made with."""
    if kind not in _made:
        members = {"__str__": Exception.__str__, "__qualname__": kind.__qualname__, "__module__": kind.__module__}
        _made[kind] = type(kind.__name__, (kind,), {**members, _IS_OURS: True})
    return _made[kind]
