"""Calls that are repeated, and calls that are refused: an effect once, or none at all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from infra.local_stack import LocalStack
    from tests.e2e.conftest import Make


def problem(reply: Any) -> tuple[int, str]:
    assert reply.headers["content-type"] == "application/problem+json"
    document = reply.json()
    assert document["status"] == reply.status
    assert document["detail"]
    return reply.status, document["type"].rpartition(":")[2]


def test_a_start_that_is_repeated_counts_once(probe: Make) -> None:
    repeated = probe("listening", "repeated")
    # The first answer may have been lost: the caller cannot know.
    assert [repeated.start().status, repeated.start().status] == [201, 200]
    assert repeated.start().json()["created"] is False
    repeated.send("word", "end")
    assert repeated.output() == ["end"]
    assert repeated.start().status == 200
    assert repeated.counts() == {"note-1": 1}


def test_a_start_under_a_taken_id_is_a_conflict(probe: Make, local_stack: LocalStack) -> None:
    taken = probe("listening", "taken").started()
    # Its worker writes too, until it waits.
    taken.wait_for("word")
    before = taken.items()
    assert problem(taken.start(linger_s=1)) == (409, "start-conflict")
    body = json.dumps({"id": "taken", "input": {"marks": str(taken.file)}}).encode()
    assert problem(local_stack.api.request("POST", "/workflows/sleeping", body=body)) == (409, "start-conflict")
    assert [item["sk"] for item in taken.items()] == [item["sk"] for item in before]


def test_a_message_that_is_repeated_counts_once(probe: Make) -> None:
    listening = probe("listening", "listening-twice").started()
    first = listening.send("word", "once", key="k1").json()
    second = listening.send("word", "once", key="k1").json()
    assert (first["duplicate"], second["duplicate"]) == (False, True)
    assert first["message_id"] == second["message_id"]
    listening.mark_of("note-1")
    # Consumed by now, and still known.
    assert listening.send("word", "once", key="k1").json()["duplicate"] is True
    listening.send("word", "end", key="k2")
    assert listening.output() == ["once", "end"]


def test_messages_keep_the_order_of_their_sender(probe: Make) -> None:
    listening = probe("listening", "in-order").started()
    words = [*map(str, range(10)), "end"]
    assert {listening.send("word", word).status for word in words} == {202}
    assert listening.output() == words


def test_an_ended_workflow_takes_no_message(probe: Make) -> None:
    ended = probe("listening", "ended").started()
    ended.send("word", "end", key="last")
    ended.output()
    before = ended.items()
    assert problem(ended.send("word", "more")) == (409, "workflow-ended")
    assert ended.items() == before
    # Sent before, answered as before.
    assert ended.send("word", "end", key="last").json()["duplicate"] is True


def test_what_is_unknown_is_not_found(probe: Make, local_stack: LocalStack) -> None:
    nobody = probe("listening", "nobody")
    for path in ("", "/output", "/history", "/messages"):
        assert problem(nobody.call("GET", path)) == (404, "workflow-not-found")
    for path in ("/messages/word", "/wake", "/cancel", "/recover", "/replay"):
        assert problem(nobody.call("POST", path)) == (404, "workflow-not-found")
    assert problem(local_stack.api.request("POST", "/workflows/no-such-type", body=b'{"id": "nobody"}')) == (
        404,
        "unknown-type",
    )
    assert nobody.items() == []


@pytest.mark.parametrize("workflow_id", ["", "x" * 256, "a\nb", "ends/output"])
def test_an_invalid_id_is_refused(local_stack: LocalStack, workflow_id: str) -> None:
    body = json.dumps({"id": workflow_id, "input": {}}).encode()
    reply = local_stack.api.request("POST", "/workflows/listening", body=body)
    assert problem(reply) == (400, "invalid-id")


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"id": 7}', b'{"unknown": 1}', b'{"start_at": "tomorrow"}'])
def test_a_malformed_body_is_refused(local_stack: LocalStack, body: bytes) -> None:
    status, kind = problem(local_stack.api.request("POST", "/workflows/listening", body=body))
    assert status == 400
    assert kind in {"malformed-body", "invalid-body"}


def test_what_is_too_large_is_refused_whole(probe: Make) -> None:
    large = probe("listening", "too-large")
    assert problem(large.start(filler="x" * 4_000_000)) == (413, "body-too-large")
    assert large.items() == []
    listening = probe("listening", "large-message").started()
    assert problem(listening.send("word", "x" * 600_000)) == (413, "body-too-large")
    listening.send("word", "end")
    assert listening.output() == ["end"]
