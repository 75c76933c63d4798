from __future__ import annotations

import tracemalloc

import pytest

from engine import bare
from engine.entry import (
    BranchState,
    BranchStatus,
    Entry,
    EntryMetadata,
    EntryStatus,
    JoinEntry,
    MessageEntry,
    RollbackCheckpointEntry,
    SleepEntry,
    StepEntry,
)
from engine.errors import CorruptHistoryError, UnknownVersionError, UnstorableValueError
from engine.location import LoopIteration

ENTRY = Entry("e", (0, LoopIteration(0, 7), 300), StepEntry(output=b"\x05"))
ENTRY_BYTES = bytes.fromhex("0100 01 65 03 00 00000000 01 00000000 07000000 00 2c010000 00 01 01 05 00")
METADATA = EntryMetadata(status=EntryStatus.EXHAUSTED, error="E: m", attempts=3, last_attempt_at=2, created_at=1)
METADATA_BYTES = bytes.fromhex("0100 04 01 04 453a206d 03000000 0200000000000000 0100000000000000 00 00 00")


def test_an_entry_has_these_bytes() -> None:
    assert bare.encode_entry(ENTRY) == ENTRY_BYTES
    assert bare.decode_entry(ENTRY_BYTES) == ENTRY


def test_metadata_has_these_bytes() -> None:
    assert bare.encode_metadata(METADATA) == METADATA_BYTES
    assert bare.decode_metadata(METADATA_BYTES) == METADATA


def test_loop_iterations_are_read_as_such() -> None:
    location = bare.decode_entry(ENTRY_BYTES).location
    assert isinstance(location[1], LoopIteration)
    assert type(location[0]) is int


@pytest.mark.parametrize("size", [0, 127, 128, 16383, 16384, 2**21])
def test_lengths_of_every_width(size: int) -> None:
    entry = Entry("i" * min(size, 20000), (), StepEntry(output=b"\x00" * size))
    assert bare.decode_entry(bare.encode_entry(entry)) == entry


@pytest.mark.parametrize("version", [0, 2, 256, 0xFFFF])
def test_another_version_is_named_and_not_guessed_at(version: int) -> None:
    prefix = version.to_bytes(2, "little")
    for decode, data in ((bare.decode_entry, ENTRY_BYTES), (bare.decode_metadata, METADATA_BYTES)):
        with pytest.raises(UnknownVersionError, match=rf"format version {version}; this engine knows version 1"):
            decode(prefix + data[2:])


@pytest.mark.parametrize("data", [b"", b"\x01"])
def test_too_short_for_a_version(data: bytes) -> None:
    for decode in (bare.decode_entry, bare.decode_metadata):
        with pytest.raises(CorruptHistoryError, match="too short"):
            decode(data)


def test_every_truncation_and_every_addition_is_refused() -> None:
    for size in range(2, len(ENTRY_BYTES)):
        with pytest.raises(CorruptHistoryError):
            bare.decode_entry(ENTRY_BYTES[:size])
    for size in range(2, len(METADATA_BYTES)):
        with pytest.raises(CorruptHistoryError):
            bare.decode_metadata(METADATA_BYTES[:size])
    with pytest.raises(CorruptHistoryError, match="should be 29 bytes but is 30"):
        bare.decode_entry(ENTRY_BYTES + b"\0")
    with pytest.raises(CorruptHistoryError, match="should be"):
        bare.decode_metadata(METADATA_BYTES + b"\0")


HUGE = "ffffffffffffffffff01"


@pytest.mark.parametrize(
    "malformed",
    [
        HUGE,  # an id of 2**64 - 1 bytes
        "ffffffffffffffffff02",  # a length of 65 bits
        "ffffffffffffffffffff01",  # a length of 11 bytes
        "8000",  # a length of 0 in two bytes
        "00" + HUGE,  # a location of 2**64 - 1 segments
        "00 01 02 00000000",  # no such segment
        "00 00 09",  # no such kind
        "00 00 80",  # no such kind
        "00 00 00 02 00",  # neither present nor absent
        "00 00 00 01 05 0000",  # an output beyond the end
        "00 00 00 01" + HUGE,  # an output of 2**64 - 1 bytes
        "00 00 02 0000000000000000 03",  # no such state of a sleep
        "00 00 03 01 ff 00",  # a name that is not UTF-8
        "00 00 05" + HUGE,  # 2**64 - 1 branches
        "00 00 05 02 01 61 00 00 00 01 61 00 00 00",  # the same branch twice
        "00 00 05 01 01 61 05 00 00",  # no such state of a branch
    ],
)
def test_malformed_entries_are_refused_at_once(malformed: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CorruptHistoryError):
            bare.decode_entry(b"\x01\x00" + bytes.fromhex(malformed))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("status", ["05", "80", "ff"])
def test_an_unknown_status_is_refused(status: str) -> None:
    with pytest.raises(CorruptHistoryError):
        bare.decode_metadata(b"\x01\x00" + bytes.fromhex(status) + METADATA_BYTES[3:])


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(UnstorableValueError, match="sleep entry"):
        bare.encode_entry(Entry("e", (), SleepEntry(deadline=-1)))
    with pytest.raises(UnstorableValueError, match="sleep entry"):
        bare.encode_entry(Entry("e", (), SleepEntry(deadline=2**64)))
    with pytest.raises(UnstorableValueError, match="location"):
        bare.encode_location((LoopIteration(0, 2**32),))
    with pytest.raises(UnstorableValueError, match="location"):
        bare.encode_location((-1,))
    with pytest.raises(UnstorableValueError, match="metadata"):
        bare.encode_metadata(EntryMetadata(created_at=0, attempts=2**32))


def test_names_must_be_unicode() -> None:
    for kind in (RollbackCheckpointEntry(name="\ud800"), MessageEntry(name="\ud800", data=b"\x00")):
        with pytest.raises(UnstorableValueError, match="surrogates"):
            bare.encode_entry(Entry("e", (), kind))


def test_an_error_text_is_recorded_whatever_it_holds() -> None:
    text, recorded = "OSError: no file 'caf\udce9'", "OSError: no file 'caf\\udce9'"
    step = bare.decode_entry(bare.encode_entry(Entry("e", (), StepEntry(error=text)))).kind
    assert step == StepEntry(error=recorded)
    branch = BranchStatus(status=BranchState.FAILED, error=text)
    join = bare.decode_entry(bare.encode_entry(Entry("e", (), JoinEntry(branches={"b": branch})))).kind
    assert join == JoinEntry(branches={"b": BranchStatus(status=BranchState.FAILED, error=recorded)})
    metadata = EntryMetadata(created_at=0, error=text, rollback_error=text)
    read = bare.decode_metadata(bare.encode_metadata(metadata))
    assert (read.error, read.rollback_error) == (recorded, recorded)


def test_branches_keep_their_order() -> None:
    branches = {name: BranchStatus() for name in ("z", "a", "m")}
    kind = bare.decode_entry(bare.encode_entry(Entry("e", (), JoinEntry(branches=branches)))).kind
    assert isinstance(kind, JoinEntry)
    assert list(kind.branches) == ["z", "a", "m"]
