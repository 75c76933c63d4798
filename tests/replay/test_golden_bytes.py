"""Every byte that the reference engine stored is read, and written back the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine import bare, keys, values
from engine.entry import BranchStatus, Entry, JoinEntry, LoopEntry, MessageEntry, RaceEntry, StepEntry
from engine.lifecycle import WorkflowState

GOLDEN = sorted(Path(__file__).parent.joinpath("golden").glob("*.json"))

PAIRS = [
    pytest.param(bytes.fromhex(key), bytes.fromhex(value), id=f"{path.stem}-{key}")
    for path in GOLDEN
    for key, value in json.loads(path.read_text())["kv"]
]


def test_there_are_golden_histories() -> None:
    assert len(GOLDEN) >= 5
    assert len(PAIRS) >= 167


@pytest.mark.parametrize(("key", "value"), PAIRS)
def test_a_pair_is_read_and_written_back(key: bytes, value: bytes) -> None:
    assert keys.pack(keys.unpack(key)) == key
    if key.startswith(keys.NAMES_PREFIX):
        assert keys.name_key(keys.parse_name_key(key)) == key
        assert value.decode().encode() == value
    elif key.startswith(keys.HISTORY_PREFIX):
        entry = bare.decode_entry(value)
        assert bare.encode_entry(entry) == value
        assert keys.parse_entry_key(key) == entry.location
        assert keys.entry_key(entry.location) == key
        read_payloads(entry)
    elif key.startswith(keys.METADATA_PREFIX):
        assert bare.encode_metadata(bare.decode_metadata(value)) == value
        assert keys.metadata_key(keys.parse_metadata_key(key)) == key
    elif key == keys.STATE_KEY:
        assert WorkflowState(value.decode()).encode() == value
    elif key == keys.ERROR_KEY:
        assert values.decode_error(value).name
    else:
        assert key in (keys.OUTPUT_KEY, keys.INPUT_KEY)
        values.decode(value)


def read_payloads(entry: Entry) -> None:
    branches: dict[str, BranchStatus] = {}
    match entry.kind:
        case StepEntry(output=output):
            payloads = [output]
        case LoopEntry(state=state, output=output):
            payloads = [state, output]
        case MessageEntry(data=data):
            payloads = [data]
        case JoinEntry(branches=branches) | RaceEntry(branches=branches):
            payloads = [branch.output for branch in branches.values()]
        case _:
            payloads = []
    for payload in payloads:
        if payload is not None:
            values.decode(payload)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_keys_sort_as_they_were_listed(path: Path) -> None:
    listed = [bytes.fromhex(key) for key, _ in json.loads(path.read_text())["kv"]]
    assert listed == sorted(listed)


def test_entries_and_metadata_belong_together() -> None:
    for path in GOLDEN:
        pairs = [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in json.loads(path.read_text())["kv"]]
        entry_ids = {bare.decode_entry(value).id for key, value in pairs if key.startswith(keys.HISTORY_PREFIX)}
        described = {keys.parse_metadata_key(key) for key, _ in pairs if key.startswith(keys.METADATA_PREFIX)}
        assert described <= entry_ids
