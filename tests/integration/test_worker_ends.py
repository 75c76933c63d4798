"""The worker function when things end badly: deadlines, signals, deaths, poison; and what stays in a warm process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from adapters.dynamodb.model import log
from adapters.dynamodb.store import Claimed, Held
from engine import Context, workflow
from engine.keys import entry_key, name_key
from engine.limits import DEATHS_MAX
from handlers.bootstrap import Wiring
from handlers.invocation import Invocation, TurnLimits
from handlers.turn import POSTPONED_MS
from handlers.worker import Batch, run_turns, turn_ports
from tests.integration.driven import Driven, bodies, hooks, told, wake
from tests.shifted_clock import ShiftedClock

if TYPE_CHECKING:
    from handlers.bootstrap import Settings
    from tests.integration.conftest import Cloud

LEASE_MS = 9_000
"""Renewed every three seconds: a pause, which ``ShiftedClock`` hastens."""


# --- the deadline, and other ends of a process --------------------------------------------------------------------


def test_a_step_that_outlasts_the_invocation_is_stopped_and_goes_on_at_once(
    clock: ShiftedClock, driven: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    driven.start("worker-step", "order-1")

    async def hang_once() -> None:
        if len(bodies) == 1:
            clock.shift(15_000)
            await asyncio.sleep(3600)

    hooks["order-1"] = hang_once
    assert driven.work(remaining_ms=20_000) == []
    [ended] = told(caplog, "run ended")
    assert ended["outcome"] == "handed on"
    assert ended["duration_ms"] < 20_000
    assert "owner" not in driven.cloud.head("order-1")
    driven.drain()
    assert bodies == ["order-1", "order-1"]
    assert driven.state("order-1") == "completed"
    [entry] = driven.http.get("/workflows/order-1/history").value["entries"]
    assert entry["attempts"] == 2


def test_a_step_that_ends_within_the_margin_is_kept(clock: ShiftedClock, driven: Driven) -> None:
    driven.start("worker-message", "order-1")

    async def linger() -> None:
        clock.shift(12_000)
        await asyncio.sleep(0.1)

    hooks["order-1"] = linger
    assert driven.work(remaining_ms=20_000) == []
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


@workflow("worker-deaf")
async def deaf(_ctx: Context, _input: None) -> None:
    while "enough" not in bodies:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


def test_code_that_hears_of_no_end_does_not_keep_an_invocation_beyond_its_own(
    driven: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    seen = []
    # What is left when all others have been waited for is a fifth of a second; a machine may stand still for longer.
    for number in range(5):
        driven.start("worker-deaf", f"deaf-{number}")
        driven.start("worker-step", f"order-{number}")
        caplog.clear()
        began_ms = driven.wiring.clock.now()
        failed = driven.work(remaining_ms=2_000)
        took_ms = driven.wiring.clock.now() - began_ms
        is_told = bool(told(caplog, "tasks refuse to end"))
        seen.append((failed, is_told, took_ms < 2_000, driven.state(f"order-{number}")))
        # Nothing of it may be left to other tests.
        bodies.append("enough")
        driven.wiring.process.run(asyncio.sleep(0))
        bodies.clear()
        if seen[-1] == ([], True, True, "completed"):
            return
    pytest.fail(f"never in time and with the other one run: {seen}")


class Silent:
    """Alarms whose calls get no answer."""

    async def arm(self, _workflow_id: str, _at_ms: int) -> None:
        await asyncio.Event().wait()


def test_a_call_that_hangs_does_not_keep_an_invocation_from_answering(
    driven: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    limits = TurnLimits(lease_ms=60_000, evict_margin_ms=1_000, stop_margin_ms=500)
    seen = []
    # A machine may stand still for as long as the first one has.
    for lasts_ms in (5_000, 25_000):
        hangs, order = f"hangs-{lasts_ms}", f"order-{lasts_ms}"
        driven.start("worker-sleep", hangs, 600)
        driven.start("worker-step", order)
        caplog.clear()

        async def invoked(lasts_ms: int, *ids: str) -> list[str]:
            ports = replace(await turn_ports(driven.wiring), alarms=cast("Any", Silent()))
            invocation = Invocation(driven.wiring.clock, limits, deadline_ms=driven.wiring.clock.now() + lasts_ms)
            try:
                wanted = Batch([wake(each, number) for number, each in enumerate(ids, start=1)]).wanted
                return await asyncio.wait_for(run_turns(ports, limits, invocation, wanted), 60)
            finally:
                invocation.close()

        failed = driven.wiring.process.run(invoked(lasts_ms, hangs, order))
        # Only the alarm of the one that hangs is missing, which is due in the table all the same.
        seen.append((failed, driven.state(order), driven.state(hangs)))
        if seen[-1] == (["message-1"], "completed", "sleeping"):
            assert told(caplog, "turn left")
            return
    pytest.fail(f"never was only the one left that hangs: {seen}")


def test_an_alarm_that_comes_too_late_in_an_invocation_is_passed_on_as_one(driven: Driven) -> None:
    # It has gone off early, as a schedule does, and must be armed again by whoever has the time to look.
    driven.start("worker-sleep", "order-1", 600)
    driven.work()
    due_at = int(driven.cloud.head("order-1")["due_at"]["N"])
    before = driven.delayed()
    limits = TurnLimits(lease_ms=60_000, evict_margin_ms=10_000, stop_margin_ms=5_000)

    async def too_late() -> list[str]:
        invocation = Invocation(driven.wiring.clock, limits, deadline_ms=driven.wiring.clock.now() + 60_000)
        try:
            invocation.stop()
            wanted = Batch([wake("order-1", 1, alarm_at=due_at), wake("order-1", 2)]).wanted
            return await run_turns(await turn_ports(driven.wiring), limits, invocation, wanted)
        finally:
            invocation.close()

    assert driven.wiring.process.run(too_late()) == []
    assert driven.delayed() == before
    assert driven.work() == []
    assert driven.delayed() == before + 1
    assert driven.state("order-1") == "sleeping"


def test_a_dead_holder_is_waited_for_and_then_replaced(
    clock: ShiftedClock, driven: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    driven.start("worker-step", "order-1")

    async def claim_and_die() -> None:
        store = await driven.wiring.store()
        assert isinstance(await store.claim("order-1", lease_ms=60_000, deadline_ms=None), Claimed)

    driven.wiring.process.run(claim_and_die())
    assert driven.work() == []
    assert bodies == []
    clock.shift(60_001)
    assert driven.work([wake("order-1")]) == []
    assert driven.state("order-1") == "completed"
    [ended] = told(caplog, "run ended")
    assert ended["wakes"] == 2
    assert driven.http.get("/workflows/order-1/history").value["entries"][0]["attempts"] == 2


def test_a_long_step_keeps_its_lease(settings: Settings, cloud: Cloud, other: Wiring) -> None:
    wiring = Wiring(replace(settings, lease_ms=LEASE_MS))
    wiring.clock = other.clock = clock = ShiftedClock()
    try:
        driven = Driven(wiring, cloud)
        driven.start("worker-step", "order-1")
        seen = []

        async def renewed() -> None:
            for _ in range(600):
                if int(cloud.head("order-1")["lease_until"]["N"]) == clock.now() + LEASE_MS:
                    return
                await asyncio.sleep(0.05)

        async def look_twice() -> None:
            store = await other.store()
            for _ in range(2):
                clock.shift(LEASE_MS * 2 // 3)
                await renewed()
                seen.append(type(await store.claim("order-1", lease_ms=LEASE_MS, deadline_ms=None)))

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


def test_broken_workflows_of_a_batch_harm_no_other(
    clock: ShiftedClock, driven: Driven, caplog: pytest.LogCaptureFixture
) -> None:
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
    assert int(head["due_at"]["N"]) - clock.now() == POSTPONED_MS
    assert driven.cloud.wakes() == []


def start_unknown(wiring: Wiring) -> None:
    async def start() -> None:
        store = await wiring.store()
        await store.start(workflow_id="unknown", type="worker-of-tomorrow", input=b"\xf6")

    wiring.process.run(start())


@pytest.mark.parametrize("part", ["entry", "record"])
def test_a_history_that_cannot_be_read_is_set_aside_and_goes_on_when_mended(
    clock: ShiftedClock, driven: Driven, part: str
) -> None:
    driven.start("worker-message", "order-1")
    driven.http.post("/workflows/order-1/messages/go", 7)
    spoilt = log.encode(log.Record(puts=[(name_key(0), b"work"), (entry_key((0,)), bytes.fromhex("0100ff"))]))
    put_commit(driven.cloud, "order-1", spoilt if part == "entry" else b"\xff")
    for _ in range(DEATHS_MAX):
        assert driven.work([wake("order-1")]) == ["message-0"]
        clock.shift(60_001)
    assert driven.work([wake("order-1")]) == []
    assert driven.state("order-1") == "failed"
    answer = driven.http.get("/workflows/order-1/output")
    assert answer.status == (200 if part == "entry" else 500)
    assert "order-1" in answer.body.decode() or "CorruptHistoryError" in answer.body.decode()
    assert driven.work([wake("order-1")]) == []
    assert bodies == []
    put_commit(driven.cloud, "order-1", log.encode(log.Record(puts=[(name_key(0), b"work")])))
    assert driven.http.post("/workflows/order-1/recover").status == 202
    driven.drain()
    assert driven.output("order-1") == {"id": "order-1", "state": "completed", "output": 7}


def put_commit(cloud: Cloud, workflow_id: str, record: bytes) -> None:
    """Make ``record`` the second commit of a workflow that has made one."""
    item = {"pk": {"S": workflow_id}, "sk": {"S": "LOG#000000000002"}, "b": {"B": record}}
    cloud.client("dynamodb").put_item(TableName=cloud.table, Item=item)
    if cloud.head(workflow_id)["seq"] == {"N": "1"}:
        cloud.client("dynamodb").update_item(
            TableName=cloud.table,
            Key={"pk": {"S": workflow_id}, "sk": {"S": "HEAD"}},
            UpdateExpression="SET #seq = :two",
            ExpressionAttributeNames={"#seq": "seq"},
            ExpressionAttributeValues={":two": {"N": "2"}},
        )


def test_an_input_that_does_not_fit_the_code_fails_the_workflow_at_once(driven: Driven) -> None:
    async def start() -> None:
        store = await driven.wiring.store()
        await store.start(workflow_id="order-1", type="worker-sleep", input=b"\x64long")

    driven.wiring.process.run(start())
    assert driven.work([wake("order-1")]) == []
    ending = driven.output("order-1")
    assert (ending["state"], ending["error"]["name"]) == ("failed", "UnstorableValueError")


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
        clients.append(dict(driven.wiring._clients._short))
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
