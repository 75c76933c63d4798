from __future__ import annotations

import itertools
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from engine.ids import Ids


class StoppedClock:
    """A clock that shows what it is told."""

    def __init__(self, milliseconds: int = 1_700_000_000_000) -> None:
        self.milliseconds = milliseconds

    def now(self) -> int:
        return self.milliseconds

    def call_later(self, delay_s: float, callback: object) -> None:
        raise AssertionError((delay_s, callback))


def ids_at(milliseconds: int, random_byte: int = 0xFF) -> Ids:
    return Ids(StoppedClock(milliseconds), lambda size: bytes([random_byte]) * size)  # type: ignore[arg-type]


def test_the_layout_is_that_of_version_7() -> None:
    for random_byte in (0x00, 0x5A, 0xFF):
        uuid = UUID(ids_at(1_700_000_000_123, random_byte).new())
        assert uuid.version == 7
        assert uuid.variant == "specified in RFC 4122"
        assert uuid.int >> 80 == 1_700_000_000_123


def test_texts_are_in_the_usual_form() -> None:
    text = ids_at(1).new()
    assert text == str(UUID(text))


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=60), st.integers(0, 255))
def test_ids_strictly_increase_whatever_the_clock_does(steps: list[int], random_byte: int) -> None:
    clock = StoppedClock()
    ids = Ids(clock, lambda size: bytes([random_byte]) * size)  # type: ignore[arg-type]
    made = []
    for step in steps:
        clock.milliseconds += step
        made.append(ids.new())
    assert all(one < other for one, other in itertools.pairwise(made))
    assert all(UUID(text).version == 7 for text in made)


def test_many_ids_of_one_millisecond_increase() -> None:
    ids = ids_at(1_700_000_000_000)
    made = [ids.new() for _ in range(5000)]
    assert made == sorted(set(made))
    assert {UUID(text).int >> 80 for text in made} == {1_700_000_000_000}


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**48 - 1))
def test_an_id_sorts_behind_the_one_it_comes_after(earlier: int, now: int) -> None:
    before = ids_at(earlier).new()
    assert ids_at(now, 0).new(after=before) > before


def test_a_process_with_a_late_clock_goes_on_behind_an_earlier_one() -> None:
    last = ids_at(1_700_000_009_000).new()
    ids = ids_at(1_700_000_000_000)
    first = ids.new(after=last)
    second = ids.new()
    third = ids.new(after=last)
    assert last < first < second < third


def test_ids_of_other_versions_are_no_bound() -> None:
    ids = ids_at(1_700_000_000_000)
    for foreign in (
        "ffffffff-ffff-4fff-bfff-ffffffffffff",
        "no uuid at all",
        "",
        "zzzzzzzz-zzzz-7zzz-zzzz-zzzzzzzzzzzz",
    ):
        assert UUID(ids.new(after=foreign)).int >> 80 == 1_700_000_000_000


def test_the_last_id_of_a_millisecond_is_followed_by_one_of_the_next() -> None:
    last = "018bcfe5-6800-7fff-bfff-ffffffffffff"
    ids = ids_at(1_700_000_000_000)
    following = ids.new(after=last)
    assert last < following < ids.new()
    assert UUID(following).int >> 80 == 1_700_000_000_001


def test_ids_of_one_source_and_another_differ() -> None:
    clock = StoppedClock()
    assert Ids(clock).new() != Ids(clock).new()  # type: ignore[arg-type]
