"""A publication: a message to whoever listens now, which leaves only once the commit that records it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine import values
from engine.commit import Publication
from engine.entry import EntryStatus, StepEntry
from engine.errors import DriverError
from engine.ops.failures import opened
from engine.ops.sending import encoded, put_metadata, replayed

if TYPE_CHECKING:
    from engine.scope import Scope


async def run(scope: Scope, name: str, body: Any, topic: str) -> None:
    """Have ``body`` published once, with the commit that records it as a step ``publish:<name>``.

    Like a step's result it goes with the next commit, and before anything else acts.
    """
    turn = scope.turn
    part = scope.next_name(f"publish:{name}")
    entry = opened(scope, part, StepEntry, lambda: encoded(scope, name, body))
    if entry is not None:
        replayed(scope, entry)
        return
    if not turn.flusher.is_atomic:
        # Written piece by piece, a crash in between would publish it again, or never.
        raise turn.fail(DriverError(f"publish {name!r}: a store whose commits are not atomic cannot publish"))
    data = encoded(scope, name, body)
    scope.act()
    entry = scope.record(part, StepEntry(output=values.encode(None)))
    put_metadata(scope, entry, EntryStatus.COMPLETED, None)
    turn.storage.publish(Publication(id=entry.id, name=name, topic=topic, body=data, sent_at=turn.clock.now()))
    await turn.recorded()
