"""AWS's durable SDK as a subject, alone: its service is a dictionary in this process that answers at once.

Runs in an environment of its own, by path; one JSON request a line, ``{"kind": "steps", "n": <int>}``, answered with
microseconds per step. The loop over the steps is timed, not the invocation, whose end waits for idle threads.
"""

from __future__ import annotations

import gc
import json
import logging
import sys
import time
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

from aws_durable_execution_sdk_python import durable_execution  # type: ignore[import-not-found]
from aws_durable_execution_sdk_python.config import Duration  # type: ignore[import-not-found]

FUNCTION = "arn:aws:lambda:eu-west-1:111122223333:function:bench:1"
BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)  # noqa: UP017 - runs under the interpreter of its own environment
BEGAN_MS = int(BEGAN.timestamp() * 1000)

INVOCATION = SimpleNamespace(
    aws_request_id="bench",
    invoked_function_arn=FUNCTION,
    tenant_id=None,
    get_remaining_time_in_millis=lambda: 900_000,
)


class Service:
    """The calls that the SDK makes of AWS, answered from a dictionary of operations."""

    def __init__(self) -> None:
        self.operations: dict[str, dict[str, Any]] = {}
        self.checkpoints = 0

    def checkpoint_durable_execution(self, **request: Any) -> dict[str, Any]:
        """Record what the SDK reports and say how the touched operations stand."""
        self.checkpoints += 1
        touched = [self._apply(update) for update in request["Updates"]]
        return {"CheckpointToken": f"token-{self.checkpoints}", "NewExecutionState": {"Operations": touched}}

    def get_durable_execution_state(self, **_request: Any) -> dict[str, Any]:
        """Further pages of the history: there are none."""
        return {"Operations": []}

    def _apply(self, update: dict[str, Any]) -> dict[str, Any]:
        stands = self.operations.setdefault(
            update["Id"],
            {"Id": update["Id"], "Type": update["Type"], "Status": "STARTED", "StartTimestamp": BEGAN},
        )
        stands.update({field: update[field] for field in ("Name", "ParentId", "SubType") if field in update})
        if update["Action"] == "SUCCEED":
            result = {"Attempt": 1, "Result": update.get("Payload")}
            stands.update(Status="SUCCEEDED", EndTimestamp=BEGAN, StepDetails=result)
        elif update["Type"] == "WAIT":
            stands["WaitDetails"] = {"ScheduledEndTimestamp": BEGAN + timedelta(hours=1)}
        return stands

    def invocation(self) -> dict[str, Any]:
        """The event of the next invocation, whose waits are over; instants are milliseconds in it."""
        begun = {"Id": "execution", "Type": "EXECUTION", "Status": "STARTED", "StartTimestamp": BEGAN_MS}
        begun["ExecutionDetails"] = {"InputPayload": "{}"}
        return {
            "DurableExecutionArn": f"{FUNCTION}/durable-execution/bench/1",
            "CheckpointToken": "token-0",
            "InitialExecutionState": {
                "Operations": [begun, *map(_as_sent, self.operations.values())],
                "NextMarker": "",
            },
        }


def _as_sent(operation: dict[str, Any]) -> dict[str, Any]:
    sent = {**operation, "StartTimestamp": BEGAN_MS}
    if "EndTimestamp" in sent or sent["Type"] == "WAIT":
        sent.update(Status="SUCCEEDED", EndTimestamp=BEGAN_MS)
    if sent["Type"] == "WAIT":
        sent["WaitDetails"] = {"ScheduledEndTimestamp": BEGAN_MS}
    return sent


def steps(n: int) -> dict[str, Any]:
    """N steps and a wait, twice: once fresh, once replayed."""
    spent: list[float] = []
    called = [0]

    def body(number: int) -> Any:
        def run(_step: Any) -> int:
            called[0] += 1
            return number

        return run

    def workflow(_event: Any, context: Any) -> int:
        began = time.perf_counter()
        total = 0
        for number in range(n):
            total += context.step(body(number), name=f"s{number}")
        spent.append((time.perf_counter() - began) * 1e6 / n)
        context.wait(Duration.from_seconds(3600), name="pause")
        return total

    service = Service()
    handler = durable_execution(workflow, boto3_client=service)
    for expected in ("PENDING", "SUCCEEDED"):
        event = json.loads(json.dumps(service.invocation()))
        gc.collect()
        answer = handler(event, INVOCATION)
        assert answer["Status"] == expected, answer
    assert called[0] == n, called
    return {"fresh": spent[0], "replay": spent[1], "checkpoints": service.checkpoints}


def main() -> None:
    """Answer requests until the input ends."""
    logging.disable(logging.CRITICAL)
    for line in sys.stdin:
        request = json.loads(line)
        assert request["kind"] == "steps"
        print(json.dumps(steps(request["n"])), flush=True)


if __name__ == "__main__":
    main()
