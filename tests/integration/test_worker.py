"""The worker function on recorded SQS batches: what becomes of each wake, and what is left in table, queue and log."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from adapters.dynamodb import log
from adapters.dynamodb.store import Claimed, Held
from engine import Context, workflow
from engine.keys import entry_key, name_key
from engine.limits import DEATHS_MAX
from handlers.bootstrap import Wiring
from handlers.turn import POSTPONED_MS
from handlers.worker import WorkerFunction
from tests.integration.conftest import LambdaContext, recorded
from tests.integration.http import Caller

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from handlers.bootstrap import Settings
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


@workflow("worker-fails")
async def fails(_ctx: Context, _input: Any) -> None:
    raise ValueError("refused for good")


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


@pytest.fixture(autouse=True)
def _clean() -> None:
    bodies.clear()
    hooks.clear()


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


@pytest.fixture
def driven(wiring: Wiring, cloud: Cloud) -> Driven:
    return Driven(wiring, cloud)


@pytest.fixture
def other(settings: Settings) -> Iterator[Wiring]:
    """Another process on the same table and queue."""
    made = Wiring(settings)
    yield made
    made.close()


def wake(workflow_id: str, number: int = 0, **more: Any) -> dict[str, Any]:
    """A record of one wake; its message id is told by ``number``."""
    body = json.dumps({"workflow_id": workflow_id, **more})
    return {**recorded("sqs_record"), "messageId": f"message-{number}", "body": body}


def told(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, Any]]:
    return [vars(record) for record in caplog.records if record.message == message]


# --- the common case ----------------------------------------------------------------------------------------------


def test_a_workflow_runs_waits_and_ends_over_three_invocations(
    driven: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    driven.start("worker-message", "order-1")
    assert driven.work() == []
    assert driven.state("order-1") == "sleeping"
    driven.http.post("/workflows/order-1/messages/go", 7)
    assert driven.work() == []
    assert driven.output("order-1") == {"id": "order-1", "state": "completed", "output": 7}
    assert driven.cloud.wakes() == []
    assert bodies == ["order-1"]
    first, second = told(caplog, "run ended")
    assert (first["workflow_id"], first["type"], first["state"]) == ("order-1", "worker-message", "sleeping")
    assert (second["state"], second["outcome"], second["wakes"], second["epoch"]) == ("completed", "ended", 2, 2)
    assert (first["commits"], second["commits"]) == (1, 1)
    assert {"write_units", "read_units", "duration_ms", "next_wake"} <= set(first)


def test_the_reply_of_a_message_is_the_same_for_every_sender_of_its_key(driven: Driven) -> None:
    driven.start("worker-message", "order-1")
    path, headers = "/workflows/order-1/messages/go", {"idempotency-key": "key-1"}
    first = driven.http.post(path, 7, headers=headers)
    assert (first.status, first.value["duplicate"]) == (202, False)
    driven.drain()
    # The answer was lost, say, and the workflow has ended meanwhile.
    for _ in range(2):
        again = driven.http.post(path, 7, headers=headers, query={"wait": "5"})
        assert (again.status, again.value) == (
            200,
            {"message_id": "key-1", "duplicate": True, "reply": {"got": 7}},
        )
    assert driven.output("order-1")["output"] == 7


def test_a_failed_workflow_is_told_with_its_error_and_can_be_recovered(driven: Driven) -> None:
    driven.start("worker-fails", "order-1")
    assert driven.work() == []
    ending = driven.output("order-1")
    assert (ending["state"], ending["error"]["name"], ending["error"]["message"]) == (
        "failed",
        "ValueError",
        "refused for good",
    )
    recovered = driven.http.post("/workflows/order-1/recover")
    assert (recovered.status, recovered.value["state"]) == (202, "sleeping")
    driven.drain()
    assert driven.state("order-1") == "failed"


def test_history_and_replay_over_http(driven: Driven) -> None:
    driven.start("worker-step", "order-1")
    driven.drain()
    [entry] = driven.http.get("/workflows/order-1/history").value["entries"]
    assert (entry["location"], entry["kind"], entry["status"], entry["value"]) == (
        "work",
        "step",
        "completed",
        "worked",
    )
    refused = driven.http.post("/workflows/order-1/replay", {"entry_id": "no-such-entry"})
    assert refused.status == 409
    assert driven.http.post("/workflows/order-1/replay", {"entry_id": entry["id"]}).status == 202
    driven.drain()
    assert bodies == ["order-1", "order-1"]
    assert driven.state("order-1") == "completed"


# --- wakes that are wrong -----------------------------------------------------------------------------------------


def test_a_wake_twice_in_a_batch_runs_the_workflow_once(driven: Driven) -> None:
    driven.start("worker-step", "order-1")
    assert driven.work([wake("order-1", 1), wake("order-1", 2), wake("order-1", 3)]) == []
    assert bodies == ["order-1"]


def test_a_wake_during_a_step_is_dropped(driven: Driven, other: Wiring) -> None:
    driven.start("worker-step", "order-1")
    seen = []

    async def claim_too() -> None:
        store = await other.store()
        seen.append(type(await store.claim("order-1", lease_ms=60_000, deadline_ms=None)))

    hooks["order-1"] = claim_too
    assert driven.work() == []
    assert seen == [Held]
    assert bodies == ["order-1"]
    assert driven.state("order-1") == "completed"


@pytest.mark.parametrize("ending", ["completed", "failed", "cancelled"])
def test_a_late_wake_for_an_ended_workflow_changes_nothing(driven: Driven, ending: str) -> None:
    driven.start("worker-fails" if ending == "failed" else "worker-step", "order-1")
    if ending == "cancelled":
        driven.http.post("/workflows/order-1/cancel")
    driven.drain()
    assert driven.state("order-1") == ending
    before, ran = driven.cloud.items(), list(bodies)
    assert driven.work([wake("order-1"), wake("order-1", 1, alarm_at=1)]) == []
    again = driven.http.post(
        f"/workflows/{'worker-fails' if ending == 'failed' else 'worker-step'}", {"id": "order-1", "input": None}
    )
    assert again.status == 200
    driven.drain()
    assert driven.cloud.items() == before
    assert bodies == ran
    assert driven.delayed() == 0


def test_a_wake_for_nobody_is_dropped_and_one_that_is_none_fails(driven: Driven) -> None:
    records = [wake("nobody", 1), {**recorded("sqs_record"), "messageId": "odd", "body": "hello"}]
    assert driven.work(records) == ["odd"]
    assert driven.cloud.items() == []


def test_an_early_alarm_arms_itself_again_and_a_stale_one_does_not(driven: Driven) -> None:
    driven.start("worker-sleep", "order-1", 600)
    driven.work()
    assert driven.delayed() == 1
    due_at = int(driven.cloud.head("order-1")["due_at"]["N"])
    before = driven.cloud.head("order-1")["due_at"]
    assert driven.work([wake("order-1", alarm_at=due_at)]) == []
    assert driven.delayed() == 2
    assert driven.work([wake("order-1"), wake("order-1", alarm_at=due_at - 1)]) == []
    assert driven.delayed() == 2
    assert driven.cloud.head("order-1")["due_at"] == before
    assert driven.state("order-1") == "sleeping"


def test_a_far_alarm_is_a_schedule_which_goes_with_the_workflow(driven: Driven) -> None:
    driven.start("worker-patience", "order-1", 3600)
    driven.work()
    [schedule] = driven.schedules()
    assert schedule["State"] == "ENABLED"
    driven.http.post("/workflows/order-1/messages/go", "come")
    driven.drain()
    assert driven.output("order-1")["output"] == ["come"]
    assert driven.schedules() == []


def test_cancelling_a_sleeper_removes_its_schedule(driven: Driven) -> None:
    driven.start("worker-sleep", "order-1", 86_400)
    driven.work()
    assert len(driven.schedules()) == 1
    assert driven.http.post("/workflows/order-1/cancel").value["state"] == "cancelled"
    assert driven.schedules() == []


# --- messages that come at a bad moment ---------------------------------------------------------------------------


def test_a_message_between_load_and_yield_is_taken_in_the_same_turn(driven: Driven, other: Wiring) -> None:
    driven.start("worker-message", "order-1")

    async def send() -> None:
        store = await other.store()
        await store.send("order-1", name="go", body=b"\x01")

    hooks["order-1"] = send
    assert driven.work() == []
    assert driven.output("order-1")["output"] == 1


def test_a_message_whose_wake_was_lost_is_found_by_the_timeout_alarm(driven: Driven) -> None:
    driven.start("worker-patience", "order-1", 1.5)
    driven.work()
    driven.http.post("/workflows/order-1/messages/go", "stored")
    assert len(driven.cloud.wakes()) == 1
    due_at = int(driven.cloud.head("order-1")["due_at"]["N"])
    assert driven.work([wake("order-1", alarm_at=due_at)]) == []
    assert driven.output("order-1")["output"] == ["stored"]


# --- the deadline, and other ends of a process --------------------------------------------------------------------


def test_a_step_that_outlasts_the_invocation_is_stopped_and_goes_on_at_once(
    driven: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    driven.start("worker-step", "order-1")

    async def hang_once() -> None:
        if len(bodies) == 1:
            await asyncio.sleep(3600)

    hooks["order-1"] = hang_once
    assert driven.work(remaining_ms=1_000) == []
    [ended] = told(caplog, "run ended")
    assert ended["outcome"] == "handed on"
    assert ended["duration_ms"] < 1_000
    assert "owner" not in driven.cloud.head("order-1")
    driven.drain()
    assert bodies == ["order-1", "order-1"]
    assert driven.state("order-1") == "completed"
    [entry] = driven.http.get("/workflows/order-1/history").value["entries"]
    assert entry["attempts"] == 2


def test_a_step_that_ends_within_the_margin_is_kept(driven: Driven) -> None:
    driven.start("worker-message", "order-1")

    async def linger() -> None:
        await asyncio.sleep(0.6)

    hooks["order-1"] = linger
    assert driven.work(remaining_ms=1_000) == []
    assert driven.http.get("/workflows/order-1/history").value["entries"][0]["status"] == "completed"
    driven.drain()
    assert bodies == ["order-1"]
    assert driven.state("order-1") == "sleeping"


def test_sigterm_hands_the_workflow_on(driven: Driven) -> None:
    driven.wiring.process.listen_for_sigterm()
    driven.start("worker-step", "order-1")

    async def terminate_once() -> None:
        if len(bodies) == 1:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(3600)

    hooks["order-1"] = terminate_once
    try:
        assert driven.work() == []
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert "owner" not in driven.cloud.head("order-1")
    driven.drain()
    assert driven.state("order-1") == "completed"


def test_a_dead_holder_is_waited_for_and_then_replaced(driven: Driven, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    driven.start("worker-step", "order-1")

    async def claim_and_die() -> None:
        store = await driven.wiring.store()
        assert isinstance(await store.claim("order-1", lease_ms=400, deadline_ms=None), Claimed)

    driven.wiring.process.run(claim_and_die())
    assert driven.work() == []
    assert bodies == []
    driven.wiring.process.run(asyncio.sleep(0.5))
    assert driven.work([wake("order-1")]) == []
    assert driven.state("order-1") == "completed"
    [ended] = told(caplog, "run ended")
    assert ended["wakes"] == 2
    assert driven.http.get("/workflows/order-1/history").value["entries"][0]["attempts"] == 2


def test_a_long_step_keeps_its_lease(settings: Settings, cloud: Cloud, other: Wiring) -> None:
    wiring = Wiring(replace(settings, lease_ms=600))
    try:
        driven = Driven(wiring, cloud)
        driven.start("worker-step", "order-1")
        seen = []

        async def look_twice() -> None:
            store = await other.store()
            for _ in range(2):
                await asyncio.sleep(0.8)
                seen.append(type(await store.claim("order-1", lease_ms=600, deadline_ms=None)))

        hooks["order-1"] = look_twice
        assert driven.work() == []
        assert seen == [Held, Held]
        assert driven.state("order-1") == "completed"
    finally:
        wiring.close()


def test_cancelling_during_a_step_wins_over_the_run(
    driven: Driven, other: Wiring, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    driven.start("worker-step", "order-1")

    async def cancel() -> None:
        store = await other.store()
        await store.cancel("order-1")

    hooks["order-1"] = cancel
    assert driven.work() == []
    assert driven.output("order-1") == {"id": "order-1", "state": "cancelled"}
    [ended] = told(caplog, "run ended")
    assert ended["outcome"] == "fenced"
    assert driven.cloud.wakes() == []


# --- poison -------------------------------------------------------------------------------------------------------


def corrupt(cloud: Cloud, workflow_id: str) -> None:
    """Spoil what is stored of a workflow's first commit."""
    cloud.client("dynamodb").update_item(
        TableName=cloud.table,
        Key={"pk": {"S": workflow_id}, "sk": {"S": "LOG#000000000001"}},
        UpdateExpression="SET #b = :b",
        ExpressionAttributeNames={"#b": "b"},
        ExpressionAttributeValues={":b": {"B": b"\xff\xff"}},
    )


def test_broken_workflows_of_a_batch_harm_no_other(driven: Driven, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(8):
        driven.start("worker-step", f"order-{number}")
    driven.start("worker-step", "corrupt")
    corrupt(driven.cloud, "corrupt")
    start_unknown(driven.wiring)
    driven.cloud.wakes()
    records = [wake(f"order-{number}", number) for number in range(8)] + [wake("corrupt", 8), wake("unknown", 9)]
    assert driven.work(records) == ["message-8"]
    assert {driven.state(f"order-{number}") for number in range(8)} == {"completed"}
    assert "corrupt" in json.dumps([record.__dict__.get("error", "") for record in caplog.records])
    head = driven.cloud.head("unknown")
    assert "owner" not in head
    later_ms = int(head["due_at"]["N"]) - driven.wiring.clock.now()
    assert POSTPONED_MS - 10_000 < later_ms <= POSTPONED_MS
    assert driven.cloud.wakes() == []


def start_unknown(wiring: Wiring) -> None:
    async def start() -> None:
        store = await wiring.store()
        await store.start(workflow_id="unknown", type="worker-of-tomorrow", input=b"\xf6")

    wiring.process.run(start())


def test_a_history_that_cannot_be_read_is_set_aside_and_goes_on_when_mended(settings: Settings, cloud: Cloud) -> None:
    wiring = Wiring(replace(settings, lease_ms=150))
    try:
        driven = Driven(wiring, cloud)
        driven.start("worker-step", "order-1")
        spoil(cloud, "order-1", bytes.fromhex("0100ff"))
        for _ in range(DEATHS_MAX):
            assert driven.work([wake("order-1")]) == ["message-0"]
            wiring.process.run(asyncio.sleep(0.2))
        assert driven.work([wake("order-1")]) == []
        ending = driven.output("order-1")
        assert (ending["state"], ending["error"]["name"]) == ("failed", "CorruptHistoryError")
        assert driven.work([wake("order-1")]) == []
        assert bodies == []
        spoil(cloud, "order-1", None)
        assert driven.http.post("/workflows/order-1/recover").status == 202
        driven.drain()
        assert driven.state("order-1") == "completed"
    finally:
        wiring.close()


def spoil(cloud: Cloud, workflow_id: str, entry: bytes | None) -> None:
    """Add a commit, the second, with a step's entry of these bytes; with None mend it."""
    record = log.Record(puts=[(name_key(0), b"work")] + ([] if entry is None else [(entry_key((0,)), entry)]))
    item = {"pk": {"S": workflow_id}, "sk": {"S": "LOG#000000000002"}, "b": {"B": log.encode(record)}}
    cloud.client("dynamodb").put_item(TableName=cloud.table, Item=item)
    if entry is not None:
        cloud.client("dynamodb").update_item(
            TableName=cloud.table,
            Key={"pk": {"S": workflow_id}, "sk": {"S": "HEAD"}},
            UpdateExpression="SET #seq = :two",
            ExpressionAttributeNames={"#seq": "seq"},
            ExpressionAttributeValues={":two": {"N": "2"}},
        )


def test_an_unreachable_store_fails_every_wake_of_the_batch(driven: Driven) -> None:
    driven.start("worker-step", "order-1")
    driven.cloud.client("dynamodb").delete_table(TableName=driven.cloud.table)
    assert driven.work([wake("order-1", 1), wake("order-1", 2), wake("order-2", 3)]) == [
        "message-1",
        "message-2",
        "message-3",
    ]


def test_a_lost_alarm_call_fails_nothing(driven: Driven, caplog: pytest.LogCaptureFixture) -> None:
    driven.start("worker-sleep", "order-1", 600)
    records = driven.cloud.wakes()
    driven.cloud.client("sqs").delete_queue(QueueUrl=driven.cloud.queue_url)
    assert driven.work(records) == []
    assert driven.state("order-1") == "sleeping"
    assert "due_at" in driven.cloud.head("order-1")
    assert len(told(caplog, "alarm not armed")) == 1


# --- warm processes -----------------------------------------------------------------------------------------------


def test_five_invocations_share_clients_and_leave_nothing_behind(
    driven: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    clients = []
    for number, workflow_type in enumerate(
        ["worker-step", "worker-fails", "worker-careless", "worker-step", "worker-fails"]
    ):
        driven.start(workflow_type, f"order-{number}")
        driven.work()
        clients.append(dict(driven.wiring._clients))
        assert asyncio.all_tasks(driven.wiring.process.loop) == set()
    assert bodies == ["order-0", "order-2", "stopped", "order-3"]
    assert all(made.items() <= clients[-1].items() for made in clients)
    assert [driven.state(f"order-{number}") for number in range(5)] == [
        "completed",
        "failed",
        "completed",
        "completed",
        "failed",
    ]
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
