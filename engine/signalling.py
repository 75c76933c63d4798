"""Signals, as authors send them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from engine.errors import InvalidIdError
from engine.operating import Operating
from engine.ops import signal

if TYPE_CHECKING:
    from collections.abc import Coroutine


class Signalling(Operating):
    """How a context reaches other workflows."""

    __slots__ = ()

    def signal(
        self, name: str, body: Any = None, *, to: str, missing: Literal["error", "ignore"] = "error"
    ) -> Coroutine[Any, Any, bool]:
        """Put the message ``name`` into the inbox of the workflow ``to``, exactly once; whether it was delivered.

        It is recorded under its own name, as ``queue.send`` is, in the commit that delivers it.

        Args:
            name: the message's name.
            body: any storable value.
            to: the id of a workflow that has started and not ended; this one's is allowed.
            missing: ``"ignore"``: answer False where there is no such workflow, or none any more.

        Raises:
            WorkflowNotFoundError: no workflow has the id.
            WorkflowEndedError: the workflow is completed, failed or cancelled.
            DriverError: this store cannot send to other workflows.
        """
        if not name or not to:
            raise InvalidIdError("a signal needs the name of a message and the id of a workflow")
        self._refuse_version(f"signal:{name}")
        work = signal.run(self._scope, name, body, to, ignores_missing=missing == "ignore")
        return self._scope.operation(f"signal:{name}", work)
