"""A signal: a message to another workflow, which rides in the commit that records it.

Whether it is delivered is the operation's answer. A place in the target's inbox tells, and is taken when the operation
is called; the message comes into it with the next commit, as a step's result is recorded, so that it costs no commit of
its own. A run that ends in between leaves the place empty, and takes another one when it comes by again. Where the
target ends in between, the message is in its inbox all the same, and is there if ``recover`` has it go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from engine import limits, values
from engine.commit import Outgoing
from engine.entry import Message, StepEntry
from engine.errors import WorkflowEndedError, WorkflowNotFoundError
from engine.ops.failures import opened
from engine.ops.sending import Sending, asked, check_atomic, encoded, peers_of, replayed, send_to_oneself, started

if TYPE_CHECKING:
    from engine.driver import Peers
    from engine.scope import Scope


class Target(Struct, frozen=True, kw_only=True):
    """To whom: the workflow ``to``, or else the first of ``workflow_type`` that has not ended and has ``tags``."""

    to: str | None = None
    workflow_type: str = ""
    tags: Mapping[str, str] = {}


class _Place(Struct, frozen=True, kw_only=True):
    """Where a message goes: into the inbox of ``workflow_id``, with ``ticket``; 0 where it is the sender's own."""

    workflow_id: str
    ticket: int = 0


async def run(scope: Scope, name: str, body: Any, target: Target, *, ignores_missing: bool) -> bool:
    """Send ``body`` to ``target``, once; whether it is delivered. Recorded as a step ``signal:<name>``.

    Raises:
        WorkflowNotFoundError, WorkflowEndedError: it is not, now or in an earlier run.
    """
    part = scope.next_name(f"signal:{name}")
    entry = opened(scope, part, StepEntry, lambda: encoded(scope, name, body))
    if entry is not None and (delivered := replayed(scope, entry)) is not None:
        return bool(values.decode(delivered))
    check_atomic(scope, f"signal {name!r}")
    data = encoded(scope, name, body)
    scope.act()
    turn = scope.turn
    sending = Sending(scope, part, entry)
    # Before the place is taken: how old that is at most, the driver can tell by it.
    sent_at = turn.clock.now()
    try:
        place = await _reserve(scope, f"signal {name!r}", target)
    except (WorkflowNotFoundError, WorkflowEndedError) as refusal:
        if ignores_missing:
            sending.done(values.encode(False))  # noqa: FBT003 - the value that is recorded
        else:
            sending.failed(refusal)
        await turn.recorded()
        if ignores_missing:
            return False
        raise
    sending.done(values.encode(True))  # noqa: FBT003 - likewise
    message = Message(
        id=sending.entry_id(), name=name, body=data, sent_at=sent_at, ticket=place.ticket, origin=turn.origin
    )
    if place.ticket:
        turn.storage.send(Outgoing(workflow_id=place.workflow_id, message=message))
        await turn.recorded()
    else:
        await send_to_oneself(scope, message)
    return True


async def _reserve(scope: Scope, what: str, target: Target) -> _Place:
    if target.to == scope.turn.workflow_id:
        # Nobody else is asked, so a store of one workflow alone will do.
        return _Place(workflow_id=target.to)
    peers = peers_of(scope, what)
    if target.to is not None:
        return await _reserve_at(scope, peers, target.to)
    await started(scope)
    # Where a store looks into an index that is a moment late, it goes on finding who has ended.
    passed: set[str] = set()
    for _ in range(limits.SIGNAL_SEARCHES_MAX):
        found = await asked(scope, peers.find(target.workflow_type, target.tags, len(passed) + 1))
        to = next((one for one in found if one not in passed), None)
        if to is None:
            break
        try:
            return await _reserve_at(scope, peers, to)
        except (WorkflowNotFoundError, WorkflowEndedError):
            passed.add(to)
    tags = ", ".join(f"{name}={value}" for name, value in target.tags.items())
    raise WorkflowNotFoundError(
        f"no workflow of type {target.workflow_type!r} {f'with {tags} ' if tags else ''}is there that has not ended"
    )


async def _reserve_at(scope: Scope, peers: Peers, workflow_id: str) -> _Place:
    if workflow_id == scope.turn.workflow_id:
        return _Place(workflow_id=workflow_id)
    await started(scope, workflow_id)
    return _Place(workflow_id=workflow_id, ticket=await asked(scope, peers.reserve(workflow_id)))
