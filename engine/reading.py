"""Values that history has, as the types that the code declares now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine import values
from engine.errors import CorruptHistoryError, UnstorableValueError

if TYPE_CHECKING:
    from engine.scope import Scope


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
