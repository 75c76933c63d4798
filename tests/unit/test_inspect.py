from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from engine import bare, inspect, keys, values
from engine.entry import (
    BranchState,
    BranchStatus,
    Entry,
    EntryKind,
    EntryMetadata,
    EntryStatus,
    JoinEntry,
    LoopEntry,
    MessageEntry,
    RaceEntry,
    RemovedEntry,
    RollbackCheckpointEntry,
    SleepEntry,
    SleepState,
    StepEntry,
    VersionCheckEntry,
)
from engine.location import Location, LoopIteration

GOLDEN = Path(__file__).parent.parent / "replay" / "golden"


def golden(name: str) -> list[tuple[bytes, bytes]]:
    stored = json.loads((GOLDEN / f"{name}.json").read_text())["kv"]
    return [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in stored]


def entry_pair(location: Location, kind: EntryKind, entry_id: str = "id") -> tuple[bytes, bytes]:
    return keys.entry_key(location), bare.encode_entry(Entry(entry_id, location, kind))


def describe_kind(kind: EntryKind) -> inspect.Operation:
    (operation,) = inspect.describe([entry_pair((0,), kind)]).operations
    return operation


def test_nothing_stored_is_a_pending_workflow() -> None:
    history = inspect.describe([])
    assert history == inspect.History(state="pending")


def test_a_golden_history_is_described() -> None:
    history = inspect.describe(golden("rolled_back"))
    assert history.state == "failed"
    assert (history.input, history.has_input, history.has_output) == ({}, True, False)
    assert history.error is not None
    assert (history.error.name, history.error.message) == ("CriticalError", "no stock")
    assert history.names == {0: "cp", 1: "reserve", 2: "ship"}
    assert history.unreadable == ()
    checkpoint, reserve, ship = history.operations
    assert (checkpoint.location, checkpoint.kind, checkpoint.status) == ("cp", "rollback_checkpoint", "completed")
    assert (reserve.value, reserve.attempts, reserve.status) == ({"id": 5}, 1, "completed")
    assert reserve.rolled_back_at is not None
    assert reserve.rolled_back_at.tzinfo is UTC
    assert (ship.status, ship.error, ship.has_value) == ("exhausted", "CriticalError: no stock", False)


def test_locations_and_order_are_those_of_the_run() -> None:
    history = inspect.describe(reversed(golden("loop_iteration_45")))
    assert [one.location for one in history.operations[:3]] == ["drain", "drain/~20/add", "drain/~21/add"]
    assert history.operations[0].details == "iteration 45"
    assert history.operations[0].value == {"n": 45, "sum": 990}


def test_branches_are_described() -> None:
    join = inspect.describe(golden("join_partial")).operations[0]
    assert join.status == "running"
    assert [(one.name, one.status, one.value) for one in join.branches] == [
        ("a", "completed", 1),
        ("b", "running", None),
        ("c", "running", None),
    ]


def test_every_kind_tells_its_status_without_metadata() -> None:
    nothing = values.encode(None)
    completed = {"a": BranchStatus(status=BranchState.COMPLETED, output=nothing)}
    failed = {"a": BranchStatus(status=BranchState.FAILED, error="E: m")}
    expected: list[tuple[EntryKind, str]] = [
        (StepEntry(output=nothing), "completed"),
        (StepEntry(error="E: m"), "failed"),
        (StepEntry(), "pending"),
        (LoopEntry(state=nothing), "running"),
        (LoopEntry(state=nothing, output=nothing), "completed"),
        (SleepEntry(deadline=0), "pending"),
        (SleepEntry(deadline=0, state=SleepState.INTERRUPTED), "interrupted"),
        (MessageEntry(name="*", data=values.encode(1)), "completed"),
        (RollbackCheckpointEntry(name="c"), "completed"),
        (JoinEntry(branches=completed), "completed"),
        (JoinEntry(branches=failed), "failed"),
        (JoinEntry(branches={**failed, "b": BranchStatus()}), "running"),
        (RaceEntry(winner="a", branches=completed | {"b": BranchStatus(status=BranchState.FAILED)}), "completed"),
        (RaceEntry(branches=failed), "failed"),
        (RemovedEntry(original_type="step"), "removed"),
        (VersionCheckEntry(resolved=1, latest=3), "completed"),
    ]
    for kind, status in expected:
        assert describe_kind(kind).status == status, kind


def test_a_stored_none_is_told_from_no_value() -> None:
    assert describe_kind(StepEntry(output=values.encode(None))).has_value
    assert not describe_kind(StepEntry()).has_value


def test_a_queue_message_shows_its_body() -> None:
    content = {"__rivetWorkflowQueueMessage": 1, "id": "m1", "name": "paid", "body": {"n": 1}, "createdAt": 1}
    operation = describe_kind(MessageEntry(name="paid", data=values.encode(content)))
    assert operation.value == {"n": 1}
    assert operation.details == "message paid with the id m1"
    received = describe_kind(MessageEntry(name="paid", data=values.encode(content | {"completed": False})))
    assert received.status == "received"


def test_times_are_aware_datetimes() -> None:
    step = entry_pair((0,), StepEntry())
    metadata = EntryMetadata(
        status=EntryStatus.RUNNING, attempts=2, created_at=1_767_323_045_678, completed_at=2**64 - 1
    )
    (operation,) = inspect.describe([step, (keys.metadata_key("id"), bare.encode_metadata(metadata))]).operations
    assert operation.created_at == datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    assert operation.completed_at == datetime.max.replace(tzinfo=UTC)
    assert operation.last_attempt_at is None
    assert (operation.status, operation.attempts) == ("running", 2)


def test_what_cannot_be_read_is_listed_and_the_rest_is_shown() -> None:
    good = entry_pair((0, LoopIteration(0, 3), 1), StepEntry(output=values.encode(7)))
    bad: list[tuple[bytes, bytes]] = [
        (b"\xff", b"x"),
        (b"", b""),
        (keys.name_key(0) + b"\xff", b"x"),
        (keys.name_key(9), b"\xff"),
        (keys.entry_key((5,)), b"\x07\x00"),
        (keys.entry_key((6,)), good[1]),
        (keys.metadata_key("id"), b"\x01\x00\x09"),
        (keys.STATE_KEY, b"dreaming"),
        (keys.INPUT_KEY, b"\xff"),
        (keys.ERROR_KEY, values.encode([])),
        (keys.pack((5, 1)), b"of another engine"),
    ]
    history = inspect.describe([(keys.name_key(1), b"inner"), *bad, good])
    assert [one.key for one in history.unreadable] == [key.hex() for key, _ in bad]
    assert all(one.reason for one in history.unreadable)
    (operation,) = history.operations
    assert (operation.location, operation.value) == ("#0/~3/inner", 7)
    assert any("format version 7" in one.reason for one in history.unreadable)


def test_an_entry_with_an_unreadable_value_is_shown_all_the_same() -> None:
    history = inspect.describe([(keys.name_key(0), b"charge"), entry_pair((0,), StepEntry(output=b"\xff"))])
    (operation,) = history.operations
    assert (operation.location, operation.status) == ("charge", "unreadable")
    assert len(history.unreadable) == 1


def test_an_absurd_index_costs_nothing() -> None:
    history = inspect.describe([(keys.name_key(2**32 - 1), b"last"), entry_pair((2**32 - 1,), StepEntry())])
    assert history.operations[0].location == "last"


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=12)
            | st.sampled_from([keys.STATE_KEY, keys.OUTPUT_KEY, keys.ERROR_KEY, keys.name_key(0), keys.entry_key((0,))])
            | st.builds(lambda end: keys.HISTORY_PREFIX + end, st.binary(max_size=8)),
            st.binary(max_size=30) | st.builds(lambda end: b"\x01\x00\x00\x01\x00" + end, st.binary(max_size=30)),
        ),
        max_size=8,
    )
)
def test_any_pairs_can_be_described(pairs: list[tuple[bytes, bytes]]) -> None:
    assert inspect.describe(pairs).state
