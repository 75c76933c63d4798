"""The resume function on recorded events: they become messages, once each, and wakes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import cbor2
import pytest

from adapters.events import MESSAGE
from engine import Context, workflow
from engine.errors import StoreUnavailableError
from handlers.resume import ResumeFunction, UnreadableEventError
from handlers.worker import WorkerFunction
from tests.integration.http import Caller
from tests.integration.lambda_event import LambdaContext, recorded

if TYPE_CHECKING:
    from handlers.bootstrap import Wiring
    from tests.integration.conftest import Cloud


@workflow("resumed")
async def resumed(ctx: Context, _input: Any) -> Any:
    return (await ctx.queue.next("go")).body


@pytest.fixture
def started(wiring: Wiring, cloud: Cloud) -> str:
    Caller(wiring).post("/workflows/resumed", {"id": "order-1"})
    cloud.wakes()
    return "order-1"


def deliver(wiring: Wiring, **changes: Any) -> None:
    ResumeFunction(wiring)({**recorded("eventbridge"), **changes}, LambdaContext())


def woken(cloud: Cloud) -> list[str]:
    return [json.loads(record["body"])["workflow_id"] for record in cloud.wakes()]


def messages(cloud: Cloud) -> list[Any]:
    return [cbor2.loads(item["body"]["B"]) for item in cloud.items() if item["sk"]["S"].startswith("MSG#")]


def test_an_event_with_a_workflow_id_is_a_wake(wiring: Wiring, cloud: Cloud, started: str) -> None:
    before = cloud.items()
    deliver(wiring)
    ResumeFunction(wiring)({"workflow_id": started, "alarm_at": 1}, LambdaContext())
    assert woken(cloud) == [started, started]
    assert cloud.items() == before


def test_an_event_that_is_a_message_is_posted_once_and_reaches_the_workflow(
    wiring: Wiring, cloud: Cloud, started: str
) -> None:
    detail = {"workflow_id": started, "name": "go", "body": {"n": 7}}
    for _ in range(3):
        deliver(wiring, **{"detail-type": MESSAGE, "detail": detail})
    assert messages(cloud) == [{"n": 7}]
    WorkerFunction(wiring)({"Records": cloud.wakes()}, LambdaContext())
    assert Caller(wiring).get(f"/workflows/{started}/output").value["output"] == {"n": 7}
    # Delivered once more, after the workflow has ended.
    before = cloud.items()
    deliver(wiring, **{"detail-type": MESSAGE, "detail": detail})
    assert cloud.items() == before


@pytest.mark.usefixtures("started")
def test_a_message_for_nobody_is_let_go(wiring: Wiring, cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    before = cloud.items()
    deliver(wiring, **{"detail-type": MESSAGE, "detail": {"workflow_id": "nobody", "name": "go"}})
    assert cloud.items() == before
    assert woken(cloud) == []
    assert "event refused" in [record.message for record in caplog.records]


def test_a_message_for_a_type_and_tags_goes_to_the_first_workflow_that_has_them(wiring: Wiring, cloud: Cloud) -> None:
    http = Caller(wiring)
    for workflow_id, customer in (("order-3", "Ada"), ("order-2", "Ada"), ("order-1", "Bob")):
        tags = {"customer": customer, "country": "PT"}
        assert http.post("/workflows/resumed", {"id": workflow_id, "tags": tags}).status == 201
    cloud.wakes()
    detail = {"type": "resumed", "tags": {"customer": "Ada"}, "name": "go", "body": 7}
    for _ in range(2):
        deliver(wiring, **{"detail-type": MESSAGE, "detail": detail})
    assert set(woken(cloud)) == {"order-2"}
    assert messages(cloud) == [7]


@pytest.mark.parametrize(
    "who",
    [
        {"type": "resumed", "tags": {"customer": "nobody"}},
        {"type": "resumed", "tags": {}},
        {"type": "resumed", "tags": {"customer": 7}},
        {"type": "", "tags": {"customer": "Ada"}},
    ],
    ids=str,
)
@pytest.mark.usefixtures("started")
def test_a_message_for_tags_that_nobody_has_is_let_go(wiring: Wiring, cloud: Cloud, who: dict[str, Any]) -> None:
    deliver(wiring, **{"detail-type": MESSAGE, "detail": {**who, "name": "go"}})
    assert (messages(cloud), woken(cloud)) == ([], [])


@pytest.mark.parametrize("detail", [{}, {"workflow_id": 7}, None, [], "order-1"], ids=str)
def test_an_event_of_another_kind_is_kept_for_someone_to_see(wiring: Wiring, cloud: Cloud, detail: Any) -> None:
    with pytest.raises(UnreadableEventError):
        deliver(wiring, detail=detail)
    assert cloud.items() == []


def test_a_message_by_which_no_other_delivery_is_known_is_kept_for_someone_to_see(
    wiring: Wiring, cloud: Cloud, started: str
) -> None:
    before = cloud.items()
    with pytest.raises(UnreadableEventError):
        deliver(wiring, **{"detail-type": MESSAGE, "detail": {"workflow_id": started, "name": "go"}, "id": None})
    assert cloud.items() == before


def test_an_event_that_cannot_be_handled_now_comes_again(wiring: Wiring, cloud: Cloud, started: str) -> None:
    cloud.client("sqs").delete_queue(QueueUrl=cloud.queue_url)
    with pytest.raises(StoreUnavailableError):
        deliver(wiring, detail={"workflow_id": started})
