"""Failures that come again: authors' errors, made anew from what history keeps, and those of which it keeps nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import CriticalError, RollbackError

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.entry import Entry, EntryKind
    from engine.scope import Scope


def opened(scope: Scope, name: str, kind: type[EntryKind], begin: Callable[[], object]) -> Entry | None:
    """As ``scope.open``, where ``begin`` may fail before anything is recorded: the entry there, or None.

    Code may catch that and go on. Then so does the replay that collects undos: what came after is to be undone too.
    """
    if scope.turn.is_collecting and scope.turn.storage.find_below(scope.key, name) is None:
        scope.claim(name)
        begin()
        scope.frontier(name)
    return scope.open(name, kind)[1]


def critical_class(name: str) -> type[CriticalError | RollbackError] | None:
    """The class ``name`` among those that say "do not try again", wherever an author defined it; None for others."""
    waiting: list[type[CriticalError | RollbackError]] = [CriticalError, RollbackError]
    while waiting:
        kind = waiting.pop()
        if kind.__name__ == name:
            return kind
        waiting.extend(kind.__subclasses__())
    return None


def made_again(kind: type[CriticalError | RollbackError], message: str) -> CriticalError | RollbackError:
    """An error of ``kind`` with this message; a plain one in its place where its class cannot be made so."""
    try:
        error = kind.__new__(kind)
        Exception.__init__(error, message)
    except Exception:  # noqa: BLE001 - an author's class may ask for arguments that history does not have
        base = RollbackError if issubclass(kind, RollbackError) else CriticalError
        return base(f"{kind.__name__}: {message}")
    return error
