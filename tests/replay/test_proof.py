"""The replay proof: whatever happens to a workflow on its way, it ends as if nothing had happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from tests.replay.lives import Life
from tests.replay.programs import generate, message_name

if TYPE_CHECKING:
    from collections.abc import Iterator

SEEDS_PER_EXAMPLE = 3


def check_same(straight: Life, other: Life, what: str) -> None:
    program = straight.program
    assert other.outcome == straight.outcome, what
    # What a crash loses may come out otherwise: nothing that was kept depends on it.
    assert other.world.unequal == [] or other.crashes, what
    history, expected = other.history(), straight.history()
    if straight.outcome[0] == "completed":
        assert history == expected, what
    for name in program.messages:
        if is_certain(straight, name):
            assert other.inbox()[name] == straight.inbox()[name], (what, name)
    assert other.world.undone.keys() == straight.world.undone.keys(), what


def check_counts(straight: Life, other: Life, what: str, *, extra: int = 0) -> None:
    for path, count in straight.world.runs.items():
        if is_certain(straight, path):
            # A death is charged to a step that was about to start, so one that always fails may run once less.
            assert max(1, count - extra) <= other.world.runs[path] <= count + extra, (what, path)
    for path, times in other.world.undone.items():
        assert 1 <= times <= straight.world.undone[path] + extra, (what, path)


def is_certain(life: Life, path: str) -> bool:
    """Whether the step at ``path`` lies in no losing branch, where how far it gets is a matter of time."""
    place = message_name(path)
    return not any(place.startswith(prefix) for prefix in life.losing)


async def test_a_life_without_accidents_repeats_nothing(proof_seed: int) -> None:
    program = generate(proof_seed)
    straight = await Life(program).live()
    assert straight.world.unequal == []
    again = await Life(program).live()
    check_same(straight, again, f"seed {proof_seed}")
    check_counts(straight, again, f"seed {proof_seed}")


@pytest.mark.parametrize("atomic", [True, False])
async def test_crashes_change_nothing(proof_seed: int, proof_crashes: int, *, atomic: bool) -> None:
    program = generate(proof_seed)
    straight = await Life(program, atomic=atomic).live()
    for number in _spread(straight.writes, proof_crashes):
        for phase in ("before", "after"):
            what = f"seed {proof_seed}, crash {phase} write {number}, atomic {atomic}"
            life = await Life(program, atomic=atomic, crash=(number, phase)).live()
            check_same(straight, life, what)
            check_counts(straight, life, what, extra=life.crashes)


async def test_crashes_between_divided_commits_change_nothing(proof_seed: int, proof_crashes: int) -> None:
    program = generate(proof_seed)
    straight = await Life(program).live()
    narrow = await Life(program, narrow=True, delays=proof_seed).live()
    check_same(straight, narrow, f"seed {proof_seed}, narrow")
    check_counts(straight, narrow, f"seed {proof_seed}, narrow")
    for number in _spread(narrow.writes, proof_crashes):
        what = f"seed {proof_seed}, crash before write {number}, narrow"
        life = await Life(program, narrow=True, crash=(number, "before")).live()
        check_same(straight, life, what)
        check_counts(straight, life, what, extra=life.crashes)


@pytest.mark.parametrize("atomic", [True, False])
async def test_evictions_after_every_commit_change_nothing(proof_seed: int, *, atomic: bool) -> None:
    program = generate(proof_seed)
    straight = await Life(program, atomic=atomic).live()
    life = await Life(program, atomic=atomic, evicts=True).live()
    what = f"seed {proof_seed}, evicted, atomic {atomic}"
    check_same(straight, life, what)
    check_counts(straight, life, what)


async def test_crashes_of_live_runs_that_take_their_time_change_nothing(proof_seed: int, proof_crashes: int) -> None:
    program = generate(proof_seed)
    straight = await Life(program).live()
    writes = (await Life(program, mode="live", delays=proof_seed).live()).writes
    for number in _spread(writes, proof_crashes):
        what = f"seed {proof_seed}, live, crash before write {number}"
        life = await Life(program, mode="live", delays=number, crash=(number, "before")).live()
        check_same(straight, life, what)
        check_counts(straight, life, what, extra=life.crashes)


@pytest.mark.parametrize("mode", ["yield", "live"])
async def test_delays_change_nothing(proof_seed: int, mode: Literal["yield", "live"]) -> None:
    program = generate(proof_seed)
    straight = await Life(program).live()
    for delays in range(SEEDS_PER_EXAMPLE):
        what = f"seed {proof_seed}, delays {delays}, {mode}"
        life = await Life(program, mode=mode, delays=delays).live()
        check_same(straight, life, what)
        check_counts(straight, life, what)


def _spread(count: int, most: int) -> Iterator[int]:
    step = max(1, -(-count // most))
    yield from range(1, count + 1, step)
