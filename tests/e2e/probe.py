"""A hand on the deployed stack: start, send, look, sweep, and read the marks that bodies left."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from adapters.sqs import Wake, wake_body
from engine.clock import SystemClock
from infra.api_client import segment
from infra.ministack import wait

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from infra.api_client import Reply
    from infra.local_stack import LocalStack

T = TypeVar("T")

POLL_S = 0.1
PATIENCE_S = 120
"""Seconds that anything may take that takes a few on an idle machine: only what never comes is missed."""

ENDED = frozenset({"completed", "failed", "cancelled"})


def until(look: Callable[[], T | None], what: str, within_s: float = PATIENCE_S) -> T:
    """What ``look`` comes to find, within so many seconds."""
    clock = SystemClock()
    deadline = clock.now() + int(within_s * 1000)
    while True:
        found = look()
        if found:
            return found
        assert clock.now() < deadline, f"not within {within_s} s: {what}"
        wait(POLL_S)


class Probe:
    """One workflow of the deployed stack, and the file where its bodies leave marks."""

    def __init__(self, stack: LocalStack, workflow_type: str, workflow_id: str, folder: Path) -> None:
        self.stack = stack
        self.type = workflow_type
        self.id = workflow_id
        self.file = folder / f"{workflow_id}.marks"
        self.file.touch()

    # --- over HTTP --------------------------------------------------------------------------------------------------

    def call(self, method: str, path: str = "", body: Any = None, *, key: str | None = None, wait_s: int = 0) -> Reply:
        headers = {} if key is None else {"Idempotency-Key": key}
        query = {"wait": str(wait_s)} if wait_s else None
        sent = None if body is None else json.dumps(body).encode()
        at = f"/workflows/{segment(self.id)}{path}"
        return self.stack.api.request(method, at, body=sent, headers=headers, query=query)

    def start(self, **plan: Any) -> Reply:
        body = {"id": self.id, "input": {"marks": str(self.file), **plan}}
        return self.stack.api.request("POST", f"/workflows/{self.type}", body=json.dumps(body).encode())

    def started(self, **plan: Any) -> Probe:
        reply = self.start(**plan)
        assert reply.status == 201, reply.body
        return self

    def send(self, name: str, body: Any = None, *, key: str | None = None) -> Reply:
        return self.call("POST", f"/messages/{name}", body, key=key)

    def known(self) -> dict[str, Any]:
        reply = self.call("GET")
        assert reply.status == 200, reply.body
        known: dict[str, Any] = reply.json()
        return known

    def ending(self, within_s: float = PATIENCE_S) -> dict[str, Any]:
        """How it ended."""
        return until(self._ending, f"{self.id} has ended; {self.known()}", within_s)

    def _ending(self) -> dict[str, Any] | None:
        told: dict[str, Any] = self.call("GET", "/output").json()
        return told if told["state"] in ENDED else None

    def output(self, within_s: float = PATIENCE_S) -> Any:
        told = self.ending(within_s)
        assert told["state"] == "completed", told
        return told["output"]

    # --- behind the API ---------------------------------------------------------------------------------------------

    def marks(self) -> list[tuple[str, int, int]]:
        """The marks so far: step, attempt, process."""
        lines = (line.split() for line in self.file.read_text().splitlines())
        return [(step, int(attempt), int(pid)) for step, attempt, pid in lines]

    def counts(self) -> dict[str, int]:
        """How often each step's body began."""
        return dict(Counter(step for step, _, _ in self.marks()))

    def mark_of(self, step: str, within_s: float = PATIENCE_S) -> tuple[str, int, int]:
        """The first mark of a step, once there is one."""
        return until(lambda: next((mark for mark in self.marks() if mark[0] == step), None), f"{step} runs", within_s)

    def wait_for(self, message_name: str, within_s: float = PATIENCE_S) -> None:
        """Until it waits for a message."""
        until(lambda: message_name in (self.known()["waiting_for"] or ()), f"it waits for {message_name}", within_s)

    def release(self) -> None:
        """Let a step end that lingers."""
        self.file.with_suffix(".enough").touch()

    def kill_worker(self) -> None:
        """End the process that left its latest mark."""
        _, _, pid = self.marks()[-1]
        assert pid in self.stack.worker_pids()
        os.kill(pid, signal.SIGKILL)

    def wake(self, copies: int = 1) -> None:
        """Put so many wakes of it on the queue, as anybody might."""
        for _ in range(copies):
            body = wake_body(Wake(workflow_id=self.id))
            self.stack.client("sqs").send_message(QueueUrl=self.stack.queue_url, MessageBody=body)

    def records(self, message: str) -> list[dict[str, Any]]:
        """The worker's log records of it whose message begins like this, as far as they are written, oldest first."""
        name = self.stack.outputs["WorkerFunction"]
        files = sorted(self.stack.ministack.folder.glob(f"{name}-*.told"))
        # A line is read while it is written, perhaps.
        lines = (line for file in files for line in file.read_text().splitlines(keepends=True) if line.endswith("\n"))
        known = (json.loads(line) for line in lines)
        ours = (it for it in known if it.get("workflow_id") == self.id and str(it["message"]).startswith(message))
        return sorted(ours, key=lambda record: str(record["timestamp"]))

    def told(self, message: str, least: int = 1) -> list[dict[str, Any]]:
        """The same, once there are so many: what the table says is there before the log tells of it."""
        return until(lambda: found if len(found := self.records(message)) >= least else None, f"{self.id}: {message}")

    def items(self) -> list[dict[str, Any]]:
        """Everything the table holds of it."""
        found: list[dict[str, Any]] = self.stack.client("dynamodb").query(
            TableName=self.stack.table_name,
            KeyConditionExpression="pk = :id",
            ExpressionAttributeValues={":id": {"S": self.id}},
            ConsistentRead=True,
        )["Items"]
        return found


def sweep(stack: LocalStack) -> dict[str, int]:
    """Have the sweeper look now instead of at the next minute."""
    answer = stack.client("lambda").invoke(FunctionName=stack.outputs["SweeperFunction"], Payload=b"{}")
    told: dict[str, int] = json.loads(answer["Payload"].read())
    assert "FunctionError" not in answer, told
    return told
