"""How code changes under running workflows, as authors say it: what is gone, and which version a run is pinned to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from engine.author.operating import Operating
from engine.entry import VersionCheckEntry
from engine.ops import version

if TYPE_CHECKING:
    from collections.abc import Coroutine


class Changing(Operating):
    """What a context knows of other versions of its code."""

    __slots__ = ()

    @overload
    def removed(self, name: str, original_type: str) -> Coroutine[Any, Any, None]: ...

    @overload
    def removed(self, *, original_type: str) -> Coroutine[Any, Any, None]: ...

    def removed(self, name: str | None = None, original_type: str = "") -> Coroutine[Any, Any, None]:
        """Say that an operation is gone from the code, so that histories which have it still replay.

        Args:
            name: the name that it had; in a scope without names, this call stands where it stood.
            original_type: one of step, loop, sleep, message, rollback_checkpoint, join, race, version_check.
        """
        if name is None:
            self._refuse_version("removed")
            return self._scope.operation("removed", version.removed_here(self._scope, original_type))
        return self._perform(name, "removed", lambda used: version.removed(self._scope, used, original_type))

    def get_version(self, name: str, latest: int) -> Coroutine[Any, Any, int]:
        """The version that this run is pinned to here: ``latest`` for new runs, 1 for those already past it."""
        return self._perform(name, VersionCheckEntry.kind, lambda used: version.get_version(self._scope, used, latest))

    def check_version(self, latest: int) -> Coroutine[Any, Any, int]:
        """As ``get_version``, in a scope without names: ``latest``, or that of the operation which history has here.

        Versions count from that of the scope, which is 1 but in what was inserted with ``ctx.v(n)``. A check that is
        put before one which deployed code has needs a mark of its own: ``ctx.v(n).check_version(n)``.
        """
        return self._scope.operation("check_version", version.check_version(self._scope, latest, self._version or 1))
