"""Tags, places and ends over the handlers: who is found by them, who is woken, and when."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from adapters.events import MESSAGE
from engine import Context, workflow
from handlers import problems
from handlers.resume import ResumeFunction
from handlers.worker import WorkerFunction
from tests.integration.http import Caller
from tests.integration.lambda_event import LambdaContext, recorded

if TYPE_CHECKING:
    from collections.abc import Callable

    from handlers.bootstrap import Wiring
    from tests.integration.conftest import Cloud

TYPE = "tagged-order"


@workflow(TYPE)
async def order(ctx: Context, _input: Any) -> Any:
    return (await ctx.queue.next("go")).body


@workflow("tagged-child")
async def child(ctx: Context, given: Any) -> Any:
    if given == "fails":
        raise ValueError("no")
    await ctx.queue.next("go")
    return given


@workflow("tagged-parent")
async def parent(ctx: Context, given: Any) -> Any:
    started = await ctx.dispatch("tagged-child", given, tags={"of": "parent"})
    return await ctx.output(started)


@workflow("tagged-long")
async def long(ctx: Context, _input: Any) -> int:
    await ctx.signal("go", 1, to="target")
    return await ctx.step("look", _queued)


_looks: list[Callable[[], int]] = []


async def _queued() -> int:
    """What was in the queue while the sender was still at work."""
    look = _looks[0]
    for _ in range(100):
        if found := look():
            return found
        await asyncio.sleep(0.01)
    return 0


@pytest.fixture
def http(wiring: Wiring) -> Caller:
    return Caller(wiring)


def listed(http: Caller, *tags: str, **query: Any) -> list[str]:
    answer = http.get("/workflows", query={"type": TYPE, "tag": list(tags), **query})
    assert answer.status == 200, answer.body
    return [found["id"] for found in answer.value["workflows"]]


def work(wiring: Wiring, cloud: Cloud) -> list[str]:
    """Run every wake in the queue until there is none, and tell whose they were."""
    woken = []
    while records := cloud.wakes():
        woken += [json.loads(record["body"])["workflow_id"] for record in records]
        WorkerFunction(wiring)({"Records": records}, LambdaContext())
    return woken


def test_workflows_are_listed_by_tags_page_by_page(http: Caller) -> None:
    for number in range(5):
        tags = {"customer": "7", "n": str(number)}
        assert http.post(f"/workflows/{TYPE}", {"id": f"w{number}", "tags": tags}).status == 201
    http.post(f"/workflows/{TYPE}", {"id": "other", "tags": {"customer": "a=b"}})
    assert listed(http, "customer=7") == [f"w{number}" for number in range(5)]
    assert listed(http, "n=3", "customer=7") == ["w3"]
    assert listed(http, "customer=a=b") == ["other"]
    assert listed(http, "customer=8") == []
    http.post("/workflows/w1/cancel")
    pages: list[list[str]] = []
    cursor = None
    while cursor is not None or not pages:
        query = {"type": TYPE, "tag": "customer=7", "limit": "2", **({} if cursor is None else {"cursor": cursor})}
        page = http.get("/workflows", query=query).value
        pages.append([one["id"] for one in page["workflows"]])
        cursor = page["cursor"]
    # Nobody is sent on from the last page, though it is full, to an empty one.
    assert pages == [["w0", "w2"], ["w3", "w4"]]


@pytest.mark.parametrize(
    "query",
    [{"tag": "a=b"}, {"type": TYPE, "tag": "ab"}, {"type": TYPE, "tag": "=b"}, {"tag": "a=b", "state": "failed"}],
)
def test_tags_that_cannot_be_looked_for_are_refused(http: Caller, query: dict[str, str]) -> None:
    answer = http.get("/workflows", query=query)
    assert (answer.status, answer.value["type"]) == (400, problems.TYPE_PREFIX + "invalid-parameter")
    for cursor in ("=", "%ff", "/w=="):
        assert http.get("/workflows", query={"type": TYPE, "tag": "a=b", "cursor": cursor}).status == 400


def test_a_unique_start_answers_the_one_that_is_there(http: Caller, cloud: Cloud) -> None:
    first = http.post(f"/workflows/{TYPE}", {"id": "a", "tags": {"k": "v"}, "unique": True})
    again = http.post(f"/workflows/{TYPE}", {"id": "b", "tags": {"k": "v"}, "unique": True})
    assert (first.status, again.status) == (201, 200)
    assert (again.value["id"], again.value["created"]) == ("a", False)
    assert again.headers["location"] == "/workflows/a"
    assert {json.loads(record["body"])["workflow_id"] for record in cloud.wakes()} == {"a"}
    late = {"id": "c", "tags": {"k": "v"}, "unique": True, "start_at": "2099-01-01T00:00:00Z"}
    assert http.post(f"/workflows/{TYPE}", late).value["id"] == "a"
    http.post("/workflows/a/cancel")
    assert http.post(f"/workflows/{TYPE}", {"id": "b", "tags": {"k": "v"}, "unique": True}).status == 201
    taken = http.post("/workflows/a/replay", {})
    assert (taken.status, taken.value["type"]) == (409, problems.TYPE_PREFIX + "start-conflict")
    assert http.post(f"/workflows/{TYPE}", {"unique": "yes"}).status == 400
    alone = http.post(f"/workflows/{TYPE}", {"id": "never", "replace_failed": True})
    assert (alone.status, alone.value["type"]) == (400, problems.TYPE_PREFIX + "invalid-body")
    assert http.get("/workflows/never").status == 404


def test_a_failed_unique_one_is_replaced_where_that_is_asked_for(http: Caller, wiring: Wiring, cloud: Cloud) -> None:
    http.post("/workflows/tagged-child", {"id": "a", "input": "fails", "unique": True})
    work(wiring, cloud)
    assert http.post("/workflows/tagged-child", {"id": "b", "unique": True}).value["id"] == "a"
    replaced = http.post("/workflows/tagged-child", {"id": "b", "unique": True, "replace_failed": True})
    assert (replaced.status, replaced.value["id"]) == (201, "b")
    assert http.post("/workflows/a/recover").status == 409


def test_a_signal_goes_to_the_first_that_has_the_tags_and_goes_there_again(
    http: Caller, wiring: Wiring, cloud: Cloud
) -> None:
    for workflow_id in ("b", "a", "c"):
        tags = {"customer": "7"} if workflow_id != "c" else {}
        http.post(f"/workflows/{TYPE}", {"id": workflow_id, "tags": tags})
    work(wiring, cloud)
    request = {"type": TYPE, "tags": {"customer": "7"}, "body": {"n": 1}}
    sent = http.post("/signals/go", request, headers={"idempotency-key": "once"})
    assert (sent.status, sent.value) == (202, {"workflow_id": "a", "message_id": "once", "duplicate": False})
    assert work(wiring, cloud) == ["a"]
    assert http.get("/workflows/a/output").value["output"] == {"n": 1}
    # The first one has ended by now: sent again it does not go to the next.
    again = http.post("/signals/go", {**request, "id": "once"})
    assert again.value == {"workflow_id": "a", "message_id": "once", "duplicate": True}
    assert http.post("/signals/go", request).value["workflow_id"] == "b"
    assert http.post("/signals/go", {"type": TYPE}).value["workflow_id"] in {"b", "c"}
    assert http.post("/signals/go", {"type": TYPE, "tags": {"customer": "8"}}).status == 404
    for wrong in ({}, {"type": 1}, {"type": TYPE, "tags": {"a": 1}}, {"type": TYPE, "name": "x"}):
        assert http.post("/signals/go", wrong).status == 400
    differing = http.post("/signals/go", {**request, "id": "one"}, headers={"idempotency-key": "other"})
    assert differing.status == 400


def test_an_event_by_tags_that_is_delivered_again_goes_where_it_went(
    http: Caller, wiring: Wiring, cloud: Cloud
) -> None:
    for workflow_id in ("a", "b"):
        http.post(f"/workflows/{TYPE}", {"id": workflow_id, "tags": {"customer": "7"}})
    detail = {"type": TYPE, "tags": {"customer": "7"}, "name": "go", "body": 1}
    for _ in range(2):
        ResumeFunction(wiring)({**recorded("eventbridge"), "detail-type": MESSAGE, "detail": detail}, LambdaContext())
        work(wiring, cloud)
    assert [http.get(f"/workflows/{name}").value["state"] for name in ("a", "b")] == ["completed", "sleeping"]


# --- ends ---------------------------------------------------------------------------------------------------------


def started_child(http: Caller) -> str:
    [found] = http.get("/workflows", query={"type": "tagged-child", "tag": "of=parent"}).value["workflows"]
    return str(found["id"])


def test_a_parent_goes_on_as_soon_as_its_child_has_ended(http: Caller, wiring: Wiring, cloud: Cloud) -> None:
    http.post("/workflows/tagged-parent", {"id": "parent", "input": "given"})
    work(wiring, cloud)
    assert http.get("/workflows/parent").value["state"] == "sleeping"
    http.post(f"/workflows/{started_child(http)}/messages/go")
    assert work(wiring, cloud)[-1] == "parent"
    assert http.get("/workflows/parent/output").value["output"] == "given"


@pytest.mark.parametrize("how", ["fails", "cancelled"])
def test_a_parent_is_told_of_a_child_that_does_not_complete(
    http: Caller, wiring: Wiring, cloud: Cloud, how: str
) -> None:
    http.post("/workflows/tagged-parent", {"id": "parent", "input": how})
    woken = work(wiring, cloud)
    if how == "cancelled":
        http.post(f"/workflows/{started_child(http)}/cancel")
        woken = work(wiring, cloud)
    assert woken[-1] == "parent"
    ending = http.get("/workflows/parent/output").value
    assert ending["state"] == "failed"


def test_whoever_is_signalled_is_woken_while_the_sender_goes_on(http: Caller, wiring: Wiring, cloud: Cloud) -> None:
    http.post(f"/workflows/{TYPE}", {"id": "target"})
    work(wiring, cloud)
    _looks[:] = [lambda: len(cloud.wakes())]
    http.post("/workflows/tagged-long", {"id": "sender"})
    work(wiring, cloud)
    assert http.get("/workflows/sender/output").value["output"] == 1
