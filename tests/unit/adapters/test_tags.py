from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.dynamodb.model import tags
from adapters.dynamodb.model.items import TYPES_KEY, Head
from adapters.dynamodb.model.limits import ID_BYTES_MAX, TAG_VALUE_BYTES_MAX, TYPE_BYTES_MAX
from adapters.dynamodb.model.naming import check_id, check_type
from adapters.dynamodb.model.publications import PARTITION_PREFIX
from engine.errors import InvalidIdError
from engine.lifecycle import WorkflowState

if TYPE_CHECKING:
    from adapters.dynamodb.model.expressions import Item

PARTITION_KEY_BYTES_MAX = 2048
"""Source: DynamoDB quota."""


def _is_id(name: str) -> bool:
    try:
        check_id(name)
    except InvalidIdError:
        return False
    return True


def _is_text(value: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in value)


NAMES = st.text(min_size=1, max_size=60).filter(_is_id)
VALUES = st.one_of(
    st.text(max_size=40),
    # What tries to look like the end of a name, or like a hash.
    st.text(alphabet="\0=#a", max_size=8),
    st.text(alphabet="ab", min_size=TAG_VALUE_BYTES_MAX - 1, max_size=TAG_VALUE_BYTES_MAX + 2),
).filter(_is_text)


@given(one=st.tuples(NAMES, NAMES, VALUES), other=st.tuples(NAMES, NAMES, VALUES))
def test_no_two_tags_share_a_partition(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assert (tags.tag_partition(*one) == tags.tag_partition(*other)) == (one == other)


@given(one=st.dictionaries(NAMES, VALUES, max_size=4), other=st.dictionaries(NAMES, VALUES, max_size=4), name=NAMES)
def test_a_place_is_that_of_exactly_these_tags(one: dict[str, str], other: dict[str, str], name: str) -> None:
    assert (tags.place_key(name, one) == tags.place_key(name, other)) == (one == other)
    assert tags.place_key(name, dict(reversed(one.items()))) == tags.place_key(name, one)
    assert tags.place_key(name, one) != tags.place_key(name + "x", one)


@given(workflow_type=NAMES, name=NAMES, value=VALUES, workflow_id=NAMES)
def test_what_belongs_to_no_workflow_stays_apart_from_what_does(
    workflow_type: str, name: str, value: str, workflow_id: str
) -> None:
    partitions = {
        tags.tag_partition(workflow_type, name, value),
        tags.place_key(workflow_type, {name: value})["pk"]["S"],
        TYPES_KEY["pk"]["S"],
    }
    assert len(partitions) == 3
    assert workflow_id not in partitions
    assert not any(partition.startswith(PARTITION_PREFIX) for partition in partitions)
    for partition in partitions:
        assert not _is_id(partition)


def test_the_longest_of_all_fits_a_key() -> None:
    longest = "x" * TYPE_BYTES_MAX, "x" * ID_BYTES_MAX
    check_type(longest[0])
    for size in (TAG_VALUE_BYTES_MAX, TAG_VALUE_BYTES_MAX + 1):
        assert len(tags.tag_partition(*longest, "x" * size).encode()) <= PARTITION_KEY_BYTES_MAX


def test_tags_match_where_they_are_all_there() -> None:
    [item, _] = tags.tag_items(_head(tags={"a": "1", "b": "2"}))
    assert tags.has_tags(item, {})
    assert tags.has_tags(item, {"b": "2", "a": "1"})
    assert not tags.has_tags(item, {"b": "1"})
    assert not tags.has_tags(item, {"c": "1"})


def _head(state: WorkflowState = WorkflowState.RUNNING, **fields: object) -> Head:
    return Head(workflow_id="w", type="order", state=state, created_at=1, updated_at=1, **fields)  # type: ignore[arg-type]


def _said(actions: list[dict[str, dict[str, Item]]]) -> list[str]:
    return [next(iter(action)) for action in actions]


@pytest.mark.parametrize(
    ("before", "after", "places", "found"),
    [
        ("running", "sleeping", [], []),
        ("running", "rolling_back", [], []),
        ("running", "completed", ["Delete"], ["Delete", "Delete"]),
        ("rolling_back", "cancelled", ["Delete"], ["Delete", "Delete"]),
        ("rolling_back", "failed", [], ["Delete", "Delete"]),
        ("failed", "sleeping", ["Put"], ["Put", "Put"]),
        ("completed", "sleeping", ["Put"], ["Put", "Put"]),
        ("completed", "completed", [], []),
    ],
)
def test_a_commit_keeps_a_workflow_found_while_it_has_not_ended(
    before: str, after: str, places: list[str], found: list[str]
) -> None:
    old, new = (_head(WorkflowState(state), tags={"a": "1", "b": "2"}, is_unique=True) for state in (before, after))
    on_places, on_tags = tags.found_actions(old, new)
    assert (_said(on_places), _said(on_tags)) == (places, found)
    common = _head(WorkflowState(before)), _head(WorkflowState(after))
    assert tags.found_actions(*common) == ([], [])
