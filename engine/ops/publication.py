"""A publication: a message to whoever listens now, which leaves only once the commit that records it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine import values
from engine.commit import Publication
from engine.entry import EntryMetadata, EntryStatus, StepEntry
from engine.errors import DriverError

if TYPE_CHECKING:
    from engine.scope import Scope


async def run(scope: Scope, name: str, body: Any, topic: str) -> None:
    """Have ``body`` published once, with the commit that records it as a step ``publish:<name>``.

    Like a step's result it goes with the next commit, and before anything else acts.
    """
    turn = scope.turn
    part = scope.next_name(f"publish:{name}")
    _, entry = scope.open(part, StepEntry)
    if entry is not None:
        metadata = turn.storage.find_metadata(entry.id)
        if metadata is not None and metadata.completed_at is not None:
            scope.finished(metadata.completed_at)
        return
    if not turn.flusher.is_atomic:
        # Written piece by piece, a crash in between would publish it again, or never.
        raise turn.fail(DriverError(f"publish {name!r}: a store whose commits are not atomic cannot publish"))
    data = values.encode(body)
    scope.check_bytes(len(data), f"the message {name!r}", is_message=True)
    scope.act()
    now = turn.clock.now()
    entry = scope.record(part, StepEntry(output=values.encode(None)))
    turn.storage.put_metadata(
        entry.id,
        EntryMetadata(status=EntryStatus.COMPLETED, attempts=1, last_attempt_at=now, created_at=now, completed_at=now),
    )
    turn.storage.publish(Publication(id=entry.id, name=name, topic=topic, body=data, sent_at=now))
    scope.finished(now)
    await turn.recorded()
