"""A dispatch: the start of another workflow, which rides in the commit that records it.

One under an id of its own can hardly be refused, so its commit is put off until the next operation acts, as that of a
step's result is: many go in one. With an id of the author's, tags or ``unique`` only the commit can tell what it means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine import values
from engine.commit import Child
from engine.entry import StepEntry
from engine.errors import ChildRefusedError, StartConflictError
from engine.ops.sending import Sending, peers_of, replayed, started

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.scope import Scope


async def run(
    scope: Scope,
    name: str | None,
    workflow_type: str,
    given: Any,
    *,
    workflow_id: str | None,
    tags: Mapping[str, str],
    unique: bool,
    replace_failed: bool,
) -> str:
    """Start a workflow, once; its id. Recorded as a step ``name``, else ``dispatch:<type>``.

    Raises:
        StartConflictError: there is another one under this id, now or in an earlier run.
    """
    part = scope.next_name(f"dispatch:{workflow_type}") if name is None else name
    _, entry = scope.open(part, StepEntry)
    if entry is not None and (known := replayed(scope, entry)) is not None:
        return str(values.decode(known))
    what = f"dispatch of {workflow_type!r}"
    peers_of(scope, what)
    data = values.encode(given)
    scope.check_size(data, f"the input of {workflow_type!r}")
    scope.act()
    if workflow_id is not None or unique:
        await _alone(scope, workflow_type, workflow_id, tags)
    sending = Sending(scope, part, entry, _refused)
    child = Child(
        workflow_id=workflow_id or sending.entry.id,
        workflow_type=workflow_type,
        workflow_input=data,
        tags=dict(tags),
        unique=unique,
        replace_failed=replace_failed,
    )
    sending.done(values.encode(child.workflow_id))
    scope.turn.storage.start(sending.entry.id, child)
    if workflow_id is None and not unique and not tags:
        await scope.turn.recorded()
        return child.workflow_id
    await sending.commit()
    if sending.refusal is not None:
        raise sending.refusal
    return str(values.decode(sending.output))


def _refused(sending: Sending, refusal: Exception) -> None:
    existing = refusal.existing if isinstance(refusal, ChildRefusedError) else None
    if existing is None:
        sending.failed(StartConflictError(str(refusal)))
    else:
        sending.done(values.encode(existing))


async def _alone(scope: Scope, workflow_type: str, workflow_id: str | None, tags: Mapping[str, str]) -> None:
    """No commit starts two that exclude each other: a branch beside this one comes first, and this is judged by it."""

    def is_rival(child: Child) -> bool:
        is_same = child.unique and child.workflow_type == workflow_type and child.tags == tags
        return is_same or child.workflow_id == workflow_id

    while (rival := next(filter(is_rival, scope.turn.storage.starting()), None)) is not None:
        await started(scope, rival.workflow_id)
