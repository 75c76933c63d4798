"""What can be asked of schedules over HTTP: each is a workflow of torpor's own, and what it is told are messages."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from engine.errors import (
    InvalidScheduleError,
    StartConflictError,
    WorkflowEndedError,
    WorkflowNotFoundError,
)
from engine.history.kept import UNREADABLE
from engine.schedules import status
from engine.schedules.commands import Command, Filling, why_full
from engine.schedules.identity import SCHEDULE_TYPE, schedule_id, schedule_name
from engine.values import encode, input_type
from handlers import operations, problems
from handlers.calls import Answer, members, text
from handlers.origins import origin_of
from handlers.problems import SCHEDULE_CONFLICT, SCHEDULE_ENDED, SCHEDULE_NOT_FOUND, Problem
from handlers.schedule_bodies import (
    FILLING_MEMBERS,
    SPEC_MEMBERS,
    described,
    named,
    overlap_of,
    range_of,
    spec_of,
    unreadable,
    zone_name,
)
from handlers.traces import annotate

if TYPE_CHECKING:
    from adapters.dynamodb.query import Description
    from engine.schedules.record import Schedule, Spec
    from handlers.calls import Call
    from handlers.operations import Ports

PAGE_MAX = 25
"""Most schedules of one page. Design choice: each is read whole."""


async def create(ports: Ports, call: Call) -> Answer:
    """Create a schedule: 201 where it is new, 200 where there is the same one already."""
    body = members(call.value(), SPEC_MEMBERS | {"name"})
    name, workflow_id = named(body)
    known = await ports.store.describe(workflow_id)
    if known is None:
        spec = _spec(ports, call, body)
        tags = {"schedule": name}
        # Whoever creates the same one at the same moment is answered below, by what is there.
        try:
            started = await ports.store.start(
                workflow_id=workflow_id,
                type=SCHEDULE_TYPE,
                input=encode(spec),
                tags=tags,
                origin=origin_of(call, ports.ids),
                # Its messages mean the same to whichever schedule has the name.
                may_follow=True,
            )
        except StartConflictError:
            detail = f"another schedule {name!r} was created just now, or much of the last one is still to be deleted"
            raise Problem(SCHEDULE_CONFLICT, f"{detail}: look at it, or create it again in a minute") from None
        await operations.hint(ports, workflow_id)
        found, schedule = await _read(ports, name)
        return Answer(
            status=201 if started.created else 200,
            value=described(name, found, schedule, ports.clock.now()),
            headers={"location": f"/schedules/{name}"},
        )
    found, schedule = await _read(ports, name)
    # A time that has passed since makes the same call no other call.
    if not schedule.spec.is_same(_spec(ports, call, body, now_ms=found.created_at)):
        raise Problem(SCHEDULE_CONFLICT, f"there is another schedule {name!r}: update it, or delete it first")
    if found.ended_at is not None:
        raise _ended(name)
    return Answer(value=described(name, found, schedule, ports.clock.now()))


def _spec(ports: Ports, call: Call, body: dict[str, Any], *, now_ms: int | None = None) -> Spec:
    def stored_input(workflow_type: str, value: Any) -> bytes:
        workflow = operations.startable(ports, workflow_type)
        return operations.stored_input(call, value, input_type(workflow.fn, 1))

    return spec_of(body, stored_input, ports.clock.now() if now_ms is None else now_ms)


async def list_schedules(ports: Ports, call: Call) -> Answer:
    """A page of schedules, the youngest first, and the cursor of the next one where there is more."""
    page = await ports.store.list(type=SCHEDULE_TYPE, limit=call.limit(PAGE_MAX), cursor=call.query.get("cursor"))
    told = await asyncio.gather(*(_told_if_there(ports, found) for found in page.items))
    return Answer(value={"schedules": [each for each in told if each is not None], "cursor": page.cursor})


async def _told_if_there(ports: Ports, found: Description) -> dict[str, Any] | None:
    name = schedule_name(found.workflow_id)
    try:
        schedule = status.read(await ports.store.history(found.workflow_id), found.created_at)
    except WorkflowNotFoundError:
        return None
    except UNREADABLE as error:
        # It must not keep the others from being told.
        return unreadable(name, found, error)
    return described(name, found, schedule, ports.clock.now())


async def describe(ports: Ports, call: Call) -> Answer:
    """What is known of a schedule: what it is asked for, its next and its latest occurrences."""
    name = call.path["name"]
    found, schedule = await _read(ports, name)
    return Answer(value=described(name, found, schedule, ports.clock.now()))


async def _read(ports: Ports, name: str) -> tuple[Description, Schedule]:
    found = await _found(ports, name)
    return found, status.read(await ports.store.history(found.workflow_id), found.created_at)


async def _found(ports: Ports, name: str) -> Description:
    found = await ports.store.describe(schedule_id(name))
    if found is None or found.type != SCHEDULE_TYPE:
        raise _not_found(name)
    annotate(workflow_id=found.workflow_id, workflow_type=found.type, ray_id=found.origin.ray_id)
    return found


def _not_found(name: str) -> Problem:
    return Problem(SCHEDULE_NOT_FOUND, f"no schedule is named {name!r}")


def _ended(name: str) -> Problem:
    return Problem(SCHEDULE_ENDED, f"delete the schedule {name!r} first, and create it anew where it is wanted")


# --- telling it what to do ----------------------------------------------------------------------------------------


async def pause(ports: Ports, call: Call) -> Answer:
    """Have a schedule occur no more until it is resumed; what runs goes on."""
    asked = call.value()
    body = {} if asked is None else members(asked, frozenset({"note"}))
    note = text(body.get("note"), "note")
    return await _tell(ports, call, Command.PAUSE, {"note": note})


async def resume(ports: Ports, call: Call) -> Answer:
    """Have a paused schedule occur again, from now on."""
    return await _tell(ports, call, Command.RESUME, None)


async def trigger(ports: Ports, call: Call) -> Answer:
    """Have a schedule start one run now, whatever else runs, paused or not."""
    _, schedule = await _read(ports, call.path["name"])
    _refuse_full(schedule, Command.TRIGGER)
    return await _tell(ports, call, Command.TRIGGER, None)


async def backfill(ports: Ports, call: Call) -> Answer:
    """Have a schedule start the runs for a time that has passed; an occurrence that had its run gets no other."""
    body = members(call.value(), FILLING_MEMBERS)
    _, schedule = await _read(ports, call.path["name"])
    first_ms, last_ms = range_of(body, zone_name(schedule))
    filling = Filling(from_ms=first_ms, until_ms=last_ms, overlap=overlap_of(body.get("overlap")))
    filling.check(schedule.spec)
    if last_ms > ports.clock.now():
        raise InvalidScheduleError('"to" is still to come: a backfill makes up for a time that has passed')
    _refuse_full(schedule, Command.BACKFILL)
    return await _tell(ports, call, Command.BACKFILL, asdict(filling))


def _refuse_full(schedule: Schedule, command: Command) -> None:
    """Refuse at once what the schedule itself would only note as its problem, where it is full already."""
    if reason := why_full(schedule, command):
        raise Problem(problems.SCHEDULE_FULL, reason)


async def update(ports: Ports, call: Call) -> Answer:
    """Give a schedule another form from now on; the body is the whole of it, as for a new one."""
    body = members(call.value(), SPEC_MEMBERS)
    await _found(ports, call.path["name"])
    return await _tell(ports, call, Command.UPDATE, _spec(ports, call, body))


async def _tell(ports: Ports, call: Call, command: Command, body: Any) -> Answer:
    name = call.path["name"]
    origin = origin_of(call, ports.ids)
    annotate(workflow_id=schedule_id(name), workflow_type=SCHEDULE_TYPE, ray_id=origin.ray_id)
    try:
        accepted = await ports.store.send(
            schedule_id(name),
            name=str(command),
            body=encode(body),
            message_id=call.headers.get("idempotency-key"),
            sent_at=ports.clock.now(),
            origin=origin,
        )
    except WorkflowNotFoundError:
        raise _not_found(name) from None
    except WorkflowEndedError:
        # One that is being deleted is nothing that could be deleted first.
        is_there = await ports.store.describe(schedule_id(name)) is not None
        raise (_ended(name) if is_there else _not_found(name)) from None
    await operations.hint(ports, schedule_id(name))
    return Answer(status=202, value={"message_id": accepted.message_id, "duplicate": accepted.duplicate})


async def delete(ports: Ports, call: Call) -> Answer:
    """End a schedule and delete it: 200 when nothing is left of it, 202 while the rest is; its runs go on.

    Either way its name is free.
    """
    name = call.path["name"]
    # Its history need not be read: where it cannot be, whoever wants it gone can still have that.
    found = await _found(ports, name)
    at_workflow = replace(call, path={"id": found.workflow_id, "id_or_type": found.workflow_id}, query={})
    if found.ended_at is None:
        # It may come to its end in this moment.
        with contextlib.suppress(WorkflowEndedError):
            await operations.cancel(ports, at_workflow)
    purged = await operations.purge(ports, at_workflow)
    return Answer(status=purged.status, value={"name": name, "is_gone": purged.value["is_gone"]})
