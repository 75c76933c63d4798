"""The command line and the ids by which a call, and all that comes of it, is found in the logs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.unit.test_cli import Api, api, torpor  # noqa: F401 - `api` is a fixture

if TYPE_CHECKING:
    from typing import Any

STARTED = {"id": "o-1", "type": "order", "created": True, "ray_id": "checkout:17", "request_id": "JKJ="}
ACCEPTED = {"message_id": "k", "duplicate": False}


@pytest.mark.parametrize(
    ("command", "answer", "line"),
    [
        (["start", "order"], STARTED, "o-1  started  (ray checkout:17, request JKJ=)"),
        (["start", "order"], {**STARTED, "ray_id": None, "created": False}, "o-1  was started before  (request JKJ=)"),
        (["send", "o-1", "m"], ACCEPTED, "k  accepted  (request from-the-header)"),
        (
            ["send", "m", "--type", "order"],
            {**ACCEPTED, "workflow_id": "w"},
            "k  accepted by w  (request from-the-header)",
        ),
    ],
)
def test_what_is_begun_has_the_ray_id_that_is_given_and_says_how_it_is_found(
    api: Api,  # noqa: F811
    command: list[str],
    answer: dict[str, Any],
    line: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    api.headers = {"X-Request-Id": "from-the-header"}
    api.answer((202, answer))
    assert torpor(api, *command, "--ray-id", "checkout:17") == 0
    assert api.asked[-1]["headers"]["x-ray-id"] == "checkout:17"
    assert capsys.readouterr().out == line + "\n"
    assert torpor(api, *command, "--json") == 0
    assert "x-ray-id" not in api.asked[-1]["headers"]
    assert json.loads(capsys.readouterr().out) == answer


@pytest.mark.parametrize("command", [["start", "order"], ["send", "o-1", "m"]])
def test_what_is_no_ray_id_is_a_wrong_call(
    api: Api,  # noqa: F811
    command: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert torpor(api, *command, "--ray-id", "two\nlines") == 2
    assert "a ray id has 1 to 128 characters" in capsys.readouterr().err
    assert api.asked == []
