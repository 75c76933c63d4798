"""Traces through every function: each turn, each call of the API and each event is found by workflow and by request."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest

from engine import Context, workflow
from handlers.resume import ResumeFunction
from tests.integration.driven import wake
from tests.integration.lambda_event import LambdaContext, recorded
from tests.integration.test_worker_ends import put_commit
from tests.xray_daemon import SAMPLED, SEGMENT, TRACE, Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

    from handlers.bootstrap import Settings
    from tests.integration.driven import Driven

REQUEST_ID = recorded("http_api_v2")["requestContext"]["requestId"]
RAY = "checkout:17"
STARTED_BY = {"ray_id": RAY, "request_id": "start-1"}


@workflow("traced")
async def traced(ctx: Context, _given: Any) -> Any:
    return (await ctx.queue.next("go")).body


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with Daemon.listening() as listening:
        yield listening


@pytest.fixture
def settings(settings: Settings, daemon: Daemon) -> Settings:
    return dataclasses.replace(settings, xray_daemon=daemon.address)


@pytest.fixture(autouse=True)
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_X_AMZN_TRACE_ID", SAMPLED)


def start(driven: Driven, daemon: Daemon) -> dict[str, Any]:
    answer = driven.http.post("/workflows/traced", {"id": "w"}, headers={"x-ray-id": RAY}, request_id="start-1")
    assert answer.status == 201, answer.value
    return daemon.told()


def test_each_turn_is_found_by_its_workflow_and_by_what_started_it(driven: Driven, daemon: Daemon) -> None:
    start(driven, daemon)
    assert driven.work() == []
    turn = daemon.told()
    assert (turn["name"], turn["trace_id"], turn["parent_id"]) == ("turn", TRACE, SEGMENT)
    about = {"workflow_id": "w", "workflow_type": "traced", **STARTED_BY}
    assert turn["annotations"] == {**about, "outcome": "waiting"}
    assert turn["start_time"] <= turn["end_time"]
    driven.http.post("/workflows/w/messages/go", 1, headers={"x-ray-id": "other"}, request_id="post-2")
    daemon.told()
    assert driven.work() == []
    assert daemon.told()["annotations"] == {**about, "outcome": "ended"}
    assert daemon.heard_nothing()


def test_a_turn_that_must_come_again_is_shown_as_a_fault(driven: Driven, daemon: Daemon) -> None:
    start(driven, daemon)
    put_commit(driven.cloud, "w", b"\xff")
    assert driven.work([wake("w")]) == ["message-0"]
    turn = daemon.told()
    assert (turn["annotations"]["workflow_id"], turn["annotations"]["outcome"]) == ("w", "fault")
    assert turn["fault"] is True


def test_each_call_is_found_by_its_request_id_and_by_what_it_is_about(driven: Driven, daemon: Daemon) -> None:
    begun = start(driven, daemon)
    assert begun["name"] == "POST /workflows/:id_or_type"
    assert begun["annotations"] == {"workflow_id": "w", "workflow_type": "traced", **STARTED_BY}
    driven.http.get("/workflows/w", request_id="get-2")
    looked = daemon.told()
    assert looked["name"] == "GET /workflows/:id_or_type"
    assert looked["annotations"] == {**begun["annotations"], "request_id": "get-2"}
    driven.http.post("/workflows/w/messages/go", 1, headers={"x-ray-id": "other"}, request_id="post-3")
    assert daemon.told()["annotations"] == {"workflow_id": "w", "ray_id": "other", "request_id": "post-3"}
    asked = {"type": "traced", "tags": {}}
    driven.http.post("/signals/go", asked, headers={"x-ray-id": "other"}, request_id="post-4")
    signalled = {"workflow_id": "w", "workflow_type": "traced", "ray_id": "other", "request_id": "post-4"}
    assert daemon.told()["annotations"] == signalled
    driven.http.get("/workflows")
    assert daemon.told()["annotations"] == {"request_id": REQUEST_ID}
    assert daemon.heard_nothing()


def test_calls_about_schedules_name_the_schedule(driven: Driven, daemon: Daemon) -> None:
    body = {"name": "nightly", "type": "traced", "cron": "0 0 * * *"}
    driven.http.post("/schedules", body, headers={"x-ray-id": RAY})
    created = daemon.told()["annotations"]
    driven.http.post("/schedules/nightly/pause", headers={"x-ray-id": "other"})
    paused = daemon.told()["annotations"]
    assert (created["ray_id"], paused["ray_id"]) == (RAY, "other")
    assert created["workflow_id"] == paused["workflow_id"]
    assert "nightly" in created["workflow_id"]


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/workflows/nobody"), ("PATCH", "/workflows/w"), ("POST", "/workflows/none")]
)
def test_a_refused_call_is_the_callers_error(driven: Driven, daemon: Daemon, method: str, path: str) -> None:
    assert 400 <= driven.http.call(method, path, body=json.dumps({}).encode()).status < 500
    told = daemon.told()
    assert (told["error"], "fault" in told, told["annotations"]["request_id"]) == (True, False, REQUEST_ID)


def test_a_call_that_we_failed_is_a_fault(driven: Driven, daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:9")
    assert driven.http.get("/workflows/w", remaining_ms=2000).status >= 500
    assert daemon.told()["fault"] is True


def test_an_event_is_found_by_its_id(driven: Driven, daemon: Daemon) -> None:
    start(driven, daemon)
    detail = {"workflow_id": "w", "name": "go", "ray_id": RAY}
    event = {"id": "event-3", "detail-type": "torpor.message", "detail": detail}
    ResumeFunction(driven.wiring)(event, LambdaContext())
    told = daemon.told()
    assert told["name"] == "event"
    assert told["annotations"] == {"workflow_id": "w", "ray_id": RAY, "request_id": "event-3"}


def test_nothing_is_told_of_an_invocation_that_is_not_sampled(
    driven: Driven, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_X_AMZN_TRACE_ID", SAMPLED.replace("Sampled=1", "Sampled=0"))
    driven.start("traced", "w")
    assert driven.work() == []
    assert driven.state("w") == "sleeping"
    assert daemon.heard_nothing()


def test_a_daemon_that_is_gone_costs_nothing(driven: Driven, daemon: Daemon) -> None:
    daemon.close()
    driven.start("traced", "w")
    assert driven.work() == []
    assert driven.state("w") == "sleeping"
