"""The two functions of the floor: one puts what it is sent into a queue, the other writes one transaction for it."""

from __future__ import annotations

import json
import os
import time
from functools import cache
from typing import Any

import botocore.session


@cache
def _client(service: str) -> Any:
    return botocore.session.get_session().create_client(service)


def accept(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Take a request of the HTTP API and hand its body on."""
    _client("sqs").send_message(QueueUrl=os.environ["QUEUE_URL"], MessageBody=event["body"])  # noqa: TID251 - the template says it there
    print(json.dumps({"accepted": event["body"]}), flush=True)
    return {"statusCode": 202, "body": "{}"}


def work(event: dict[str, Any], _context: Any) -> None:
    """Write one transaction of two items for each message, and say when each was written."""
    table = os.environ["TABLE"]  # noqa: TID251 - the template says it there
    for record in event["Records"]:
        sample = json.loads(record["body"])["sample"]
        puts = [{"Put": {"TableName": table, "Item": {"pk": {"S": f"{sample}/{part}"}}}} for part in ("head", "log")]
        _client("dynamodb").transact_write_items(TransactItems=puts)
        print(json.dumps({"sample": sample, "at_ns": time.time_ns()}), flush=True)  # noqa: TID251 - what is measured
