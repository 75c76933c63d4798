"""Schedules over HTTP, with their workflow run by the worker: what is asked, what is refused, what is told."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import cbor2
import pytest

from engine import Context, workflow
from engine.schedules import limits
from handlers import openapi, problems
from handlers.routes import ROUTES
from infra.api_client import Reply
from infra.cli import main
from tests.integration.test_api import assert_problem

if TYPE_CHECKING:
    from tests.integration.driven import Driven

DAILY = {"name": "daily", "cron": "0 9 * * MON-FRI", "timezone": "Europe/Berlin", "type": "schedules-report"}


@dataclass
class Report:
    pages: int = 1


@workflow("schedules-report")
async def report(_ctx: Context, given: Report) -> int:
    return given.pages


@workflow("schedules-anything")
async def anything(_ctx: Context, _given: Any) -> None: ...


@workflow("schedules-endless")
async def endless(ctx: Context, _given: None) -> None:
    await ctx.queue.next("never")


def daily(**more: Any) -> dict[str, Any]:
    return {**DAILY, "input": {"pages": 3}, **more}


def test_a_schedule_is_created_once_and_tells_what_it_will_do(driven: Driven) -> None:
    first = driven.http.post("/schedules", daily())
    assert first.status == 201
    assert first.headers["location"] == "/schedules/daily"
    told = first.value
    assert (told["name"], told["state"], told["cron"], told["timezone"]) == (
        "daily",
        "active",
        "0 9 * * MON-FRI",
        "Europe/Berlin",
    )
    assert (told["input"], told["overlap"], told["catch_up"], told["recent"]) == ({"pages": 3}, "skip", "1d", [])
    assert len(told["next"]) == 5
    assert all("T09:00:00+0" in each for each in told["next"])
    again = driven.http.post("/schedules", daily())
    assert (again.status, again.value["next"]) == (200, told["next"])
    assert_problem(driven.http.post("/schedules", daily(cron="0 10 * * *")), problems.SCHEDULE_CONFLICT)
    driven.drain()
    assert driven.http.post("/schedules", daily()).status == 200
    assert driven.state("schedule:daily") == "sleeping"
    assert driven.http.get("/schedules/daily").value["next"] == told["next"]
    assert [each["name"] for each in driven.http.get("/schedules").value["schedules"]] == ["daily"]


def test_an_interval_is_the_same_one_although_it_was_given_its_anchor(driven: Driven) -> None:
    asked = {"name": "often", "every": "15m", "type": "schedules-report", "input": {}}
    assert driven.http.post("/schedules", asked).status == 201
    driven.drain()
    answer = driven.http.post("/schedules", asked)
    assert (answer.status, answer.value["every"]) == (200, "15m")
    assert driven.http.post("/schedules", {**asked, "every": 900}).status == 200


def test_an_interval_that_ends_with_the_calendar_is_told_of(driven: Driven) -> None:
    asked = {"name": "far", "every": "1d", "start_at": "9999-12-31T00:00:00Z", "type": "schedules-report", "input": {}}
    assert driven.http.post("/schedules", asked).status == 201
    driven.drain()
    [told] = driven.http.get("/schedules").value["schedules"]
    assert told["next"] == ["9999-12-31T00:00:00+00:00"]


def test_a_schedule_obeys_over_http(driven: Driven) -> None:
    driven.http.post("/schedules", daily())
    driven.drain()
    assert driven.http.post("/schedules/daily/pause", {"note": "holidays"}).status == 202
    assert driven.http.post("/schedules/daily/trigger").status == 202
    driven.drain()
    told = driven.http.get("/schedules/daily").value
    assert (told["state"], told["note"], told["next"]) == ("paused", "holidays", [])
    [run] = told["recent"]
    assert run["outcome"] == "started"
    assert driven.output(run["run_id"].replace("/", "%2F")) == {"id": run["run_id"], "state": "completed", "output": 3}
    assert driven.http.post("/schedules/daily/resume").status == 202
    assert (
        driven.http.post("/schedules/daily/update", {**daily(every="1h", overlap="allow"), "cron": None}).status == 400
    )
    changed = {"every": "1h", "overlap": "allow", "type": "schedules-report", "input": {"pages": 4}}
    assert driven.http.post("/schedules/daily/update", changed).status == 202
    driven.drain()
    told = driven.http.get("/schedules/daily").value
    assert (told["state"], told["every"], told["overlap"], told["input"]) == ("active", "1h", "allow", {"pages": 4})


def test_a_backfill_runs_each_occurrence_once(driven: Driven) -> None:
    driven.http.post("/schedules", daily())
    driven.drain()
    week = {"from": "2026-11-02T00:00", "to": "2026-11-08T23:59", "overlap": "allow"}
    for _ in range(2):
        assert driven.http.post("/schedules/daily/backfill", week).status == 202
        driven.drain()
    runs = [each["id"] for each in driven.http.get("/workflows", query={"type": "schedules-report"}).value["workflows"]]
    assert sorted(runs) == [f"daily/2026-11-0{day}T08:00:00Z" for day in range(2, 7)]
    assert driven.http.get("/schedules/daily").value["backfills"] == 0


def test_a_deleted_schedule_is_gone_and_its_name_free_at_once(driven: Driven) -> None:
    driven.http.post("/schedules", daily())
    driven.http.post("/schedules/daily/trigger")
    driven.drain()
    deleted = driven.http.call("DELETE", "/schedules/daily")
    assert (deleted.status, deleted.value) == (202, {"name": "daily", "is_gone": False})
    assert_problem(driven.http.get("/schedules/daily"), problems.SCHEDULE_NOT_FOUND)
    assert_problem(driven.http.post("/schedules/daily/pause"), problems.SCHEDULE_NOT_FOUND)
    assert driven.http.get("/schedules").value["schedules"] == []
    again = driven.http.post("/schedules", daily(cron="0 10 * * *"))
    assert (again.status, again.value["cron"], again.value["recent"]) == (201, "0 10 * * *", [])
    driven.drain()
    assert driven.http.post("/schedules/daily/trigger").status == 202
    driven.drain()
    told = driven.http.get("/schedules/daily").value
    assert (told["state"], told["counts"]["started"]) == ("active", 1)
    assert_problem(driven.http.post("/schedules", daily()), problems.SCHEDULE_CONFLICT)


def test_a_schedule_can_be_deleted_and_created_again_and_again(driven: Driven) -> None:
    for hour in range(4):
        created = driven.http.post("/schedules", daily(cron=f"0 {hour} * * *"))
        assert (created.status, created.value["cron"]) == (201, f"0 {hour} * * *")
        # Whether a worker has seen it by then or not.
        if hour % 2:
            driven.drain()
        assert driven.http.call("DELETE", "/schedules/daily").status == 202
    driven.drain()
    assert_problem(driven.http.get("/schedules/daily"), problems.SCHEDULE_NOT_FOUND)


def test_a_schedule_that_has_ended_says_so(driven: Driven) -> None:
    asked = {"name": "once", "at": "2990-01-01T00:00:00Z", "type": "schedules-report", "input": {}}
    assert driven.http.post("/schedules", asked).status == 201
    driven.drain()
    driven.http.post("/workflows/schedule%3Aonce/cancel")
    assert driven.http.get("/schedules/once").value["state"] == "cancelled"
    assert_problem(driven.http.post("/schedules/once/trigger"), problems.SCHEDULE_ENDED)
    again = driven.http.post("/schedules", asked)
    assert_problem(again, problems.SCHEDULE_ENDED)
    assert again.value["detail"].startswith("delete the schedule 'once' first")
    assert driven.http.call("DELETE", "/schedules/once").status == 202


@pytest.mark.parametrize(
    ("change", "kind", "told"),
    [
        ({"cron": "0 25 * * *"}, problems.INVALID_SCHEDULE, "hour (0-23)"),
        ({"cron": "0 9 31 2 *"}, problems.INVALID_SCHEDULE, "day-of-month"),
        ({"cron": "0 9 */20 * 1L"}, problems.INVALID_SCHEDULE, "no occurrence ahead"),
        ({"cron": None}, problems.INVALID_SCHEDULE, '"cron", "every" and "at"'),
        ({"every": "5m"}, problems.INVALID_SCHEDULE, '"cron", "every" and "at"'),
        ({"timezone": "Berlin"}, problems.INVALID_SCHEDULE, "Europe/Berlin"),
        ({"start_at": "2030-01-01T00:00Z"}, problems.INVALID_SCHEDULE, "aligned"),
        ({"cron": None, "every": "soon"}, problems.INVALID_SCHEDULE, "1h30m"),
        ({"cron": None, "every": "0s"}, problems.INVALID_SCHEDULE, "not possible"),
        ({"cron": None, "at": "tomorrow"}, problems.INVALID_SCHEDULE, "ISO 8601"),
        ({"cron": None, "at": "2001-01-01T00:00Z"}, problems.INVALID_SCHEDULE, "no occurrence ahead"),
        ({"overlap": "maybe"}, problems.INVALID_SCHEDULE, "skip, queue, allow"),
        ({"catch_up": -1}, problems.INVALID_SCHEDULE, "0 to"),
        ({"type": None}, problems.INVALID_SCHEDULE, "which workflow"),
        ({"type": "schedules-nothing"}, problems.UNKNOWN_TYPE, "schedules-nothing"),
        ({"type": "torpor.schedule"}, problems.UNKNOWN_TYPE, "torpor's own"),
        ({"input": {"pages": "many"}}, problems.INVALID_BODY, "Report"),
        ({"name": "a/b"}, problems.INVALID_ID, "dashes"),
        ({"name": None}, problems.INVALID_ID, "dashes"),
        ({"name": "x" * 101}, problems.INVALID_ID, "100"),
        ({"often": True}, problems.INVALID_BODY, "often"),
        ({"tags": {"a": 1}}, problems.INVALID_BODY, "tags"),
        ({"tags": {f"t{number}": "" for number in range(15)}}, problems.INVALID_ID, "at most 16 tags"),
        ({"tags": {"": "a"}}, problems.INVALID_ID, "tag name"),
    ],
)
def test_what_cannot_be_a_schedule_is_told_why(
    driven: Driven, change: dict[str, Any], kind: problems.Kind, told: str
) -> None:
    answer = driven.http.post("/schedules", daily(**change))
    assert_problem(answer, kind)
    assert told in answer.value["detail"]
    assert driven.cloud.items() == []


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "from"),
        ({"from": "2026-11-02", "to": "2026-11-01"}, "before"),
        ({"from": "2026-11-07T00:00", "to": "2026-11-08T23:59"}, "no occurrence"),
        ({"from": "2000-01-01T00:00", "to": "2026-11-08T23:59"}, "more than 1000"),
        ({"from": "2026-11-02", "to": "2026-11-03", "overlap": "x"}, "overlap"),
        ({"from": "0001-01-01T00:00Z", "to": "1971-01-01"}, "1970"),
        ({"from": "9999-12-01", "to": "9999-12-31"}, "still to come"),
    ],
)
def test_a_backfill_that_cannot_be_is_told_why(driven: Driven, body: dict[str, Any], told: str) -> None:
    driven.http.post("/schedules", daily())
    answer = driven.http.post("/schedules/daily/backfill", body)
    assert_problem(answer, problems.INVALID_SCHEDULE)
    assert told in answer.value["detail"]


def test_nobody_else_is_a_schedule(driven: Driven) -> None:
    assert_problem(driven.http.post("/workflows/torpor.schedule", {"id": "x"}), problems.UNKNOWN_TYPE)
    assert_problem(driven.http.post("/workflows/schedules-report", {"id": "schedule:x"}), problems.INVALID_ID)
    assert_problem(driven.http.get("/schedules/x"), problems.SCHEDULE_NOT_FOUND)
    assert_problem(driven.http.get("/schedules/x%2Fy"), problems.INVALID_ID)


def test_schedules_are_not_among_the_workflows_unless_asked_for(driven: Driven) -> None:
    driven.http.post("/schedules", daily())
    assert driven.http.get("/workflows").value["workflows"] == []
    listed = driven.http.get("/workflows", query={"type": "torpor.schedule"}).value["workflows"]
    assert [each["id"] for each in listed] == ["schedule:daily"]


def test_a_schedule_that_has_as_much_to_do_as_it_may_have_says_so(
    driven: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RUNNING_MAX", 4)
    monkeypatch.setattr(limits, "BACKFILLS_MAX", 2)
    asked = {"name": "busy", "every": "1d", "start_at": "2001-01-01T00:00Z", "type": "schedules-endless", "input": None}
    assert driven.http.post("/schedules", asked).status == 201
    for _ in range(limits.RUNNING_MAX):
        assert driven.http.post("/schedules/busy/trigger").status == 202
    driven.drain()
    assert len(driven.http.get("/schedules/busy").value["running"]) == limits.RUNNING_MAX
    again = driven.http.post("/schedules/busy/trigger")
    assert_problem(again, problems.SCHEDULE_FULL)
    assert again.value["detail"].startswith("4 of its runs are under way, the first 'busy/")
    for day in range(1, limits.BACKFILLS_MAX + 1):
        part = {"from": f"2026-01-{day:02d}T00:00Z", "to": f"2026-01-{day:02d}T12:00Z"}
        assert driven.http.post("/schedules/busy/backfill", part).status == 202
    driven.drain()
    assert_problem(driven.http.post("/schedules/busy/backfill", part), problems.SCHEDULE_FULL)
    allowed = {"every": "1d", "overlap": "allow", "type": "schedules-endless", "input": None}
    assert driven.http.post("/schedules/busy/update", allowed).status == 202
    driven.drain()
    assert driven.http.post("/schedules/busy/trigger").status == 202


@pytest.mark.parametrize(
    "timing",
    [
        {"cron": "0 9 * * *", "timezone": "Europe/Berlin"},
        {"every": "1d", "start_at": "2030-01-01T00:00Z"},
        {"at": "2030-01-01T08:00Z"},
    ],
)
def test_an_update_on_the_command_line_keeps_an_input_that_json_has_no_form_for(
    driven: Driven, monkeypatch: pytest.MonkeyPatch, timing: dict[str, str]
) -> None:
    value = {"key": b"\x00\xff", "amount": Decimal("1.10"), "due": datetime(2030, 1, 1, tzinfo=UTC)}
    asked = {"name": "kept", **timing, "type": "schedules-anything", "input": value}
    assert driven.http.post("/schedules", body=cbor2.dumps(asked), content_type="application/cbor").status == 201
    driven.drain()

    class Api:
        """The API, by the function itself."""

        def request(self, method: str, path: str, *, body: bytes = b"", headers: dict[str, str] | None = None) -> Reply:
            told = {name.lower(): value for name, value in (headers or {}).items()}
            media_type = told.pop("content-type", "application/json")
            answer = driven.http.call(method, path, body=body, content_type=media_type, headers=told)
            return Reply(status=answer.status, headers=answer.headers, body=answer.body)

    monkeypatch.setattr("infra.schedule_commands.find", lambda _arguments: Api())
    before = driven.http.get("/schedules/kept").value
    main(["schedule", "update", "kept", "--overlap", "queue"])
    driven.drain()
    after = driven.http.call("GET", "/schedules/kept", headers={"accept": "application/cbor"}).value
    assert (after["input"], after["overlap"], after["problem"]) == (value, "queue", None)
    assert driven.http.get("/schedules/kept").value == {**before, "overlap": "queue"}


def test_a_schedule_whose_history_cannot_be_read_can_be_deleted(driven: Driven) -> None:
    for name in ("broken", "whole"):
        assert driven.http.post("/schedules", daily(name=name)).status == 201
    driven.drain()
    cloud = driven.cloud
    for item in cloud.items():
        if item["pk"]["S"] == "schedule:broken" and item["sk"]["S"].startswith("LOG#"):
            cloud.client("dynamodb").put_item(TableName=cloud.table, Item={**item, "b": {"B": b"\xff"}})
    listed = {each["name"]: each for each in driven.http.get("/schedules").value["schedules"]}
    assert {name: each["state"] for name, each in listed.items()} == {"broken": "unreadable", "whole": "active"}
    assert "schedule:broken" in listed["broken"]["problem"]
    span = {"from": "2026-01-01", "to": "2026-01-02"}
    calls = [
        ("GET", "", None),
        ("POST", "/trigger", None),
        ("POST", "/backfill", span),
        ("POST", None, daily(name="broken")),
    ]
    for method, what, body in calls:
        path = "/schedules" if what is None else f"/schedules/broken{what}"
        answer = driven.http.call(method, path, body=b"" if body is None else json.dumps(body).encode())
        assert_problem(answer, problems.CORRUPT_HISTORY)
        told = openapi.document(ROUTES)["paths"][path.replace("broken", "{name}")][method.lower()]["responses"]["500"]
        assert problems.CORRUPT_HISTORY.name in told["description"]
    assert driven.http.call("DELETE", "/schedules/broken").value["name"] == "broken"
    assert [each["name"] for each in driven.http.get("/schedules").value["schedules"]] == ["whole"]
    assert driven.http.post("/schedules", daily(name="broken")).status == 201
