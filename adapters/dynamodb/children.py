"""Children: workflows that are started within another one's commit, and why one of them cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.dynamodb.model.beginning import begin
from adapters.dynamodb.model.tags import place_key
from adapters.dynamodb.start import Existing, Leaving, know, look_at_obstacle, past
from engine.errors import CallerError, ChildRefusedError, StartConflictError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from adapters.dynamodb.model.beginning import Beginning
    from adapters.dynamodb.model.items import Head
    from adapters.dynamodb.table import Connection
    from engine.commit import Child
    from engine.origin import Origin


class Births:
    """The children of one commit of the workflow ``parent``.

    Raises ``ChildRefusedError``, when it is made too, where one of them can never be started.

    Attributes:
        beginnings: what their starts write, in their order.
    """

    __slots__ = ("_connection", "beginnings")

    def __init__(self, connection: Connection, parent: Head, children: Sequence[Child]) -> None:
        self._connection = connection
        self.beginnings: list[Beginning] = []
        before = [parent]
        for child in children:
            beginning = _begin(child, connection.clock.now(), parent.origin)
            _refuse_second(beginning, before)
            self.beginnings.append(beginning)
            before.append(beginning.head)

    async def prepare(self) -> None:
        """Note their types, which comes before a start."""
        for workflow_type in dict.fromkeys(beginning.head.type for beginning in self.beginnings):
            await know(self._connection, workflow_type)

    async def look(self, refused: Sequence[int]) -> None:
        """See what is in the way of these children, by their numbers. Where this returns, the commit can be tried anew.

        Raises:
            ChildRefusedError: another workflow is there, whether it serves in the child's place or not.
            StoreUnavailableError: one is there that is being purged, which is over in a while. Were that refused, the
                parent would remember for good what is true for a minute.
        """
        for number in refused:
            beginning = self.beginnings[number]
            try:
                obstacle = await look_at_obstacle(self._connection.table, beginning)
            except StartConflictError as error:
                raise _refusal(beginning.head.workflow_id, str(error)) from None
            if isinstance(obstacle, Leaving):
                raise StoreUnavailableError(str(obstacle))
            if isinstance(obstacle, Existing):
                raise _refused_for(beginning.head, obstacle.head)
            self.beginnings[number] = past(beginning, obstacle)


def _begin(child: Child, now: int, origin: Origin) -> Beginning:
    try:
        return begin(
            workflow_id=child.workflow_id,
            workflow_type=child.workflow_type,
            workflow_input=child.workflow_input,
            tags=child.tags,
            now=now,
            is_unique=child.unique,
            may_replace=child.replace_failed,
            origin=origin,
        )
    except CallerError as error:
        raise _refusal(child.workflow_id, str(error)) from error


def _refuse_second(beginning: Beginning, earlier: Sequence[Head]) -> None:
    """Refuse a child that one transaction cannot start: the parent, or a child before it, is in its way."""
    new = beginning.head
    for head in earlier:
        if head.workflow_id == new.workflow_id:
            if (head.type, head.input_digest) == (new.type, new.input_digest):
                raise _refused_for(new, head)
            raise _refusal(new.workflow_id, f"{new.workflow_id!r} is there already, or is started by the same commit")
        if head.is_unique and new.is_unique and place_key(head.type, head.tags) == place_key(new.type, new.tags):
            raise _refused_for(new, head)


def _refused_for(new: Head, there: Head) -> ChildRefusedError:
    return _refusal(new.workflow_id, f"{there.workflow_id!r} is there already", there.workflow_id)


def _refusal(workflow_id: str, why: str, existing: str | None = None) -> ChildRefusedError:
    error = ChildRefusedError(why)
    error.workflow_id = workflow_id
    error.existing = existing
    return error
