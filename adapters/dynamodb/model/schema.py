"""The table as data: what ``create_table`` takes, and what the deployment template must say."""

from __future__ import annotations

from typing import Any

PARTITION_KEY = "pk"
SORT_KEY = "sk"

DUE_INDEX = "due"
"""Sparse: every item that someone must look at. Keys only: a step that leaves ``due_at`` alone does not pay for it."""

DUE_SHARD = "due_shard"
DUE_AT = "due_at"

LIST_INDEX = "list"
"""One entry a workflow, by type and group of states, in the order of creation. Keys only: it is written when a workflow
starts and when it ends, never in between."""

LIST_TYPE = "list_type"
LIST_AT = "list_at"

TTL = "ttl"
"""Whole seconds since the epoch after which DynamoDB may delete an item. It only tidies up; nothing trusts it."""

TABLE_DEFINITION: dict[str, Any] = {
    "AttributeDefinitions": [
        {"AttributeName": PARTITION_KEY, "AttributeType": "S"},
        {"AttributeName": SORT_KEY, "AttributeType": "S"},
        {"AttributeName": DUE_SHARD, "AttributeType": "S"},
        {"AttributeName": DUE_AT, "AttributeType": "N"},
        {"AttributeName": LIST_TYPE, "AttributeType": "S"},
        {"AttributeName": LIST_AT, "AttributeType": "S"},
    ],
    "KeySchema": [
        {"AttributeName": PARTITION_KEY, "KeyType": "HASH"},
        {"AttributeName": SORT_KEY, "KeyType": "RANGE"},
    ],
    "GlobalSecondaryIndexes": [
        {
            "IndexName": DUE_INDEX,
            "KeySchema": [
                {"AttributeName": DUE_SHARD, "KeyType": "HASH"},
                {"AttributeName": DUE_AT, "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "KEYS_ONLY"},
        },
        {
            "IndexName": LIST_INDEX,
            "KeySchema": [
                {"AttributeName": LIST_TYPE, "KeyType": "HASH"},
                {"AttributeName": LIST_AT, "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "KEYS_ONLY"},
        },
    ],
    "BillingMode": "PAY_PER_REQUEST",
}
"""Arguments of ``create_table`` but the name; in the template, the properties of the ``AWS::DynamoDB::Table``."""

TIME_TO_LIVE: dict[str, Any] = {"AttributeName": TTL, "Enabled": True}
"""The ``TimeToLiveSpecification`` of the table, which ``create_table`` does not take."""
