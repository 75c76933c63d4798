"""Marks of changes: what an unsuccessful flush puts back, and how what is too much is divided."""

from __future__ import annotations

from engine import keys
from engine.commit import Commit, Outgoing, Publication, Reply
from engine.entry import Message
from engine.history.changes import Changes, Room


def message(name: str, size: int = 1) -> Message:
    return Message(id=name, name=name, body=b"x" * size, sent_at=1, ticket=1)


def test_new_changes_are_empty_and_every_mark_ends_that() -> None:
    assert Changes().is_empty()
    for field, value in {
        "entries": {b"k": 1},
        "metadata": {"id": 1},
        "fields": {b"f": None},
        "deletes": {b"k": 1},
        "ranges": [(1, (b"a", b"b"))],
        "consumed": {"m": 1},
        "returned": {"m": (1, message("m"))},
        "replies": [(1, Reply(message_id="m", body=b""))],
        "outgoing": [(1, Outgoing(message=message("m")))],
        "published": {"m": (1, Publication(id="m", name="n", body=b"", sent_at=1))},
    }.items():
        changes = Changes()
        setattr(changes, field, value)
        assert not changes.is_empty(), field


def test_what_is_put_back_comes_first_and_later_marks_win() -> None:
    earlier, later = Changes(), Changes()
    earlier.entries, later.entries = {b"a": 1, b"b": 1}, {b"b": 2, b"c": 2}
    earlier.fields, later.fields = {b"f": b"old", b"g": b"kept"}, {b"f": b"new"}
    earlier.ranges, later.ranges = [(1, (b"1", b"2"))], [(2, (b"3", b"4"))]
    later.prepend(earlier)
    assert later.entries == {b"a": 1, b"b": 2, b"c": 2}
    assert later.fields == {b"f": b"new", b"g": b"kept"}
    assert [group for group, _ in later.ranges] == [1, 2]


def test_a_message_taken_by_what_failed_and_given_back_since_has_never_moved() -> None:
    earlier, later = Changes(), Changes()
    earlier.consumed, later.returned = {"m": 1, "n": 1}, {"m": (2, message("m"))}
    later.prepend(earlier)
    assert (later.consumed, later.returned) == ({"n": 1}, {})

    earlier, later = Changes(), Changes()
    earlier.returned, later.consumed = {"m": (1, message("m"))}, {"m": 2}
    later.prepend(earlier)
    assert (later.consumed, later.returned) == ({}, {})


def test_room_counts_bytes_of_pairs_and_bodies_and_a_reply_twice() -> None:
    room = Room(bytes_max=10, messages_max=3)
    assert room.holds(Commit(puts=[(b"12345", b"12345")]))
    assert not room.holds(Commit(puts=[(b"12345", b"12345")], outgoing=[Outgoing(message=message("m"))]))
    assert room.holds(Commit(consumed=["a"], replies=[Reply(message_id="b", body=b"")]))
    assert not room.holds(Commit(consumed=["a", "c"], replies=[Reply(message_id="b", body=b"")]))


def test_groups_are_divided_in_their_order_and_stay_whole() -> None:
    changes = Changes()
    changes.entries = {b"a": 1, b"b": 2, b"b2": 2, b"c": 3}
    changes.metadata = {"of c": 3}
    changes.consumed = {"m": 2}
    changes.fields = {keys.INPUT_KEY: b"in", keys.OUTPUT_KEY: b"out"}
    sizes = {b"a": 10, b"b": 10, b"b2": 10, b"c": 10}
    last = changes.first_groups(sizes, Room(bytes_max=40, messages_max=9))
    assert last == 2
    first, rest = changes.split(last)
    assert (first.entries, first.consumed, first.fields) == (
        {b"a": 1, b"b": 2, b"b2": 2},
        {"m": 2},
        {keys.INPUT_KEY: b"in"},
    )
    assert (rest.entries, rest.metadata, rest.fields) == ({b"c": 3}, {"of c": 3}, {keys.OUTPUT_KEY: b"out"})


def test_a_group_that_is_too_much_alone_goes_alone() -> None:
    changes = Changes()
    changes.entries = {b"a": 1, b"b": 2}
    assert changes.first_groups({b"a": 100, b"b": 1}, Room(bytes_max=10, messages_max=9)) == 1
    changes.consumed = {"m": 2, "n": 2}
    assert changes.first_groups({b"a": 1, b"b": 1}, Room(bytes_max=1000, messages_max=1)) == 1


def test_groups_that_only_make_sense_together_become_one() -> None:
    changes = Changes()
    changes.entries = {b"a": 1, b"b": 2, b"c": 3}
    changes.consumed = {"m": 2}
    changes.replies = [(3, Reply(message_id="m", body=b""))]
    changes.merge(2, 7)
    assert changes.entries == {b"a": 1, b"b": 7, b"c": 7}
    assert (changes.consumed, changes.replies[0][0]) == ({"m": 7}, 7)
