from __future__ import annotations

import itertools
import random

import pytest

from engine.coordinates import (
    LEFT_BOUND,
    Added,
    Coordinate,
    Cursor,
    Inserted,
    Mismatch,
    Recorded,
    Replayed,
    between,
    parse,
    render,
)


def at(text: str) -> Coordinate:
    return tuple(map(int, text.split(".")))


@pytest.mark.parametrize(
    ("previous", "following", "expected"),
    [
        ("1", "2", "1.1"),
        ("0", "1", "0.1"),
        ("1.1", "1.2", "1.1.1"),
        ("1.1", "2", "1.2"),
        ("2.1", "3", "2.2"),
        ("0.1", "1", "0.2"),
        ("0", "0.1", "0.0.1"),
        ("1", "1.1", "1.0.1"),
        ("2.1", "2.1.1", "2.1.0.1"),
        # Where the original overwrites: one zero more.
        ("0", "0.0.1", "0.0.0.1"),
        ("1", "1.0.1", "1.0.0.1"),
        ("2.1", "2.1.0.1", "2.1.0.0.1"),
        ("1", "2.1", "1.1"),
    ],
)
def test_a_place_between_two(previous: str, following: str, expected: str) -> None:
    assert between(at(previous), at(following)) == at(expected)
    assert at(previous) < at(expected) < at(following)


def test_coordinates_sort_with_prefixes_first() -> None:
    ordered = [at(text) for text in ("0.0.1", "0.1", "1", "1.0.1", "1.1", "1.1.1", "1.2", "2")]
    assert all(one < following for one, following in itertools.pairwise(ordered))


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [([], "1"), (["1", "3", "6"], "7"), (["2.1", "4"], "5"), (["2.1"], "3"), (["1", "2"], "3")],
)
def test_what_is_new_is_numbered_on(recorded: list[str], expected: str) -> None:
    cursor = Cursor(Recorded(at(text), 1, "step") for text in recorded)
    for text in recorded:
        assert cursor.place("step", 1) == Replayed(Recorded(at(text), 1, "step"))
        cursor.advance(at(text))
    assert cursor.place("step", 1) == Added(at(expected))
    cursor.advance(at(expected))
    following = at(expected)[0] + 1
    assert cursor.place("step", 1) == Added((following,))


def test_holes_are_kept_when_something_is_inserted_into_them() -> None:
    cursor = Cursor([Recorded((1,), 1, "step"), Recorded((3,), 1, "step")])
    cursor.advance((1,))
    assert cursor.place("step", 2) == Inserted((1, 1))


def test_several_are_inserted_one_behind_the_other() -> None:
    cursor = Cursor([Recorded((2, 1), 1, "step"), Recorded((3,), 1, "step")])
    cursor.advance((2, 1))
    for expected in ((2, 2), (2, 3)):
        assert cursor.place("step", 2) == Inserted(expected)
        cursor.advance(expected)
    assert cursor.place("step", 1) == Replayed(Recorded((3,), 1, "step"))


def test_another_kind_or_an_older_version_is_a_mismatch() -> None:
    event = Recorded((1,), 2, "step")
    assert Cursor([event]).place("sleep", 2) == Mismatch(event)
    assert Cursor([event]).place("step", 1) == Mismatch(event)


def test_leftovers_are_what_was_not_performed() -> None:
    events = [Recorded((1,), 1, "step"), Recorded((2,), 1, "step")]
    cursor = Cursor(events)
    cursor.advance((1,))
    assert cursor.leftovers() == events[1:]


@pytest.mark.parametrize(
    ("coordinate", "version", "name"), [((1, 1), 1, "{1.1}"), ((1,), 2, "{1}@2"), ((0, 0, 3), 12, "{0.0.3}@12")]
)
def test_names_of_coordinates(coordinate: Coordinate, version: int, name: str) -> None:
    assert render(coordinate, version) == name
    assert parse(name) == (coordinate, version)


@pytest.mark.parametrize("name", ["1.1", "{}", "{1.}", "{a}", "{1}@", "{1}:count", ""])
def test_other_names_are_no_coordinates(name: str) -> None:
    assert parse(name) is None


@pytest.mark.parametrize("seed", range(300))
def test_any_history_of_edits_keeps_the_order(seed: int) -> None:
    """Code is edited again and again by inserting operations of a new version; every run replays the one before."""
    chance = random.Random(seed)
    program: list[tuple[str, int]] = [(f"s{index}", 1) for index in range(chance.randint(0, 4))]
    places: dict[str, Coordinate] = {}
    history: list[Recorded] = []
    for version in range(1, 9):
        if version > 1:
            for number in range(chance.randint(0, 3)):
                program.insert(chance.randint(0, len(program)), (f"v{version}-{number}", version))
        cursor = Cursor(history)
        previous = LEFT_BOUND
        stops_at = chance.randint(0, len(program))
        for name, step_version in program[: max(stops_at, _recorded_up_to(program, places))]:
            match cursor.place("step", step_version):
                case Replayed(event):
                    coordinate = event.coordinate
                    assert places[name] == coordinate
                case Added(coordinate) | Inserted(coordinate):
                    assert name not in places
                    assert coordinate not in places.values()
                    places[name] = coordinate
                    history.append(Recorded(coordinate, step_version, "step"))
                case mismatch:
                    pytest.fail(str(mismatch))
            assert previous < coordinate
            previous = coordinate
            cursor.advance(coordinate)
        assert not cursor.leftovers()


def _recorded_up_to(program: list[tuple[str, int]], places: dict[str, Coordinate]) -> int:
    return max((index + 1 for index, (name, _) in enumerate(program) if name in places), default=0)
