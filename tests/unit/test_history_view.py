"""A history as rows for a terminal: what each says of how its operation stands and what came of it."""

from __future__ import annotations

from typing import Any

import pytest

from infra import history_view


def row(state: str | None = "sleeping", **entry: Any) -> dict[str, Any]:
    [told] = history_view.rows([{"id": "e", "location": "x", "kind": "step", **entry}], state)
    return told


def branches(*pairs: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "status": status} for name, status in pairs]


@pytest.mark.parametrize(
    ("pairs", "told"),
    [
        ([("0", "completed"), ("1", "completed")], "2 of 2 branches completed"),
        (
            [("0", "completed"), ("1", "failed"), ("2", "running"), ("3", "failed")],
            "1 of 4 branches completed, 2 failed, 1 running",
        ),
        ([("car", "completed"), ("2", "failed")], "car completed, 2 failed"),
        ([], None),
    ],
)
def test_numbers_of_branches_do_not_read_as_counts(pairs: list[tuple[str, str]], told: str | None) -> None:
    assert row(kind="join", branches=branches(*pairs))["result"] == told


@pytest.mark.parametrize(
    ("entry", "state", "told"),
    [
        ({"status": "running"}, "running", "running"),
        ({"status": "running"}, "cancelled", "unfinished"),
        ({"status": "pending"}, "failed", "unfinished"),
        ({"status": "completed"}, "cancelled", "completed"),
        ({"status": "running", "rolled_back_at": "2026-03-01T10:00:00+00:00"}, "failed", "rolled back"),
        ({"status": "exhausted", "attempts": 1}, "failed", "failed"),
        ({"status": "exhausted", "attempts": 3}, "failed", "exhausted"),
    ],
)
def test_how_an_operation_stands(entry: dict[str, Any], state: str, told: str) -> None:
    assert row(state, **entry)["status"] == told


def test_a_message_without_a_body_is_named() -> None:
    details = "message go with the id 0192-abc"
    assert row(kind="message", details=details, value=None)["result"] == "message go, no body"
    assert row(kind="message", details=details, value=0)["result"] == 0


def test_a_step_that_is_tried_again_says_which_attempt_of_how_many_it_had() -> None:
    failed: dict[str, Any] = {"status": "failed", "attempts": 2, "attempts_max": 5, "error": "OSError: no"}
    assert row(**failed)["status"] == "retrying"
    assert (row(**failed)["attempts"], row(**failed)["result"]) == ("2 of 5", "OSError: no")
    assert row(**{**failed, "attempts_max": None})["attempts"] == 2
    assert row("cancelled", **failed)["status"] == "failed"
    assert row(kind="join", status="failed")["status"] == "failed"


def test_a_sleep_says_until_when_it_is() -> None:
    sleep: dict[str, Any] = {
        "kind": "sleep",
        "status": "pending",
        "details": "until 2026-03-01 10:00:00.000",
        "value": "2026",
    }
    assert row(**sleep)["result"] == "until 2026-03-01 10:00:00.000"
