"""The command line against a small server on the loopback interface: what it sends, prints and exits with."""

from __future__ import annotations

import io
import json
import os
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from infra.cli import main
from infra.fault import DeployError
from infra.target import DevNote, find_api

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass
class Api:
    """A server that keeps what it was asked and answers what it was told, in turn; the last answer for ever."""

    answers: list[tuple[int, Any]] = field(default_factory=lambda: [(200, {})])
    asked: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    def answer(self, *answers: tuple[int, Any]) -> None:
        self.answers = list(answers)

    def next_answer(self) -> tuple[int, Any]:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    @property
    def line(self) -> str:
        return f"{self.asked[-1]['method']} {self.asked[-1]['path']}"

    @property
    def body(self) -> Any:
        return json.loads(self.asked[-1]["body"])


@pytest.fixture
def api() -> Iterator[Api]:
    served = Api()

    class Handler(BaseHTTPRequestHandler):
        def respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            served.asked.append({"method": self.command, "path": self.path, "headers": headers, "body": body})
            status, value = served.next_answer()
            sent = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(sent)))
            for name, told in served.headers.items():
                self.send_header(name, told)
            self.end_headers()
            self.wfile.write(sent)

        do_GET = do_POST = do_DELETE = respond  # noqa: N815 - the names that the base class calls

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield served
    server.shutdown()
    thread.join()
    server.server_close()


def torpor(api: Api, *arguments: str) -> int:
    """Run a command against the server; gives the exit code."""
    try:
        main([*arguments, "--endpoint", api.url])
    except SystemExit as exit_:
        return int(exit_.code or 0)
    return 0


# --- what is sent -------------------------------------------------------------------------------------------------


def test_start_sends_everything_and_signs(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer((201, {"id": "o-1", "type": "order", "created": True}))
    options = ["--id", "o-1", "--input", '{"n": 1}', "--tag", "a=b=c", "--start-at", "2030-01-01T00:00:00Z"]
    assert torpor(api, "start", "order", *options) == 0
    assert api.line == "POST /workflows/order"
    assert api.body == {"id": "o-1", "input": {"n": 1}, "tags": {"a": "b=c"}, "start_at": "2030-01-01T00:00:00Z"}
    assert api.asked[-1]["headers"]["authorization"].startswith("AWS4-HMAC-SHA256 Credential=test/")
    assert "/execute-api/aws4_request" in api.asked[-1]["headers"]["authorization"]
    assert api.asked[-1]["headers"]["content-type"] == "application/json"
    assert capsys.readouterr().out == "o-1  started; it waits until 2030-01-01T00:00:00Z\n"


def test_a_start_for_an_instant_that_has_passed_waits_for_nothing(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer((201, {"id": "o-1", "type": "order", "created": True}))
    assert torpor(api, "start", "order", "--start-at", "2020-01-01T00:00:00+02:00") == 0
    assert capsys.readouterr().out == "o-1  started\n"


def test_a_unique_start_says_so(api: Api) -> None:
    api.answer((200, {"id": "o-1", "type": "order", "created": False}))
    assert torpor(api, "start", "order", "--unique", "--replace-failed") == 0
    assert api.body == {"input": None, "unique": True, "replace_failed": True}


def test_a_repeated_start_says_so(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer((200, {"id": "o-1", "type": "order", "created": False}))
    assert torpor(api, "start", "order") == 0
    assert api.body == {"input": None}
    assert "was started before" in capsys.readouterr().out


def test_values_come_from_files_and_standard_input(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "input.json").write_text("[1, 2]")
    assert torpor(api, "send", "x", "m", "--body", f"@{tmp_path / 'input.json'}") == 0
    assert api.body == [1, 2]
    monkeypatch.setattr("sys.stdin", io.StringIO('"text"'))
    assert torpor(api, "send", "x", "m", "--body", "-") == 0
    assert api.body == "text"


@pytest.mark.parametrize("empty", ["0", '""', "[]", "{}", "false"])
def test_empty_bodies_are_bodies(api: Api, empty: str) -> None:
    assert torpor(api, "send", "x", "m", "--body", empty) == 0
    assert api.asked[-1]["body"] == empty.encode()


def test_send_names_its_message_and_waits_for_the_reply(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer((200, {"message_id": "k", "duplicate": False, "reply": {"ok": True}}))
    assert torpor(api, "send", "a/b ü", "ship ped", "--key", "k", "--wait", "60") == 0
    assert api.line == "POST /workflows/a%2Fb%20%C3%BC/messages/ship%20ped?wait=25&id=k"
    assert json.loads(capsys.readouterr().out) == {"ok": True}


def test_send_finds_its_workflow_by_type_and_tags(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer((202, {"workflow_id": "w", "message_id": "k", "duplicate": False}))
    options = ["--type", "order", "--tag", "customer=7", "--tag", "a=b=c", "--body", "1", "--key", "k"]
    assert torpor(api, "send", "ship ped", *options) == 0
    assert api.line == "POST /signals/ship%20ped"
    assert api.body == {"type": "order", "tags": {"customer": "7", "a": "b=c"}, "body": 1, "id": "k"}
    assert capsys.readouterr().out == "k  accepted by w\n"


@pytest.mark.parametrize("wrong", [["name"], ["id", "name", "--type", "order"], ["name", "--type", "t", "--wait", "1"]])
def test_send_wants_an_id_or_a_type(api: Api, wrong: list[str]) -> None:
    assert torpor(api, "send", *wrong) == 2
    assert api.asked == []


@pytest.mark.parametrize("order", [["o-1", "--key", "k", "m"], ["--key", "k", "o-1", "m"], ["o-1", "m", "--key", "k"]])
def test_options_of_send_may_stand_anywhere(api: Api, order: list[str]) -> None:
    assert torpor(api, "send", *order) == 0
    assert api.line == "POST /workflows/o-1/messages/m?id=k"
    assert torpor(api, "send", *order, "one too many") == 2


def test_a_key_may_be_any_text(api: Api) -> None:
    assert torpor(api, "send", "o-1", "m", "--key", "ключ +1\n") == 0
    assert api.line == "POST /workflows/o-1/messages/m?id=%D0%BA%D0%BB%D1%8E%D1%87%20%2B1%0A"


def test_send_says_that_no_reply_came(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer((202, {"message_id": "k", "duplicate": False}))
    assert torpor(api, "send", "o-1", "m", "--wait", "90") == 0
    assert torpor(api, "send", "o-1", "m") == 0
    assert capsys.readouterr().out == "k  accepted; no reply came within 25 s\nk  accepted\n"


def test_list_asks_for_tags(api: Api) -> None:
    api.answer((200, {"workflows": [], "cursor": None}))
    assert torpor(api, "list", "--type", "order", "--tag", "customer=7", "--tag", "city=Ulm") == 0
    assert api.line == "GET /workflows?type=order&tag=customer%3D7&tag=city%3DUlm&limit=100"


@pytest.mark.parametrize("command", [["list"], ["list", "--state", "failed"], ["send", "o-1", "m"], ["send", "m"]])
def test_tags_without_a_type_are_a_wrong_call(api: Api, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert torpor(api, *command, "--tag", "customer=7") == 2
    assert "give --type too" in capsys.readouterr().err
    assert api.asked == []


@pytest.mark.parametrize("command", ["wake", "cancel", "recover"])
def test_orders_are_posted(api: Api, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer((202, {"id": "x", "state": "pending"}))
    assert torpor(api, command, "x") == 0
    assert (api.asked[0]["method"], api.asked[0]["path"]) == ("POST", f"/workflows/x/{command}")
    assert capsys.readouterr() == ("x  pending\n", "")


def test_recover_says_that_there_was_nothing_to_recover(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer((200, {"id": "x", "state": "completed"}))
    assert torpor(api, "recover", "x") == 0
    assert capsys.readouterr().out == "x  nothing to recover: it is completed\n"


def test_recover_says_what_stays_undone(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    entries = [{"location": "reserve", "rolled_back_at": "2026-03-01T10:00:00+00:00"}, {"location": "charge"}]
    api.answer((202, {"id": "x", "state": "pending"}), (200, {"id": "x", "entries": entries}))
    assert torpor(api, "recover", "x") == 0
    assert api.line == "GET /workflows/x/history"
    out, hint = capsys.readouterr()
    assert out == "x  pending\n"
    assert "stays undone, and x goes on behind it: reserve. " in hint
    assert "`torpor replay`" in hint


def test_recover_has_done_its_work_though_nothing_can_be_told(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer((202, {"id": "x", "state": "pending"}), (500, {"title": "Too large"}))
    assert torpor(api, "recover", "x") == 0
    assert capsys.readouterr() == ("x  pending\n", "")


def test_replay_names_its_entry(api: Api) -> None:
    assert torpor(api, "replay", "x", "--entry", "e-1") == 0
    assert api.body == {"entry_id": "e-1"}


# --- what is printed ----------------------------------------------------------------------------------------------


def test_list_follows_cursors_up_to_the_limit(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"type": "order", "state": "failed", "created_at": "2030-01-01T00:00:00Z"}
    first, second = {"id": "a", **row}, {"id": "longer", **row}
    api.answer((200, {"workflows": [first], "cursor": "c1"}), (200, {"workflows": [second], "cursor": "c2"}))
    assert torpor(api, "list", "--type", "order", "--state", "failed", "--limit", "2") == 0
    paths = [asked["path"] for asked in api.asked]
    assert paths == [
        "/workflows?type=order&state=failed&limit=2",
        "/workflows?type=order&state=failed&limit=1&cursor=c1",
    ]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["ID", "TYPE", "STATE", "CREATED", "AT"]
    assert [line.split()[0] for line in lines[1:]] == ["a", "longer"]
    api.answer((200, {"workflows": [first], "cursor": "c1"}))
    assert torpor(api, "list", "--limit", "1", "--cursor", "c0", "--json") == 0
    assert api.line == "GET /workflows?limit=1&cursor=c0"
    assert json.loads(capsys.readouterr().out) == {"workflows": [first], "cursor": "c1"}


def test_history_is_a_table_that_fits_a_terminal(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    began = "2026-03-01T10:00:00.250000+00:00"
    entries = [
        {
            "id": "e1",
            "location": "charge",
            "kind": "step",
            "status": "completed",
            "attempts": 2,
            "value": "x" * 100,
            "created_at": began,
            "completed_at": "2026-03-01T10:00:01.750000+00:00",
            "branches": [],
        },
        {
            "id": "e2",
            "location": "book",
            "kind": "join",
            "status": "failed",
            "attempts": 0,
            "branches": [{"name": "car", "status": "failed"}],
        },
        {
            "id": "e3",
            "location": "pay",
            "kind": "step",
            "status": "exhausted",
            "error": "SoldOutError: no",
            "value": None,
        },
        {"id": "e4", "location": "seat", "kind": "step", "status": "completed", "rolled_back_at": began, "value": 7},
    ]
    api.answer((200, {"id": "x", "entries": entries}))
    assert torpor(api, "history", "x") == 0
    header, charge, book, pay, seat = capsys.readouterr().out.splitlines()
    assert header.split() == ["LOCATION", "KIND", "STATUS", "ATTEMPTS", "BEGAN", "TOOK", "RESULT"]
    assert charge.split()[:8] == ["charge", "step", "completed", "2", "2026-03-01", "10:00:00.250", "1.5", "s"]
    assert charge.endswith("x…")
    assert book.split() == ["book", "join", "failed", "-", "-", "-", "car", "failed"]
    assert pay.endswith("SoldOutError: no")
    assert seat.split()[:4] == ["seat", "step", "rolled", "back"]
    assert max(map(len, [charge, book, pay, seat])) < 140
    assert torpor(api, "history", "x", "--ids") == 0
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == ["ID", "e1", "e2", "e3", "e4"]
    assert torpor(api, "history", "x", "--json") == 0
    assert json.loads(capsys.readouterr().out)["entries"] == entries


def test_a_history_that_was_forgotten_is_no_empty_table(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer((200, {"id": "x", "entries": [], "pruned_at": "2026-03-01T10:00:00+00:00"}))
    assert torpor(api, "history", "x") == 0
    assert capsys.readouterr().out == "x  its history was forgotten at 2026-03-01T10:00:00+00:00\n"


def test_get_asks_for_the_document_where_it_is_wanted(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer((200, {"id": "x", "state": "running", "document": {"count": 3}}))
    assert torpor(api, "get", "x", "--document") == 0
    assert api.line == "GET /workflows/x?document=true"
    assert capsys.readouterr().out.splitlines()[-1] == 'document  {"count": 3}'
    assert torpor(api, "get", "x") == 0
    assert api.line == "GET /workflows/x"


def test_an_output_is_waited_for(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer((202, {"id": "x", "state": "running"}), (200, {"id": "x", "state": "completed", "output": None}))
    assert torpor(api, "get", "x", "--output", "--wait", "5") == 0
    assert len(api.asked) == 2
    assert capsys.readouterr().out == "null\n"


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        ({"state": "failed", "error": {"name": "CardRefused", "message": "no"}}, "failed: CardRefused: no"),
        ({"state": "cancelled"}, "is cancelled and has no output."),
        ({"state": "sleeping"}, "is sleeping and has no output yet."),
    ],
)
def test_no_output_is_exit_code_1(
    api: Api, ending: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answer((200, {"id": "x", **ending}))
    assert torpor(api, "get", "x", "--output") == 1
    assert words in capsys.readouterr().err


def test_get_says_why_a_workflow_failed(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    known = {"id": "x", "state": "failed"}
    error = {"name": "CardRefused", "message": "the bank\nsays " + "no " * 100}
    api.answer((200, known), (200, {**known, "error": error}))
    assert torpor(api, "get", "x") == 0
    assert [asked["path"] for asked in api.asked] == ["/workflows/x", "/workflows/x/output"]
    rows = capsys.readouterr().out.splitlines()
    assert rows[-2:] == ["error  CardRefused: the bank", "       says " + ("no " * 100).rstrip()]
    api.answer((200, {"id": "x", "state": "running"}))
    assert torpor(api, "get", "x") == 0
    assert "error" not in capsys.readouterr().out


def published(number: int, topic: str = "*") -> dict[str, Any]:
    return {
        "id": f"id-{number}",
        "topic": topic,
        "body": {"n": number},
        "sent_at": f"2030-01-01T00:00:0{number}+00:00",
        "workflow_id": "o-1",
    }


def test_watch_prints_what_is_published_and_goes_on_from_there(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    pages = [[published(1), published(2, "é")], [], [published(3)]]
    answers = [
        {"messages": page, "next": f"cursor-{number}", "has_gap": number == 2} for number, page in enumerate(pages)
    ]
    api.answer(*((200, answer) for answer in answers), (500, {"title": "Away"}))
    assert torpor(api, "watch", "--messages", "pro/gress", "--topic", "a b") == 1
    assert [asked["path"] for asked in api.asked] == [
        "/messages/pro%2Fgress?topic=a%20b",
        "/messages/pro%2Fgress?topic=a%20b&after=cursor-0&wait=20",
        "/messages/pro%2Fgress?topic=a%20b&after=cursor-1&wait=20",
        "/messages/pro%2Fgress?topic=a%20b&after=cursor-2&wait=20",
    ]
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        '2030-01-01T00:00:01+00:00  o-1  *  {"n": 1}',
        '2030-01-01T00:00:02+00:00  o-1  é  {"n": 2}',
        '2030-01-01T00:00:03+00:00  o-1  *  {"n": 3}',
    ]
    assert printed.err.splitlines() == ["torpor: some messages may have been missed", "torpor: Away"]


def test_watched_messages_are_a_json_line_each(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"messages": [published(1), published(2)], "next": "cursor", "has_gap": False}
    api.answer((200, answer), (500, {"title": "Away"}))
    assert torpor(api, "watch", "--messages", "progress", "--json") == 1
    assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == ["id-1", "id-2"]


def test_what_others_wrote_is_nothing_that_a_terminal_obeys(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "red \x1b[31m\x9b2J\x07\nnext"
    entry = {"id": "e1", "location": "pay", "kind": "step", "status": "exhausted", "error": hostile}
    api.answer(
        (200, {"id": "x", "entries": [entry], "state": "completed", "output": hostile, "tags": {"note": hostile}})
    )
    for command in (("history", "x"), ("history", "x", "--json"), ("get", "x"), ("get", "x", "--output")):
        assert torpor(api, *command) == 0
        printed = capsys.readouterr().out
        assert all(character == "\n" or character.isprintable() for character in printed)
        assert "31m" in printed
    api.answer((200, {"messages": [published(1) | {"body": hostile}], "next": "c", "has_gap": False}), (500, {}))
    assert torpor(api, "watch", "--messages", "progress") == 1
    assert capsys.readouterr().out.count("\x9b") == 0


@pytest.mark.parametrize("arguments", [[], ["o-1", "--messages", "progress"]])
def test_watch_takes_an_id_or_a_name_of_messages(
    api: Api, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert torpor(api, "watch", *arguments) == 2
    told = capsys.readouterr().err
    assert "usage: torpor watch" in told
    assert ("not both" if arguments else "give ID, or --messages NAME") in told


def test_watch_prints_each_state_once(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer(
        (200, {"id": "x", "state": "running"}),
        (200, {"id": "x", "state": "completed"}),
        (200, {"id": "x", "state": "completed", "output": 7}),
    )
    assert torpor(api, "watch", "x") == 0
    assert capsys.readouterr().out.splitlines() == ["x  running", "x  completed", "7"]


def test_inbox_is_a_table_of_what_has_come(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"id": "m-1", "name": "shipped", "body": {"parcel": 7}, "sent_at": "2030-01-01T00:00:00Z"}
    api.answer((200, {"messages": [row], "cursor": "1"}), (200, {"messages": [{**row, "id": "m-2"}], "cursor": None}))
    assert torpor(api, "inbox", "a/b") == 0
    assert [asked["path"] for asked in api.asked] == [
        "/workflows/a%2Fb/messages?limit=100",
        "/workflows/a%2Fb/messages?limit=99&cursor=1",
    ]
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["SENT", "AT", "NAME", "ID", "BODY"]
    assert [line[:3] for line in lines[1:]] == [["2030-01-01T00:00:00Z", "shipped", name] for name in ("m-1", "m-2")]


def test_dump_is_one_document(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert torpor(api, "dump", "x") == 0
    assert sorted(json.loads(capsys.readouterr().out)) == ["history", "inbox", "output", "workflow"]


# --- where it goes ------------------------------------------------------------------------------------------------


def test_without_a_stack_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit_:
        main(["list"])
    assert exit_.value.code == 1
    assert "torpor dev" in capsys.readouterr().err


def test_a_running_dev_is_found_from_folders_below_it(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DevNote(endpoint=api.url, host="abc.execute-api.localhost", pid=os.getpid(), outputs={}).write(tmp_path)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    main(["get", "x"])
    assert api.line == "GET /workflows/x"
    assert api.asked[-1]["headers"]["host"] == "abc.execute-api.localhost"


def test_a_dev_that_has_ended_is_not_found(tmp_path: Path) -> None:
    DevNote(endpoint="http://127.0.0.1:9", host="h", pid=2**22 + 1, outputs={}).write(tmp_path)
    assert DevNote.find(tmp_path) is None


def note_at(url: str, pid: int) -> DevNote:
    return DevNote(endpoint=url, host="h", pid=pid, outputs={})


def test_a_second_dev_in_a_folder_is_refused(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = note_at(api.url, os.getpid())
    first.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit_:
        main(["dev"])
    assert exit_.value.code == 1
    assert f"a torpor dev runs here already (pid {os.getpid()}, endpoint {api.url})" in capsys.readouterr().err
    # One that started at the same time and was slower does not take its place either.
    with (
        pytest.raises(DeployError, match="runs here already"),
        note_at("http://127.0.0.1:9", os.getpid()).held(tmp_path),
    ):
        pass
    assert DevNote.read(tmp_path) == first


@pytest.mark.parametrize("pid", [2**22 + 1, os.getpid()])
def test_a_note_that_was_left_behind_is_replaced(tmp_path: Path, pid: int) -> None:
    note_at("http://127.0.0.1:9", pid).write(tmp_path)
    ours = note_at("http://127.0.0.1:10", os.getpid())
    with ours.held(tmp_path):
        assert DevNote.read(tmp_path) == ours
    assert DevNote.read(tmp_path) is None


def test_a_note_of_somebody_else_stays(tmp_path: Path) -> None:
    other = note_at("http://127.0.0.1:10", os.getpid())
    with note_at("http://127.0.0.1:9", os.getpid()).held(tmp_path):
        other.write(tmp_path)
    assert DevNote.read(tmp_path) == other


def test_an_address_tells_its_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    address = "https://abc.execute-api.eu-west-1.amazonaws.com"
    found = find_api(stack=None, endpoint=address, region=None)
    assert (found.region, found.credentials.access_key) == ("eu-west-1", "key")


# --- cancelling with a rollback, purging ----------------------------------------------------------------------------


def test_cancel_may_ask_for_a_rollback(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer((202, {"id": "o-1", "state": "rolling_back"}))
    assert torpor(api, "cancel", "o-1", "--rollback") == 0
    assert api.line == "POST /workflows/o-1/cancel?rollback=true"
    assert capsys.readouterr().out == "o-1  rolling_back\n"


@pytest.mark.parametrize(("status", "is_gone", "told"), [(200, True, "gone"), (202, False, "being deleted")])
def test_purge_says_how_far_it_has_come(
    api: Api, capsys: pytest.CaptureFixture[str], status: int, told: str, *, is_gone: bool
) -> None:
    api.answer((status, {"id": "a/b", "is_gone": is_gone}))
    assert torpor(api, "purge", "a/b") == 0
    assert api.line == "DELETE /workflows/a%2Fb"
    assert told in capsys.readouterr().out
    api.answer((status, {"id": "a/b", "is_gone": is_gone}))
    assert torpor(api, "purge", "a/b", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"id": "a/b", "is_gone": is_gone}
