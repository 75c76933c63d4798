"""Batches of which a partition takes some at a time."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.dynamodb.model.expressions import number, text
from adapters.dynamodb.model.limits import ATTEMPTS_MAX
from adapters.dynamodb.table import Table
from engine.clock import SystemClock
from engine.errors import StoreUnavailableError


class Partition:
    """Takes or gives ``at_once`` items of a batch, and leaves the rest."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self.calls = 0
        self.done: list[Any] = []

    async def batch_write_item(self, **arguments: Any) -> dict[str, Any]:
        requests = arguments["RequestItems"]["t"]
        self.calls += 1
        self.done += requests[: self.at_once]
        left = requests[self.at_once :]
        return {"UnprocessedItems": {"t": left}} if left else {}

    async def batch_get_item(self, **arguments: Any) -> dict[str, Any]:
        keys = arguments["RequestItems"]["t"]["Keys"]
        self.calls += 1
        left = keys[self.at_once :]
        return {"Responses": {"t": keys[: self.at_once]}, "UnprocessedKeys": {"t": {"Keys": left}} if left else {}}


def table_on(partition: Partition) -> Table:
    # Without chance no time passes between tries.
    return Table(partition, "t", SystemClock(), random=lambda: 0.0)  # type: ignore[arg-type]


KEYS = [{"pk": text("w"), "sk": number(each)} for each in range(25)]


async def test_a_batch_that_is_taken_bit_by_bit_is_no_failure_however_often_it_goes_on() -> None:
    partition = Partition(at_once=1)
    await table_on(partition).batch_write([], KEYS)
    assert [request["DeleteRequest"]["Key"] for request in partition.done] == KEYS
    assert partition.calls == len(KEYS) > ATTEMPTS_MAX


async def test_keys_that_are_given_bit_by_bit_are_all_given() -> None:
    assert await table_on(Partition(at_once=2)).batch_get(KEYS) == KEYS


async def test_a_batch_of_which_nothing_is_taken_is_given_up() -> None:
    partition = Partition(at_once=0)
    with pytest.raises(StoreUnavailableError):
        await table_on(partition).batch_write([], KEYS)
    assert partition.calls == ATTEMPTS_MAX
    with pytest.raises(StoreUnavailableError):
        await table_on(Partition(at_once=0)).batch_get(KEYS)
