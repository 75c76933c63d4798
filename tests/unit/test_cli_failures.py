"""What goes wrong on the command line: in which words it is told, with which exit code, and who does not hear of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.cli import main
from infra.place import ROOT
from tests.unit.test_cli import Api, api, torpor

__all__ = ["api"]

PROBLEM = {"type": "about:blank", "title": "No such workflow", "detail": "No workflow has the id x.", "status": 404}


def test_a_problem_is_one_line_and_exit_code_1(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer((404, PROBLEM))
    assert torpor(api, "get", "x") == 1
    assert capsys.readouterr().err == "torpor: No such workflow: No workflow has the id x.\n"


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (403, {"message": "Forbidden"}, "403 Forbidden: Forbidden"),
        (502, b"<html>", "502 Bad Gateway"),
        (200, b"<html>", "not JSON"),
    ],
)
def test_answers_that_are_no_problem_documents_are_told_too(
    api: Api, status: int, body: Any, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answer((status, body))
    assert torpor(api, "get", "x") == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_who_only_looks_looks_again_where_a_refusal_may_be_over_in_a_moment(api: Api, status: int) -> None:
    api.answer((status, {"title": "Away"}), (status, b"<html>"), (200, {"id": "x", "state": "completed", "output": 7}))
    assert torpor(api, "get", "x", "--output", "--wait", "5") == 0
    assert len(api.asked) == 3


def test_what_changes_something_is_asked_for_once(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer((503, {"title": "Away"}), (202, {"id": "x"}))
    assert torpor(api, "cancel", "x") == 1
    assert len(api.asked) == 1
    assert capsys.readouterr().err == "torpor: Away\n"


def test_no_server_is_one_line_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert torpor(Api(url="http://127.0.0.1:9"), "get", "x") == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "No answer from http://127.0.0.1:9" in line


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        ["begin"],
        ["get"],
        ["start", "order", "--input", "{no json"],
        ["start", "order", "--input", "@/does/not/exist"],
        ["start", "order", "--input", "[" * 100_000],
        ["get", "\udcff", "--endpoint", "http://127.0.0.1:9"],
        ["send", "o-1", "m", "--key", "\udcff", "--endpoint", "http://127.0.0.1:9"],
        ["list", "--endpoint", "http://127.0.0.1:99999"],
        ["list", "--endpoint", "http://example.com:port"],
        ["list", "--endpoint", "http://[::1"],
        ["list", "--endpoint", "example.com"],
        ["list", "--endpoint", "http://127.0.0.1:9", "--stack", "shop"],
        ["start", "order", "--tag", "novalue"],
        ["get", "x", "--wait", "-1"],
        ["get", "x", "--wait", "nan"],
        ["list", "--limit", "0"],
        ["list", "unheard-of"],
        ["send", "picked-up"],
        ["watch"],
        ["recover"],
        ["recover", "x", "--from-dlq"],
        ["recover", "--from-dlq", "--endpoint", "http://127.0.0.1:9"],
        ["start", "order", "--replace-failed"],
    ],
)
def test_a_wrong_call_is_exit_code_2(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(wrong)
    assert exit_.value.code == 2
    assert "usage: torpor" in capsys.readouterr().err


def test_what_aws_and_this_machine_refuse_is_one_line_and_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    assert torpor(Api(url="https://abc.execute-api.eu-west-1.amazonaws.com"), "list") == 1
    monkeypatch.delenv("AWS_PROFILE")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert torpor(Api(url="http://a..b"), "list", "--region", "eu-west-1") == 1
    profile, address = capsys.readouterr().err.splitlines()
    assert profile == "torpor: The config profile (nobody) could not be found"
    assert address.startswith("torpor: No answer from http://a..b: ")


# --- output that nobody takes -------------------------------------------------------------------------------------


def into(taker: int, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command whose standard output is that descriptor, which is closed then."""
    try:
        return subprocess.run(
            [sys.executable, "-m", "infra.cli", *arguments],
            stdout=taker,
            stderr=subprocess.PIPE,
            env={"PATH": os.defpath},
            cwd=ROOT,
            timeout=60,
            check=False,
        )
    finally:
        os.close(taker)


def unread(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    reader, writer = os.pipe()
    os.close(reader)
    return into(writer, *arguments)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
def test_a_full_disk_is_one_line_and_exit_code_1() -> None:
    done = into(os.open("/dev/full", os.O_WRONLY), "--help")
    assert (done.returncode, done.stderr) == (1, b"torpor: [Errno 28] No space left on device\n")


def test_a_reader_that_has_gone_is_no_failure(api: Api) -> None:
    row = {"id": "x", "type": "order", "state": "failed", "created_at": "2030-01-01T00:00:00Z", "tags": {}}
    for rows in (1, 1_000):
        api.answer((200, {"workflows": [row] * rows, "cursor": None}))
        done = unread("list", "--endpoint", api.url)
        assert (done.returncode, done.stderr) == (0, b"")
    done = unread("--help")
    assert (done.returncode, done.stderr) == (0, b"")
    api.answer((404, PROBLEM))
    done = unread("get", "x", "--endpoint", api.url)
    assert (done.returncode, done.stderr) == (1, b"torpor: No such workflow: No workflow has the id x.\n")


def test_many_orders_are_given_to_their_end_though_nobody_reads_of_it(api: Api) -> None:
    row = {"type": "order", "state": "sleeping", "created_at": "2030-01-01T00:00:00Z", "tags": {}}
    rows = [{"id": f"o-{number}", **row} for number in range(4)]
    api.answer((200, {"workflows": rows, "cursor": None}), (200, {"id": "x", "state": "cancelled"}))
    done = unread("cancel", "--type", "order", "--endpoint", api.url)
    assert (done.returncode, done.stderr) == (0, b"")
    assert [asked["path"] for asked in api.asked[1:]] == [f"/workflows/o-{number}/cancel" for number in range(4)]


@pytest.mark.parametrize("arguments", [[], ["start"], ["send"], ["get"], ["dev"], ["deploy"]])
def test_every_command_explains_itself(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([*arguments, "--help"])
    assert exit_.value.code == 0
    assert "usage: torpor" in capsys.readouterr().out
