"""A commit on a driver that is not atomic: batches within its limits, then messages, then deletions, then the alarm."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from engine import limits
from engine.errors import CommitTooLarge, InboxMovedError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from typing import Any

    from engine.commit import Alarm, Commit
    from engine.driver import EngineDriver

Pair = tuple[bytes, bytes]


def is_failure(error: BaseException) -> bool:
    """Whether ``error`` of a driver ends the run; a moved inbox does not."""
    return not isinstance(error, InboxMovedError)


async def write_in_batches(driver: EngineDriver, commit: Commit) -> None:
    """Write ``commit`` piece by piece; a crash in between is repaired by the next run, which writes the rest again.

    Raises:
        CommitTooLarge: one pair alone is over a batch's size; nothing was written.
    """
    inbox = driver.message_driver
    batches = list(split(commit.puts))
    # In an order in which nothing is lost wherever it ends: a message is back before its record goes, and recorded
    # before it goes. What a crash leaves of the rest is repaired when the operation is replayed.
    for message in commit.returned:
        await inbox.add(message)
    for batch in batches:
        await driver.batch(batch)
    for outgoing in commit.outgoing:
        await inbox.add(outgoing.message)
    for message_id in commit.consumed:
        await inbox.complete(message_id, None)
    for reply in commit.replies:
        await inbox.complete(reply.message_id, reply.body)
    await _delete(driver, commit)


async def write_alarm(driver: EngineDriver, workflow_id: str, alarm: Alarm) -> None:
    """Set or clear an alarm after its commit; a driver that is atomic has done so with it."""
    if driver.atomic_batch:
        return
    if alarm.at is None:
        await driver.clear_alarm(workflow_id)
    else:
        await driver.set_alarm(workflow_id, alarm.at)


def split(puts: list[Pair]) -> Iterator[list[Pair]]:
    """``puts`` in order, in batches of at most 128 pairs and 976 KiB of keys and values.

    Raises:
        CommitTooLarge: one pair alone is larger, before the first batch is given out.
    """
    for key, value in puts:
        if (size := len(key) + len(value)) > limits.BATCH_BYTES_MAX:
            raise CommitTooLarge(
                f"the pair at key {key.hex()} has {size} bytes; a batch holds {limits.BATCH_BYTES_MAX}; nothing was "
                "written"
            )
    batch: list[Pair] = []
    batch_bytes = 0
    for key, value in puts:
        size = len(key) + len(value)
        if len(batch) == limits.BATCH_ENTRIES_MAX or batch_bytes + size > limits.BATCH_BYTES_MAX:
            yield batch
            batch, batch_bytes = [], 0
        batch.append((key, value))
        batch_bytes += size
    if batch:
        yield batch


async def _delete(driver: EngineDriver, commit: Commit) -> None:
    operations: list[Callable[[], Coroutine[Any, Any, None]]] = [
        *(lambda prefix=prefix: driver.delete_prefix(prefix) for prefix in commit.prefixes),
        *(lambda pair=pair: driver.delete_range(*pair) for pair in commit.ranges),
        *(
            lambda start=start: driver.batch_delete(commit.deletes[start : start + limits.BATCH_ENTRIES_MAX])
            for start in range(0, len(commit.deletes), limits.BATCH_ENTRIES_MAX)
        ),
    ]
    for start in range(0, len(operations), limits.DELETES_CONCURRENT_MAX):
        await asyncio.gather(*(delete() for delete in operations[start : start + limits.DELETES_CONCURRENT_MAX]))
