from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import keys
from engine.errors import CorruptHistoryError
from engine.location import Location, LoopIteration, is_prefix

if TYPE_CHECKING:
    from collections.abc import Callable

# Every width of an integer, and the places where one width ends and the next begins.
EDGES = [0, 1, 2, 0x7F, 0xFF, 0x100, 0x3FF, 0x400, 0xFFFF, 0x10000, 0xFFFFFF, 0x1000000, 2**32 - 1]
numbers = st.sampled_from(EDGES) | st.integers(0, 2**32 - 1)
segments = numbers | st.builds(LoopIteration, numbers, numbers)
locations: st.SearchStrategy[Location] = st.lists(segments, max_size=5).map(tuple)
texts = st.text(st.characters(exclude_categories=["Cs"]) | st.just("\0"), max_size=12)


def order_of(location: Location) -> list[tuple[int, ...]]:
    """Sorts as tuples do: a nested tuple before any integer, a tuple before those that it begins."""
    return [(0, *segment) if isinstance(segment, LoopIteration) else (1, segment) for segment in location]


@pytest.mark.parametrize(
    ("elements", "expected"),
    [
        ((1, 0), "150114"),
        ((1, 22), "15011516"),
        ((2,), "1502"),
        ((2, 0, (0, 20), 1), "15021405141514001501"),
        ((3, 1), "15031501"),
        ((255,), "15ff"),
        ((256,), "160100"),
        ((2**24,), "1801000000"),
        ((2**64 - 1,), "1cffffffffffffffff"),
        ((4, "a\0b"), "15040261" + "00ff" + "6200"),
        ((b"\0\xff",), "01" + "00ff" + "ff00"),
        (((), 1), "05001501"),
    ],
)
def test_tuples_have_these_bytes(elements: tuple[keys.Element, ...], expected: str) -> None:
    assert keys.pack(elements).hex() == expected
    assert keys.unpack(bytes.fromhex(expected)) == elements


def test_the_keys_of_a_workflow() -> None:
    assert [key.hex() for key in (keys.STATE_KEY, keys.OUTPUT_KEY, keys.ERROR_KEY, keys.INPUT_KEY)] == [
        "15031501",
        "15031502",
        "15031503",
        "15031504",
    ]
    prefixes = (keys.NAMES_PREFIX, keys.HISTORY_PREFIX, keys.WORKFLOW_PREFIX, keys.METADATA_PREFIX)
    assert [prefix.hex() for prefix in prefixes] == ["1501", "1502", "1503", "1504"]
    assert keys.entry_key(()) == keys.HISTORY_PREFIX


@given(locations)
def test_entry_keys_are_read_back(location: Location) -> None:
    read = keys.parse_entry_key(keys.entry_key(location))
    assert read == location
    assert list(map(type, read)) == list(map(type, location))


@given(numbers)
def test_name_keys_are_read_back(index: int) -> None:
    assert keys.parse_name_key(keys.name_key(index)) == index
    assert keys.name_key(index) == keys.pack((1, index))


@given(texts)
def test_metadata_keys_are_read_back(entry_id: str) -> None:
    assert keys.parse_metadata_key(keys.metadata_key(entry_id)) == entry_id


@given(locations, numbers, numbers)
def test_keys_grow_by_their_last_segment(location: Location, index: int, iteration: int) -> None:
    key = keys.entry_key(location)
    assert keys.child_key(key, index) == keys.entry_key((*location, index))
    assert keys.iteration_key(key, index, iteration) == keys.entry_key((*location, LoopIteration(index, iteration)))


@given(locations, locations)
def test_bytes_sort_as_locations(one: Location, other: Location) -> None:
    assert (keys.entry_key(one) < keys.entry_key(other)) == (order_of(one) < order_of(other))


@given(locations, locations)
def test_a_prefix_of_the_bytes_is_a_prefix_of_the_location(one: Location, other: Location) -> None:
    assert keys.entry_key(other).startswith(keys.entry_key(one)) == is_prefix(one, other)


@given(locations, st.lists(segments, max_size=3))
def test_what_lies_below_begins_with_the_key(location: Location, below: list[int | LoopIteration]) -> None:
    assert keys.entry_key((*location, *below)).startswith(keys.entry_key(location))


@given(locations, locations)
def test_a_range_covers_a_key_and_all_below_it_and_nothing_else(prefix: Location, location: Location) -> None:
    start, end = keys.range_of(keys.entry_key(prefix))
    for candidate in (location, prefix + location):
        assert (start <= keys.entry_key(candidate) < end) == is_prefix(prefix, candidate)


def test_a_range_covers_every_kind_of_element() -> None:
    start, end = keys.range_of(keys.METADATA_PREFIX)
    for below in (b"\xff", "\U0010ffff", 2**64 - 1, ((2**64 - 1),)):
        assert start <= keys.pack((4, below)) < end
    assert not start <= keys.pack((5,)) < end


@given(locations, st.tuples(numbers, numbers, numbers, numbers), locations)
def test_an_iteration_range_covers_exactly_these_iterations(
    loop_location: Location, loop_and_iterations: tuple[int, int, int, int], below: Location
) -> None:
    loop, start, end, iteration = loop_and_iterations
    loop_key = keys.entry_key(loop_location)
    first, last = keys.iteration_range(loop_key, loop, start, end)
    for candidate in (iteration, start, end, max(end - 1, 0)):
        key = keys.entry_key((*loop_location, LoopIteration(loop, candidate), *below))
        assert (first <= key < last) == (start <= candidate < end)
    assert not first <= loop_key < last


@given(st.tuples(texts, texts))
def test_texts_sort_and_nest_as_their_bytes_do(pair: tuple[str, str]) -> None:
    one, other = map(keys.metadata_key, pair)
    assert (one < other) == (pair[0].encode() < pair[1].encode())
    # A NUL is written as the end of a text followed by a byte that no type has, so it alone may look like an end.
    if "\0" not in pair[0]:
        assert one.startswith(other) == (pair[0] == pair[1])


@pytest.mark.parametrize(
    "malformed",
    [
        "16",  # cut off
        "1600",  # cut off
        "160001",  # a second spelling of 1
        "1500",  # a second spelling of 0
        "13fe",  # a negative number
        "1d010000000000000000",  # wider than 64 bits
        "0261",  # not ended
        "026100ff",  # not ended
        "02ff00",  # not UTF-8
        "0514",  # not ended
        "05051400" + "00",  # nested twice
        "0500ff00",  # null inside a nested tuple
        "00",
        "ff",
        "2614",  # true and false are no part of a key
    ],
)
def test_malformed_keys_are_refused(malformed: str) -> None:
    with pytest.raises(CorruptHistoryError, match=malformed):
        keys.unpack(bytes.fromhex(malformed))


@pytest.mark.parametrize(
    ("parse", "elements"),
    [
        (keys.parse_name_key, (1,)),
        (keys.parse_name_key, (2, 1)),
        (keys.parse_name_key, (1, "a")),
        (keys.parse_name_key, (1, 2**32)),
        (keys.parse_name_key, (1, 1, 1)),
        (keys.parse_entry_key, (1, 1)),
        (keys.parse_entry_key, (2, "a")),
        (keys.parse_entry_key, (2, (1,))),
        (keys.parse_entry_key, (2, (1, "a"))),
        (keys.parse_entry_key, (2, (1, 2, 3))),
        (keys.parse_entry_key, (2, 2**32)),
        (keys.parse_entry_key, ()),
        (keys.parse_metadata_key, (4, 1)),
        (keys.parse_metadata_key, (4, b"a")),
        (keys.parse_metadata_key, (4,)),
    ],
)
def test_keys_of_something_else_are_refused(
    parse: Callable[[bytes], object], elements: tuple[keys.Element, ...]
) -> None:
    with pytest.raises(CorruptHistoryError, match="is not that of"):
        parse(keys.pack(elements))


@given(st.binary(max_size=24))
def test_any_bytes_are_read_in_their_one_form_or_refused(key: bytes) -> None:
    try:
        elements = keys.unpack(key)
    except CorruptHistoryError:
        return
    assert keys.pack(elements) == key


@pytest.mark.parametrize("number", [-1, 2**64])
def test_numbers_outside_of_a_key_are_refused(number: int) -> None:
    with pytest.raises(ValueError, match="outside of what a key can hold"):
        keys.child_key(keys.HISTORY_PREFIX, number)
    with pytest.raises(ValueError, match="outside of what a key can hold"):
        keys.iteration_key(keys.HISTORY_PREFIX, 0, number)
