"""Request ids and ray ids through every function: what a caller gives, what answers, logs and events tell."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from engine import ActivityContext, Context, activity, workflow
from handlers import logs, rays
from handlers.logs import AboutFilter, JsonFormatter, about
from tests.integration.driven import Driven, told
from tests.integration.lambda_event import recorded

if TYPE_CHECKING:
    from collections.abc import Iterator

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
async def look_at_ray(ctx: ActivityContext) -> str:
    ctx.log.info("looking")
    logging.getLogger("author").info("by hand")
    if ctx.attempt == 1:
        raise ConnectionError("once")
    return ctx.ray_id


@workflow("ray-looks")
async def looks(ctx: Context, _given: Any) -> list[str]:
    ctx.log.info("thinking")
    return [ctx.ray_id, await ctx.activity(look_at_ray), await ctx.step("thread", in_thread)]


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
    found = rays.ray_id_of(headers, driven.wiring.ids)
    assert (found == root) if root else len(found) == 36


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
    assert rays.request_id_of(scope) == request_id


def test_the_log_of_a_call_tells_both(driven: Driven, log: pytest.LogCaptureFixture) -> None:
    start(driven, headers={"x-ray-id": RAY})
    [line] = told(log, "workflow started")
    assert (line["workflow_id"], line["ray_id"], line["request_id"]) == ("w", RAY, REQUEST_ID)


def test_every_line_of_a_turn_has_the_ray_id(driven: Driven, log: pytest.LogCaptureFixture) -> None:
    start(driven, headers={"x-ray-id": RAY})
    log.clear()
    driven.drain()
    assert driven.output("w")["output"] == [RAY, RAY, "done"]
    for message in ("thinking", "looking", "by hand", "in a thread", "step failed", "run ended"):
        lines = told(log, message)
        assert lines, message
        assert {line["ray_id"] for line in lines} == {RAY}, message


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
