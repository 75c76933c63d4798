"""Sending and consuming: in the order of acceptance, each once, and never slept over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from adapters.dynamodb.model.limits import (
    DEDUP_TTL_S,
    INBOX_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    OUTSTANDING_LOOK_MS,
    OUTSTANDING_MAX_MS,
    SEND_SLOW_MS,
    SENDER_LATE_MS,
    UNREAD_PAGE_BYTES,
)
from adapters.dynamodb.reading import Unread
from adapters.dynamodb.store import Claimed, NotDue
from engine.commit import Commit, Outgoing, Reply
from engine.entry import Message
from engine.errors import (
    CommitTooLarge,
    InboxMovedError,
    InvalidIdError,
    StoreUnavailableError,
    ValueTooLargeError,
    WorkflowEndedError,
    WorkflowNotFoundError,
)
from engine.lifecycle import WorkflowState

if TYPE_CHECKING:
    from tests.contract.aws import Place

WAITS = Commit(yields=True, names=("go",), state=WorkflowState.SLEEPING)
NO_MATCH = Commit(yields=True, names=("other",), state=WorkflowState.SLEEPING)


async def bodies(place: Place) -> list[bytes]:
    driver = await place.claimed()
    return [found.body for found in await driver.message_driver.receive((), 1000)]


async def take_ticket(place: Place, workflow_id: str = "w") -> None:
    """A sender that dies between its ticket and its message."""
    await place.client.update_item(
        TableName=place.table,
        Key={"pk": {"S": workflow_id}, "sk": {"S": "INBOX"}},
        UpdateExpression="SET due_shard = :shard, due_at = :now ADD n :one",
        ExpressionAttributeValues={
            ":shard": {"S": "00"},
            ":now": {"N": str(place.clock.now())},
            ":one": {"N": "1"},
        },
    )


async def test_a_message_makes_its_workflow_due(place: Place) -> None:
    driver = await place.started()
    await driver.commit(WAITS)
    assert await place.due(ahead_ms=10**9) == set()
    accepted = await place.store.send("w", name="go", body=b"\x05", sent_at=7)
    assert not accepted.duplicate
    assert await place.due() == {"w"}
    driver = await place.claimed()
    [found] = await driver.message_driver.receive((), 9)
    assert found == Message(id=accepted.message_id, name="go", body=b"\x05", sent_at=7, ticket=1)
    await driver.commit(Commit(consumed=[found.id]))
    await driver.commit(WAITS)
    assert await place.due(ahead_ms=10**9) == set()
    assert {name for name in await place.items() if name.startswith("MSG#")} == set()


async def test_an_inbox_is_read_page_by_page_and_what_a_commit_took_is_out(place: Place) -> None:
    driver = await place.started()
    for number in range(5):
        await place.store.send("w", name=f"go-{number}", body=bytes((number,)))
    await driver.message_driver.refresh()
    [second] = await driver.message_driver.receive(("go-1",), 1)
    await driver.commit(Commit(consumed=[second.id]))
    found: list[Message] = []
    cursor: str | None = None
    for is_last in (False, True):
        page = await place.store.unread("w", limit=2, cursor=cursor)
        found += page.messages
        cursor = page.cursor
        assert (cursor is None) == is_last
    assert [(message.name, message.body, message.ticket) for message in found] == [
        (f"go-{number}", bytes((number,)), number + 1) for number in (0, 2, 3, 4)
    ]
    assert await place.store.unread("nobody", limit=2) == Unread(messages=[], cursor=None)


async def test_a_page_of_an_inbox_holds_no_more_than_fits_an_answer_and_one_message_at_least(place: Place) -> None:
    await place.started()
    for _ in range(3):
        await place.store.send("w", name="large", body=bytes(UNREAD_PAGE_BYTES // 2 + 1))
    cursor: str | None = None
    for number in range(3):
        page = await place.store.unread("w", limit=100, cursor=cursor)
        cursor = page.cursor
        assert [message.ticket for message in page.messages] == [number + 1]
        assert (cursor is None) == (number == 2)


@pytest.mark.parametrize("cursor", ["", "-1", "x", "1.0", "٣", "9" * 13])
async def test_a_cursor_of_an_inbox_is_ours(place: Place, cursor: str) -> None:
    with pytest.raises(InvalidIdError, match="no cursor of an inbox"):
        await place.store.unread("w", limit=1, cursor=cursor)


async def test_a_message_that_is_not_waited_for_wakes_nobody_twice(place: Place) -> None:
    driver = await place.started()
    await driver.commit(NO_MATCH)
    await place.store.send("w", name="go", body=b"")
    assert await place.store.claim("w") == NotDue(None)
    assert await place.due(ahead_ms=10**9) == set()
    await place.store.send("w", name="other", body=b"x")
    assert await bodies(place) == [b"", b"x"]


async def test_a_message_between_load_and_yield_is_looked_at(place: Place) -> None:
    driver = await place.started()
    await place.store.send("w", name="go", body=b"\x01")
    with pytest.raises(InboxMovedError):
        await driver.commit(Commit(puts=[(b"k", b"v")], yields=True, names=("go",)))
    assert await driver.get(b"k") is None
    await driver.refresh()
    await place.store.send("w", name="go", body=b"\x02")
    with pytest.raises(InboxMovedError):
        await driver.commit(WAITS)
    await driver.refresh()
    assert len(await driver.message_driver.receive(("go",), 9)) == 2
    await driver.commit(WAITS)


@pytest.mark.parametrize("message_id", [None, "once"])
async def test_a_wake_ahead_of_its_message_says_so_and_loses_nothing(place: Place, message_id: str | None) -> None:
    driver = await place.started()
    await driver.commit(WAITS)
    claims: list[Any] = []
    looked = asyncio.Event()

    async def hint() -> None:
        claims.append(await place.another("early").claim("w"))
        looked.set()

    async def stalled() -> None:
        await looked.wait()

    place.client.plan["put_item" if message_id is None else "transact_write_items"] = [stalled]
    sent = await place.store.send("w", name="go", body=b"x", message_id=message_id, hint=hint)
    assert not sent.duplicate
    assert claims == [NotDue(None, awaits_sender=True)]
    # Whoever looks a second later finds it.
    claim = await place.store.claim("w")
    assert isinstance(claim, Claimed)
    assert [message.body for message in await claim.driver.message_driver.receive((), 9)] == [b"x"]


async def test_who_has_died_after_taking_a_place_is_not_waited_for_again_and_again(place: Place) -> None:
    driver = await place.started()
    await driver.commit(WAITS)
    place.client.plan["put_item"] = [StoreUnavailableError("dead")]
    with pytest.raises(StoreUnavailableError):
        await place.store.send("w", name="go", body=b"x")
    assert await place.store.claim("w") == NotDue(None, awaits_sender=True)
    place.clock.shift_ms += SENDER_LATE_MS
    assert await place.store.claim("w") == NotDue(None)
    assert await place.due(ahead_ms=OUTSTANDING_LOOK_MS) == {"w"}


async def test_a_wake_is_sent_for_a_message_sent_again_too(place: Place) -> None:
    await place.started()
    hints: list[str] = []

    async def hint() -> None:
        hints.append("woken")

    for _ in range(2):
        await place.store.send("w", name="go", body=b"x", message_id="once", hint=hint)
    assert hints == ["woken", "woken"]


async def test_a_thousand_senders_do_not_collide(moto_place: Place) -> None:
    place = moto_place
    await place.store.start(workflow_id="w", type="order", input=b"")
    stores = [place.another(f"sender {number}") for number in range(4)]
    count = 40
    await asyncio.gather(
        *(stores[number % 4].send("w", name="go", body=number.to_bytes(2, "big")) for number in range(count))
    )
    driver = await place.claimed()
    found = await driver.message_driver.receive((), count)
    assert [message.ticket for message in found] == list(range(1, count + 1))
    assert {int.from_bytes(message.body, "big") for message in found} == set(range(count))


# --- the caller's id ----------------------------------------------------------------------------------------------


async def test_an_id_counts_once_and_answers_the_same_for_ever(place: Place) -> None:
    driver = await place.started()
    first = await place.store.send("w", name="go", body=b"\x01", message_id="once")
    again = await place.store.send("w", name="go", body=b"\x01", message_id="once")
    assert (first.duplicate, again.duplicate, again.reply) == (False, True, None)
    await driver.refresh()
    assert len(await driver.message_driver.receive((), 9)) == 1
    await driver.commit(Commit(replies=[Reply(message_id="once", body=b"yes")]))
    assert await place.store.reply_of("w", "once") == b"yes"
    await driver.commit(Commit(state=WorkflowState.COMPLETED))
    after = await place.store.send("w", name="go", body=b"\x01", message_id="once")
    assert (after.duplicate, after.reply) == (True, b"yes")
    assert await place.store.reply_of("w", "never") is None


async def test_a_message_without_an_id_of_the_caller_has_a_reply_too(place: Place) -> None:
    driver = await place.started()
    accepted = await place.store.send("w", name="go", body=b"\x01")
    await driver.refresh()
    await driver.message_driver.complete(accepted.message_id, b"yes")
    assert await place.store.reply_of("w", accepted.message_id) == b"yes"


async def test_two_senders_of_one_id_at_once_count_once(place: Place) -> None:
    await place.store.start(workflow_id="w", type="order", input=b"")
    sends = [place.another(f"{number}").send("w", name="go", body=b"\x01", message_id="once") for number in range(5)]
    accepted = await asyncio.gather(*sends)
    assert sorted(one.duplicate for one in accepted) == [False, True, True, True, True]
    assert await bodies(place) == [b"\x01"]


async def test_an_id_is_forgotten_after_a_day_even_where_nobody_has_deleted_it(place: Place) -> None:
    await place.store.start(workflow_id="w", type="order", input=b"")
    await place.store.send("w", name="go", body=b"\x01", message_id="once")
    place.clock.shift_ms += (DEDUP_TTL_S - 60) * 1000
    assert (await place.store.send("w", name="go", body=b"\x01", message_id="once")).duplicate
    place.clock.shift_ms += 61_000
    assert not (await place.store.send("w", name="go", body=b"\x02", message_id="once")).duplicate
    driver = await place.claimed()
    await driver.commit(Commit(consumed=["once"]))
    assert [found.body for found in await driver.message_driver.receive((), 9)] == [b"\x02"]


# --- refusals -----------------------------------------------------------------------------------------------------


async def test_nothing_is_written_for_a_workflow_that_is_not_there(place: Place) -> None:
    for message_id in (None, "once"):
        with pytest.raises(WorkflowNotFoundError):
            await place.store.send("w", name="go", body=b"", message_id=message_id)
    assert await place.items() == {}


@pytest.mark.parametrize("has_had_messages", [False, True])
async def test_nothing_is_written_for_a_workflow_that_has_ended(place: Place, *, has_had_messages: bool) -> None:
    driver = await place.started()
    if has_had_messages:
        await place.store.send("w", name="go", body=b"")
    await driver.commit(Commit(state=WorkflowState.FAILED))
    before = await place.items()
    for message_id in (None, "once"):
        with pytest.raises(WorkflowEndedError):
            await place.store.send("w", name="go", body=b"", message_id=message_id)
    assert await place.items() == before


async def test_what_is_too_large_or_no_name_is_refused_before_anything_is_written(place: Place) -> None:
    await place.store.start(workflow_id="w", type="order", input=b"")
    before = await place.items()
    with pytest.raises(ValueTooLargeError, match=str(MESSAGE_BYTES_MAX)):
        await place.store.send("w", name="go", body=bytes(MESSAGE_BYTES_MAX + 1))
    for arguments in ({"name": ""}, {"name": "a\nb"}, {"message_id": ""}, {"message_id": "\x00"}):
        with pytest.raises(InvalidIdError):
            await place.store.send("w", **{"name": "go", "body": b""} | arguments)  # type: ignore[arg-type]
    assert await place.items() == before


async def test_the_largest_message_arrives(ministack_place: Place) -> None:
    place = ministack_place
    name, message_id = "n" * 1024, "i" * 1018
    await place.store.start(workflow_id="w" * 255, type="order", input=b"")
    await place.store.send("w" * 255, name=name, body=bytes(MESSAGE_BYTES_MAX), message_id=message_id)
    driver = await place.claimed("w" * 255)
    [found] = await driver.message_driver.receive((name,), 1)
    assert (found.id, len(found.body)) == (message_id, MESSAGE_BYTES_MAX)


# --- outstanding tickets ------------------------------------------------------------------------------------------


async def test_a_yield_over_an_outstanding_ticket_is_looked_at_again(place: Place) -> None:
    driver = await place.started()
    await take_ticket(place)
    await driver.refresh()
    await driver.commit(WAITS)
    assert await place.due() == set()
    assert await place.due(ahead_ms=OUTSTANDING_LOOK_MS + 1000) == {"w"}
    # The sender lives: its message comes without a further sign.
    await place.client.put_item(
        TableName=place.table,
        Item={
            "pk": {"S": "w"},
            "sk": {"S": "MSG#000000000001"},
            "id": {"S": "late"},
            "name": {"S": "go"},
            "body": {"B": b"\x01"},
            "sent_at": {"N": "1"},
        },
    )
    place.clock.shift_ms += OUTSTANDING_LOOK_MS
    driver = await place.claimed()
    await driver.commit(Commit(consumed=["late"]))
    await driver.commit(WAITS)
    assert await place.due(ahead_ms=10**9) == set()


async def test_a_message_that_lands_between_load_and_yield_is_still_looked_for(place: Place) -> None:
    await place.store.start(workflow_id="w", type="order", input=b"")
    await take_ticket(place)
    driver = await place.claimed()
    await place.client.put_item(
        TableName=place.table,
        Item={
            "pk": {"S": "w"},
            "sk": {"S": "MSG#000000000001"},
            "id": {"S": "late"},
            "name": {"S": "go"},
            "body": {"B": b"\x01"},
            "sent_at": {"N": "1"},
        },
    )
    await driver.commit(WAITS)
    assert await place.due(ahead_ms=OUTSTANDING_LOOK_MS + 1000) == {"w"}


async def test_after_a_minute_a_sender_is_taken_for_dead(place: Place) -> None:
    driver = await place.started()
    await take_ticket(place)
    await driver.refresh()
    await driver.commit(WAITS)
    place.clock.shift_ms += OUTSTANDING_LOOK_MS
    assert await place.store.claim("w") == NotDue(None)
    assert await place.due(ahead_ms=OUTSTANDING_LOOK_MS + 1000) == {"w"}
    place.clock.shift_ms += OUTSTANDING_MAX_MS - OUTSTANDING_LOOK_MS
    assert await place.store.claim("w") == NotDue(None)
    assert await place.due(ahead_ms=10**9) == set()
    await place.store.send("w", name="go", body=b"\x02")
    assert await bodies(place) == [b"\x02"]


async def test_a_sender_that_took_too_long_asks_to_be_looked_at(place: Place) -> None:
    driver = await place.started()
    await driver.commit(WAITS)

    async def stall() -> None:
        place.clock.shift_ms += SEND_SLOW_MS
        # Meanwhile somebody looks, and gives up on the ticket.
        assert await place.store.claim("w") == NotDue(None, awaits_sender=True)
        place.clock.shift_ms += OUTSTANDING_MAX_MS
        assert await place.store.claim("w") == NotDue(None)
        assert await place.due(ahead_ms=10**9) == set()

    place.client.plan["put_item"] = [stall]
    await place.store.send("w", name="go", body=b"\x03")
    assert await place.due() == {"w"}
    assert await bodies(place) == [b"\x03"]


async def test_a_message_to_oneself_is_not_slept_over(place: Place) -> None:
    driver = await place.started()
    message = Message(id="s1", name="go", body=b"", sent_at=3)
    await driver.commit(Commit(outgoing=[Outgoing(message=message)], yields=True, names=("go",)))
    assert await place.due() == {"w"}
    driver = await place.claimed()
    assert [found.id for found in await driver.message_driver.receive(("go",), 1)] == ["s1"]


async def test_an_inbox_larger_than_memory_is_read_bit_by_bit(moto_place: Place) -> None:
    place, size = moto_place, 390_000
    count = INBOX_BYTES_MAX // size + 4
    await place.store.start(workflow_id="w", type="order", input=b"")
    for number in range(count):
        await place.store.send("w", name="go" if number % 2 else "other", body=bytes([number]) * size)
    driver = await place.claimed()
    held = driver._inbox.receive((), count)
    assert sum(len(message.body) for message in held) <= INBOX_BYTES_MAX
    # Nobody can tell from outside: all are there, whole, in their order, and go one by one.
    assert [message.body[0] for message in held if message.body] == list(range(count - 4))
    last = await driver.message_driver.receive(("go",), count)
    assert [message.body for message in last[-2:]] == [bytes([number]) * size for number in (count - 3, count - 1)]
    await driver.commit(Commit(consumed=[message.id for message in last]))
    assert [message.body[0] for message in await driver.message_driver.receive((), count)] == list(range(0, count, 2))
    await driver.commit(WAITS)
    assert isinstance(await place.store.claim("w"), NotDue)


# --- refusals of a commit -----------------------------------------------------------------------------------------


async def test_more_than_a_transaction_takes_is_refused_whole(place: Place) -> None:
    driver = await place.started()
    before = await place.items()
    with pytest.raises(CommitTooLarge, match=r"62.*4000000 bytes"):
        await driver.commit(Commit(puts=[(b"a", b"1"), (b"b", bytes(3_999_999)), (b"c", bytes(200_000))]))
    many = [Outgoing(message=Message(id=f"m{number}", name="go", body=b"", sent_at=0)) for number in range(100)]
    with pytest.raises(CommitTooLarge, match=r"10[12] actions"):
        await driver.commit(Commit(puts=[(b"a", b"1")], outgoing=many))
    with pytest.raises(CommitTooLarge, match="reply to 'm'"):
        await driver.commit(Commit(replies=[Reply(message_id="m", body=bytes(MESSAGE_BYTES_MAX + 1))]))
    names = tuple(f"{number:04}" + "n" * 1000 for number in range(400))
    with pytest.raises(CommitTooLarge, match="waited for have 402000 bytes"):
        await driver.commit(Commit(yields=True, names=names))
    assert await place.items() == before
    await driver.commit(Commit(puts=[(b"a", b"1")]))
    await driver.commit(Commit(yields=True, names=names[:370]))
