"""A commit as one transaction: no plan is made that the table would refuse for its size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from adapters.dynamodb.model.beginning import begin
from adapters.dynamodb.model.expressions import item_bytes, text, value_bytes
from adapters.dynamodb.model.items import Head, encode_head
from adapters.dynamodb.model.limits import COMMIT_BYTES_MAX, TAGS_MAX, TRANSACTION_BYTES_MAX, WAITING_BYTES_MAX
from adapters.dynamodb.model.plan import Lease, Plan, Posted, Turn, plan_commit
from adapters.dynamodb.model.tickets import Account, Inbox
from engine.commit import Commit
from engine.entry import Message
from engine.errors import CommitTooLarge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NAMES = tuple(f"{number:04}" + "n" * 1000 for number in range(WAITING_BYTES_MAX // 1005))


def a_head(workflow_id: str = "w", **about: object) -> Head:
    given = {"workflow_type": "order", "workflow_input": b"", "tags": {}, "now": 1}
    return begin(workflow_id=workflow_id, **{**given, **about}).head  # type: ignore[arg-type]


def turn_of(head: Head) -> Turn:
    lease = Lease(owner="one", length_ms=60_000, deadline_ms=None)
    return Turn(head=head, inbox=Inbox(Account()), lease=lease, ordinal=0, now=2)


def stored_bytes(plan: Plan) -> int:
    """What the items weigh that are there after a plan."""
    puts = [action["Put"]["Item"] for action in plan.actions if "Put" in action]
    return item_bytes(encode_head(plan.head)) + sum(map(item_bytes, puts))


def record_of(size: int) -> list[tuple[bytes, bytes]]:
    parts = range(0, size, 100_000)
    return [(b"%04d" % number, bytes(min(100_000, size - start))) for number, start in enumerate(parts)]


def largest(commit_of: Callable[[int], Commit], head: Head, posted: Sequence[Posted] = ()) -> Plan:
    """The plan of the largest commit that is not refused."""
    low, high = 0, TRANSACTION_BYTES_MAX
    plan: Plan | None = None
    while high - low > 500:
        middle = (low + high) // 2
        try:
            plan = plan_commit(turn_of(head), commit_of(middle), posted)
            low = middle
        except CommitTooLarge:
            high = middle
    assert plan is not None
    return plan


def test_a_set_weighs_what_its_members_weigh() -> None:
    members = [f"{number:0250}" for number in range(1600)]
    assert value_bytes({"SS": members}) == value_bytes({"L": [text(member) for member in members]}) > 400_000


def test_what_is_waited_for_counts_in_the_commit_that_says_so_and_in_those_after_it() -> None:
    head = a_head()
    yielded = largest(lambda size: Commit(puts=record_of(size), names=NAMES, yields=True), head)
    assert TRANSACTION_BYTES_MAX - 32_768 < stored_bytes(yielded) <= TRANSACTION_BYTES_MAX
    later = largest(lambda size: Commit(puts=record_of(size)), yielded.head)
    assert later.head.waiting == NAMES
    assert TRANSACTION_BYTES_MAX - 32_768 < stored_bytes(later) <= TRANSACTION_BYTES_MAX
    with pytest.raises(CommitTooLarge, match="names that are waited for"):
        plan_commit(turn_of(yielded.head), Commit(puts=record_of(TRANSACTION_BYTES_MAX)), [])


def test_what_stands_around_bodies_counts() -> None:
    head = a_head("w" * 255, tags={f"t{number}": "v" * 400 for number in range(TAGS_MAX)})
    posted = [
        Posted("p" * 255, Message(id=f"{number:0255}", name="n" * 1000, body=bytes(100), sent_at=1, ticket=number + 1))
        for number in range(80)
    ]
    plan = largest(lambda size: Commit(puts=record_of(size)), head, posted)
    assert TRANSACTION_BYTES_MAX - 32_768 < stored_bytes(plan) <= TRANSACTION_BYTES_MAX


def test_the_workflows_that_are_awaited_count() -> None:
    awaited = tuple(f"{number:0250}" for number in range(1600))
    plan = largest(lambda size: Commit(puts=record_of(size), awaited=awaited, yields=True), a_head())
    assert len(plan.waits) == len(awaited)
    assert TRANSACTION_BYTES_MAX - 32_768 < stored_bytes(plan) <= TRANSACTION_BYTES_MAX


def test_what_the_engine_takes_for_one_commit_is_one() -> None:
    plan_commit(turn_of(a_head()), Commit(puts=record_of(COMMIT_BYTES_MAX - 4 * 50)), [])
