"""A dispatch: the start of another workflow, which rides in the commit that records it.

One under an id of its own cannot be refused, so its commit is put off until the next operation acts, as that of a
step's result is: many go in one. With an id of the author's or ``unique`` only the commit can tell what it means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from engine import values
from engine.commit import Child
from engine.entry import StepEntry
from engine.errors import ChildRefusedError, StartConflictError
from engine.ops.failures import opened
from engine.ops.sending import Sending, peers_of, replayed, started

if TYPE_CHECKING:
    from engine.scope import Scope


_TO_COME = "0" * 36
"""The id of a child that is not recorded yet: it will have that of its record."""


class Start(Struct, frozen=True, kw_only=True):
    """What is to be started: ``given`` is its input; it gets an id of its own where ``workflow_id`` is None."""

    workflow_type: str
    given: Any
    workflow_id: str | None = None
    tags: dict[str, str] = {}
    unique: bool = False
    replace_failed: bool = False

    @property
    def may_be_refused(self) -> bool:
        """Whether only the commit can tell what becomes of it: an id or a place may not be had."""
        return self.workflow_id is not None or self.unique


async def run(scope: Scope, name: str | None, start: Start) -> str:
    """Start a workflow, once; its id. Recorded as a step ``name``, else ``dispatch:<type>``.

    Raises:
        StartConflictError: there is another one under this id, now or in an earlier run.
        InvalidIdError: there can be no such workflow.
    """
    part = scope.next_name(f"dispatch:{start.workflow_type}") if name is None else name
    entry = opened(scope, part, StepEntry, lambda: _checked(scope, start))
    if entry is not None and (known := replayed(scope, entry)) is not None:
        return str(values.decode(known))
    child = _checked(scope, start)
    scope.act()
    if start.may_be_refused:
        await _alone(scope, start)
    sending = Sending(scope, part, entry)
    child = replace(child, workflow_id=start.workflow_id or sending.entry_id())
    sending.done(values.encode(child.workflow_id), is_certain=not start.may_be_refused)
    scope.turn.storage.start(sending.entry_id(), child)
    if not start.may_be_refused:
        await scope.turn.recorded()
        return child.workflow_id
    await sending.commit(_refused)
    if sending.refusal is not None:
        raise sending.refusal
    return str(values.decode(sending.output))


def _checked(scope: Scope, start: Start) -> Child:
    """The child that ``start`` means, where there can be one."""
    peers = peers_of(scope, f"dispatch of {start.workflow_type!r}")
    data = values.encode(start.given)
    scope.check_bytes(len(data), f"the input of {start.workflow_type!r}")
    child = Child(
        workflow_id=start.workflow_id or _TO_COME,
        workflow_type=start.workflow_type,
        workflow_input=data,
        tags=start.tags,
        unique=start.unique,
        replace_failed=start.replace_failed,
    )
    peers.check_start(child)
    return child


def _refused(sending: Sending, refusal: Exception) -> None:
    existing = refusal.existing if isinstance(refusal, ChildRefusedError) else None
    if existing is None:
        sending.failed(StartConflictError(str(refusal)))
    else:
        sending.done(values.encode(existing))


async def _alone(scope: Scope, start: Start) -> None:
    """No commit starts two that exclude each other: a branch beside this one comes first, and this is judged by it."""

    def is_rival(child: Child) -> bool:
        is_one_of_a_kind = child.unique and start.unique
        is_same = (child.workflow_type, child.tags) == (start.workflow_type, start.tags)
        return (is_one_of_a_kind and is_same) or child.workflow_id == start.workflow_id

    while (rival := next(filter(is_rival, scope.turn.storage.starting()), None)) is not None:
        await started(scope, rival.workflow_id)
