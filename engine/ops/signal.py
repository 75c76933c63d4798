"""A signal: a message to another workflow, which rides in the commit that records it.

Whether it is delivered is the operation's answer, and only the commit can tell: so that commit is not put off until the
next operation, as that of a step's result is. It carries all that was recorded before it, and costs what a step costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from engine import limits, values
from engine.commit import Outgoing
from engine.entry import Message, StepEntry
from engine.errors import WorkflowNotFoundError
from engine.ops.sending import Sending, asked, check_atomic, peers_of, replayed, started

if TYPE_CHECKING:
    from engine.scope import Scope


class Target(Struct, frozen=True, kw_only=True):
    """To whom: the workflow ``to``, or else the first of ``workflow_type`` that has not ended and has ``tags``."""

    to: str | None = None
    workflow_type: str = ""
    tags: Mapping[str, str] = {}


async def run(scope: Scope, name: str, body: Any, target: Target, *, ignores_missing: bool) -> bool:
    """Send ``body`` to ``target``, once; whether it was delivered. Recorded as a step ``signal:<name>``.

    Raises:
        WorkflowNotFoundError, WorkflowEndedError: it was not, now or in an earlier run.
    """
    part = scope.next_name(f"signal:{name}")
    _, entry = scope.open(part, StepEntry)
    if entry is not None and (delivered := replayed(scope, entry)) is not None:
        return bool(values.decode(delivered))
    check_atomic(scope, f"signal {name!r}")
    data = values.encode(body)
    scope.check_bytes(len(data), f"the message {name!r}", is_message=True)
    scope.act()

    def missing(sending: Sending, refusal: Exception) -> None:
        if ignores_missing:
            sending.done(values.encode(False))  # noqa: FBT003 - the value that is recorded
        else:
            sending.failed(refusal)

    if target.to is not None:
        sending = Sending(scope, part, entry, missing)
        await _send(scope, sending, name, data, target.to)
    elif not await _send_to_first(scope, sending := Sending(scope, part, entry, Sending.postponed), name, data, target):
        missing(sending, _not_found(target))
        await scope.turn.recorded()
    if sending.refusal is not None:
        raise sending.refusal
    return bool(values.decode(sending.output))


async def _send(scope: Scope, sending: Sending, name: str, data: bytes, to: str) -> None:
    turn = scope.turn
    target = None if to == turn.workflow_id else to
    await started(scope, to)
    sending.done(values.encode(True))  # noqa: FBT003 - the value that is recorded
    message = Message(id=sending.entry_id(), name=name, body=data, sent_at=turn.clock.now(), ray_id=turn.ray_id)
    turn.storage.send(Outgoing(workflow_id=target, message=message))
    await sending.commit()
    if target is None:
        await turn.look_again()


async def _send_to_first(scope: Scope, sending: Sending, name: str, data: bytes, target: Target) -> bool:
    """Send to the first that ``target`` means, and to the next where that has ended meanwhile; whether to any."""
    peers = peers_of(scope, f"signal {name!r}")
    await started(scope)
    # Where a store looks into an index that is a moment late, it goes on finding who has ended.
    passed: set[str] = set()
    for _ in range(limits.SIGNAL_SEARCHES_MAX):
        found = await asked(scope, peers.find(target.workflow_type, target.tags, len(passed) + 1))
        to = next((one for one in found if one not in passed), None)
        if to is None:
            break
        await _send(scope, sending, name, data, to)
        if sending.refusal is None:
            return True
        passed.add(to)
    return False


def _not_found(target: Target) -> WorkflowNotFoundError:
    tags = ", ".join(f"{name}={value}" for name, value in target.tags.items())
    return WorkflowNotFoundError(
        f"no workflow of type {target.workflow_type!r} {f'with {tags} ' if tags else ''}is there that has not ended"
    )
