"""What a worker's log says of an author's failing code: which step, which line, and nothing of what it worked on."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from engine.errors import WorkflowFailedError
from handlers import failures
from handlers.logs import JsonFormatter
from infra.dev import readable
from tests.integration import driven as authors
from tests.integration.driven import told

if TYPE_CHECKING:
    from tests.integration.driven import Driven

GIVEN = "4711-of-the-input"


def test_a_failing_step_and_its_workflow_are_told_with_the_authors_lines(
    driven: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    driven.start("worker-divides", "order-1", GIVEN)
    driven.drain()
    assert driven.state("order-1") == "failed"
    attempts = told(caplog, "step failed")
    assert [(each["attempt"], each["will_retry"], each["levelname"]) for each in attempts] == [
        (1, True, "WARNING"),
        (2, False, "WARNING"),
    ]
    for each in attempts:
        assert (each["workflow_id"], each["type"], each["step_name"]) == ("order-1", "worker-divides", "divide")
        assert (each["error"], functions(each["frames"])) == ("ZeroDivisionError", ["_divide"])
    [ended] = told(caplog, "workflow failed")
    assert (ended["workflow_id"], ended["type"], ended["error"], ended["levelname"]) == (
        "order-1",
        "worker-divides",
        "StepExhaustedError",
        "WARNING",
    )
    assert (ended["step_name"], ended["attempts"]) == ("divide", 2)
    assert functions(ended["frames"]) == ["_divide", "divides"]
    assert GIVEN not in lines(caplog)
    assert "stack" not in ended


def functions(frames: list[str]) -> list[str]:
    """The names in frames, all of which must be of the file that holds the workflows."""
    assert all(frame.startswith(f"{authors.__file__}:") for frame in frames), frames
    return [frame.split(" ", 1)[1] for frame in frames]


def lines(caplog: pytest.LogCaptureFixture) -> str:
    """All that a worker would have printed."""
    return "\n".join(JsonFormatter().format(record) for record in caplog.records)


def test_a_workflow_that_raises_by_itself_is_told_once(driven: Driven, caplog: pytest.LogCaptureFixture) -> None:
    driven.start("worker-fails", "order-1")
    driven.drain()
    [ended] = told(caplog, "workflow failed")
    assert (ended["error"], functions(ended["frames"])) == ("ValueError", ["fails"])
    assert told(caplog, "step failed") == []
    assert "refused for good" not in lines(caplog)


def test_who_fails_of_another_workflows_failure_tells_none_of_its_values(
    driven: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    driven.start("worker-fails", "order-1")
    driven.start("worker-awaits", "order-2", "order-1")
    driven.drain()
    assert driven.state("order-2") == "failed"
    [run] = [run for run in told(caplog, "run ended") if run["workflow_id"] == "order-2" and run["state"] == "failed"]
    assert run["error"] == "WorkflowFailedError: ValueError"
    assert "refused for good" not in lines(caplog)


@pytest.mark.parametrize("name", ["no class: 4711-of-the-input", ""])
def test_what_is_no_name_of_a_class_is_not_told_either(name: str) -> None:
    assert failures.told(WorkflowFailedError(name, GIVEN)) == {"error": "WorkflowFailedError: Error"}


def test_whoever_debugs_sees_the_whole_stack_and_still_no_value(
    driven: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="handlers.failures")
    driven.start("worker-divides", "order-1", GIVEN)
    driven.drain()
    [ended] = told(caplog, "workflow failed")
    functions_of_all = [line.rpartition(" ")[2] for line in ended["stack"].splitlines()]
    assert {"_divide", "divides", "Attempt.run", "Run._run_once"} <= set(functions_of_all)
    assert GIVEN not in lines(caplog)


def test_torpor_dev_shows_where_it_failed(driven: Driven, caplog: pytest.LogCaptureFixture) -> None:
    driven.start("worker-fails", "order-1")
    driven.drain()
    [record] = [record for record in caplog.records if record.message == "workflow failed"]
    shown = readable(JsonFormatter().format(record))
    assert shown.startswith("WARNING workflow failed workflow_id=order-1 type=worker-fails error=ValueError frames=")
    assert f"{authors.__file__}:" in shown
