"""The deployed bus: what workflows publish reaches whoever has a rule on it, and what others put there reaches them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.probe import Probe, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from infra.local_stack import LocalStack

SHOP = "shop.checkout"
"""Another service, which knows the bus and a workflow's id."""


@pytest.fixture(scope="module")
def heard(local_stack: LocalStack) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """What a queue hears that has a rule for the words of the workflow ``told`` alone."""
    events, queues, bus = local_stack.client("events"), local_stack.client("sqs"), local_stack.outputs["BusName"]
    url = queues.create_queue(QueueName="heard")["QueueUrl"]
    arn = queues.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    pattern = {"source": ["torpor"], "detail-type": ["word"], "detail": {"topic": ["told"]}}
    events.put_rule(Name="heard", EventBusName=bus, EventPattern=json.dumps(pattern))
    events.put_targets(Rule="heard", EventBusName=bus, Targets=[{"Id": "queue", "Arn": arn}])
    found: list[dict[str, Any]] = []

    def hear() -> list[dict[str, Any]]:
        for message in queues.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
            queues.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            found.append(json.loads(message["Body"]))
        return found

    yield hear
    events.remove_targets(Rule="heard", EventBusName=bus, Ids=["queue"])
    events.delete_rule(Name="heard", EventBusName=bus)


def say(stack: LocalStack, workflow_id: str, word: str) -> None:
    """Put a message to a workflow on the bus, as another service does."""
    detail = json.dumps({"workflow_id": workflow_id, "name": "word", "body": word})
    entry = {
        "EventBusName": stack.outputs["BusName"],
        "Source": SHOP,
        "DetailType": "torpor.message",
        "Detail": detail,
    }
    assert stack.client("events").put_events(Entries=[entry])["FailedEntryCount"] == 0


def test_a_message_on_the_bus_reaches_its_workflow_and_what_that_publishes_reaches_a_rule(
    local_stack: LocalStack, heard: Callable[[], list[dict[str, Any]]], tmp_path: Path
) -> None:
    telling = Probe(local_stack, "telling", "told", tmp_path).started()
    other = Probe(local_stack, "telling", "told-elsewhere", tmp_path).started()
    bystander = Probe(local_stack, "telling", "bystander", tmp_path).started()
    for each in (telling, other, bystander):
        each.wait_for("word")
    say(local_stack, "told-elsewhere", "end")
    say(local_stack, "told", "first")
    [event] = until(heard, "the rule's target has heard it")
    assert (event["source"], event["detail-type"]) == ("torpor", "word")
    detail = event["detail"]
    assert (detail["topic"], detail["body"], detail["workflow_id"]) == ("told", {"word": "first"}, "told")
    say(local_stack, "told", "end")
    assert telling.output() == 2
    assert other.output() == 1
    assert until(lambda: len(heard()) == 2, "the second one too")

    # Neither came back to the workflows as a wake: that would be a loop in the making. The local AWS may hold a
    # function's last lines until it is invoked again.
    def all_are_told() -> bool:
        say(local_stack, "bystander", "more")
        return len(taken(local_stack)) >= 3

    until(all_are_told, "all three are told")
    assert sorted(taken(local_stack)) == ["told", "told", "told-elsewhere"]


def taken(stack: LocalStack) -> list[str]:
    """Whose events the resume function has taken, as far as its log tells; a bystander's left out."""
    lines = (line for event in stack.logs("resume") for line in event.splitlines() if "event taken" in line)
    ids: list[str] = [json.loads(line)["workflow_id"] for line in lines]
    return [workflow_id for workflow_id in ids if workflow_id.startswith("told")]


def test_over_http_the_same_can_be_asked_for(local_stack: LocalStack, tmp_path: Path) -> None:
    telling = Probe(local_stack, "telling", "asked", tmp_path).started()
    telling.wait_for("word")
    api = local_stack.api
    first = api.request("GET", "/messages/word", query={"topic": "asked"})
    assert (first.status, first.json()["messages"]) == (200, [])
    telling.send("word", "end")
    query = {"topic": "asked", "after": first.json()["next"], "wait": "15"}

    def heard() -> list[dict[str, Any]]:
        reply = api.request("GET", "/messages/word", query=query)
        assert reply.status == 200, reply.body
        messages: list[dict[str, Any]] = reply.json()["messages"]
        return messages

    assert [one["body"] for one in until(heard, "it is told over HTTP")] == [{"word": "end"}]
