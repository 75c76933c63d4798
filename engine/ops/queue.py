"""The queue: messages are taken from the inbox and recorded in one commit, oldest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine import limits, message_record, values
from engine.commit import Reply
from engine.entry import EntryStatus, Message, MessageEntry, SleepEntry, SleepState, StepEntry
from engine.errors import (
    CancelledError,
    CorruptHistoryError,
    MessageNotCompletedError,
    MessageWaitError,
    SleepError,
)
from engine.ops.failures import opened
from engine.ops.sending import encoded, put_metadata, send_to_oneself

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from engine.entry import Entry
    from engine.history.changes import Room
    from engine.scope import Scope


class Received:
    """A message as an operation of a scope received it; ``complete`` is None where it needs no completion."""

    __slots__ = ("complete", "record")

    def __init__(
        self, record: message_record.Recorded, complete: Callable[[Any], Coroutine[Any, Any, None]] | None
    ) -> None:
        self.record = record
        self.complete = complete


def label_of(names: Sequence[str]) -> str:
    """How a count entry names what was waited for: ``*``, the name, or the names joined by ``|``."""
    return "|".join(names) or "*"


async def receive(
    scope: Scope,
    name: str,
    names: tuple[str, ...],
    count: int,
    timeout_ms: int | None,
    *,
    is_completable: bool = False,
    fits: Callable[[Message], bool] | None = None,
) -> list[Received]:
    """Up to ``count`` messages of ``names`` (any where empty); ``[]`` where the timeout passed without one.

    One that does not fit is taken alone: whoever fails at it has lost no other.

    Raises:
        MessageNotCompletedError: an earlier completable message of this scope is still open.
    """
    if scope.open_messages:
        raise MessageNotCompletedError(
            f"await message.complete(...) on the message received before, then ask for the next one ({name!r})"
        )
    scope.open_parts(name)
    _, count_entry = scope.look(f"{name}:count", MessageEntry)
    deadline_entry = _look_deadline(scope, name)
    if count_entry is not None:
        _replay_deadline(scope, deadline_entry)
        received = _replay(scope, name, count_entry, is_completable=is_completable)
        if not scope.turn.flusher.is_atomic and not is_completable and not scope.turn.is_collecting:
            await _consume_again(scope, {one.record.id for one in received})
        return received
    turn = scope.turn
    scope.act()
    if timeout_ms is not None and deadline_entry is None:
        deadline_entry = scope.record(f"{name}:deadline", SleepEntry(deadline=turn.clock.now() + timeout_ms))
    deadline = None if deadline_entry is None or timeout_ms is None else _deadline_of(deadline_entry)
    while not (found := await _take(scope, names, count)):
        if deadline is not None and deadline <= turn.clock.now():
            # One last look: a message accepted before the deadline counts even if nobody was told of it.
            await turn.look_again()
            found = await _take(scope, names, count)
            break
        await turn.park(MessageWaitError(names) if deadline is None else SleepError(deadline, names))
    if fits is not None:
        found = _up_to_misfit(found, fits)
    _close_deadline(scope, name, deadline_entry, is_interrupted=bool(found))
    received = [_record(scope, name, index, message, is_completable) for index, message in enumerate(found)]
    scope.record(f"{name}:count", MessageEntry(name=f"{label_of(names)}:count", data=values.encode(len(found))))
    await turn.recorded()
    return received


def _look_deadline(scope: Scope, name: str) -> Entry | None:
    """The deadline that was fixed when this was first reached; None where the code of then had no timeout.

    Whether today's has one says nothing: a deadline that is missing is not where history ends, one too many is known.
    """
    part = f"{name}:deadline"
    return None if scope.turn.storage.find_below(scope.key, part) is None else scope.look(part, SleepEntry)[1]


def _deadline_of(entry: Entry) -> int:
    assert isinstance(entry.kind, SleepEntry)
    return entry.kind.deadline


async def _take(scope: Scope, names: tuple[str, ...], count: int) -> list[Message]:
    """The oldest messages that nobody in this run has, no more than one commit can record, without removing them."""
    turn = scope.turn
    storage = turn.storage
    inbox = turn.driver.message_driver
    wanted = count
    while True:
        looks = turn.looks
        seen = await turn.reach(inbox.receive(names, wanted))
        free = [message for message in seen if not storage.is_recorded(message.id)][:count]
        # Those that a sibling holds are still in the inbox: look past them. And where a sibling had the inbox read anew
        # while this was answered, nobody would tell who now began to wait of what is new: ask again.
        if len(free) == count or (len(seen) < wanted and turn.looks == looks):
            return free if turn.flusher.room is None else _that_fit(free, turn.flusher.room)
        wanted = wanted * 2 + len(seen) - len(free)


def _that_fit(messages: list[Message], room: Room) -> list[Message]:
    """The first of ``messages`` that are recorded in one commit with half of it to spare; at least one."""
    fitting: list[Message] = []
    left = room.bytes_max // 2
    for message in messages[: room.messages_max]:
        left -= len(message.body)
        if fitting and left < 0:
            break
        fitting.append(message)
    return fitting


def _up_to_misfit(messages: list[Message], fits: Callable[[Message], bool]) -> list[Message]:
    """Those before the first that does not fit; where it is the first, it alone."""
    fitting = next((index for index, message in enumerate(messages) if not fits(message)), len(messages))
    return messages[: max(1, fitting)]


def _close_deadline(scope: Scope, name: str, entry: Entry | None, *, is_interrupted: bool) -> None:
    if entry is None:
        return
    deadline = _deadline_of(entry)
    state = SleepState.INTERRUPTED if is_interrupted else SleepState.COMPLETED
    scope.rewrite(scope.key_of(f"{name}:deadline"), entry, SleepEntry(deadline=deadline, state=state))
    if not is_interrupted:
        scope.finished(deadline)


def _replay_deadline(scope: Scope, entry: Entry | None) -> None:
    if entry is not None and isinstance(entry.kind, SleepEntry) and entry.kind.state is SleepState.COMPLETED:
        scope.finished(entry.kind.deadline)


def _record(scope: Scope, name: str, index: int, message: Message, is_completable: bool) -> Received:  # noqa: FBT001
    part = f"{name}:{index}"
    data = message_record.encode(message, is_completed=False, keeps_ticket=scope.is_in_race)
    scope.record(part, MessageEntry(name=message.name, data=data))
    scope.finished(message.sent_at)
    if not is_completable:
        scope.turn.storage.consume(message)
        return Received(message_record.decode(message.name, data), None)
    scope.turn.storage.hold(message.id)
    return _completable(scope, part, message_record.decode(message.name, data))


def _replay(scope: Scope, name: str, count_entry: Entry, *, is_completable: bool) -> list[Received]:
    assert isinstance(count_entry.kind, MessageEntry)
    count = values.decode(count_entry.kind.data)
    if not isinstance(count, (int, float)):
        raise CorruptHistoryError(f"the count of {name!r} is {count!r}")
    return [_replay_one(scope, f"{name}:{index}", is_completable=is_completable) for index in range(int(count))]


async def _consume_again(scope: Scope, ids: set[str]) -> None:
    """Consume what a crash between the writes of a driver that is not atomic has left in the inbox."""
    turn = scope.turn
    for message in await turn.reach(turn.driver.message_driver.receive((), limits.U32_MAX)):
        if message.id in ids:
            turn.storage.consume(message)


def _replay_one(scope: Scope, part: str, *, is_completable: bool) -> Received:
    _, entry = scope.look(part, MessageEntry)
    if entry is None:
        raise scope.diverged(f"history counts a message {part!r} that it does not have")
    assert isinstance(entry.kind, MessageEntry)
    record = message_record.decode(entry.kind.name, entry.kind.data)
    scope.finished(record.created_at)
    if not is_completable:
        return Received(record, None)
    if record.is_completed:
        return Received(record, _completed_already(scope, record))
    return _completable(scope, part, record)


def _completed_already(scope: Scope, record: message_record.Recorded) -> Callable[[Any], Coroutine[Any, Any, None]]:
    """An earlier run completed it: nothing to do, unless a driver that is not atomic lost the reply in a crash."""

    async def complete(response: Any = None) -> None:
        turn = scope.turn
        if turn.flusher.is_atomic or turn.is_collecting:
            return
        inbox = await turn.reach(turn.driver.message_driver.receive((), limits.U32_MAX))
        if any(message.id == record.id for message in inbox):
            turn.storage.reply(Reply(message_id=record.id, body=values.encode(response)))

    return complete


def _completable(scope: Scope, part: str, record: message_record.Recorded) -> Received:
    scope.open_messages[record.id] = None

    async def complete(response: Any = None) -> None:
        if record.id not in scope.open_messages:
            raise MessageNotCompletedError(f"message {record.id!r} is completed already")
        turn = scope.turn
        # A ``finally`` that runs because the workflow is suspended or stopped answers nobody.
        if turn.unwound is not None:
            raise turn.unwound
        turn.check()
        if scope.abort.is_set():
            raise CancelledError("another branch won the race")
        body = values.encode(response)
        scope.check_bytes(len(body), f"the reply to {record.name!r}", is_message=True)
        if turn.flusher.is_full:
            # Where the message is not recorded yet, all that waits since would have to go in one commit with its reply.
            await turn.flush()
        scope.act()
        key = scope.key_of(part)
        entry = turn.storage.find(key)
        assert entry is not None
        message = message_record.to_message(record)
        data = message_record.encode(message, is_completed=True, keeps_ticket=record.ticket > 0)
        scope.rewrite(key, entry, MessageEntry(name=record.name, data=data))
        turn.storage.reply(Reply(message_id=record.id, body=body))
        del scope.open_messages[record.id]
        await turn.recorded()

    return Received(record, complete)


async def send(scope: Scope, name: str, body: Any) -> None:
    """Put a message into the workflow's own inbox, once, recorded as a step ``send:<name>``."""
    turn = scope.turn
    part = scope.next_name(f"send:{name}")
    entry = opened(scope, part, StepEntry, lambda: encoded(scope, name, body))
    if entry is not None:
        metadata = turn.storage.find_metadata(entry.id)
        if metadata is not None and metadata.completed_at is not None:
            scope.finished(metadata.completed_at)
        if not turn.flusher.is_atomic and not turn.is_collecting:
            # A crash between the writes of such a driver may have lost it; the same id counts once.
            sent_at = turn.clock.now() if metadata is None else metadata.created_at
            again = Message(id=entry.id, name=name, body=values.encode(body), sent_at=sent_at, origin=turn.origin)
            await turn.reach(turn.driver.message_driver.add(again))
            await turn.look_again()
        return
    data = encoded(scope, name, body)
    scope.act()
    entry = scope.record(part, StepEntry(output=values.encode(None)))
    # Where it may have to be sent again, it is the same message, with the time of its record.
    sent_at = put_metadata(scope, entry, EntryStatus.COMPLETED, None)
    message = Message(id=entry.id, name=name, body=data, sent_at=sent_at, origin=turn.origin)
    await send_to_oneself(scope, message)
