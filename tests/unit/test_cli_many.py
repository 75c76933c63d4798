"""``torpor wake``, ``cancel`` and ``recover`` by a filter: whom they find, what they do, what they only show."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.cli import main
from tests.unit.test_cli import Api, api, torpor

__all__ = ["api"]


def row(workflow_id: str, state: str, **tags: str) -> dict[str, Any]:
    return {"id": workflow_id, "type": "order", "state": state, "tags": tags, "created_at": "2030-01-01T00:00:00Z"}


def page(*rows: dict[str, Any], cursor: str | None = None) -> tuple[int, Any]:
    return 200, {"workflows": list(rows), "cursor": cursor}


def error(message: str) -> tuple[int, Any]:
    return 200, {"state": "failed", "error": {"name": "ValueError", "message": message}}


def lines(api: Api) -> list[str]:
    return [f"{asked['method']} {asked['path']}" for asked in api.asked]


def test_all_that_go_on_are_cancelled_once_all_are_known(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer(
        page(row("a/1", "sleeping"), row("b", "completed"), cursor="c"),
        page(row("d", "pending"), row("e", "failed"), row("f", "cancelled")),
        (202, {"id": "a/1", "state": "rolling_back"}),
        (200, {"id": "d", "state": "cancelled"}),
    )
    assert torpor(api, "cancel", "--type", "order", "--rollback") == 0
    assert lines(api) == [
        "GET /workflows?type=order&limit=100",
        "GET /workflows?type=order&limit=100&cursor=c",
        "POST /workflows/a%2F1/cancel?rollback=true",
        "POST /workflows/d/cancel?rollback=true",
    ]
    assert capsys.readouterr().out == "a/1  rolling_back\nd  cancelled\n"


def test_what_rolls_back_is_left_to_it_unless_it_is_asked_for(api: Api) -> None:
    rows = page(row("a", "rolling_back"), row("b", "sleeping"))
    api.answer(rows, (200, {"id": "b", "state": "cancelled"}))
    assert torpor(api, "cancel", "--type", "order") == 0
    assert lines(api)[1:] == ["POST /workflows/b/cancel"]
    api.answer(rows, (200, {"id": "a", "state": "cancelled"}))
    assert torpor(api, "cancel", "--type", "order", "--state", "rolling_back") == 0
    assert lines(api)[2:] == ["GET /workflows?type=order&state=rolling_back&limit=100", "POST /workflows/a/cancel"]


@pytest.mark.parametrize("command", ["wake", "cancel", "recover"])
def test_those_of_other_types_are_left_alone_whatever_is_answered(api: Api, command: str) -> None:
    api.answer(page(row("a", "failed" if command == "recover" else "sleeping")))
    assert torpor(api, command, "--type", "") == 0
    assert [line.partition(" ")[0] for line in lines(api)] == ["GET"]


@pytest.mark.parametrize("command", ["wake", "cancel", "recover"])
def test_a_dry_run_does_nothing(api: Api, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer(page(row("a", "failed" if command == "recover" else "sleeping")), error("no stamps"))
    assert torpor(api, command, "--type", "order", "--dry-run") == 0
    assert {line.partition(" ")[0] for line in lines(api)} == {"GET"}
    told = capsys.readouterr().out
    assert "a   order" in told
    assert ("ValueError: no stamps" in told) is (command == "recover")
    assert told.endswith("1 found, and nothing done\n")


def test_tags_are_asked_for_and_a_state_beside_them_is_looked_at(api: Api) -> None:
    api.answer(page(row("a", "pending", shop="7"), row("b", "sleeping", shop="7")), (202, {"id": "b", "state": "x"}))
    assert torpor(api, "wake", "--type", "order", "--tag", "shop=7", "--state", "sleeping") == 0
    assert lines(api) == ["GET /workflows?type=order&tag=shop%3D7&limit=100", "POST /workflows/b/wake"]


def test_what_has_failed_is_found_by_its_error_and_its_tags(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    """By its tags the API finds nobody who has ended; the rows of the list have them."""
    api.answer(
        page(row("a", "failed", shop="7"), row("b", "failed", shop="8"), row("c", "failed", shop="7", till="1")),
        error("no stamps"),
        error("no ink"),
        (202, {"id": "c", "state": "sleeping"}),
    )
    assert torpor(api, "recover", "--type", "order", "--tag", "shop=7", "--error", "Error: no ink") == 0
    assert lines(api) == [
        "GET /workflows?type=order&state=failed&limit=100",
        "GET /workflows/a/output",
        "GET /workflows/c/output",
        "POST /workflows/c/recover",
    ]
    assert capsys.readouterr().out == "c  sleeping\n"


def test_one_that_is_refused_holds_up_no_other(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    problem = {"title": "It has ended", "detail": "a is completed", "status": 409}
    api.answer(
        page(row("a", "sleeping"), row("b", "sleeping")), (409, problem), (200, {"id": "b", "state": "cancelled"})
    )
    assert torpor(api, "cancel", "--type", "order") == 1
    told = capsys.readouterr()
    assert told.out == "a  It has ended: a is completed\nb  cancelled\n"
    assert "1 of 2 were refused" in told.err


def test_as_json_it_tells_what_became_of_each(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer(page(row("a", "sleeping")), (202, {"id": "a", "state": "sleeping"}))
    assert torpor(api, "wake", "--type", "order", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"workflows": [{"id": "a", "state": "sleeping"}]}
    api.answer(page())
    assert torpor(api, "wake", "--type", "order", "--json", "--dry-run") == 0
    assert json.loads(capsys.readouterr().out) == {"workflows": []}


def test_nobody_is_no_failure(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer(page(row("a", "completed")))
    assert torpor(api, "cancel", "--type", "order") == 0
    assert capsys.readouterr().out == "no workflow is like that\n"


@pytest.mark.parametrize(
    "wrong",
    [
        ["cancel"],
        ["cancel", "x", "--type", "order"],
        ["cancel", "--dry-run"],
        ["cancel", "x", "--tag", "a=b"],
        ["wake", "--state", "sleeping"],
        ["wake", "--type", "order", "--state", "failed"],
        ["recover", "--error", "x"],
        ["recover", "--from-dlq", "--type", "order"],
        ["recover", "x", "--from-dlq"],
    ],
)
def test_what_does_not_go_together_is_exit_code_2(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(wrong)
    assert exit_.value.code == 2
    assert "usage: torpor" in capsys.readouterr().err
