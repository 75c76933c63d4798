"""A history in memory: what is dirty, what a commit carries, and what stays when it fails."""

from __future__ import annotations

import pytest

from engine import bare, keys, message_record
from engine.commit import Alarm
from engine.entry import Entry, EntryMetadata, Message, MessageEntry, SleepEntry, StepEntry
from engine.errors import CorruptHistoryError
from engine.history.changes import Room
from engine.history.storage import Storage
from engine.lifecycle import WorkflowState

OLD_ID = "018f0000-0000-7000-8000-000000000001"
FOREIGN_ID = "ffff0000-0000-4000-8000-000000000001"


def put_step(storage: Storage, name: str, output: bytes = b"\x01", *, is_urgent: bool = True) -> bytes:
    index = storage.register_name(name)
    key = keys.entry_key((index,))
    entry = Entry(f"018f0000-0000-7000-8000-{index:012d}", (index,), StepEntry(output=output))
    storage.put(key, entry, is_urgent=is_urgent)
    storage.put_metadata(entry.id, EntryMetadata(created_at=1))
    return key


def settle(storage: Storage) -> None:
    commit = storage.gather()
    storage.settled(len(storage.names), commit.state)


def test_a_commit_carries_names_entries_metadata_fields_and_state() -> None:
    storage = Storage()
    key = put_step(storage, "a")
    storage.set_input(b"in")
    storage.state = WorkflowState.SLEEPING
    commit = storage.gather(alarm=Alarm(5, workflow_id="w"), yields=True, names=("x",))
    assert commit.puts[0][0] == keys.name_key(0)
    assert dict(commit.puts).keys() >= {key, keys.INPUT_KEY, keys.STATE_KEY}
    assert (commit.state, commit.yields, commit.names) == (WorkflowState.SLEEPING, True, ("x",))


def test_nothing_is_dirty_once_all_is_settled() -> None:
    storage = Storage()
    put_step(storage, "a")
    assert storage.is_urgent
    assert storage.is_dirty()
    settle(storage)
    assert not storage.is_urgent
    assert not storage.has_news()
    assert storage.gather().puts == []


def test_a_failed_flush_keeps_everything_and_the_next_one_writes_the_same() -> None:
    storage = Storage()
    put_step(storage, "a")
    storage.set_output(b"out")
    storage.consume(Message(id="m", name="m", body=b"", sent_at=1))
    storage.state = WorkflowState.COMPLETED
    first = storage.gather()
    storage.restore()
    assert storage.is_urgent
    assert storage.gather() == first


def test_what_turns_dirty_during_a_flush_stays_dirty() -> None:
    storage = Storage()
    key = put_step(storage, "a")
    storage.gather()
    storage.put(key, Entry(OLD_ID, (0,), StepEntry(output=b"\x02")))
    other = put_step(storage, "b")
    storage.settled(1, None)
    commit = storage.gather()
    assert dict(commit.puts).keys() >= {key, other, keys.name_key(1)}
    assert keys.name_key(0) not in dict(commit.puts)


def test_what_was_removed_while_it_was_in_flight_is_not_written_again() -> None:
    storage = Storage()
    key = put_step(storage, "a")
    storage.gather()
    storage.remove(key)
    storage.restore()
    commit = storage.gather()
    assert key not in dict(commit.puts)
    assert key in commit.deletes


def test_what_is_put_again_is_not_deleted() -> None:
    storage = Storage()
    key = put_step(storage, "a")
    settle(storage)
    storage.remove(key)
    put_step(storage, "a")
    commit = storage.gather()
    assert key not in commit.deletes
    assert key in dict(commit.puts)


def test_what_is_not_urgent_is_carried_but_asks_for_nothing() -> None:
    storage = Storage()
    key = put_step(storage, "a", is_urgent=False)
    assert not storage.is_urgent
    assert key in dict(storage.gather().puts)


def test_a_range_goes_with_its_metadata() -> None:
    storage = Storage()
    key = put_step(storage, "a")
    settle(storage)
    entry = storage.find(key)
    assert entry is not None
    assert storage.remove_range(key, key + b"\xff") == [entry]
    assert storage.remove_range(key, key + b"\xff") == []
    commit = storage.gather()
    assert commit.ranges == [(key, key + b"\xff")]
    assert commit.deletes == [keys.metadata_key(entry.id)]


def test_the_latest_id_is_the_last_of_version_seven_of_all_entries() -> None:
    entries = [
        (keys.entry_key((0,)), bare.encode_entry(Entry(OLD_ID, (0,), SleepEntry(deadline=1)))),
        (keys.entry_key((1,)), bare.encode_entry(Entry(FOREIGN_ID, (1,), SleepEntry(deadline=1)))),
    ]
    storage = Storage.load(entries)
    assert storage.latest_id() == OLD_ID
    put_step(storage, "a")
    put_step(storage, "b")
    put_step(storage, "c")
    assert storage.latest_id() == "018f0000-0000-7000-8000-000000000002"
    assert Storage().latest_id() is None


def test_loading_reads_names_in_their_order_and_refuses_a_gap() -> None:
    storage = Storage.load([(keys.name_key(0), b"a"), (keys.name_key(1), b"b")])
    assert storage.names == ["a", "b"]
    with pytest.raises(CorruptHistoryError, match="gap"):
        Storage.load([(keys.name_key(1), b"b")])
    with pytest.raises(CorruptHistoryError, match="unknown workflow state"):
        Storage.load([(keys.STATE_KEY, b"dancing")])


def test_an_entry_that_cannot_be_read_is_named_by_its_key() -> None:
    key = keys.entry_key((0,))
    storage = Storage.load([(key, b"\x01\x00rubbish")])
    with pytest.raises(CorruptHistoryError, match=key.hex()):
        storage.find(key)


def test_unvisited_entries_are_those_of_an_earlier_run_alone() -> None:
    storage = Storage()
    put_step(storage, "a")
    assert storage.first_unvisited(keys.HISTORY_PREFIX) is None
    storage.begin_run()
    key = keys.entry_key((0,))
    assert storage.first_unvisited(keys.HISTORY_PREFIX) == key
    storage.visited.add(key)
    assert storage.first_unvisited(keys.HISTORY_PREFIX) is None


def test_messages_are_consumed_given_back_and_held() -> None:
    storage = Storage()
    message = Message(id="m", name="n", body=b"\xf6", sent_at=1, ticket=4)
    storage.consume(message)
    assert storage.is_recorded("m")
    storage.give_back(message)
    assert not storage.is_recorded("m")
    assert storage.gather().consumed == []
    storage.settled(0, None)
    storage.consume(message)
    storage.gather()
    storage.give_back(message)
    storage.settled(0, None)
    assert storage.gather().returned == [message]
    storage.settled(0, None)
    storage.consume(message)
    assert storage.gather().consumed == ["m"]


def test_what_has_no_room_stays_behind_with_the_state_and_the_alarm() -> None:
    storage = Storage()
    first = put_step(storage, "a", b"x" * 100)
    storage.consume(Message(id="m1", name="n", body=b"", sent_at=1))
    storage.close_group()
    second = put_step(storage, "b", b"x" * 100)
    storage.consume(Message(id="m2", name="n", body=b"", sent_at=1))
    storage.close_group()
    storage.set_output(b"out")
    storage.state = WorkflowState.COMPLETED
    room = Room(bytes_max=450, messages_max=10)

    commit = storage.gather(room, alarm=Alarm(None, workflow_id="w"), yields=True)
    assert storage.is_partial
    assert storage.is_urgent
    assert first in dict(commit.puts)
    assert second not in dict(commit.puts)
    assert (commit.consumed, commit.state, commit.alarm, commit.yields) == (["m1"], None, None, False)
    storage.settled(len(storage.names), commit.state)

    commit = storage.gather(room, alarm=Alarm(None, workflow_id="w"), yields=True)
    assert not storage.is_partial
    assert dict(commit.puts).keys() >= {second, keys.OUTPUT_KEY, keys.STATE_KEY}
    assert (commit.consumed, commit.state, commit.yields) == (["m2"], WorkflowState.COMPLETED, True)


def test_a_partial_commit_that_failed_comes_again_whole() -> None:
    storage = Storage()
    put_step(storage, "a", b"x" * 100)
    storage.close_group()
    put_step(storage, "b", b"x" * 100)
    room = Room(bytes_max=300, messages_max=10)
    commit = storage.gather(room)
    storage.restore()
    assert storage.gather(room) == commit


def test_a_recorded_message_is_known_from_history() -> None:
    message = Message(id="m", name="n", body=b"\xf6", sent_at=1)
    data = message_record.encode(message, is_completed=False, keeps_ticket=False)
    entry = bare.encode_entry(Entry(OLD_ID, (0,), MessageEntry(name="n", data=data)))
    assert Storage.load([(keys.entry_key((0,)), entry)]).is_recorded("m")
