"""The commands ``torpor schedule …`` against a small server: what they send and print."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from infra.cli import main
from tests.unit.test_cli import Api, api, torpor

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["api"]

TOLD: dict[str, Any] = {
    "name": "report",
    "state": "active",
    "cron": "0 9 * * *",
    "timezone": "Europe/Berlin",
    "type": "report",
    "input": {"to": "Ada"},
    "overlap": "skip",
    "catch_up": "1d",
    "tags": {},
    "next": ["2026-11-30T09:00:00+01:00", "2026-12-01T09:00:00+01:00"],
    "recent": [
        {
            "scheduled_at": "2026-11-29T09:00:00+01:00",
            "outcome": "started",
            "run_id": "report/2026-11-29T08:00:00Z",
            "reason": None,
        }
    ],
}


def test_create_sends_what_is_given_and_tells_when_it_comes(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer((201, TOLD))
    options = ["--cron", "0 9 * * *", "--timezone", "Europe/Berlin", "--type", "report", "--input", '{"to": "Ada"}']
    more = ["--overlap", "queue", "--catch-up", "2h", "--tag", "team=sales"]
    assert torpor(api, "schedule", "create", "report", *options, *more) == 0
    assert api.line == "POST /schedules"
    assert api.body == {
        "name": "report",
        "cron": "0 9 * * *",
        "timezone": "Europe/Berlin",
        "type": "report",
        "input": {"to": "Ada"},
        "overlap": "queue",
        "catch_up": "2h",
        "tags": {"team": "sales"},
    }
    assert capsys.readouterr().out == "report  active, next at 2026-11-30T09:00:00+01:00\n"


@pytest.mark.parametrize(
    "options",
    [
        ["--type", "report"],
        ["--every", "1h"],
        ["--every", "1h", "--cron", "* * * * *", "--type", "report"],
        ["--every", "1h", "--type", "report", "--overlap", "maybe"],
    ],
)
def test_create_asks_for_a_type_and_one_timing(api: Api, options: Sequence[str]) -> None:
    assert torpor(api, "schedule", "create", "report", *options) == 2
    assert api.asked == []


def test_list_follows_the_pages(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    hourly = {"name": "tidy", "state": "paused", "every": "1h", "type": "tidy", "next": []}
    api.answer((200, {"schedules": [TOLD], "cursor": "c"}), (200, {"schedules": [hourly], "cursor": None}))
    assert torpor(api, "schedule", "list") == 0
    assert [each["path"] for each in api.asked] == ["/schedules?limit=25", "/schedules?limit=24&cursor=c"]
    lines = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    assert [part.strip() for part in lines[1] if part] == [
        "report",
        "active",
        "report",
        "cron 0 9 * * * Europe/Berlin",
        "2026-11-30T09:00:00+01:00",
    ]
    assert [part.strip() for part in lines[2] if part.strip()] == ["tidy", "paused", "tidy", "every 1h", "-"]


def test_show_tells_what_is_to_come_and_what_was(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer((200, TOLD))
    assert torpor(api, "schedule", "show", "report") == 0
    assert api.line == "GET /schedules/report"
    out = capsys.readouterr().out
    assert "next      2026-12-01T09:00:00+01:00\n" in out
    assert "report/2026-11-29T08:00:00Z" in out


@pytest.mark.parametrize(
    ("arguments", "line", "body"),
    [
        (["pause", "r"], "POST /schedules/r/pause", b""),
        (["pause", "r", "--note", "why"], "POST /schedules/r/pause", b'{"note": "why"}'),
        (["resume", "r"], "POST /schedules/r/resume", b""),
        (["trigger", "r"], "POST /schedules/r/trigger", b""),
        (["backfill", "r", "--from", "a", "--to", "b"], "POST /schedules/r/backfill", b'{"from": "a", "to": "b"}'),
        (
            ["backfill", "r", "--from", "a", "--to", "b", "--overlap", "allow"],
            "POST /schedules/r/backfill",
            b'{"from": "a", "to": "b", "overlap": "allow"}',
        ),
    ],
)
def test_orders(api: Api, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str, body: bytes) -> None:
    api.answer((202, {"message_id": "m", "duplicate": False}))
    assert torpor(api, "schedule", *arguments) == 0
    assert (api.line, api.asked[-1]["body"]) == (line, body)
    assert capsys.readouterr().out == f"r  {arguments[0]} accepted\n"


def test_update_keeps_what_is_not_given(api: Api) -> None:
    options = ["--overlap", "queue", "--input", "7"]
    api.answer((200, TOLD), (202, {}))
    assert torpor(api, "schedule", "update", "report", *options) == 0
    kept = {name: TOLD[name] for name in ("cron", "timezone", "type", "catch_up", "tags")}
    assert api.body == {**kept, "overlap": "queue", "input": 7}
    api.answer((200, TOLD), (202, {}))
    assert torpor(api, "schedule", "update", "report", *options, "--every", "1h") == 0
    assert "cron" not in api.body
    assert api.body["every"] == "1h"
    assert torpor(api, "schedule", "update", "report") == 2


def test_help_tells_defaults_where_they_are_some(capsys: pytest.CaptureFixture[str]) -> None:
    told = {}
    for command in ("create", "update", "backfill"):
        with pytest.raises(SystemExit):
            main(["schedule", command, "--help"])
        told[command] = " ".join(capsys.readouterr().out.split())
    defaults = ("(UTC)", "(the creation)", "(null)", "(skip)", "(1d)")
    assert [each for each in defaults if each in told["create"]] == [*defaults]
    assert [each for each in defaults if each in told["update"]] == []
    assert told["backfill"].count("in the schedule's time zone") == 2


def test_a_list_as_json_is_the_answer_with_its_cursor(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer((200, {"schedules": [TOLD], "cursor": "c"}))
    assert torpor(api, "schedule", "list", "--limit", "1", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"schedules": [TOLD], "cursor": "c"}


def test_what_is_left_of_a_deleted_schedule_is_nothing_to_tell(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer((202, {"name": "r", "is_gone": False}), (200, {"name": "r", "is_gone": True}))
    for _ in range(2):
        assert torpor(api, "schedule", "delete", "r") == 0
        assert api.line == "DELETE /schedules/r"
        assert capsys.readouterr().out == "r  gone\n"


def test_a_refusal_is_told(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer((400, {"title": "The schedule is not valid", "detail": "write five fields", "status": 400}))
    assert torpor(api, "schedule", "create", "r", "--cron", "x", "--type", "t") == 1
    assert capsys.readouterr().err == "torpor: The schedule is not valid: write five fields\n"
