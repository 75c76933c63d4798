"""What is told of a workflow that has not ended: what it does, since when, until when, what failed last."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from infra import now_view

NOW = datetime(2026, 3, 1, 3, 0, 0, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
FIRST_ATTEMPTS = "a step that is tried for the first time shows when it ends"
SLEPT = "has waited since 2026-03-01 02:58:00 UTC (2 min ago)"


def told(**known: Any) -> list[str]:
    standing = {"state": "sleeping", "updated_at": "2026-03-01T02:58:00+00:00", "wake_at": None, "waiting_for": None}
    return now_view.lines({**standing, **known}, NOW_MS)


def step(**more: Any) -> dict[str, Any]:
    known = {"location": "orders/~3/charge", "attempts": 2, "attempts_max": 5, "error": "OSError: no"}
    return {**known, "retry_at": "2026-03-01T03:00:32+00:00", **more}


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
def test_nothing_is_told_of_what_has_ended(state: str) -> None:
    assert told(state=state, is_running=False) == []


def test_a_step_that_is_tried_again_is_told_with_its_error_and_its_attempts() -> None:
    assert told(retrying=[step()], wake_at="2026-03-01T03:00:32+00:00") == [
        "orders/~3/charge: attempt 2 of 5 failed, OSError: no; again at 2026-03-01 03:00:32 UTC (in 32 s)",
        SLEPT,
    ]


def test_everything_that_is_waited_for_is_told() -> None:
    many = [f"w{number}" for number in range(12)]
    assert told(
        retrying=[step()], wake_at="2026-03-01T03:00:10+00:00", waiting_for=["a", "b"], waiting_for_workflows=many
    ) == [
        "orders/~3/charge: attempt 2 of 5 failed, OSError: no; again at 2026-03-01 03:00:32 UTC (in 32 s)",
        "sleeps until 2026-03-01 03:00:10 UTC (in 10 s)",
        "listens for messages named a, b",
        "waits for the end of w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, and 2 more",
        SLEPT,
    ]


@pytest.mark.parametrize(
    ("known", "line"),
    [
        ({"waiting_for": []}, "listens for any message"),
        ({"wake_at": "2026-03-01T13:30:00+00:00"}, "sleeps until 2026-03-01 13:30:00 UTC (in 10.5 h)"),
        ({"wake_at": "2026-03-04T03:00:00+00:00"}, "sleeps until 2026-03-04 03:00:00 UTC (in 3.0 d)"),
        ({"state": "pending", "wake_at": "2026-03-01T03:05:00+00:00"}, "begins 2026-03-01 03:05:00 UTC (in 5 min)"),
        (
            {"wake_at": "2026-03-01T02:59:00+00:00"},
            "due since 2026-03-01 02:59:00 UTC (1 min ago), and no worker has taken it yet",
        ),
        ({"state": "pending"}, "due: no worker has it; the last commit was at 2026-03-01 02:58:00 UTC (2 min ago)"),
        ({"state": "rolling_back", "is_running": True}, "undoes what it has done"),
    ],
)
def test_what_comes_first(known: dict[str, Any], line: str) -> None:
    assert told(**known)[0] == line


def test_one_that_is_at_work_tells_of_its_last_commit_and_not_of_what_it_waited_for() -> None:
    assert told(state="running", is_running=True, retrying=[step()], waiting_for=["a"], deaths=2) == [
        f"at work; the last commit was at 2026-03-01 02:58:00 UTC (2 min ago), and {FIRST_ATTEMPTS}",
        "its process has died, or stood still for longer than its lease, 2 times since the last commit",
    ]
    assert told(is_running=True, deaths=1)[1] == (
        "its process has died, or stood still for longer than its lease, once since the last commit"
    )


def test_an_answer_that_does_not_say_how_it_stands_is_told_nothing_of() -> None:
    assert now_view.lines({"id": "x", "state": "running"}, NOW_MS) == now_view.lines({}, NOW_MS) == []
