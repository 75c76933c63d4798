from __future__ import annotations

import itertools

import pytest

from engine.lifecycle import ENDED, NEXT, WorkflowState, is_allowed

# A row a state, a column what follows it: "x" where it may.
TABLE = """
                pending  running  sleeping  failed  completed  cancelled  rolling_back
pending         x        x        x         x       x          x          x
running         -        x        x         x       x          x          x
sleeping        -        x        x         x       x          x          x
failed          -        -        x         x       -          -          -
completed       -        -        x         -       x          -          -
cancelled       -        -        x         -       -          x          -
rolling_back    -        -        x         x       -          x          x
"""


def cells() -> dict[tuple[str, str], bool]:
    head, *rows = TABLE.strip().splitlines()
    return {
        (state, following): cell == "x"
        for state, *marks in map(str.split, rows)
        for following, cell in zip(head.split(), marks, strict=True)
    }


@pytest.mark.parametrize(("state", "following"), list(itertools.product(WorkflowState, repeat=2)))
def test_every_cell(state: WorkflowState, following: WorkflowState) -> None:
    assert is_allowed(state, following) is cells()[state, following]


def test_the_table_has_every_state() -> None:
    assert NEXT.keys() == set(WorkflowState)
    assert len(cells()) == len(WorkflowState) ** 2


def test_an_ended_workflow_only_wakes_when_told_to() -> None:
    assert {"completed", "failed", "cancelled"} == ENDED
    for state in ENDED:
        assert NEXT[state] == {WorkflowState.SLEEPING}


def test_nothing_returns_to_pending() -> None:
    assert not any(WorkflowState.PENDING in following for following in NEXT.values())


def test_every_state_can_be_reached_and_left() -> None:
    reached = {WorkflowState.PENDING}
    for _ in WorkflowState:
        reached |= {following for state in reached for following in NEXT[state]}
    assert reached == set(WorkflowState)
    assert all(NEXT.values())
