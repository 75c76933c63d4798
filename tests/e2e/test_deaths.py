"""Workers that die in the middle of a step: the workflow goes on elsewhere, and nothing committed is done again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.probe import sweep, until

if TYPE_CHECKING:
    from infra.local_stack import LocalStack
    from tests.e2e.conftest import Make
    from tests.e2e.probe import Probe

MARKS_BEFORE_DEATH = 2


@pytest.fixture(scope="module", autouse=True)
def _nobody_else_dies(slow_ones: dict[str, Probe]) -> None:
    """The one of the slow ones that must not die, of which it is told whether it has, has ended."""
    slow_ones["overlong"].ending()


def find(stack: LocalStack, killed: Probe) -> None:
    """Sweep until it goes on."""
    until(lambda: sweep(stack) and len(killed.marks()) > MARKS_BEFORE_DEATH, "it has been found")


def test_a_killed_step_is_tried_again_in_another_process(local_stack: LocalStack, probe: Make) -> None:
    killed = probe("lingering", "killed").started(linger_s=60)
    _, attempt, _ = killed.mark_of("during")
    assert attempt == 1
    killed.kill_worker()
    # Nothing but an overdue entry tells of it: no wake comes, only a sweep finds it.
    find(local_stack, killed)
    assert killed.output() == 2
    steps = [(step, attempt) for step, attempt, _ in killed.marks()]
    assert steps == [("before", 1), ("during", 1), ("during", 2), ("after", 1)]
    assert len({pid for step, _, pid in killed.marks() if step == "during"}) == 2
    attempts = {entry["location"]: entry["attempts"] for entry in killed.call("GET", "/history").json()["entries"]}
    assert attempts == {"before": 1, "during": 2, "after": 1}


def test_an_acknowledged_message_outlives_the_worker(local_stack: LocalStack, probe: Make) -> None:
    killed = probe("lingering", "killed-with-mail").started(linger_s=60)
    killed.mark_of("during")
    assert killed.send("note", "still here?").status == 202
    killed.kill_worker()
    find(local_stack, killed)
    assert killed.output() == 2
