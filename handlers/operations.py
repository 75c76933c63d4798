"""What can be asked over HTTP: each operation takes a call and answers, or raises an error that is a problem."""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from msgspec.structs import asdict

from engine import inspect
from engine.author.reaching import new_id
from engine.errors import UnknownTypeError, WorkflowNotFoundError
from engine.lifecycle import ENDED, WorkflowState
from engine.schedules.identity import SCHEDULE_TYPE
from engine.values import decode, encode, fit_json, input_type
from handlers import bodies, failures
from handlers.application import ApplicationBrokenError
from handlers.calls import Answer, instant, instant_ms, members, text, texts, truth, wait_for
from handlers.origins import origin_of, told_origin
from handlers.problems import INVALID_BODY, INVALID_PARAMETER, Problem
from handlers.traces import annotate
from handlers.waking import wake_all
from handlers.workflow_bodies import described, described_entry, described_message, ending

if TYPE_CHECKING:
    from adapters.alarms import Alarms
    from adapters.dynamodb.query import Description, Page
    from adapters.dynamodb.store import Store
    from adapters.sqs import WakeQueue
    from engine.author.registry import Workflow
    from engine.commit import Pruning
    from engine.driver import Clock
    from engine.ids import Ids
    from handlers.application import WorkflowSource
    from handlers.calls import Call

logger = logging.getLogger(__name__)

START_MEMBERS = frozenset({"id", "input", "ray_id", "replace_failed", "start_at", "tags", "unique"})
REPLAY_MEMBERS = frozenset({"entry_id"})

PURGE_MARGIN_MS = 10_000
"""Milliseconds before its deadline by which a purge leaves the rest to a worker. Design choice: a page and its
deletions, tried again and again, still fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What the operations act on."""

    store: Store
    queue: WakeQueue
    alarms: Alarms
    clock: Clock
    ids: Ids
    application: WorkflowSource

    def pruning_of(self, workflow_type: str) -> Pruning | None:
        """What is to be forgotten of a workflow of a type that ends; nothing where the code does not know the type."""
        try:
            return self.application.get(workflow_type).pruning
        except (UnknownTypeError, ApplicationBrokenError):
            return None


# --- starting and sending -----------------------------------------------------------------------------------------


async def start(ports: Ports, call: Call) -> Answer:
    """Start a workflow: 201 where it is new, 200 where the same start was made before."""
    workflow_type = call.path["id_or_type"]
    workflow = startable(ports, workflow_type)
    body = members(call.value(), START_MEMBERS)
    # Whoever names a start by the header alone means the same thing: once, whatever is repeated.
    named = text(body.get("id"), "id")
    workflow_id = call.headers.get("idempotency-key", ports.ids.new()) if named is None else named
    new_id("a start", workflow_id)
    unique, replace_failed = truth(body.get("unique"), "unique"), truth(body.get("replace_failed"), "replace_failed")
    if replace_failed and not unique:
        raise Problem(INVALID_BODY, '"replace_failed" says what "unique" does: give both, or neither.')
    start_at = instant_ms(body.get("start_at"), "start_at")
    workflow_input = stored_input(call, body.get("input"), input_type(workflow.fn, 1))
    started = await ports.store.start(
        workflow_id=workflow_id,
        type=workflow_type,
        input=workflow_input,
        tags=texts(body.get("tags"), "tags"),
        start_at=start_at,
        unique=unique,
        replace_failed=replace_failed,
        origin=origin_of(call, ports.ids, text(body.get("ray_id"), "ray_id")),
    )
    ray_id = started.origin.ray_id
    annotate(workflow_id=started.workflow_id, workflow_type=workflow_type, ray_id=ray_id)
    if started.created:
        about = {"workflow_id": started.workflow_id, "type": workflow_type, "ray_id": ray_id}
        logger.info("workflow started", extra=about)
    if started.put_off_until is None:
        await hint(ports, started.workflow_id)
    else:
        await _arm(ports, started.workflow_id, started.put_off_until)
    return Answer(
        status=201 if started.created else 200,
        value={
            "id": started.workflow_id,
            "type": workflow_type,
            **told_origin(started.origin),
            "created": started.created,
        },
        headers={"location": f"/workflows/{quote(started.workflow_id, safe='')}"},
    )


def startable(ports: Ports, workflow_type: str) -> Workflow[Any]:
    """The workflow of a type that callers may start.

    Raises:
        UnknownTypeError: there is none, or it is torpor's own.
        ApplicationBrokenError: a module that may hold it cannot be imported.
    """
    if workflow_type == SCHEDULE_TYPE:
        raise UnknownTypeError(f'"{workflow_type}" is a type of torpor\'s own: POST /schedules creates one.')
    return ports.application.get(workflow_type)


def stored_input(call: Call, value: Any, as_type: Any) -> bytes:
    """An input as it is stored; raises ``UnstorableValueError`` where the workflow could not read it."""
    if bodies.is_json(call.headers.get("content-type")):
        value = fit_json(value, as_type)
    stored = encode(value)
    # What the workflow could not read is told to whoever can change it, and not stored to fail later.
    decode(stored, as_type)
    return stored


async def send(ports: Ports, call: Call) -> Answer:
    """Post a message: 202 when it is accepted, 200 with the reply where the call waited for one and it came."""
    # Everything that can be refused is read before anything is written.
    value, wait_s, message_id = call.value(), call.wait_s(), message_id_of(call)
    origin = origin_of(call, ports.ids)
    annotate(ray_id=origin.ray_id)
    accepted = await ports.store.send(
        call.path["id"],
        name=call.path["name"],
        body=encode(None if value is bodies.ABSENT else value),
        message_id=message_id,
        sent_at=ports.clock.now(),
        origin=origin,
        hint=functools.partial(hint, ports, call.path["id"]),
    )
    reply = accepted.reply
    # A message sent again has its reply already, if there is one: only who waits need look.
    if reply is None and wait_s:
        reply = await wait_for(
            ports.clock, call, lambda: ports.store.reply_of(call.path["id"], accepted.message_id), wait_s=wait_s
        )
    answer = {"message_id": accepted.message_id, "duplicate": accepted.duplicate}
    if reply is None:
        return Answer(status=202, value=answer)
    return Answer(value={**answer, "reply": decode(reply)})


def message_id_of(call: Call) -> str | None:
    """The id that the caller gives a message, by header or query; raises ``Problem`` where those differ."""
    header, parameter = call.headers.get("idempotency-key"), call.query.get("id")
    if header is not None and parameter is not None and header != parameter:
        raise Problem(INVALID_PARAMETER, 'The header Idempotency-Key and the parameter "id" differ; send one of them.')
    return header if header is not None else parameter


async def hint(ports: Ports, workflow_id: str) -> None:
    """Have a workflow looked at soon; a hint that is lost is made up for by the sweeper."""
    # The fact is stored and due: the caller must not be told that the call failed.
    with failures.losing_nothing("wake lost", workflow_id):
        await ports.queue.wake(workflow_id, 0)


async def _arm(ports: Ports, workflow_id: str, at_ms: int) -> None:
    with failures.losing_nothing("alarm not armed", workflow_id):
        await ports.alarms.arm(workflow_id, at_ms)


# --- looking ------------------------------------------------------------------------------------------------------


async def list_workflows(ports: Ports, call: Call) -> Answer:
    """A page of workflows, and the cursor of the next one where there is more."""
    page = await (_tagged(ports, call) if call.tags() else _listed(ports, call))
    return Answer(value={"workflows": [described(found) for found in page.items], "cursor": page.cursor})


async def _tagged(ports: Ports, call: Call) -> Page:
    if "type" not in call.query or "state" in call.query:
        detail = 'Ask for tags with a "type", and without a "state": those that are found have not ended.'
        raise Problem(INVALID_PARAMETER, detail)
    return await ports.store.tagged(
        call.query["type"], call.tags(), limit=call.limit(), cursor=call.query.get("cursor")
    )


async def _listed(ports: Ports, call: Call) -> Page:
    state = call.query.get("state")
    if state is not None and state not in set(WorkflowState):
        raise Problem(INVALID_PARAMETER, f'"state" must be one of {", ".join(WorkflowState)}, not "{state}".')
    return await ports.store.list(
        type=call.query.get("type"),
        state=None if state is None else WorkflowState(state),
        limit=call.limit(),
        cursor=call.query.get("cursor"),
    )


async def describe(ports: Ports, call: Call) -> Answer:
    """What is known of one workflow."""
    workflow_id, wants_document = call.path["id_or_type"], call.flag("document")
    found = await _found(ports, workflow_id)
    known = await _with_awaited(ports, found)
    if wants_document:
        known["document"] = inspect.describe(await ports.store.history(workflow_id)).document
    return Answer(value=known)


async def output(ports: Ports, call: Call) -> Answer:
    """How a workflow ended: 200 with its output or error, 202 while it has not."""
    workflow_id = call.path["id"]

    async def look() -> Description | None:
        # HEAD alone: the history, where the output is, is read once it is known to be there.
        found = await _found(ports, workflow_id)
        return found if found.state in ENDED else None

    await wait_for(ports.clock, call, look, wait_s=call.wait_s())
    return ending(workflow_id, await ports.store.outcome(workflow_id))


async def history(ports: Ports, call: Call) -> Answer:
    """Every recorded operation of a workflow, in the order of creation, and how it stands, as of the same commit."""
    workflow_id = call.path["id"]
    found, pairs = await ports.store.look(workflow_id)
    told = inspect.describe(pairs)
    retrying = {step.entry_id: step for step in found.retrying}
    entries = [
        described_entry(operation, retrying.get(operation.id))
        for operation in sorted(told.operations, key=lambda operation: operation.id)
    ]
    unreadable = [asdict(pair) for pair in told.unreadable]
    return Answer(
        value={
            "id": workflow_id,
            "state": told.state,
            "workflow": await _with_awaited(ports, found),
            "input": told.input,
            "document": told.document,
            "pruned_at": instant(None if told.operations else found.pruned_at),
            "entries": entries,
            "unreadable": unreadable,
        }
    )


async def inbox(ports: Ports, call: Call) -> Answer:
    """A page of the messages that a workflow has been sent and that no commit of it has taken yet, the oldest first."""
    workflow_id = call.path["id"]
    await _found(ports, workflow_id)
    unread = await ports.store.unread(workflow_id, limit=call.limit(), cursor=call.query.get("cursor"))
    return Answer(value={"messages": [*map(described_message, unread.messages)], "cursor": unread.cursor})


async def _with_awaited(ports: Ports, found: Description) -> dict[str, Any]:
    # An item of its own, which is not read for nothing.
    awaited = await ports.store.awaited(found.workflow_id) if found.awaits_others else None
    return {**described(found), "waiting_for_workflows": awaited}


async def _found(ports: Ports, workflow_id: str) -> Description:
    found = await ports.store.describe(workflow_id)
    if found is None:
        raise WorkflowNotFoundError(f"no workflow has the id {workflow_id!r}")
    annotate(workflow_id=workflow_id, workflow_type=found.type, ray_id=found.origin.ray_id)
    return found


# --- telling it what to do ----------------------------------------------------------------------------------------


async def wake(ports: Ports, call: Call) -> Answer:
    """Have a workflow looked at now."""
    await ports.store.wake(call.path["id"])
    return await _told(ports, call)


async def cancel(ports: Ports, call: Call) -> Answer:
    """Cancel a workflow; whoever runs it is stopped at its next commit. Cancelling twice is no error."""
    rollback = call.flag("rollback")
    told: list[str] = []
    is_scheduled = await ports.store.cancel(
        call.path["id"], rollback=rollback, pruning_of=ports.pruning_of, on_due=told.extend
    )
    await wake_all(ports.queue, told)
    if is_scheduled:
        # It may go off yet, as a stale wake that is dropped.
        with failures.losing_nothing("alarm not cleared", call.path["id"]):
            await ports.alarms.clear(call.path["id"])
    found = await _found(ports, call.path["id"])
    if found.state in ENDED:
        return Answer(value=described(found))
    # It is being undone, and ends when that is done.
    await hint(ports, call.path["id"])
    return Answer(status=202, value=described(found))


async def purge(ports: Ports, call: Call) -> Answer:
    """Delete an ended workflow for good: 200 when nothing is left of it, 202 while the rest is being deleted."""
    workflow_id = call.path["id_or_type"]
    annotate(workflow_id=workflow_id)
    progress = await ports.store.purge(workflow_id, until=call.deadline_ms - PURGE_MARGIN_MS)
    await wake_all(ports.queue, progress.told)
    if progress.again_at is not None:
        await _arm(ports, workflow_id, progress.again_at)
    is_gone = progress.again_at is None
    return Answer(status=200 if is_gone else 202, value={"id": workflow_id, "is_gone": is_gone})


async def recover(ports: Ports, call: Call) -> Answer:
    """Let a failed workflow try again from where it failed: 202, or 200 where it has not failed and stays as it is."""
    has_recovered = await ports.store.recover(call.path["id"])
    told = await _told(ports, call)
    return told if has_recovered else replace(told, status=200)


async def replay(ports: Ports, call: Call) -> Answer:
    """Run a workflow again from one of its steps, or from the beginning."""
    body = members(call.value(), REPLAY_MEMBERS)
    await ports.store.replay(call.path["id"], text(body.get("entry_id"), "entry_id"))
    return await _told(ports, call)


async def _told(ports: Ports, call: Call) -> Answer:
    await hint(ports, call.path["id"])
    return Answer(status=202, value=described(await _found(ports, call.path["id"])))
