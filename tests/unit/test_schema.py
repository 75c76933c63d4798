"""The hand-written codec says exactly what the schema file says, in both directions."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import bare
from engine.entry import (
    ENTRY_KINDS,
    BranchState,
    BranchStatus,
    Entry,
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
from engine.errors import CorruptHistoryError, UnknownVersionError
from engine.location import LoopIteration
from tests.unit.bare_interpreter import MalformedError, Schema

SCHEMA = Schema((files("engine.schema") / "v1.bare").read_text())
VERSION = b"\x01\x00"


def segment_of(segment: tuple[str, Any]) -> int | LoopIteration:
    name, value = segment
    return LoopIteration(**value) if name == "LoopIterationMarker" else int(value)


def branches_of(branches: dict[str, Any]) -> dict[str, BranchStatus]:
    return {
        name: BranchStatus(status=BranchState[branch["status"]], output=branch["output"], error=branch["error"])
        for name, branch in branches.items()
    }


KINDS: dict[str, Any] = {
    "StepEntry": lambda kind: StepEntry(**kind),
    "LoopEntry": lambda kind: LoopEntry(**kind),
    "SleepEntry": lambda kind: SleepEntry(deadline=kind["deadline"], state=SleepState[kind["state"]]),
    "MessageEntry": lambda kind: MessageEntry(name=kind["name"], data=kind["messageData"]),
    "RollbackCheckpointEntry": lambda kind: RollbackCheckpointEntry(**kind),
    "JoinEntry": lambda kind: JoinEntry(branches=branches_of(kind["branches"])),
    "RaceEntry": lambda kind: RaceEntry(winner=kind["winner"], branches=branches_of(kind["branches"])),
    "RemovedEntry": lambda kind: RemovedEntry(original_type=kind["originalType"], original_name=kind["originalName"]),
    "VersionCheckEntry": lambda kind: VersionCheckEntry(**kind),
}


def entry_of(value: dict[str, Any]) -> Entry:
    name, kind = value["kind"]
    return Entry(value["id"], tuple(map(segment_of, value["location"])), KINDS[name](kind))


def metadata_of(value: dict[str, Any]) -> EntryMetadata:
    return EntryMetadata(
        status=EntryStatus[value["status"]],
        error=value["error"],
        attempts=value["attempts"],
        last_attempt_at=value["lastAttemptAt"],
        created_at=value["createdAt"],
        completed_at=value["completedAt"],
        rollback_completed_at=value["rollbackCompletedAt"],
        rollback_error=value["rollbackError"],
    )


def test_kinds_have_the_tags_of_the_schema() -> None:
    keyword, members = SCHEMA.types["EntryKind"]
    assert keyword == "union"
    assert members == [kind.__name__ for kind in ENTRY_KINDS] == list(KINDS)


@pytest.mark.parametrize(
    ("name", "members"),
    [("EntryStatus", EntryStatus), ("SleepState", SleepState), ("BranchStatusType", BranchState)],
)
def test_enums_have_the_members_of_the_schema(name: str, members: Any) -> None:
    assert SCHEMA.types[name] == ("enum", [member.name for member in members])
    assert [int(member) for member in members] == list(range(len(members)))


@given(SCHEMA.values("Entry"))
def test_entries_are_as_the_schema_says(value: dict[str, Any]) -> None:
    expected, entry = VERSION + SCHEMA.encode("Entry", value), entry_of(value)
    assert bare.encode_entry(entry) == expected
    assert bare.decode_entry(expected) == entry
    assert bare.encode_entry_at(entry.id, bare.encode_location(entry.location), entry.kind) == expected


@given(SCHEMA.values("EntryMetadata"))
def test_metadata_is_as_the_schema_says(value: dict[str, Any]) -> None:
    expected, metadata = VERSION + SCHEMA.encode("EntryMetadata", value), metadata_of(value)
    assert bare.encode_metadata(metadata) == expected
    assert bare.decode_metadata(expected) == metadata


def damaged(name: str) -> st.SearchStrategy[bytes]:
    """Bytes of a record with one change: a byte replaced, some cut off, some put in."""
    whole = SCHEMA.values(name).map(lambda value: SCHEMA.encode(name, value))

    def change(data: bytes, at: int, removed: int, inserted: bytes) -> bytes:
        at %= len(data)
        return data[:at] + inserted + data[at + removed :]

    return st.builds(change, whole, st.integers(0, 2000), st.integers(0, 3), st.binary(max_size=3))


@given(damaged("Entry") | st.binary(max_size=80))
def test_entries_are_refused_exactly_where_the_schema_refuses_them(data: bytes) -> None:
    try:
        expected = entry_of(SCHEMA.decode("Entry", data))
    except MalformedError:
        with pytest.raises(CorruptHistoryError):
            bare.decode_entry(VERSION + data)
    else:
        assert bare.decode_entry(VERSION + data) == expected


def test_metadata_that_is_read_in_one_go_is_as_the_schema_says() -> None:
    """That of a step which went well, each byte of it in each way, and others of its length."""
    usual = EntryMetadata(
        status=EntryStatus.COMPLETED, attempts=1, last_attempt_at=2**41, created_at=2**42, completed_at=2**43
    )
    data = bare.encode_metadata(usual)[len(VERSION) :]
    for at in range(len(data)):
        for byte in range(256):
            check_metadata(data[:at] + bytes((byte,)) + data[at + 1 :])
    alike = EntryMetadata(created_at=1, error="e" * 7)
    assert len(bare.encode_metadata(alike)) == len(VERSION + data)
    check_metadata(bare.encode_metadata(alike)[len(VERSION) :])


@given(damaged("EntryMetadata") | st.binary(max_size=60))
def test_metadata_is_refused_exactly_where_the_schema_refuses_it(data: bytes) -> None:
    check_metadata(data)


def check_metadata(data: bytes) -> None:
    """It is read as the schema says, or refused where that refuses it."""
    try:
        expected = metadata_of(SCHEMA.decode("EntryMetadata", data))
    except MalformedError:
        with pytest.raises(CorruptHistoryError):
            bare.decode_metadata(VERSION + data)
    else:
        assert bare.decode_metadata(VERSION + data) == expected


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for decode in (bare.decode_entry, bare.decode_metadata):
        try:
            decode(data)
        except (CorruptHistoryError, UnknownVersionError):
            continue
