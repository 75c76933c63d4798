from __future__ import annotations

import pytest

from adapters.dynamodb.model.expressions import item_bytes
from adapters.dynamodb.model.items import (
    ACTIVE,
    LIST_GROUPS,
    Head,
    decode_head,
    decode_message,
    due_shard,
    encode_head,
    encode_message,
    head_change,
    list_group,
    log_key,
    message_key,
    snapshot_key,
    token,
)
from adapters.dynamodb.model.limits import DUE_SHARDS, TAGS_BYTES_MAX
from adapters.dynamodb.model.naming import check_id, check_tags
from engine.entry import Message
from engine.errors import InvalidIdError
from engine.lifecycle import WorkflowState

FULL = Head(
    workflow_id="w",
    type="order",
    tags={"customer": "7", "": "x"},
    state=WorkflowState.SLEEPING,
    epoch=3,
    owner="me",
    lease_until=10,
    seq=4,
    flush="f",
    snapshot_seq=2,
    snapshot_parts=1,
    wake_at=0,
    schedule_at=8,
    due_at=9,
    waiting=("a", "b"),
    deaths=1,
    wakes=2,
    created_at=1,
    updated_at=2,
    ended_at=3,
    inbox_done=5,
    gap_n=6,
    gap_at=7,
    input_digest=b"d",
)
BARE = Head(workflow_id="w", type="order", created_at=1, updated_at=1, input_digest=b"d")


@pytest.mark.parametrize("head", [FULL, BARE], ids=["full", "bare"])
def test_head_survives_its_item(head: Head) -> None:
    assert decode_head(encode_head(head)) == head


def test_waiting_for_any_name_is_not_waiting_for_none() -> None:
    anything = Head(workflow_id="w", type="t", created_at=1, updated_at=1, waiting=())
    assert decode_head(encode_head(anything)).waiting == ()
    assert decode_head(encode_head(BARE)).waiting is None


@pytest.mark.parametrize(("old", "new"), [(FULL, BARE), (BARE, FULL), (FULL, FULL)])
def test_a_change_makes_one_head_of_another(old: Head, new: Head) -> None:
    change = head_change(old, new)
    item = {name: value for name, value in encode_head(old).items() if name not in change.removes} | change.sets
    assert decode_head(item) == new
    assert (old == new) == (not change.sets and not change.removes)


def test_a_message_survives_its_item() -> None:
    message = Message(id="m", name="go", body=b"\x00", sent_at=5, ticket=12)
    item = encode_message("w", message)
    assert item["sk"] == {"S": "MSG#000000000012"}
    assert decode_message(item) == message


def test_sort_keys_sort_as_their_numbers() -> None:
    numbers = [1, 9, 10, 99_999, 10**9]
    for key_of in (log_key, message_key, lambda number: snapshot_key(number, 0)):
        keys = [key_of(number) for number in numbers]
        assert keys == sorted(keys)
    parts = [log_key(7, part) for part in range(15)] + [log_key(8)]
    assert parts == sorted(parts)


def test_size_counts_bytes_of_names_and_values() -> None:
    assert item_bytes({"pk": {"S": "ü"}, "b": {"B": b"123"}}) == 2 + 2 + 1 + 3
    assert item_bytes({"n": {"N": "12"}}) == 1 + 3
    assert item_bytes({"m": {"M": {"k": {"S": "v"}}}, "l": {"L": [{"S": "v"}]}, "t": {"BOOL": True}}) < 30


def test_shards_are_spread_and_stay() -> None:
    shards = [due_shard(f"order-{number}") for number in range(2000)]
    assert len(set(shards)) == DUE_SHARDS
    assert max(map(shards.count, set(shards))) < 3 * 2000 / DUE_SHARDS
    assert due_shard("order-1") == due_shard("order-1")


def test_every_state_is_listed_in_a_group() -> None:
    assert {list_group(state) for state in WorkflowState} == set(LIST_GROUPS)
    assert list_group(WorkflowState.ROLLING_BACK) == ACTIVE


def test_tokens_are_short_and_their_parts_do_not_run_together() -> None:
    assert len(token("a" * 1000)) <= 36
    assert token("a", "b") == token("a", "b")
    assert token("a", "b") != token("ab", "")


@pytest.mark.parametrize("identifier", ["a", "a/b", "a#b", "HEAD", "ä€😀", " ", "x" * 255, "é" * 127, "..", "\u00a0"])
def test_ids_are_any_text(identifier: str) -> None:
    check_id(identifier)


@pytest.mark.parametrize("identifier", ["", "x" * 256, "é" * 128, "a\nb", "\x00", "\x7f", "\x85", "\ud800"])
def test_ids_that_cannot_be_are_refused(identifier: str) -> None:
    with pytest.raises(InvalidIdError):
        check_id(identifier)


def test_tags_are_texts_and_small() -> None:
    check_tags({"customer": "7", "a": ""})
    for tags in ({"": "x"}, {"a": 1}, {"a": "x" * TAGS_BYTES_MAX}):
        with pytest.raises(InvalidIdError):
            check_tags(tags)  # type: ignore[arg-type]
