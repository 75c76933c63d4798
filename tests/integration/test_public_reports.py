"""Faults that others have reported, tried on the handlers: sizes, warm processes, schedules, one broken among many."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from adapters.dynamodb.model.limits import MESSAGE_BYTES_MAX
from engine import Context, workflow
from engine.limits import DEATHS_MAX
from infra.place import TEMPLATE
from tests.integration.driven import Driven, bodies, wake
from tests.integration.test_worker_ends import put_commit, start_unknown
from tests.tidy.template import read_template

if TYPE_CHECKING:
    from tests.integration.conftest import Cloud
    from tests.shifted_clock import ShiftedClock

pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")

SIZES = [255_000, 257_000, 399_000, 410_000, 1_100_000, 5_000_000]


@workflow("reported-large")
async def large(ctx: Context, given: Any) -> Any:
    def make() -> str:
        bodies.append("make")
        size: int = given["size"]
        return "\U0001f600" * (size // 4) if given["wide"] else "x" * size

    found = await ctx.step("make", make)
    return len(found.encode())


@workflow("reported-waits")
async def waits(ctx: Context, _given: Any) -> Any:
    async def message(inner: Context) -> Any:
        return (await inner.queue.next("go")).body

    async def hour(inner: Context) -> None:
        await inner.sleep("hour", 3600)

    return (await ctx.race("first", {"message": message, "hour": hour})).winner


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("wide", [False, True])
def test_b27_a_value_of_any_size_is_made_once_and_kept_or_refused_for_good(
    driven: Driven, size: int, *, wide: bool
) -> None:
    driven.start("reported-large", "w", {"size": size, "wide": wide})
    driven.drain()
    ending = driven.output("w")
    assert bodies == ["make"]
    if size < 3_000_000:
        assert ending["output"] == size // 4 * 4 if wide else size
    else:
        assert (ending["state"], ending["error"]["name"]) == ("failed", "UnstorableValueError")


@pytest.mark.parametrize("size", SIZES)
def test_b27_a_message_of_any_size_arrives_or_is_refused_before_anything_is_written(
    driven: Driven, cloud: Cloud, size: int
) -> None:
    driven.start("worker-message", "w")
    driven.drain()
    before = cloud.items()
    answer = driven.http.post("/workflows/w/messages/go", "x" * size)
    assert answer.status == (202 if size < MESSAGE_BYTES_MAX else 413)
    if answer.status == 413:
        assert cloud.items() == before
    else:
        driven.drain()
        assert len(driven.output("w")["output"]) == size


def test_b15_the_same_post_again_gets_the_first_reply_whenever_it_comes(driven: Driven) -> None:
    driven.start("worker-message", "w")
    driven.drain()
    path, headers = "/workflows/w/messages/go", {"idempotency-key": "key"}
    for body in (1, 2):
        assert driven.http.post(path, body, headers=headers).status == 202
    records = driven.cloud.wakes()
    # The queue delivers each of its records twice, too.
    assert driven.work(records) == driven.work(records) == []
    again = [driven.http.post(path, 3, headers=headers, query={"wait": "5"}) for _ in range(2)]
    assert [answer.value["reply"] for answer in again] == [{"got": 1}] * 2
    assert driven.output("w")["output"] == 1


def test_b44_warm_invocations_share_one_loop_and_nothing_of_one_runs_in_the_next(driven: Driven) -> None:
    loop = driven.wiring.process.loop
    for number, kind in enumerate(["worker-step", "worker-fails", "worker-careless", "worker-step", "worker-careless"]):
        driven.start(kind, f"w{number}")
        assert driven.work() == []
        assert asyncio.all_tasks(loop) == set()
        assert driven.http.get("/workflows/nobody").status == 404
        assert driven.wiring.process.loop is loop
    assert driven.state("w4") == "completed"


def test_b48_recursion_detection_may_not_stop_the_wakes() -> None:
    worker = read_template(TEMPLATE.read_text())["Resources"]["Worker"]["Properties"]
    assert worker["RecursiveLoop"] == "Allow"


IDS = ["x" * 200, "x" * 199 + "y", "a/b", "a#b", "a b", "\u00e4\u20ac\U0001f600", "A", "a"]


def test_b55_each_run_has_a_schedule_of_its_own_whatever_its_id(driven: Driven) -> None:
    for workflow_id in IDS:
        driven.start("worker-sleep", workflow_id, 86_400)
    driven.work()
    assert len(driven.schedules()) == len(IDS)
    for left, workflow_id in enumerate(reversed(IDS)):
        path = "".join(f"%{byte:02X}" for byte in workflow_id.encode())
        assert driven.http.call("POST", f"/workflows/{path}/cancel").status == 200
        assert len(driven.schedules()) == len(IDS) - left - 1


@pytest.mark.usefixtures("clock")
def test_b56_no_schedule_outlives_what_it_was_for(driven: Driven) -> None:
    for number in range(12):
        driven.start("reported-waits", f"w{number}")
    driven.drain()
    schedules = driven.schedules()
    assert len(schedules) == 12
    scheduler = driven.cloud.client("scheduler")
    for each in schedules:
        found = scheduler.get_schedule(Name=each["Name"], GroupName=driven.cloud.group)
        assert found["ActionAfterCompletion"] == "DELETE"
    # One that AWS has removed already is no error.
    scheduler.delete_schedule(Name=schedules[0]["Name"], GroupName=driven.cloud.group)
    for number in range(8):
        assert driven.http.post(f"/workflows/w{number}/messages/go", number).status == 202
    for number in range(8, 12):
        assert driven.http.call("POST", f"/workflows/w{number}/cancel").status == 200
    driven.drain()
    assert {driven.output(f"w{number}")["output"] for number in range(8)} == {"message"}
    for number in range(12):
        assert driven.http.call("DELETE", f"/workflows/w{number}").status == 202
    assert driven.schedules() == []


def test_b60_one_broken_run_is_set_aside_and_the_others_go_on(clock: ShiftedClock, driven: Driven) -> None:
    cloud = driven.cloud
    for number in range(8):
        driven.start("worker-step", f"w{number}")
    driven.start("worker-step", "corrupt")
    put_commit(cloud, "corrupt", b"\xff")
    start_unknown(driven.wiring)
    cloud.wakes()
    names = [*(f"w{number}" for number in range(8)), "corrupt", "unknown"]
    records = [wake(name, number) for number, name in enumerate(names)]
    assert driven.work(records) == ["message-8"]
    assert {driven.state(f"w{number}") for number in range(8)} == {"completed"}
    for _ in range(DEATHS_MAX):
        clock.shift(60_001)
        driven.work([wake("corrupt")])
    assert driven.state("corrupt") == "failed"
    assert driven.state("unknown") == "pending"
    # Visibly: a purge of the broken one leaves the others as they are.
    before = [item for item in cloud.items() if item["pk"]["S"] != "corrupt"]
    assert driven.http.call("DELETE", "/workflows/corrupt").status == 202
    assert [item for item in cloud.items() if item["pk"]["S"] != "corrupt"] == before
    assert json.loads(driven.http.get("/workflows/corrupt").body)["status"] == 404


@workflow("reported-undone")
async def undone(ctx: Context, _given: Any) -> None:
    await ctx.rollback_checkpoint("from here")
    await ctx.step("book", lambda: "seat", rollback=lambda _ctx, output: bodies.append(f"undo {output}"))
    await ctx.sleep("long", 86_400)


def test_b56_a_cancellation_that_undoes_leaves_no_schedule(driven: Driven) -> None:
    driven.start("reported-undone", "w")
    driven.drain()
    assert len(driven.schedules()) == 1
    assert driven.http.call("POST", "/workflows/w/cancel", query={"rollback": "maybe"}).status == 400
    answer = driven.http.call("POST", "/workflows/w/cancel", query={"rollback": "true"})
    assert (answer.status, answer.value["state"]) == (202, "rolling_back")
    driven.drain()
    assert (driven.state("w"), bodies, driven.schedules()) == ("cancelled", ["undo seat"], [])
