"""The load test itself: its collector sees what is lost, doubled or out of order, and its reader reads logs."""

from __future__ import annotations

import json

import pytest

from bench.load_place import Told
from bench.load_workflows import Accounts, Expected, collector
from engine import run_workflow
from engine.entry import Message
from engine.testing import MemoryDriver
from engine.values import encode


@pytest.mark.parametrize(
    ("numbers", "astray"),
    [
        ([0, 1, 2, 3], []),
        ([0, 1, 1, 2], [["a", 1]]),
        ([0, 2, 1, 3], [["a", 2], ["a", 1], ["a", 3]]),
        ([0, 1, 3, 4], [["a", 3]]),
    ],
)
async def test_the_collector_puts_on_record_what_is_not_next(numbers: list[int], astray: list[list[object]]) -> None:
    driver = MemoryDriver()
    for place, number in enumerate(numbers):
        body = encode({"sender": "a", "number": number, "sent_ns": 0})
        await driver.message_driver.add(Message(id=str(place), name="item", body=body, sent_at=place))
    expected = Expected(messages=len(numbers), per_sender=len(numbers))
    accounts = (await run_workflow("w", collector, expected, driver).result).output
    assert isinstance(accounts, Accounts)
    assert accounts.taken == len(numbers)
    assert accounts.astray == astray


def test_a_log_is_added_up() -> None:
    ended = {"message": "run ended", "workflow_id": "w", "outcome": "ended", "commits": 2, "write_units": 9.0}
    counts = {"read_units": 1.0, "refusals": 1, "repeats": 0}
    lines = [
        "START RequestId: 1",
        json.dumps({"took_ms": [1.5, 2.5]}),
        json.dumps({"message": "wake not needed: nothing is due yet"}),
        json.dumps({**ended, **counts}),
        json.dumps({**ended, **counts, "workflow_id": "v", "outcome": "waiting"}),
        json.dumps({"level": "ERROR", "message": "turn failed"}),
    ]
    told = Told.of(lines)
    assert (told.took_ms, told.ended, told.turns, told.drops) == ([1.5, 2.5], {"w"}, 2, 1)
    assert (told.commits, told.write_units, told.refusals) == (4, 18.0, 2)
    assert [json.loads(fault)["message"] for fault in told.faults] == ["turn failed"]
