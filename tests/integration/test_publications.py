"""What a workflow publishes: on the event bus for those with a rule on it, and over HTTP for those who ask."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest

from adapters.dynamodb.store import Claimed
from engine import Context, workflow
from engine.commit import Commit, Publication
from engine.values import encode
from handlers import listening
from handlers.calls import Call
from handlers.operations import Ports
from tests.integration.driven import Driven, told

if TYPE_CHECKING:
    from handlers.bootstrap import Settings, Wiring
    from tests.integration.conftest import Cloud


@workflow("publishing")
async def publishing(ctx: Context, given: dict[str, Any]) -> str:
    for number in range(given["count"]):
        await ctx.publish("progress", {"number": number}, topic=f"order:{number % 2}")
    await ctx.sleep("nap", 3600)
    return "done"


# --- the bus --------------------------------------------------------------------------------------------------------


@pytest.fixture
def heard(cloud: Cloud) -> str:
    """A queue that hears every event of the bus ``bus-<table>``."""
    events, queues = cloud.client("events"), cloud.client("sqs")
    name = f"bus-{cloud.table}"
    events.create_event_bus(Name=name)
    url: str = queues.create_queue(QueueName=f"heard-{cloud.table}")["QueueUrl"]
    arn = queues.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events.put_rule(Name="all", EventBusName=name, EventPattern=json.dumps({"source": ["torpor"]}))
    events.put_targets(Rule="all", EventBusName=name, Targets=[{"Id": "queue", "Arn": arn}])
    return url


@pytest.fixture
def settings(settings: Settings, cloud: Cloud) -> Settings:
    return dataclasses.replace(settings, bus=f"bus-{cloud.table}")


def test_what_is_published_reaches_whoever_has_a_rule_on_the_bus(driven: Driven, heard: str) -> None:
    driven.start("publishing", "order-1", {"count": 12})
    assert driven.work() == []
    found = []
    while (
        messages := driven.cloud.client("sqs").receive_message(QueueUrl=heard, MaxNumberOfMessages=10).get("Messages")
    ):
        found += [json.loads(message["Body"]) for message in messages]
    assert {event["detail-type"] for event in found} == {"progress"}
    details = sorted((event["detail"] for event in found), key=lambda detail: detail["body"]["number"])
    assert [detail["body"]["number"] for detail in details] == list(range(12))
    assert {detail["workflow_id"] for detail in details} == {"order-1"}
    known = driven.http.get("/workflows/order-1").value
    assert known["request_id"]
    assert {(detail["ray_id"], detail["request_id"]) for detail in details} == {(known["ray_id"], known["request_id"])}
    assert len({detail["id"] for detail in details}) == 12


def test_a_bus_that_cannot_be_reached_costs_nothing_but_the_delivery(
    driven: Driven, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_EVENTBRIDGE", "http://127.0.0.1:9")
    driven.start("publishing", "order-1", {"count": 2})
    assert driven.work() == []
    assert driven.state("order-1") == "sleeping"
    assert [line["workflow_id"] for line in told(caplog, "publications lost")] == ["order-1"]
    assert len(driven.http.get("/messages/progress").value["messages"]) == 2


# --- over HTTP ------------------------------------------------------------------------------------------------------


def test_a_late_subscriber_asks_for_the_last_one_and_goes_on_from_there(driven: Driven) -> None:
    driven.start("publishing", "order-1", {"count": 5})
    assert driven.work() == []
    last = driven.http.get("/messages/progress", query={"limit": "1"})
    assert last.status == 200
    [message] = last.value["messages"]
    assert (message["topic"], message["body"], message["workflow_id"]) == ("order:0", {"number": 4}, "order-1")
    assert last.value["has_gap"] is False
    later = driven.http.get("/messages/progress", query={"after": last.value["next"]}).value
    assert later["messages"] == []
    driven.start("publishing", "order-2", {"count": 1})
    assert driven.work() == []
    found = driven.http.get("/messages/progress", query={"after": later["next"], "wait": "5"}).value["messages"]
    assert [one["workflow_id"] for one in found] == ["order-2"]


def test_a_topic_is_listened_to_alone(driven: Driven) -> None:
    driven.start("publishing", "order-1", {"count": 5})
    assert driven.work() == []
    found = driven.http.get("/messages/progress", query={"topic": "order:1"}).value["messages"]
    assert [one["body"]["number"] for one in found] == [1, 3]
    assert driven.http.get("/messages/other").value["messages"] == []


def test_a_workflow_that_is_gone_is_not_looked_for(driven: Driven) -> None:
    driven.start("publishing", "order-1", {"count": 1})
    assert driven.work() == []
    driven.http.post("/workflows/order-1/cancel")
    assert len(driven.http.get("/messages/progress").value["messages"]) == 1


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ({"after": "nonsense"}, "invalid-id"),
        ({"after": ""}, "invalid-id"),
        ({"topic": ""}, "invalid-id"),
        ({"limit": "0"}, "invalid-parameter"),
        ({"wait": "soon"}, "invalid-parameter"),
    ],
)
def test_what_nobody_can_mean_is_a_problem(driven: Driven, query: dict[str, str], kind: str) -> None:
    answer = driven.http.get("/messages/progress", query=query)
    assert (answer.status, answer.value["type"]) == (400, f"urn:torpor:problem:{kind}")


def test_the_stacks_own_names_cannot_be_listened_to(driven: Driven) -> None:
    assert driven.http.get("/messages/torpor.message").status == 400


def test_a_wait_ends_with_the_first_message_and_else_in_time(driven: Driven, other: Wiring) -> None:
    driven.start("publishing", "order-1", {"count": 0})

    async def listen(wait_s: float) -> Any:
        ports = await ports_of(other)
        call = Call(
            path={"name": "progress"},
            query={"wait": str(wait_s)},
            headers={},
            body=b"",
            deadline_ms=other.clock.now() + 30_000,
        )
        began_at = other.clock.now()
        answer = await listening.messages(ports, call)
        return answer.value["messages"], other.clock.now() - began_at

    async def publish() -> None:
        store = await other.store()
        claim = await store.claim("order-1")
        assert isinstance(claim, Claimed)
        await asyncio.sleep(0.5)
        one = Publication(id="id-1", name="progress", body=encode(7), sent_at=other.clock.now())
        await claim.driver.commit(Commit(puts=[(b"entry", b"published")], published=[one]))

    async def both() -> Any:
        return (await asyncio.gather(listen(28), publish()))[0]

    found, took_ms = other.process.run(listen(0.3))
    assert (found, 300 <= took_ms < 20_000) == ([], True)
    found, took_ms = other.process.run(both())
    assert [one["body"] for one in found] == [7]
    assert took_ms < 20_000


async def ports_of(wiring: Wiring) -> Ports:
    return Ports(
        store=await wiring.store(),
        queue=await wiring.queue(),
        alarms=await wiring.alarms(),
        clock=wiring.clock,
        ids=wiring.ids,
        application=wiring.application,
    )
