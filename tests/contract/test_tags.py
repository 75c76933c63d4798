"""Workflows found by type and tags, and those of which there may be only one, over DynamoDB."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from adapters.dynamodb.model.limits import TAG_VALUE_BYTES_MAX
from adapters.dynamodb.store import NotFound
from engine.commit import Child, Commit
from engine.errors import ChildRefusedError, InvalidIdError, StartConflictError, StoreUnavailableError
from engine.keys import ERROR_KEY, INPUT_KEY, STATE_KEY
from engine.lifecycle import WorkflowState
from tests.contract.aws import Answer

if TYPE_CHECKING:
    from adapters.dynamodb.driver import DynamoDriver
    from tests.contract.aws import Place

LOST = ConnectionResetError("the answer is lost")
DAY_MS = 86_400_000


def ends(state: WorkflowState) -> Commit:
    return Commit(puts=[(STATE_KEY, state.encode()), (ERROR_KEY, b"\xa0")], state=state)


async def find(place: Place, tags: dict[str, str], workflow_type: str = "order", limit: int = 100) -> list[str]:
    return await place.store.find(workflow_type, tags, limit=limit)


async def rows(place: Place) -> list[str]:
    """The partitions of everything that belongs to no workflow, but the types."""
    found = await place.client.scan(TableName=place.table)
    return sorted(item["pk"]["S"] for item in found["Items"] if len(item["pk"]["S"]) > 1 and item["pk"]["S"][0] == "\0")


async def start(place: Place, workflow_id: str, tags: dict[str, str] | None = None, **arguments: Any) -> str:
    started = await place.store.start(workflow_id=workflow_id, type="order", input=b"\x01", tags=tags, **arguments)
    return started.workflow_id


# --- tags ---------------------------------------------------------------------------------------------------------


async def test_a_signal_passes_over_who_has_ended_and_is_still_in_the_index(place: Place) -> None:
    await start(place, "a")
    place.clock.shift_ms += 1
    await start(place, "b")
    listed_as = (await place.items("a"))["HEAD"]["list_at"]
    await (await place.claimed("a")).commit(ends(WorkflowState.COMPLETED))
    await place.client.update_item(
        TableName=place.table,
        Key={"pk": {"S": "a"}, "sk": {"S": "HEAD"}},
        UpdateExpression="SET list_at = :at",
        ExpressionAttributeValues={":at": listed_as},
    )
    assert await find(place, {}) == ["a", "b"]
    for key in (None, "once", "once"):
        signalled = await place.store.signal("order", {}, name="go", body=b"\xf6", message_id=key)
        assert signalled.workflow_id == "b"
    assert len([each for each in await place.items("b") if each.startswith("MSG#")]) == 2


async def test_workflows_are_found_by_any_part_of_their_tags_until_they_end(place: Place) -> None:
    long = "x" * (TAG_VALUE_BYTES_MAX + 1)
    await start(place, "b", {"customer": "7", "city": "Ulm"})
    await start(place, "a", {"customer": "7", "note": long})
    await start(place, "c", {"customer": "8"})
    await place.store.start(workflow_id="d", type="other", input=b"\x01", tags={"customer": "7"})
    assert await find(place, {"customer": "7"}) == ["a", "b"]
    assert await find(place, {"customer": "7"}, limit=1) == ["a"]
    assert await find(place, {"city": "Ulm", "customer": "7"}) == ["b"]
    assert await find(place, {"city": "Ulm", "customer": "8"}) == []
    assert await find(place, {"note": long}) == ["a"]
    assert await find(place, {"note": long + "x"}) == []
    assert await find(place, {}) == ["a", "b", "c"]
    assert await find(place, {}, limit=2) == ["a", "b"]
    driver = await place.claimed("b")
    await driver.commit(ends(WorkflowState.COMPLETED))
    await place.store.cancel("a")
    assert await find(place, {"customer": "7"}) == []
    assert await find(place, {}) == ["c"]


async def test_what_goes_on_after_its_end_is_found_again_and_what_is_purged_is_not(place: Place) -> None:
    driver = await place.started(tags={"customer": "7", "city": "Ulm"})
    await driver.commit(ends(WorkflowState.FAILED))
    assert await rows(place) == []
    assert await place.store.recover("w")
    assert await find(place, {"customer": "7", "city": "Ulm"}) == ["w"]
    await (await place.claimed()).commit(ends(WorkflowState.COMPLETED))
    await place.store.replay("w")
    assert await find(place, {"city": "Ulm"}) == ["w"]
    await place.store.cancel("w")
    place.clock.shift_ms += DAY_MS
    assert (await place.store.purge("w")).again_at is None
    assert await rows(place) == []


async def test_the_end_of_a_workflow_that_cannot_be_read_takes_its_tags_too(place: Place) -> None:
    driver = await place.started(tags={"customer": "7"})
    await driver.commit(Commit(puts=[(b"k", b"v")]))
    await place.client.delete_item(TableName=place.table, Key={"pk": {"S": "w"}, "sk": {"S": "LOG#000000000002"}})
    place.clock.shift_ms += DAY_MS
    claim = await place.store.claim("w")
    await claim.driver.commit(ends(WorkflowState.FAILED))  # type: ignore[union-attr]
    assert await rows(place) == []


async def test_too_many_tags_are_refused_before_anything_is_written(place: Place) -> None:
    with pytest.raises(InvalidIdError):
        await start(place, "w", {str(number): "" for number in range(17)})
    with pytest.raises(InvalidIdError):
        await start(place, "w", {"broken": "\ud800"})
    assert isinstance(await place.store.claim("w"), NotFound)


# --- unique -------------------------------------------------------------------------------------------------------


async def test_of_a_unique_start_there_is_one_until_it_has_completed_or_is_cancelled(place: Place) -> None:
    tags = {"customer": "7"}
    assert await start(place, "a", tags, unique=True) == "a"
    assert await start(place, "b", tags, unique=True) == "a"
    assert await start(place, "b", {"customer": "8"}, unique=True) == "b"
    assert await start(place, "c", {}, unique=True) == "c"
    assert await start(place, "d", tags) == "d"
    assert isinstance(await place.store.claim("e"), NotFound)
    await (await place.claimed("a")).commit(ends(WorkflowState.COMPLETED))
    assert await start(place, "e", tags, unique=True) == "e"
    await place.store.cancel("e")
    assert await start(place, "f", tags, unique=True) == "f"
    with pytest.raises(StartConflictError):
        await place.store.replay("a")
    description = await place.store.describe("a")
    assert description is not None
    assert description.state is WorkflowState.COMPLETED


async def test_a_failed_one_keeps_its_place_until_it_is_replaced(place: Place) -> None:
    assert await start(place, "a", unique=True) == "a"
    assert await start(place, "b", unique=True, replace_failed=True) == "a"
    await (await place.claimed("a")).commit(ends(WorkflowState.FAILED))
    assert await start(place, "b", unique=True) == "a"
    assert await place.store.recover("a")
    assert await start(place, "b", unique=True, replace_failed=True) == "a"
    await (await place.claimed("a")).commit(ends(WorkflowState.FAILED))
    assert await start(place, "b", unique=True, replace_failed=True) == "b"
    with pytest.raises(StartConflictError):
        await place.store.recover("a")
    place.clock.shift_ms += DAY_MS
    assert (await place.store.purge("a")).again_at is None
    assert await start(place, "c", unique=True) == "b"
    await place.store.cancel("b")
    assert await rows(place) == []


async def test_a_failed_one_that_is_recovered_at_that_moment_is_not_replaced(place: Place) -> None:
    await start(place, "a", unique=True)
    await (await place.claimed("a")).commit(ends(WorkflowState.FAILED))

    async def recovered() -> None:
        place.client.plan["transact_write_items"] = []
        await place.another("two").recover("a")

    place.client.plan["transact_write_items"] = [None, recovered]
    assert await start(place, "b", unique=True, replace_failed=True) == "a"
    assert isinstance(await place.store.claim("b"), NotFound)


async def test_purging_a_failed_one_frees_its_place(place: Place) -> None:
    await start(place, "a", unique=True)
    await (await place.claimed("a")).commit(ends(WorkflowState.FAILED))
    assert (await place.store.purge("a")).again_at is not None
    assert await start(place, "b", unique=True) == "b"
    place.clock.shift_ms += DAY_MS
    assert (await place.store.purge("a")).again_at is None
    assert await start(place, "c", unique=True) == "b"


async def test_of_many_unique_starts_at_once_one_is_made(place: Place) -> None:
    ids = [f"w{number}" for number in range(50)]
    found = await asyncio.gather(*(start(place, workflow_id, {"k": "v"}, unique=True) for workflow_id in ids))
    assert len(set(found)) == 1
    assert await find(place, {"k": "v"}, limit=10) == found[:1]


@pytest.mark.parametrize("lost", [1, 3])
async def test_a_unique_start_whose_answer_was_lost_is_ones_own(place: Place, lost: int) -> None:
    place.client.plan["transact_write_items"] = [("after", LOST), *[LOST] * (lost - 1)]
    started = await place.store.start(workflow_id="w", type="order", input=b"\x01", unique=True)
    assert started.created
    assert started.workflow_id == "w"


async def test_a_place_that_is_freed_while_a_start_looks_is_taken_by_it(place: Place) -> None:
    await start(place, "a", unique=True)
    refused = Answer("TransactionCanceledException", ["None", "ConditionalCheckFailed", "None"])

    async def cancelled() -> None:
        place.client.plan["transact_write_items"] = []
        await place.another("two").cancel("a")
        raise place.client._translated(refused, "transact_write_items")

    place.client.plan["transact_write_items"] = [cancelled]
    assert await start(place, "b", unique=True) == "b"


# --- children -----------------------------------------------------------------------------------------------------


def child(workflow_id: str, tags: dict[str, str] | None = None, **arguments: Any) -> Child:
    return Child(workflow_id=workflow_id, workflow_type="ship", workflow_input=b"\x01", tags=tags or {}, **arguments)


async def refusal_of(driver: DynamoDriver, *children: Child) -> ChildRefusedError:
    with pytest.raises(ChildRefusedError) as caught:
        await driver.commit(Commit(puts=[(b"k", b"v")], children=list(children)))
    assert await driver.get(b"k") is None
    return caught.value


async def test_children_start_in_their_parents_commit(place: Place) -> None:
    driver = await place.started()
    told: list[str] = []
    driver.on_due = told.extend
    big = Child(workflow_id="big", workflow_type="bulk", workflow_input=bytes(700_000))
    await driver.commit(Commit(puts=[(b"k", b"v")], children=[child("a", {"for": "w"}), child("b"), big]))
    assert told == ["a", "b", "big"]
    assert await place.store.find("ship", {"for": "w"}) == ["a"]
    assert (await place.store.list(type="ship")).items
    assert {"a", "b", "big"} <= await place.due()
    assert len((await place.store.list()).items) == 4
    taken = await place.claimed("big")
    assert dict(await place.store.history("big"))[INPUT_KEY] == bytes(700_000)
    assert taken.type == "bulk"


async def test_a_child_that_is_there_already_is_told_and_nothing_is_written(place: Place) -> None:
    driver = await place.started()
    await place.store.start(workflow_id="same", type="ship", input=b"\x01")
    await place.store.start(workflow_id="other", type="ship", input=b"\x02")
    await place.store.start(workflow_id="only", type="ship", input=b"\x03", tags={"k": "v"}, unique=True)
    for one, existing in (
        (child("same"), "same"),
        (child("other"), None),
        (child("new", {"k": "v"}, unique=True), "only"),
        (child("w"), None),
        (child("no\nid"), None),
        (child("new", {str(number): "" for number in range(17)}), None),
    ):
        refused = await refusal_of(driver, child("first"), one)
        assert (refused.workflow_id, refused.existing) == (one.workflow_id, existing)
    for one in (
        child("no\nid"),
        child("new", {str(number): "" for number in range(17)}),
        child("new", {"a": "\ud800"}),
    ):
        # What can never be started is known before.
        with pytest.raises(InvalidIdError):
            driver.peers.check_start(one)
    driver.peers.check_start(child("same"))
    assert isinstance(await place.store.claim("first"), NotFound)
    twins = [child("one", unique=True), child("two", unique=True)]
    assert (await refusal_of(driver, *twins)).existing == "one"
    await driver.commit(Commit(puts=[(b"k", b"v")], children=[child("first")]))


async def test_a_child_whose_id_is_being_purged_can_be_started_once_that_is_over(place: Place) -> None:
    driver = await place.started()
    await place.store.start(workflow_id="a", type="ship", input=b"\x02")
    await place.store.cancel("a")
    progress = await place.store.purge("a")
    assert progress.again_at is not None
    starts_it = Commit(puts=[(b"k", b"v")], children=[child("a")])
    with pytest.raises(StoreUnavailableError, match="'a' is being purged"):
        await driver.commit(starts_it)
    assert await driver.get(b"k") is None
    await driver.release(wake_at=place.clock.now())
    place.clock.shift_ms += progress.again_at - place.clock.now()
    assert (await place.store.purge("a")).again_at is None
    driver = await place.claimed()
    assert driver.deaths == 0
    await driver.commit(starts_it)
    assert (await place.claimed("a")).type == "ship"


async def test_a_child_takes_the_place_of_a_failed_one(place: Place) -> None:
    driver = await place.started()
    await driver.commit(Commit(children=[child("a", {"k": "v"}, unique=True)]))
    await (await place.claimed("a")).commit(ends(WorkflowState.FAILED))
    assert (await refusal_of(driver, child("b", {"k": "v"}, unique=True))).existing == "a"
    await driver.commit(Commit(children=[child("b", {"k": "v"}, unique=True, replace_failed=True)]))
    with pytest.raises(StartConflictError):
        await place.store.recover("a")
    await place.claimed("b")


@pytest.mark.parametrize("lost", [1, 3])
async def test_a_commit_with_children_whose_answer_was_lost_is_ones_own(place: Place, lost: int) -> None:
    driver = await place.started()
    place.client.plan["transact_write_items"] = [("after", LOST), *[LOST] * (lost - 1)]
    await driver.commit(Commit(puts=[(b"k", b"v")], children=[child("a", unique=True)]))
    assert driver.head.seq == 2
    await place.claimed("a")


async def test_peers_are_seen_as_they_stand(place: Place) -> None:
    driver = await place.started("w")
    assert await driver.peers.peek("nobody") is None
    await start(place, "other", {"k": "v"})
    peer = await driver.peers.peek("other")
    assert peer is not None
    assert (peer.state, peer.workflow_type, peer.output, peer.error) == (WorkflowState.PENDING, "order", None, None)
    assert await driver.peers.find("order", {"k": "v"}, 3) == ["other"]
    await (await place.claimed("other")).commit(ends(WorkflowState.FAILED))
    peer = await driver.peers.peek("other")
    assert peer is not None
    assert (peer.state, peer.error) == (WorkflowState.FAILED, b"\xa0")
    await place.store.purge("other")
    assert await driver.peers.peek("other") is None
