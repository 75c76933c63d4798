"""The worker function on recorded SQS batches: what becomes of each wake, and what is left in table and queue."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from adapters.dynamodb.model.items import encode_message
from adapters.dynamodb.store import Held
from engine.entry import Message
from engine.values import encode
from handlers.calls import instant
from handlers.wake import NEEDLESS
from tests.integration.driven import Driven, bodies, hooks, told, wake
from tests.integration.lambda_event import recorded

if TYPE_CHECKING:
    from handlers.bootstrap import Wiring
    from tests.shifted_clock import ShiftedClock

DAY_MS = 86_400_000

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
    assert (second["state"], second["outcome"], second["wakes"]) == ("completed", "ended", 2)
    assert (first["commits"], second["commits"]) == (1, 1)
    assert {"write_units", "read_units", "duration_ms", "next_wake"} <= set(first)


# Where some seconds pass, the sender is not waited for any more.
@pytest.mark.usefixtures("clock")
def test_a_message_that_comes_while_its_workflow_goes_to_sleep_does_not_wait_for_the_sweeper(driven: Driven) -> None:
    driven.start("worker-message", "order-1")
    # A sender has its place in the inbox, and is slow.
    inbox = {"pk": {"S": "order-1"}, "sk": {"S": "INBOX"}}
    one = {":one": {"N": "1"}}
    table = driven.cloud.client("dynamodb")
    table.update_item(
        TableName=driven.cloud.table, Key=inbox, UpdateExpression="ADD n :one", ExpressionAttributeValues=one
    )
    assert driven.work() == []
    assert driven.state("order-1") == "sleeping"
    # Its message comes; the wake for it found the lease held, say, and was dropped.
    message = Message(id="late", name="go", body=encode(7), sent_at=0, ticket=1)
    table.put_item(TableName=driven.cloud.table, Item=encode_message("order-1", message))
    driven.drain_when_seen()
    assert driven.output("order-1")["output"] == 7


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


def test_a_workflow_that_waits_for_another_says_for_which(driven: Driven) -> None:
    driven.start("worker-message", "child")
    driven.start("worker-awaits", "parent", "child")
    driven.drain()
    known = driven.http.get("/workflows/parent").value
    assert (known["state"], known["waiting_for"], known["waiting_for_workflows"]) == ("sleeping", None, ["child"])
    assert driven.http.get("/workflows/child").value["waiting_for_workflows"] is None
    driven.http.post("/workflows/child/messages/go", 1)
    driven.drain()
    known = driven.http.get("/workflows/parent").value
    assert (known["state"], known["waiting_for_workflows"]) == ("completed", None)


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


def test_a_wake_that_is_not_needed_says_why(driven: Driven, other: Wiring, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="handlers.wake")
    for workflow_id, workflow_type in (("held", "worker-step"), ("asleep", "worker-sleep"), ("over", "worker-step")):
        driven.start(workflow_type, workflow_id, 600)

    second = Driven(other, driven.cloud)

    async def meanwhile() -> None:
        await asyncio.to_thread(second.work, [wake("held")])

    hooks["held"] = meanwhile
    driven.drain()
    driven.work([wake("asleep", 1), wake("over", 2), wake("nobody", 3)])
    told = {record.reason: record.getMessage() for record in caplog.records if hasattr(record, "reason")}
    assert sorted(told) == ["Ended", "Held", "NotDue", "NotFound"]
    assert all(message.startswith(f"{NEEDLESS}: ") for message in told.values())
    assert "nothing is due yet" in told["NotDue"]
    assert "looks for news itself" in told["Held"]


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


def test_an_ended_workflow_is_neither_woken_nor_cancelled(driven: Driven) -> None:
    driven.start("worker-step", "order-1")
    driven.drain()
    before = driven.cloud.items()
    for operation in ("wake", "cancel"):
        assert driven.http.post(f"/workflows/order-1/{operation}").status == 409
    # There is nothing to recover from, and that is no mistake.
    recovered = driven.http.post("/workflows/order-1/recover")
    assert (recovered.status, recovered.value["state"]) == (200, "completed")
    assert driven.cloud.items() == before


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


@pytest.mark.usefixtures("clock")
def test_a_wake_ahead_of_its_message_is_followed_by_another_a_second_later(driven: Driven) -> None:
    driven.start("worker-message", "order-1")
    driven.drain()
    # A sender that has its place, and whose message is on its way.
    driven.cloud.client("dynamodb").update_item(
        TableName=driven.cloud.table,
        Key={"pk": {"S": "order-1"}, "sk": {"S": "INBOX"}},
        UpdateExpression="ADD n :one",
        ExpressionAttributeValues={":one": {"N": "1"}},
    )
    assert driven.work([wake("order-1")]) == []
    assert driven.state("order-1") == "sleeping"
    driven.drain_when_seen()
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


def test_cancelling_a_start_that_was_put_off_removes_its_schedule(driven: Driven) -> None:
    start = {"id": "order-1", "input": 1, "start_at": "2100-01-01T00:00:00Z"}
    assert driven.http.post("/workflows/worker-sleep", start).status == 201
    assert len(driven.schedules()) == 1
    assert driven.http.post("/workflows/order-1/cancel").value["state"] == "cancelled"
    assert driven.schedules() == []
    # The caller may not have heard the answer to the start, and repeat it late.
    assert driven.http.post("/workflows/worker-sleep", start).status == 200
    assert driven.schedules() == []


def test_a_start_that_is_repeated_moves_nobodys_alarm(clock: ShiftedClock, driven: Driven) -> None:
    start_at = clock.now() + 20 * DAY_MS
    start = {"id": "order-1", "input": 86_400, "start_at": str(instant(start_at))}
    assert driven.http.post("/workflows/worker-sleep", start).status == 201
    put_off = day(driven)
    sooner = {**start, "start_at": str(instant(start_at - 10 * DAY_MS))}
    assert driven.http.post("/workflows/worker-sleep", sooner).status == 200
    assert day(driven) == put_off
    clock.shift(20 * DAY_MS)
    assert driven.work([wake("order-1")]) == []
    asleep = day(driven)
    assert asleep != put_off
    assert driven.http.post("/workflows/worker-sleep", start).status == 200
    assert day(driven) == asleep


def day(driven: Driven) -> str:
    """When the one schedule there is goes off, without the time."""
    [listed] = driven.schedules()
    schedule = driven.cloud.client("scheduler").get_schedule(GroupName=driven.cloud.group, Name=listed["Name"])
    return str(schedule["ScheduleExpression"]).partition("T")[0]


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
    driven.start("worker-patience", "order-1", 600)
    driven.work()
    driven.http.post("/workflows/order-1/messages/go", "stored")
    assert len(driven.cloud.wakes()) == 1
    due_at = int(driven.cloud.head("order-1")["due_at"]["N"])
    assert driven.work([wake("order-1", alarm_at=due_at)]) == []
    assert driven.output("order-1")["output"] == ["stored"]


@pytest.mark.parametrize("poison", ["worker-group", "worker-cancels-itself", "worker-exits"])
def test_what_is_no_exception_harms_no_other_workflow_of_the_batch(driven: Driven, poison: str) -> None:
    driven.start(poison, "poison")
    for number in range(3):
        driven.start("worker-step", f"healthy-{number}")
    assert driven.work() == []
    assert driven.state("poison") == "failed"
    assert [driven.state(f"healthy-{number}") for number in range(3)] == ["completed"] * 3
    assert sorted(bodies) == [f"healthy-{number}" for number in range(3)]
