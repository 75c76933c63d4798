"""Errors of authors' classes, made again from the names and texts that history keeps of them."""

from __future__ import annotations

from engine.errors import CriticalError, RollbackError


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
