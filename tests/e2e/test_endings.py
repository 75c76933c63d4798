"""Ends that are asked for, on the deployed template: a cancellation that undoes, a purge, a redrive of dead letters."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from adapters.dynamodb.model.items import due
from adapters.sqs import Wake, wake_body
from infra.cli import main
from infra.redrive import Bus, redrive
from infra.target import DevNote
from tests.e2e.probe import sweep, until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from infra.local_stack import LocalStack
    from tests.e2e.conftest import Make


def undone(names: list[str]) -> list[str]:
    return [name for name in names if name.startswith("undo-")]


def test_a_cancelled_workflow_undoes_what_it_did(probe: Make) -> None:
    undoing = probe("undoing", "undone").started()
    undoing.wait_for("go")
    reply = undoing.stack.api.request("POST", "/workflows/undone/cancel", query={"rollback": "true"})
    assert reply.status == 202, reply.body
    assert undoing.ending()["state"] == "cancelled"
    assert undone([name for name, _, _ in undoing.marks()]) == ["undo-second", "undo-first"]
    assert undoing.send("go").status == 409
    again = undoing.stack.api.request("POST", "/workflows/undone/cancel", query={"rollback": "true"})
    assert (again.status, again.json()["state"]) == (200, "cancelled")


def test_many_are_ended_at_once_by_their_type_and_tags(
    probe: Make,
    local_stack: LocalStack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    of = {"many-1": "north", "many-2": "north", "many-3": "south"}
    for workflow_id, shop in of.items():
        body = json.dumps({"id": workflow_id, "input": {}, "tags": {"shop": shop}}).encode()
        assert local_stack.api.request("POST", "/workflows/listening", body=body).status == 201
        probe("listening", workflow_id).wait_for("word")
    DevNote(
        endpoint=local_stack.endpoint, host=local_stack.api_host, pid=os.getpid(), outputs=local_stack.outputs
    ).write(tmp_path)
    monkeypatch.chdir(tmp_path)
    order = ["cancel", "--type", "listening", "--tag", "shop=north"]
    main([*order, "--dry-run"])
    assert "2 found, and nothing done" in capsys.readouterr().out
    assert {probe("listening", workflow_id).known()["state"] for workflow_id in of} == {"sleeping"}
    main(order)
    assert capsys.readouterr().out == "many-1  cancelled\nmany-2  cancelled\n"
    assert [probe("listening", workflow_id).known()["state"] for workflow_id in of] == [
        "cancelled",
        "cancelled",
        "sleeping",
    ]
    main(["cancel", "many-3"])


def test_a_workflow_is_purged_in_two_goes_and_its_id_is_refused_until_then(probe: Make) -> None:
    word = probe("listening", "purged").started()
    word.send("word", "end")
    assert word.output() == ["end"]
    assert word.call("DELETE").json() == {"id": "purged", "is_gone": False}
    assert word.call("GET").status == 404
    assert word.start().status == 409
    assert {item["sk"]["S"] for item in word.items()} == {"HEAD", "INBOX"}
    # A worker goes on by itself, a minute after the workflow's end.
    until(lambda: word.items() == [], "nothing is left")
    assert word.call("DELETE").status == 404
    assert word.start().status == 201
    word.send("word", "end")
    assert word.output() == ["end"]


def test_dead_letters_are_done_again(probe: Make, local_stack: LocalStack) -> None:
    listening = probe("listening", "dead-letters").started()
    listening.wait_for("word")
    detail = {"workflow_id": "dead-letters", "name": "word", "body": "end"}
    event = {"id": "event-1", "source": "torpor", "detail-type": "torpor.message", "detail": detail}
    queue, url = local_stack.client("sqs"), local_stack.outputs["DeadLetterQueueUrl"]
    bodies = [
        wake_body(Wake(workflow_id="dead-letters")),
        wake_body(Wake(workflow_id="nobody")),
        json.dumps({"version": "1.0", "requestPayload": event}),
        json.dumps({"version": "1.0", "requestPayload": event}),
        "not ours",
    ]
    for body in bodies:
        queue.send_message(QueueUrl=url, MessageBody=body)
    told = {(done.workflow_id, done.is_settled) for done in redrive(local_stack.api, queue, url)}
    assert told == {("dead-letters", True), ("nobody", True), ("?", False)}
    assert listening.output() == ["end"]
    assert listening.counts() == {"note-1": 1}
    left = until(lambda: _receive(queue, url), "what is not ours is left")
    assert [message["Body"] for message in left] == ["not ours"]
    queue.delete_message(QueueUrl=url, ReceiptHandle=left[0]["ReceiptHandle"])


def test_a_dead_letter_for_tags_is_put_on_the_bus_again(probe: Make, local_stack: LocalStack) -> None:
    listening = probe("listening", "tagged-letter")
    start = {"id": "tagged-letter", "input": {"marks": str(listening.file)}, "tags": {"kept-by": "letters"}}
    reply = local_stack.api.request("POST", "/workflows/listening", body=json.dumps(start).encode())
    assert reply.status == 201, reply.body
    listening.wait_for("word")
    detail = {"type": "listening", "tags": {"kept-by": "letters"}, "name": "word", "body": "end"}
    event = {"id": "event-2", "source": "shop", "detail-type": "torpor.message", "detail": detail}
    queue, url = local_stack.client("sqs"), local_stack.outputs["DeadLetterQueueUrl"]
    queue.send_message(QueueUrl=url, MessageBody=json.dumps({"version": "1.0", "requestPayload": event}))
    bus = Bus(local_stack.client("events"), local_stack.outputs["BusName"])
    assert [done.is_settled for done in redrive(local_stack.api, queue, url, bus)] == [True]
    assert listening.output() == ["end"]
    assert listening.counts() == {"note-1": 1}


def _receive(queue: Any, url: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = queue.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
    return found


def test_the_sweeper_takes_up_a_purge_that_nobody_goes_on_with(probe: Make) -> None:
    word = probe("listening", "half-purged").started()
    word.send("word", "end")
    word.output()
    key = {"pk": {"S": "half-purged"}, "sk": {"S": "HEAD"}}
    head = next(item for item in word.items() if item["sk"]["S"] == "HEAD")
    # As a purge leaves it that died long ago: marked, overdue, and its time is up.
    long_ago = {**due("half-purged", 1), "purging_at": {"N": "1"}, "ended_at": {"N": "1"}}
    word.stack.client("dynamodb").put_item(TableName=word.stack.table_name, Item={**head, **key, **long_ago})
    sweep(word.stack)
    until(lambda: word.items() == [], "nothing is left")
