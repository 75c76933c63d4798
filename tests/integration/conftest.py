"""A function's process on moto as AWS: a table, a queue and a schedule group of its own for each test."""

from __future__ import annotations

import asyncio
import itertools
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from adapters.dynamodb.model.schema import TABLE_DEFINITION
from handlers.bootstrap import Settings, Wiring
from infra.aws import LOCAL_ACCESS_KEY, LOCAL_REGION, LOCAL_SECRET_KEY, local_client
from tests.integration.driven import Driven, bodies, hooks
from tests.integration.lambda_event import recorded
from tests.moto_server import serving
from tests.shifted_clock import ShiftedClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_numbers = itertools.count(1)


_clients: dict[tuple[str, str], Any] = {}
"""Kept over tests: making one reads the service's whole model."""


@dataclass
class Cloud:
    """One test's own corner of AWS."""

    endpoint: str
    table: str
    queue_url: str
    queue_arn: str
    group: str

    def client(self, service: str) -> Any:
        key = (service, self.endpoint)
        if key not in _clients:
            _clients[key] = local_client(service, self.endpoint)
        return _clients[key]

    def items(self) -> list[dict[str, Any]]:
        """Every item of the table, in a stable order."""
        pages = self.client("dynamodb").get_paginator("scan").paginate(TableName=self.table, ConsistentRead=True)
        found = [item for page in pages for item in page["Items"]]
        return sorted(found, key=lambda item: (item["pk"]["S"], item["sk"]["S"]))

    def head(self, workflow_id: str) -> dict[str, Any]:
        key = {"pk": {"S": workflow_id}, "sk": {"S": "HEAD"}}
        found: dict[str, Any] = self.client("dynamodb").get_item(TableName=self.table, Key=key)["Item"]
        return found

    def wakes(self) -> list[dict[str, Any]]:
        """Take every wake that can be seen from the queue, as SQS hands it to Lambda."""
        records = []
        while True:
            answer = self.client("sqs").receive_message(
                QueueUrl=self.queue_url, MaxNumberOfMessages=10, AttributeNames=["All"], WaitTimeSeconds=0
            )
            for message in answer.get("Messages", []):
                self.client("sqs").delete_message(QueueUrl=self.queue_url, ReceiptHandle=message["ReceiptHandle"])
                records.append(
                    {
                        **recorded("sqs_record"),
                        "messageId": message["MessageId"],
                        "receiptHandle": message["ReceiptHandle"],
                        "body": message["Body"],
                        "attributes": message["Attributes"],
                    }
                )
            if not answer.get("Messages"):
                return records


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    with serving() as endpoint:
        yield endpoint
        for made in _clients.values():
            made.close()
        _clients.clear()


@pytest.fixture
def cloud(moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    for name, value in {
        "AWS_ENDPOINT_URL": moto_endpoint,
        "AWS_ACCESS_KEY_ID": LOCAL_ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": LOCAL_SECRET_KEY,
        "AWS_DEFAULT_REGION": LOCAL_REGION,
        "AWS_REGION": LOCAL_REGION,
    }.items():
        monkeypatch.setenv(name, value)
    number = next(_numbers)
    made = Cloud(moto_endpoint, f"table-{number}", "", "", f"group-{number}")
    made.client("dynamodb").create_table(TableName=made.table, **TABLE_DEFINITION)
    made.queue_url = made.client("sqs").create_queue(QueueName=f"queue-{number}")["QueueUrl"]
    attributes = made.client("sqs").get_queue_attributes(QueueUrl=made.queue_url, AttributeNames=["QueueArn"])
    made.queue_arn = attributes["Attributes"]["QueueArn"]
    made.client("scheduler").create_schedule_group(Name=made.group)
    return made


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The author's module of this test; its workflows are registered by the test itself."""
    module = ModuleType(f"app_{next(_numbers)}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.fixture
def settings(cloud: Cloud, app: ModuleType) -> Settings:
    return Settings(
        app=app.__name__,
        table=cloud.table,
        queue_url=cloud.queue_url,
        queue_arn=cloud.queue_arn,
        schedule_group=cloud.group,
        schedule_role_arn="arn:aws:iam::123456789012:role/scheduler",
        lease_ms=60_000,
        evict_margin_ms=10_000,
        stop_margin_ms=5_000,
    )


@pytest.fixture
def wiring(settings: Settings) -> Iterator[Wiring]:
    made = Wiring(settings)
    yield made
    made.close()


@pytest.fixture
def clock(wiring: Wiring) -> ShiftedClock:
    """The clock of the process from now on; to be asked for before ``driven``, which keeps the one it finds."""
    made = ShiftedClock()
    wiring.clock = made
    return made


@pytest.fixture
def in_loop(wiring: Wiring) -> Callable[[Any], Any]:
    """Run a coroutine on the process's own loop, as an invocation would."""
    return wiring.process.run


def ended(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether nothing is left running on a loop."""
    return not asyncio.all_tasks(loop)


@pytest.fixture(autouse=True)
def _clean() -> None:
    bodies.clear()
    hooks.clear()


@pytest.fixture
def driven(wiring: Wiring, cloud: Cloud) -> Driven:
    return Driven(wiring, cloud)


@pytest.fixture
def other(settings: Settings) -> Iterator[Wiring]:
    """Another process on the same table and queue."""
    made = Wiring(settings)
    yield made
    made.close()
