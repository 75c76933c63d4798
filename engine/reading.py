"""What history has, as values of the types that the code declares now, and what cannot be read of it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from engine import values
from engine.errors import CorruptHistoryError, UnstorableValueError
from engine.history.kept import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.scope import Scope
    from engine.turn import Turn


@contextmanager
def must_be_readable(turn: Turn) -> Iterator[None]:
    """What is read here belongs to no operation: where it cannot be, the run ends, whatever code catches."""
    try:
        yield
    except UNREADABLE as unreadable:
        raise turn.fail(unreadable)  # noqa: B904 - the same error


def recorded_value(scope: Scope, name: str, data: bytes | None, as_type: Any) -> Any:
    """The value whose CBOR ``data`` history has for the operation ``name``; None where it has none.

    Raises:
        HistoryDivergedError: it is none of the type that the code declares for it now.
        CorruptHistoryError: it is no value.
    """
    if data is None:
        return None
    try:
        return values.decode(data, as_type)
    except CorruptHistoryError as error:
        raise CorruptHistoryError(f"at {scope.describe()}: the value of {name!r} cannot be read: {error}") from error
    except UnstorableValueError as error:
        # It fitted when it was recorded: what has changed is the code, and undoing what was done would be no answer.
        raise scope.diverged(
            f"the value that history has for {name!r} is none of the type that the code declares for it now. Give new "
            "fields a default, declare a union of the old type and the new one, or branch on "
            f"ctx.get_version(name, latest). {error}"
        ) from error
