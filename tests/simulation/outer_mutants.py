"""Mutants of the laws of more than one life, of what is told and published, of children and of keeping: 9 to 17."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from adapters.dynamodb import committing, inbox, lease, purge, query, start, store
from adapters.dynamodb.lease import Outlived
from adapters.dynamodb.model import beginning, items, plan, tags
from adapters.dynamodb.model.expressions import Condition
from adapters.dynamodb.purge import Purge
from adapters.dynamodb.start import Starts
from engine import values
from engine.commit import Child
from engine.history import storage
from engine.ops import dispatch, sending, signal
from handlers import operations, wake
from tests.simulation.mutant import Mutant

if TYPE_CHECKING:
    from tests.simulation.mutant import Patch

# --- 9: purged -------------------------------------------------------------------------------------------------------


def _one_page() -> list[Patch]:
    batches = purge._batches

    async def mutant(connection: Any, workflow_id: str) -> Any:
        async for batch in batches(connection, workflow_id):
            yield batch
            return

    return [(purge, "_batches", mutant)]


def _what_runs_too() -> list[Patch]:
    return [(purge, "HAS_ENDED", Condition("attribute_exists(#pk)"))]


def _nobody_goes_on() -> list[Patch]:
    async def mutant(*_: Any) -> None:
        return None

    return [(purge, "due", lambda *_: {}), (operations, "_arm", mutant)]


# --- 10: signals -----------------------------------------------------------------------------------------------------


def _recorded_only() -> list[Patch]:
    send = storage.Storage.send

    def mutant(self: Any, outgoing: Any) -> None:
        if outgoing.workflow_id is None:
            send(self, outgoing)

    return [(storage.Storage, "send", mutant)]


def _sent_at_each_replay() -> list[Patch]:
    return [(signal, "replayed", lambda *_: None)]


def _refused_is_delivered() -> list[Patch]:
    class Mutant(sending.Sending):
        def failed(self, _refusal: Exception) -> None:
            self.done(values.encode(True))  # noqa: FBT003 - the value that is recorded

    return [(signal, "Sending", Mutant)]


# --- 11: listings ----------------------------------------------------------------------------------------------------


def _types_not_noted() -> list[Patch]:
    async def mutant(*_: Any) -> None:
        return None

    return [(start, "know", mutant)]


def _one_group() -> list[Patch]:
    return [(items, "list_group", lambda _state: items.ACTIVE)]


def _cursor_too_far() -> list[Patch]:
    cursor = query._cursor
    return [(query, "_cursor", lambda place: cursor((place[0] - 10_000_000, place[1])))]


# --- 12: answers -----------------------------------------------------------------------------------------------------


def _every_start_is_new() -> list[Patch]:
    start_ = Starts.start

    async def mutant(self: Any, **more: Any) -> Any:
        return replace(await start_(self, **more), created=True)

    return [(Starts, "start", mutant)]


def _key_not_minded() -> list[Patch]:
    return [(operations, "message_id_of", lambda _call: None)]


def _no_duplicate() -> list[Patch]:
    find_reply = inbox.find_reply

    async def mutant(*arguments: Any) -> Any:
        known = await find_reply(*arguments)
        return known and replace(known, duplicate=False)

    return [(inbox, "find_reply", mutant)]


def _gone_too_soon() -> list[Patch]:
    purged = vars(store)["purge"]

    async def mutant(*arguments: Any, **more: Any) -> Purge:
        await purged(*arguments, **more)
        return Purge()

    return [(store, "purge", mutant)]


# --- 13: remembered for a day ----------------------------------------------------------------------------------------


def _known_until_deleted() -> list[Patch]:
    find_reply = inbox.find_reply
    return [(inbox, "find_reply", lambda table, workflow_id, name, _now: find_reply(table, workflow_id, name, 0))]


def _known_for_an_hour() -> list[Patch]:
    return [(inbox, "DEDUP_TTL_S", 3600)]


def _milliseconds() -> list[Patch]:
    encode = items.encode_dedup

    def mutant(workflow_id: str, message_id: str, ticket: int, forget_at_s: int) -> Any:
        return encode(workflow_id, message_id, ticket, forget_at_s * 1000)

    return [(inbox, "encode_dedup", mutant)]


# --- 14: published ---------------------------------------------------------------------------------------------------


def _recorded_and_not_published() -> list[Patch]:
    return [(storage.Storage, "publish", lambda _self, _publication: None)]


def _told_before_it_is_written() -> list[Patch]:
    commit = committing.Committer._commit

    async def mutant(self: Any, given: Any) -> None:
        if given.published:
            self.on_published(given.published)
        await commit(self, given)

    return [(committing.Committer, "_commit", mutant)]


# --- 15: children ----------------------------------------------------------------------------------------------------


def _started_on_paper() -> list[Patch]:
    return [(storage.Storage, "start", lambda _self, _entry_id, _child: None)]


def _started_at_each_replay() -> list[Patch]:
    numbers = itertools.count()

    def mutant(**given: Any) -> Child:
        return Child(**{**given, "workflow_id": f"{given['workflow_id']} {next(numbers)}"})

    return [(dispatch, "replayed", lambda *_: None), (dispatch, "Child", mutant)]


def _no_note() -> list[Patch]:
    async def mutant(*_: Any) -> None:
        return None

    return [(committing, "note", mutant)]


def _nobody_is_told() -> list[Patch]:
    async def mutant(*_: Any) -> list[str]:
        return []

    return [(module, "tell_waiters", mutant) for module in (committing, lease)]


# --- 16: places and tags ---------------------------------------------------------------------------------------------


def _place_not_taken() -> list[Patch]:
    return [(beginning, "take_place", lambda *_: [])]


def _tags_stay() -> list[Patch]:
    found = tags.found_actions
    return [(plan, "found_actions", lambda before, after: (found(before, after)[0], []))]


# --- 17: kept for a while --------------------------------------------------------------------------------------------


def _kept_for_no_time() -> list[Patch]:
    end = plan._end
    return [(plan, "_end", lambda pruning, now: end(pruning and replace(pruning, after_ms=0), now))]


def _kept_for_ever() -> list[Patch]:
    async def mutant(*_: Any, **__: Any) -> tuple[str, ...]:
        return ()

    return [(wake, "forget", mutant)]


def _all_of_it_goes() -> list[Patch]:
    return [(lease, "Outlived", lambda **_: Outlived(is_whole=True))]


OUTER_MUTANTS = [
    Mutant(name="a purge of one page", law=9, patches=_one_page),
    Mutant(name="what runs is purged too", law=9, patches=_what_runs_too),
    Mutant(name="a purge that was cut short is nobody's", law=9, patches=_nobody_goes_on),
    Mutant(name="a signal is recorded, and not sent", law=10, patches=_recorded_only),
    Mutant(name="a signal is sent at each replay", law=10, patches=_sent_at_each_replay),
    Mutant(name="a refused signal counts as delivered", law=10, patches=_refused_is_delivered),
    Mutant(name="types are not noted", law=11, patches=_types_not_noted),
    Mutant(name="what has ended stays in its group", law=11, patches=_one_group),
    Mutant(name="a cursor leaves some out", law=11, patches=_cursor_too_far),
    Mutant(name="every start is new", law=12, patches=_every_start_is_new),
    Mutant(name="an idempotency key is not minded", law=12, patches=_key_not_minded),
    Mutant(name="no message is a duplicate", law=12, patches=_no_duplicate),
    Mutant(name="purged is said to be gone", law=12, patches=_gone_too_soon),
    Mutant(name="an id is known until it is deleted", law=13, patches=_known_until_deleted),
    Mutant(name="an id is known for an hour", law=13, patches=_known_for_an_hour),
    Mutant(name="a time to live in milliseconds", law=13, patches=_milliseconds),
    Mutant(name="a publication is recorded, and not made", law=14, patches=_recorded_and_not_published),
    Mutant(name="the bus is told before it is written", law=14, patches=_told_before_it_is_written),
    Mutant(name="a start is recorded, and not made", law=15, patches=_started_on_paper),
    Mutant(name="a child is started at each replay", law=15, patches=_started_at_each_replay),
    Mutant(name="a waiter leaves no note", law=15, patches=_no_note),
    Mutant(name="nobody is told of an end", law=15, patches=_nobody_is_told),
    Mutant(name="a place is not taken", law=16, patches=_place_not_taken),
    Mutant(name="tags stay when their workflow has ended", law=16, patches=_tags_stay),
    Mutant(name="what was to be kept is kept for no time", law=17, patches=_kept_for_no_time),
    Mutant(name="what was to be kept for a while is kept for ever", law=17, patches=_kept_for_ever),
    Mutant(name="with the history all of it goes", law=17, patches=_all_of_it_goes),
]
