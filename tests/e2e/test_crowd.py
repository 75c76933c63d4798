"""Workflows that end, starve, block or cannot be read, and ten that are well beside them: each fails alone, by name.

All run on one stack: who kills its process takes others with it, and they go on elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from engine.limits import DEATHS_MAX, MAX_RETRIES
from tests.e2e.probe import sweep, until

if TYPE_CHECKING:
    from infra.local_stack import LocalStack
    from tests.e2e.conftest import Make
    from tests.e2e.probe import Probe

HEALTHY = 10
ENDED_WITHIN_S = 400
LONG_S = 120


@pytest.fixture(scope="module")
def crowd(frail: Make, frail_stack: LocalStack) -> dict[str, Probe]:
    """All of them, once each has come to its end.

    The healthy ones and the one that cannot be read are beside all others. Of those that end their process, by
    themselves or by Lambda's hand, each kind is over before the next begins: woken together they would be one batch, in
    one process, and what the one does to the other is counted as the other's.
    """
    crowd = {
        "blocking": frail("blocking", "blocks-the-loop"),
        "hanging": frail("hanging", "hangs-in-a-thread"),
        "exploding": frail("exploding", "kills-its-process"),
        "devouring": frail("devouring", "runs-out-of-memory"),
        "corrupt": frail("listening", "cannot-be-read"),
        **{f"well-{number}": frail("sleeping", f"well-{number}") for number in range(HEALTHY)},
    }

    def start_well(numbers: range) -> None:
        for number in numbers:
            crowd[f"well-{number}"].started(sleeps=8)

    def until_ended(*names: str) -> None:
        found = [crowd[name] for name in names]
        until(lambda: sweep(frail_stack) and all(map(_has_ended, found)), f"{names} end", ENDED_WITHIN_S)

    for name in ("blocking", "hanging"):
        # Each alone in its invocation.
        crowd[name].started(linger_s=LONG_S).mark_of("during")
    crowd["corrupt"].started().wait_for("word")
    spoil(crowd["corrupt"])
    crowd["corrupt"].send("word", "end")
    start_well(range(4))
    until_ended("blocking", "hanging")
    crowd["exploding"].started(sleep_s=4)
    start_well(range(4, 7))
    until_ended("exploding")
    crowd["devouring"].started()
    start_well(range(7, HEALTHY))
    until_ended(*crowd)
    return crowd


def _has_ended(probe: Probe) -> bool:
    return probe.known()["ended_at"] is not None


def spoil(probe: Probe) -> None:
    """Overwrite what its first commit says, as a broken disk or a careless operator would."""
    logged = next(item for item in probe.items() if item["sk"]["S"].startswith("LOG#"))
    logged["b"] = {"B": b"\xff" * 8}
    probe.stack.client("dynamodb").put_item(TableName=probe.stack.table_name, Item=logged)


def error_of(probe: Probe) -> dict[str, Any]:
    told = probe.ending()
    assert told["state"] == "failed", told
    error: dict[str, Any] = told["error"]
    return error


@pytest.mark.parametrize("number", range(HEALTHY))
def test_the_healthy_ones_end_well(crowd: dict[str, Probe], number: int) -> None:
    assert crowd[f"well-{number}"].output() == 8


def test_a_step_without_memory_is_exhausted_by_its_deaths(crowd: dict[str, Probe]) -> None:
    assert error_of(crowd["devouring"])["name"] == "StepExhaustedError"
    attempts = [attempt for _, attempt, _ in crowd["devouring"].marks()]
    assert attempts == list(range(1, MAX_RETRIES + 2))
    assert len({pid for _, _, pid in crowd["devouring"].marks()}) == len(attempts)


def test_code_that_kills_its_process_has_stalled_after_five_deaths(crowd: dict[str, Probe]) -> None:
    error = error_of(crowd["exploding"])
    assert error["name"] == "StalledError"
    # What it had committed before is not done again by any of the six runs.
    assert crowd["exploding"].counts() == {"before": 1}
    # The last of these lines, not each: others kill the process too, perhaps before it has told of a death.
    assert crowd["exploding"].told("earlier run died")[-1]["deaths"] == DEATHS_MAX


def test_a_history_that_cannot_be_read_is_set_aside(crowd: dict[str, Probe]) -> None:
    told = crowd["corrupt"].known()
    assert (told["state"], told["waiting_for"]) == ("failed", None)
    assert {record["error"] for record in crowd["corrupt"].told("workflow failed")} == {"CorruptHistoryError"}
    reply = crowd["corrupt"].call("GET", "/output")
    assert (reply.status, reply.json()["type"]) == (500, "urn:torpor:problem:corrupt-history"), reply.body
    # Its message is still there for the day that it is mended.
    assert any(item["sk"]["S"].startswith("MSG#") for item in crowd["corrupt"].items())


def test_a_step_that_blocks_the_loop_is_ended_by_lambda_and_tried_again(crowd: dict[str, Probe]) -> None:
    assert crowd["blocking"].output() == 2
    [first, second] = crowd["blocking"].marks()
    assert (first[1], second[1]) == (1, 2)
    assert first[2] not in crowd["blocking"].stack.worker_pids()


def test_a_sync_step_that_outlives_its_invocation_is_tried_again(crowd: dict[str, Probe]) -> None:
    assert crowd["hanging"].output() == 2
    assert [attempt for _, attempt, _ in crowd["hanging"].marks()] == [1, 2]
