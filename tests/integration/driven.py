"""A worker process driven by hand, the workflows that it runs, and what their steps do."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from engine import Context, workflow
from handlers.worker import WorkerFunction
from infra.ministack import wait
from tests.integration.http import Caller
from tests.integration.lambda_event import LambdaContext, recorded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import pytest

    from handlers.bootstrap import Wiring
    from tests.integration.conftest import Cloud

bodies: list[str] = []
"""What step bodies did, in order; cleared for each test."""

hooks: dict[str, Callable[[], Awaitable[Any]]] = {}
"""What a step body does beside its work, by workflow id; set by a test."""


async def _work(workflow_id: str) -> str:
    bodies.append(workflow_id)
    if workflow_id in hooks:
        await hooks[workflow_id]()
    return "worked"


@workflow("worker-step")
async def step(ctx: Context, _input: Any) -> Any:
    return await ctx.step("work", _work, ctx.workflow_id)


@workflow("worker-message")
async def message(ctx: Context, _input: Any) -> Any:
    await ctx.step("work", _work, ctx.workflow_id)
    got = await ctx.queue.next("go", completable=True)
    await got.complete({"got": got.body})
    return got.body


@workflow("worker-sleep")
async def sleep(ctx: Context, seconds: float) -> str:
    await ctx.sleep("nap", timedelta(seconds=seconds))
    return "rested"


@workflow("worker-patience")
async def patience(ctx: Context, seconds: float) -> Any:
    got = await ctx.queue.next_batch("go", timeout=seconds)
    return [one.body for one in got]


@workflow("worker-awaits")
async def awaits(ctx: Context, workflow_id: str) -> Any:
    return await ctx.output(workflow_id)


@workflow("worker-fails")
async def fails(_ctx: Context, _input: Any) -> None:
    raise ValueError("refused for good")


def _divide(amount: str) -> float:
    raise ZeroDivisionError(f"cannot divide {amount} by 0")


@workflow("worker-divides")
async def divides(ctx: Context, amount: str) -> Any:
    return await ctx.step("divide", _divide, amount, max_retries=1, retry_backoff_base=0)


@workflow("worker-group")
async def group(ctx: Context, _input: Any) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ctx.sleep("nap", timedelta(hours=1)))


@workflow("worker-cancels-itself")
async def cancels_itself(ctx: Context, _input: Any) -> None:
    async def give_up() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    await ctx.step("give up", give_up)


@workflow("worker-exits")
async def exits(ctx: Context, _input: Any) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    await ctx.step("leave", leave, max_retries=0)


@workflow("worker-careless")
async def careless(ctx: Context, _input: Any) -> str:
    async def forever() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            bodies.append("stopped")

    kept.append(asyncio.create_task(forever()))
    await asyncio.sleep(0)
    return await ctx.step("work", _work, ctx.workflow_id)


kept: list[asyncio.Task[None]] = []


class Driven:
    """A worker process and a caller of the API, on the same table and queue."""

    def __init__(self, wiring: Wiring, cloud: Cloud) -> None:
        self.wiring = wiring
        self.cloud = cloud
        self.http = Caller(wiring)
        self.function = WorkerFunction(wiring)

    def start(self, workflow_type: str, workflow_id: str, workflow_input: Any = None) -> None:
        started = self.http.post(f"/workflows/{workflow_type}", {"id": workflow_id, "input": workflow_input})
        assert started.status == 201

    def work(self, records: list[dict[str, Any]] | None = None, remaining_ms: int = 60_000) -> list[str]:
        """Invoke the function with ``records``, or with every wake in the queue; the message ids that failed."""
        records = self.cloud.wakes() if records is None else records
        answer = self.function({"Records": records}, LambdaContext(remaining_ms))
        return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]

    def drain(self) -> None:
        """Work until the queue is empty of wakes that can be seen."""
        for _ in range(10):
            records = self.cloud.wakes()
            if not records:
                return
            assert self.work(records) == []

    def drain_when_seen(self) -> None:
        """Work once a wake can be seen that was delayed by a second; there must be one."""
        for _ in range(600):
            if records := self.cloud.wakes():
                about = records[0]["attributes"]
                assert int(about["ApproximateFirstReceiveTimestamp"]) - int(about["SentTimestamp"]) >= 1000
                assert self.work(records) == []
                return
            wait(0.1)
        raise AssertionError("there is no wake")

    def state(self, workflow_id: str) -> str:
        state: str = self.http.get(f"/workflows/{workflow_id}").value["state"]
        return state

    def output(self, workflow_id: str) -> Any:
        return self.http.get(f"/workflows/{workflow_id}/output").value

    def delayed(self) -> int:
        """How many wakes lie in the queue and cannot be seen yet."""
        name = "ApproximateNumberOfMessagesDelayed"
        answer = self.cloud.client("sqs").get_queue_attributes(QueueUrl=self.cloud.queue_url, AttributeNames=[name])
        return int(answer["Attributes"][name])

    def schedules(self) -> list[dict[str, Any]]:
        listed = self.cloud.client("scheduler").list_schedules(GroupName=self.cloud.group)["Schedules"]
        return list(listed)


def wake(workflow_id: str, number: int = 0, **more: Any) -> dict[str, Any]:
    """A record of one wake; its message id is told by ``number``."""
    body = json.dumps({"workflow_id": workflow_id, **more})
    return {**recorded("sqs_record"), "messageId": f"message-{number}", "body": body}


def told(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, Any]]:
    return [vars(record) for record in caplog.records if record.message == message]
