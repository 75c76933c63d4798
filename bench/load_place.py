"""The place of a load test: a local stack, clients that act on it as the API function does, and what its workers tell.

The clients are this process's own, on the adapters that the API function is made of: through the local AWS's gateway
and its functions, messages could not be sent as fast as they are here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from msgspec import Struct

from adapters.dynamodb.store import Store
from adapters.sqs import WakeQueue
from bench.subject import BenchFailedError
from engine.clock import SystemClock
from engine.ids import Ids
from engine.values import encode
from handlers.wake import NEEDLESS
from infra.aws import LOCAL_ACCESS_KEY, LOCAL_REGION, LOCAL_SECRET_KEY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Iterable
    from types import TracebackType

    from engine.lifecycle import WorkflowState
    from infra.local_stack import LocalStack

CONNECTIONS = 16
"""Calls in flight at once. Design choice: more only wait, where the service has one processor."""

LOOK_EVERY_S = 1.0
"""Seconds between two looks at the table, which cost the local AWS time of its own. Design choice."""


class Told(Struct, kw_only=True):
    """What the workers' log says of a stretch of time.

    Attributes:
        took_ms: how long each message took, in milliseconds.
        ended: ids of workflows that have ended.
        turns: runs; ``drops``: wakes that there was nothing to do for.
        commits: commits; ``write_units``, ``read_units``: what turns have cost, as the service says.
        refusals: writes whose condition did not hold; ``repeats``: tries that were made again.
        faults: records of level ERROR.
    """

    took_ms: list[float] = []
    ended: set[str] = set()
    turns: int = 0
    drops: int = 0
    commits: int = 0
    write_units: float = 0.0
    read_units: float = 0.0
    refusals: int = 0
    repeats: int = 0
    faults: list[str] = []

    @classmethod
    def of(cls, lines: Iterable[str]) -> Told:
        """What lines of the log say."""
        told = cls(took_ms=[], ended=set(), faults=[])
        for line in lines:
            record = _parsed(line)
            if "took_ms" in record:
                told.took_ms += record["took_ms"]
            if record.get("level") == "ERROR":
                told.faults.append(line)
            if str(record.get("message")).startswith(NEEDLESS):
                told.drops += 1
            if record.get("message") == "run ended":
                told._add_turn(record)
        return told

    def _add_turn(self, record: dict[str, Any]) -> None:
        self.turns += 1
        for name in ("commits", "write_units", "read_units", "refusals", "repeats"):
            setattr(self, name, getattr(self, name) + record[name])
        if record["outcome"] == "ended":
            self.ended.add(record["workflow_id"])


def _parsed(line: str) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        record = json.loads(line)
        if isinstance(record, dict):
            return record
    return {}


class Place:
    """A local stack under load; ``store`` and ``queue`` act on it, ``told`` says what its workers did."""

    def __init__(self, stack: LocalStack) -> None:
        self.stack = stack
        self.since_ms = SystemClock().now()
        self.peak_mb = 0.0
        self._clients = contextlib.AsyncExitStack()
        self._room = asyncio.Semaphore(CONNECTIONS)
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        session, clock = get_session(), SystemClock()
        dynamodb, sqs = [
            await self._clients.enter_async_context(
                session.create_client(
                    service,
                    region_name=LOCAL_REGION,
                    endpoint_url=self.stack.endpoint,
                    aws_access_key_id=LOCAL_ACCESS_KEY,
                    aws_secret_access_key=LOCAL_SECRET_KEY,
                    config=AioConfig(max_pool_connections=CONNECTIONS, read_timeout=60),
                )
            )
            for service in ("dynamodb", "sqs")
        ]
        jitter = random.Random(1)  # noqa: S311 - it spreads retries and hides nothing
        self.store = Store(dynamodb, self.stack.table_name, clock, Ids(clock), owner="load", random=jitter.random)
        self.queue = WakeQueue(sqs, self.stack.queue_url)
        self._watch = asyncio.create_task(self._watch_memory())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        await self._clients.aclose()

    async def _watch_memory(self) -> None:
        while True:
            pids = await asyncio.to_thread(self.stack.worker_pids)
            self.peak_mb = max([self.peak_mb, *map(peak_mb_of, pids)])
            await asyncio.sleep(1)

    def begin(self) -> None:
        """From here on ``told`` and ``peak_mb`` are about what comes: workers that are there lose their past peaks."""
        self.since_ms = SystemClock().now()
        self.peak_mb = 0.0
        for pid in self.stack.worker_pids():
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")

    async def start(self, workflow_type: str, workflow_id: str, given: Any) -> None:
        """Start a workflow and wake it."""
        async with self._room:
            await self.store.start(workflow_id=workflow_id, type=workflow_type, input=encode(given))
            await self.queue.wake(workflow_id)

    async def send(self, workflow_id: str, name: str, **body: Any) -> None:
        """Post a message, which says when it was sent, and wake the workflow."""
        async with self._room:
            sent_ns = time.time_ns()  # noqa: TID251 - what is measured
            await self.store.send(workflow_id, name=name, body=encode({**body, "sent_ns": sent_ns}))
            await self.queue.wake(workflow_id)

    async def told(self) -> Told:
        """What the workers have told since ``begin``."""
        return Told.of(await asyncio.to_thread(self.stack.logs, "worker", self.since_ms))

    async def until(self, prefix: str, count: int, state: WorkflowState, within_s: float) -> float:
        """Until so many workflows whose ids begin so are in that state, at most ``within_s`` seconds; how many waited.

        The table says so, not the log: of that the local AWS loses a line now and then.
        """
        began = time.perf_counter()
        while await asyncio.to_thread(self._count, prefix, state) < count:
            if time.perf_counter() - began > within_s:
                break
            await asyncio.sleep(LOOK_EVERY_S)
        return time.perf_counter() - began

    def _count(self, prefix: str, state: WorkflowState) -> int:
        arguments = {
            "TableName": self.stack.table_name,
            "FilterExpression": "sk = :head AND begins_with(pk, :prefix) AND #s = :state AND attribute_not_exists(#o)",
            "ExpressionAttributeNames": {"#s": "state", "#o": "owner"},
            "ExpressionAttributeValues": {
                ":head": {"S": "HEAD"},
                ":prefix": {"S": prefix},
                ":state": {"S": state},
            },
            "Select": "COUNT",
        }
        pages = self.stack.client("dynamodb").get_paginator("scan").paginate(**arguments)
        return sum(page["Count"] for page in pages)

    async def until_no_wakes(self, within_s: float) -> None:
        """Until the wake queue is empty and nothing of it is being handled, or ``within_s`` seconds are over."""
        names = [f"ApproximateNumberOfMessages{which}" for which in ("", "NotVisible", "Delayed")]
        began = time.perf_counter()
        while time.perf_counter() - began < within_s:
            answer = await asyncio.to_thread(
                self.stack.client("sqs").get_queue_attributes, QueueUrl=self.stack.queue_url, AttributeNames=names
            )
            if not any(int(answer["Attributes"][name]) for name in names):
                return
            await asyncio.sleep(0.5)

    async def messages_left(self, workflow_id: str) -> int:
        """Messages in a workflow's inbox."""
        arguments = {
            "TableName": self.stack.table_name,
            "KeyConditionExpression": "pk = :pk AND begins_with(sk, :prefix)",
            "ExpressionAttributeValues": {":pk": {"S": workflow_id}, ":prefix": {"S": "MSG#"}},
            "Select": "COUNT",
            "ConsistentRead": True,
        }
        answer = await asyncio.to_thread(lambda: self.stack.client("dynamodb").query(**arguments))
        return int(answer["Count"])


async def all_of(work: Iterable[Coroutine[Any, Any, Any]]) -> None:
    """Do all of it side by side; raises BenchFailedError where some of it failed."""
    done = await asyncio.gather(*work, return_exceptions=True)
    failed = [error for error in done if isinstance(error, BaseException)]
    if failed:
        raise BenchFailedError(f"{len(failed)} of {len(done)} calls failed, the first with {failed[0]!r}")


async def timed(work: Awaitable[Any]) -> float:
    """The seconds that ``work`` takes."""
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


def peak_mb_of(pid: int) -> float:
    """The most memory that a process has had resident, in megabytes; 0 where it is gone or the system cannot say."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0
