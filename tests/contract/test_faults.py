"""Answers that get lost, conflicts, throttles: what was committed counts once, and what was not is not believed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from adapters.dynamodb.model.limits import ATTEMPTS_MAX
from adapters.dynamodb.store import Claimed, Held
from engine.commit import Alarm, Commit, Reply
from engine.errors import FencedError, InboxMovedError, StoreUnavailableError
from engine.lifecycle import WorkflowState
from tests.contract.aws import Answer

if TYPE_CHECKING:
    from tests.contract.aws import Place

LOST = ConnectionResetError("the answer is lost")
CONFLICT = Answer("TransactionCanceledException", ["None", "TransactionConflict"])
THROTTLED = Answer("TransactionCanceledException", ["ThrottlingError", "None"])
FENCED = Answer("TransactionCanceledException", ["ConditionalCheckFailed", "None"])


async def log(place: Place) -> list[str]:
    return [name for name in await place.items() if name.startswith("LOG#")]


# --- commits (B50, B51) -------------------------------------------------------------------------------------------


async def test_what_passes_by_itself_is_tried_again_with_the_same_request(place: Place) -> None:
    driver = await place.started()
    place.client.calls.clear()
    place.client.plan["transact_write_items"] = [
        *[CONFLICT] * 3,
        *[Answer("TransactionInProgressException")] * 2,
        THROTTLED,
        Answer("ProvisionedThroughputExceededException"),
    ]
    await driver.commit(Commit(puts=[(b"k", b"v")]))
    requests = place.client.sent("transact_write_items")
    assert len(requests) == 8
    assert all(request == requests[0] for request in requests)
    assert len(await log(place)) == 2
    assert dict(await place.store.history("w"))[b"k"] == b"v"


async def test_a_failed_condition_is_not_tried_again(place: Place) -> None:
    driver = await place.started()
    place.client.calls.clear()
    await place.another("two").cancel("w")
    place.client.calls.clear()
    with pytest.raises(FencedError):
        await driver.commit(Commit(puts=[(b"k", b"v")]))
    assert len(place.client.sent("transact_write_items")) == 1
    place.client.calls.clear()
    with pytest.raises(FencedError):
        await driver.commit(Commit(puts=[(b"k", b"v")]))
    assert place.client.calls == []


@pytest.mark.parametrize("lost", [1, 3])
@pytest.mark.parametrize(
    "commit",
    [
        Commit(puts=[(b"k", b"v")]),
        Commit(alarm=Alarm(5)),
        Commit(puts=[(b"k", b"v")], yields=True, names=("go",)),
        Commit(puts=[(b"k", b"v")], state=WorkflowState.COMPLETED),
    ],
    ids=["step", "alarm", "yield", "end"],
)
async def test_ones_own_commit_is_recognised_when_its_answer_was_lost(place: Place, commit: Commit, lost: int) -> None:
    driver = await place.started()
    # On moto, which ignores tokens, the second try is refused as it would be after ten minutes.
    plan = [("after", LOST), *[LOST] * (lost - 1)]
    place.client.plan = {"transact_write_items": list(plan), "update_item": list(plan)}
    await driver.commit(commit)
    place.client.plan.clear()
    assert driver.head.seq == 2
    description = await place.store.describe("w")
    assert description is not None
    assert description.seq == 2
    assert len(await log(place)) == (2 if commit.puts else 1)


async def test_a_commit_whose_answers_were_all_lost_is_looked_for(place: Place) -> None:
    driver = await place.started()
    place.client.plan["transact_write_items"] = [("after", LOST), *[LOST] * ATTEMPTS_MAX]
    await driver.commit(Commit(puts=[(b"k", b"v")]))
    place.client.plan.clear()
    await driver.commit(Commit(puts=[(b"j", b"v")]))
    history = dict(await place.store.history("w"))
    assert (history[b"k"], history[b"j"]) == (b"v", b"v")


async def test_where_nobody_can_tell_the_holder_stops_and_the_next_one_sees(place: Place) -> None:
    driver = await place.started()
    place.client.plan["transact_write_items"] = [LOST] * ATTEMPTS_MAX
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            await driver.commit(Commit(puts=[(b"k", b"v")]))
    place.client.plan.clear()
    with pytest.raises(StoreUnavailableError):
        await driver.commit(Commit(puts=[(b"k", b"v")]))
    place.clock.shift_ms += 120_000
    again = await place.claimed()
    assert await again.get(b"k") is None
    await again.commit(Commit(puts=[(b"k", b"v")]))


async def test_a_store_that_refuses_for_good_changes_nothing_and_may_be_tried_again(place: Place) -> None:
    driver = await place.started()
    place.client.plan["transact_write_items"] = [Answer("AccessDeniedException"), *[CONFLICT] * ATTEMPTS_MAX]
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            await driver.commit(Commit(puts=[(b"k", b"v")]))
        assert await driver.get(b"k") is None
    await driver.commit(Commit(puts=[(b"k", b"w")]))
    assert dict(await place.store.history("w"))[b"k"] == b"w"


async def test_a_lost_answer_to_a_yield_is_not_taken_for_a_moved_inbox(place: Place) -> None:
    driver = await place.started()

    async def send() -> None:
        await place.store.send("w", name="go", body=b"")

    place.client.plan["transact_write_items"] = [("after", LOST), send]
    await driver.commit(Commit(puts=[(b"k", b"v")], yields=True, names=("go",)))
    place.client.plan.clear()
    assert await place.due() == {"w"}
    again = await place.claimed()
    assert len(await again.message_driver.receive(("go",), 9)) == 1


async def test_a_moved_inbox_then_the_same_commit_again(place: Place) -> None:
    driver = await place.started()
    for _ in range(3):
        await place.store.send("w", name="go", body=b"")
        with pytest.raises(InboxMovedError):
            await driver.commit(Commit(puts=[(b"k", b"v")], yields=True))
        await driver.refresh()
    await driver.commit(Commit(puts=[(b"k", b"v")], yields=True))
    assert driver.head.seq == 2


@pytest.mark.parametrize("answers", [[], [LOST] * ATTEMPTS_MAX, [FENCED]])
async def test_a_commit_that_is_cut_short_leaves_a_holder_that_writes_no_more(place: Place, answers: list[Any]) -> None:
    driver = await place.started()
    is_hanging = asyncio.Event()

    async def hang() -> None:
        is_hanging.set()
        await asyncio.Event().wait()

    # In the write, or in the look for what became of it.
    place.client.plan["transact_write_items"] = [*answers, hang]
    place.client.plan["get_item"] = [hang]
    committing = asyncio.ensure_future(driver.commit(Commit(puts=[(b"k", b"v")])))
    await is_hanging.wait()
    committing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await committing
    place.client.plan.clear()
    with pytest.raises(StoreUnavailableError):
        await driver.commit(Commit(puts=[(b"k", b"w")]))


async def test_a_heartbeat_beside_a_commit_waits_its_turn(place: Place) -> None:
    driver = await place.started()
    place.clock.shift_ms += 40_000
    await asyncio.gather(driver.commit(Commit(puts=[(b"k", b"v")])), driver.renew(90_000), driver.renew(91_000))
    description = await place.store.describe("w")
    assert description is not None
    assert driver.lease_until > place.clock.now() + 90_000


@pytest.mark.parametrize("plan", [[LOST] * ATTEMPTS_MAX, [("after", LOST)] + [LOST] * ATTEMPTS_MAX])
async def test_after_a_lost_heartbeat_the_lease_is_what_the_next_write_says(place: Place, plan: list[Any]) -> None:
    driver = await place.started()
    place.clock.shift_ms += 20_000
    place.client.plan["update_item"] = [*plan]
    with pytest.raises(StoreUnavailableError):
        await driver.renew()
    place.client.plan.clear()
    await driver.commit(Commit(puts=[(b"k", b"v")]))
    item = (await place.items())["HEAD"]
    assert item["lease_until"] == item["due_at"] == {"N": str(driver.lease_until)}
    assert isinstance(await place.another("two").claim("w"), Held)
    await driver.commit(Commit(yields=True, names=("go",)))
    assert await place.due(ahead_ms=10**9) == set()


async def test_a_heartbeat_that_arrives_after_a_yield_changes_nothing(moto_place: Place) -> None:
    place = moto_place
    driver = await place.started()
    place.clock.shift_ms += 20_000
    await driver.renew()
    [late] = place.client.sent("update_item")[-1:]
    await driver.commit(Commit(alarm=Alarm(place.clock.now() + 5000), yields=True))
    before = await place.items()
    with pytest.raises(Exception, match="ConditionalCheckFailed"):
        await place.client.update_item(**late)
    assert await place.items() == before


# --- claims -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("takes_over", [False, True])
async def test_ones_own_claim_is_recognised_when_its_answer_was_lost(place: Place, *, takes_over: bool) -> None:
    if takes_over:
        await place.started()
        place.clock.shift_ms += 120_000
    else:
        await place.store.start(workflow_id="w", type="order", input=b"")
    place.client.plan["update_item"] = [None] * takes_over + [("after", LOST)]
    driver = await place.claimed()
    assert driver.deaths == int(takes_over)
    await driver.commit(Commit(puts=[(b"k", b"v")]))
    assert isinstance(await place.another("two").claim("w"), Held)


async def test_of_many_who_claim_at_once_one_gets_it(place: Place) -> None:
    await place.started()
    place.clock.shift_ms += 120_000
    claims = await asyncio.gather(*(place.another(f"{number}").claim("w") for number in range(6)))
    winners = [claim for claim in claims if isinstance(claim, Claimed)]
    assert len(winners) == 1
    assert winners[0].driver.deaths == 1
    assert sum(isinstance(claim, Held) for claim in claims) == 5


async def test_a_release_whose_answer_was_lost_is_done(place: Place) -> None:
    driver = await place.started()

    async def somebody_claims() -> None:
        await place.claimed(store=place.another("two"))

    place.client.plan["update_item"] = [("after", LOST), somebody_claims]
    await driver.release(wake_at=place.clock.now())
    place.client.plan.clear()
    with pytest.raises(FencedError):
        await driver.commit(Commit(puts=[(b"k", b"v")]))


async def test_a_start_whose_answer_was_lost_is_ones_own(place: Place) -> None:
    place.client.plan["transact_write_items"] = [("after", LOST)]
    started = await place.store.start(workflow_id="w", type="order", input=b"")
    assert started.created


# --- messages (B15) -----------------------------------------------------------------------------------------------


async def test_a_message_with_an_id_arrives_once_whatever_is_lost(place: Place) -> None:
    await place.store.start(workflow_id="w", type="order", input=b"")
    place.client.plan = {"update_item": [("after", LOST)], "transact_write_items": [("after", LOST)]}
    accepted = await place.store.send("w", name="go", body=b"\x01", message_id="once")
    assert not accepted.duplicate
    place.client.plan.clear()
    driver = await place.claimed()
    assert [found.body for found in await driver.message_driver.receive((), 9)] == [b"\x01"]


async def test_a_message_with_an_id_is_not_doubled_where_it_was_consumed_meanwhile(place: Place) -> None:
    await place.store.start(workflow_id="w", type="order", input=b"")
    driver = await place.claimed()

    async def consume() -> None:
        await driver.refresh()
        await driver.commit(Commit(replies=[Reply(message_id="once", body=b"yes")]))

    place.client.plan["transact_write_items"] = [("after", LOST), consume]
    accepted = await place.store.send("w", name="go", body=b"\x01", message_id="once")
    place.client.plan.clear()
    await driver.refresh()
    assert await driver.message_driver.receive((), 9) == []
    assert not accepted.duplicate


@pytest.mark.parametrize("plan", [[("after", LOST)], [LOST]], ids=["answer", "request"])
async def test_a_message_without_an_id_is_never_put_twice(place: Place, plan: list[Any]) -> None:
    await place.store.start(workflow_id="w", type="order", input=b"")
    place.client.plan["put_item"] = [*plan]
    was_applied = isinstance(plan[0], tuple)
    if was_applied:
        await place.store.send("w", name="go", body=b"\x01")
    else:
        with pytest.raises(StoreUnavailableError):
            await place.store.send("w", name="go", body=b"\x01")
    assert len(place.client.sent("put_item")) == 1
    driver = await place.claimed()
    assert len(await driver.message_driver.receive((), 9)) == int(was_applied)
