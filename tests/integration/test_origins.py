"""Request ids and ray ids through every function: what a caller gives, what answers, logs and events tell."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from engine import ActivityContext, Context, activity, workflow
from engine.schedules.identity import schedule_id
from handlers import logs, origins
from handlers.calls import Call
from handlers.logs import AboutFilter, JsonFormatter, about
from handlers.resume import ResumeFunction
from tests.integration.driven import Driven, told
from tests.integration.lambda_event import LambdaContext, recorded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.conftest import Cloud

REQUEST_ID = recorded("http_api_v2")["requestContext"]["requestId"]
TRACE = "1-692ae0c0-5f84a1d45d3c4b6f1d2e3f40"
RAY = "checkout:17"


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """The log as a function's handler has it."""
    caplog.set_level(logging.INFO)
    about_filter = AboutFilter()
    caplog.handler.addFilter(about_filter)
    yield caplog
    caplog.handler.removeFilter(about_filter)


@activity(max_retries=1, retry_backoff_base=0)
async def look_at_ray(ctx: ActivityContext) -> list[str]:
    ctx.log.info("looking")
    logging.getLogger("author").info("by hand")
    if ctx.attempt == 1:
        raise ConnectionError("once")
    return [ctx.ray_id, ctx.request_id]


@workflow("ray-looks")
async def looks(ctx: Context, _given: Any) -> list[str]:
    ctx.log.info("thinking")
    await ctx.publish("looked", None)
    return [ctx.ray_id, ctx.request_id, *await ctx.activity(look_at_ray), await ctx.step("thread", in_thread)]


def in_thread() -> str:
    logging.getLogger("author").info("in a thread")
    return "done"


def start(driven: Driven, **more: Any) -> dict[str, Any]:
    answer = driven.http.post("/workflows/ray-looks", more.pop("value", {"id": "w"}), **more)
    assert answer.status == 201, answer.value
    value: dict[str, Any] = answer.value
    return value


# --- what a caller gives ---------------------------------------------------------------------------------------------


def test_a_start_without_a_ray_id_has_that_of_its_trace(driven: Driven) -> None:
    assert start(driven)["ray_id"] == TRACE
    assert driven.http.get("/workflows/w").value["ray_id"] == TRACE


def test_a_workflow_tells_the_request_id_of_the_call_that_started_it(driven: Driven) -> None:
    assert start(driven)["request_id"] == REQUEST_ID
    assert driven.http.get("/workflows/w").value["request_id"] == REQUEST_ID
    [listed] = driven.http.get("/workflows").value["workflows"]
    assert listed["request_id"] == REQUEST_ID
    again = driven.http.post("/workflows/ray-looks", {"id": "w"}, request_id="another")
    assert (again.status, again.value["request_id"], again.headers["x-request-id"]) == (200, REQUEST_ID, "another")


def test_a_call_without_a_request_id_begins_what_has_none(driven: Driven) -> None:
    answer = driven.http.post("/workflows/ray-looks", {"id": "w"}, request_id="not one")
    assert (answer.value["request_id"], "x-request-id" in answer.headers) == (None, False)
    assert driven.http.get("/workflows/w").value["request_id"] is None


def test_each_message_has_the_ids_of_the_call_that_posted_it(driven: Driven) -> None:
    driven.start("worker-message", "w")
    posted = driven.http.post("/workflows/w/messages/go", 1, headers={"x-ray-id": RAY}, request_id="post-1")
    assert posted.status == 202
    asked = {"type": "worker-message", "tags": {}}
    assert driven.http.post("/signals/go", asked, headers={"x-ray-id": RAY}, request_id="post-2").status == 202
    detail = {"workflow_id": "w", "name": "go", "ray_id": RAY}
    event = {"id": "event-3", "detail-type": "torpor.message", "detail": detail}
    ResumeFunction(driven.wiring)(event, LambdaContext())
    assert origins_of(driven.cloud, "w") == [(RAY, "post-1"), (RAY, "post-2"), (RAY, "event-3")]


def test_what_a_schedule_is_told_has_the_ids_of_its_call(driven: Driven) -> None:
    body = {"name": "nightly", "type": "ray-looks", "cron": "0 0 * * *"}
    created = driven.http.post("/schedules", body, headers={"x-ray-id": RAY}, request_id="create-1")
    assert created.status == 201, created.value
    found = driven.http.get(f"/workflows/{quote(schedule_id('nightly'), safe='')}").value
    assert (found["ray_id"], found["request_id"]) == (RAY, "create-1")
    assert driven.http.post("/schedules/nightly/pause", headers={"x-ray-id": "p"}, request_id="pause-2").status == 202
    assert origins_of(driven.cloud, schedule_id("nightly")) == [("p", "pause-2")]


def origins_of(cloud: Cloud, workflow_id: str) -> list[tuple[str, str]]:
    """The ray id and the request id of each message in an inbox."""
    found = [item for item in cloud.items() if item["pk"]["S"] == workflow_id and item["sk"]["S"].startswith("MSG#")]
    return [(item["ray_id"]["S"], item["request_id"]["S"]) for item in found]


def test_a_ray_id_may_be_given_in_a_header_or_in_the_body(driven: Driven) -> None:
    assert start(driven, headers={"x-ray-id": RAY})["ray_id"] == RAY
    assert start(driven, value={"id": "v", "ray_id": "body"}, headers={"x-ray-id": RAY})["ray_id"] == "body"
    assert start(driven, headers={"x-amzn-trace-id": "Sampled=1"}, value={"id": "u"})["ray_id"] not in (TRACE, "")


@pytest.mark.parametrize("ray_id", ["", "a b", "x" * 129, 'a"}\n{"level": "ERROR"', "ä"])
def test_a_ray_id_that_could_forge_a_line_of_the_log_is_refused(driven: Driven, ray_id: str) -> None:
    answer = driven.http.post("/workflows/ray-looks", {"id": "w", "ray_id": ray_id})
    assert (answer.status, answer.value["type"]) == (400, "urn:torpor:problem:invalid-id")
    for path in ("/workflows/ray-looks", "/workflows/w/messages/go"):
        answer = driven.http.post(path, {"id": "w"}, headers={"x-ray-id": ray_id})
        assert (answer.status, answer.value["type"]) == (400, "urn:torpor:problem:invalid-id")
    assert driven.cloud.items() == []


@pytest.mark.parametrize(
    ("headers", "root"),
    [
        ({"x-amzn-trace-id": f"Root={TRACE};Parent=53995c3f42cd8ad8;Sampled=1"}, TRACE),
        ({"x-amzn-trace-id": f"Self=1-67891234-12456789abcdef012345678;Root={TRACE}"}, TRACE),
        ({"x-amzn-trace-id": "Root=1-2\nevil"}, None),
        ({"x-amzn-trace-id": f"NotRoot={TRACE}"}, None),
        ({}, None),
    ],
)
def test_the_root_of_a_trace_is_found(driven: Driven, headers: dict[str, str], root: str | None) -> None:
    call = Call(path={}, query={}, headers=headers, body=b"", deadline_ms=0, request_id="r")
    found = origins.origin_of(call, driven.wiring.ids)
    assert (found.ray_id == root) if root else len(found.ray_id) == 36
    assert found.request_id == "r"


# --- what is told ----------------------------------------------------------------------------------------------------


def test_every_answer_has_its_request_id(driven: Driven) -> None:
    calls = [
        driven.http.post("/workflows/ray-looks", {"id": "w"}),
        driven.http.get("/workflows/w"),
        driven.http.get("/workflows/nobody"),
        driven.http.get("/nothing/here"),
        driven.http.post("/openapi.json", {}),
        driven.http.get("/openapi.json"),
    ]
    assert [answer.headers["x-request-id"] for answer in calls] == [REQUEST_ID] * len(calls)


@pytest.mark.parametrize(
    ("scope", "request_id"),
    [
        ({"aws.event": {"requestContext": {"requestId": "g"}}}, "g"),
        ({"aws.event": {"requestContext": {"requestId": "g\r\nset-cookie: x"}}}, ""),
        ({"aws.event": {"requestContext": {"requestId": 7}}}, ""),
        ({}, ""),
    ],
)
def test_a_request_id_is_what_the_gateway_says(scope: dict[str, Any], request_id: str) -> None:
    assert origins.request_id_of(scope) == request_id


def test_the_log_of_a_call_tells_both(driven: Driven, log: pytest.LogCaptureFixture) -> None:
    start(driven, headers={"x-ray-id": RAY})
    [line] = told(log, "workflow started")
    assert (line["workflow_id"], line["ray_id"], line["request_id"]) == ("w", RAY, REQUEST_ID)


def test_every_line_of_a_turn_has_both_and_its_workflow(driven: Driven, log: pytest.LogCaptureFixture) -> None:
    start(driven, headers={"x-ray-id": RAY})
    log.clear()
    driven.drain()
    assert driven.output("w")["output"] == [RAY, REQUEST_ID, RAY, REQUEST_ID, "done"]
    for message in ("thinking", "looking", "by hand", "in a thread", "step failed", "run ended"):
        lines = told(log, message)
        assert lines, message
        found = {(line.get("workflow_id"), line["ray_id"], line["request_id"]) for line in lines}
        assert found == {("w", RAY, REQUEST_ID)}, message


def test_what_is_published_tells_both(driven: Driven) -> None:
    start(driven, headers={"x-ray-id": RAY})
    driven.drain()
    [told_of] = driven.http.get("/messages/looked").value["messages"]
    assert (told_of["ray_id"], told_of["request_id"]) == (RAY, REQUEST_ID)


def test_the_line_of_an_event_tells_the_event(driven: Driven, log: pytest.LogCaptureFixture) -> None:
    start(driven)
    ResumeFunction(driven.wiring)({"id": "event-3", "detail": {"workflow_id": "w"}}, LambdaContext())
    [line] = told(log, "event taken")
    assert line["request_id"] == "event-3"


# --- the log itself --------------------------------------------------------------------------------------------------


def test_fields_are_told_inside_alone_and_take_the_place_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    handler.addFilter(AboutFilter())
    logger = logging.Logger("alone")  # noqa: LOG001 - of this test alone
    logger.addHandler(handler)
    logger.info("before")
    with about(ray_id="r", request_id=""), about(more="m"):
        logger.info("inside", extra={"more": "own"})
    logger.info("after")
    before, inside, after = map(json.loads, capsys.readouterr().err.splitlines())
    assert (inside["ray_id"], inside["more"]) == ("r", "own")
    assert "request_id" not in inside
    assert not {"ray_id", "more"} & (before.keys() | after.keys())


def test_the_log_of_a_function_tells_them_once_whoever_writes_its_json(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    try:
        root.handlers = []
        logs.set_up("INFO", native_json=False)
        logs.set_up("INFO", native_json=True)
        [handler] = root.handlers
        assert len(handler.filters) == 1
        with about(ray_id="r"):
            logging.getLogger("handlers.worker").info("run ended")
        assert json.loads(capsys.readouterr().out)["ray_id"] == "r"
    finally:
        root.handlers, root.level = before, level
