"""What is published: an item of the commit's own transaction, told once to the bus, read by whoever comes late."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ConnectTimeoutError

from adapters.dynamodb.model.limits import (
    MESSAGE_BYTES_MAX,
    TAIL_ANSWER_BYTES_MAX,
    TAIL_OVERLAP_MS,
    TAIL_SEEN_MAX,
    TAIL_SHARDS,
    TAIL_TTL_S,
)
from adapters.dynamodb.model.publications import Position, Told, read_cursor, write_cursor
from engine.commit import Commit, Publication
from engine.errors import CommitTooLarge, FencedError, InvalidIdError
from engine.lifecycle import WorkflowState
from tests.contract.aws import Answer

if TYPE_CHECKING:
    from adapters.dynamodb.driver import DynamoDriver
    from adapters.dynamodb.store import Tail
    from tests.contract.aws import Place

PUTS = [(b"entry", b"published")]
LOST = ConnectTimeoutError(endpoint_url="http://dynamodb")


def publication(number: int, at: int, topic: str = "*", body: bytes = b"\x01") -> Publication:
    return Publication(id=f"id-{number:04d}", name="progress", topic=topic, body=body, sent_at=at)


async def tail(place: Place, topic: str | None = None, after: str | None = None, limit: int = 100) -> Tail:
    return await place.store.messages("progress", topic=topic, after=after, limit=limit)


def ids(found: Tail) -> list[str]:
    return [message.id for message in found.messages]


def listened(driver: DynamoDriver) -> list[str]:
    """The ids of what a driver tells the bus from now on."""
    told: list[str] = []
    driver.on_published = lambda published: told.extend(one.id for one in published)
    return told


# --- writing ----------------------------------------------------------------------------------------------------------


async def test_the_item_rides_in_the_commits_transaction(place: Place) -> None:
    driver = await place.started()
    told = listened(driver)
    now = place.clock.now()
    published = [publication(1, now, "order:17"), publication(2, now)]
    place.client.calls.clear()
    await driver.commit(Commit(puts=PUTS, published=published))
    [sent] = place.client.sent("transact_write_items")
    puts = [action["Put"]["Item"] for action in sent["TransactItems"] if "Put" in action]
    tail_items = [item for item in puts if item["pk"]["S"].startswith("\0MESSAGE#")]
    assert [item["sk"]["S"] for item in tail_items] == [f"{now:015d}#id-0001", f"{now:015d}#id-0002"]
    assert {item["ttl"]["N"] for item in tail_items} == {str(now // 1000 + TAIL_TTL_S)}
    assert told == ["id-0001", "id-0002"]
    assert (await tail(place)).messages == [
        Told(
            id=one.id,
            name="progress",
            topic=one.topic,
            body=one.body,
            sent_at=one.sent_at,
            workflow_id="w",
            origin=driver.origin,
        )
        for one in published
    ]


async def test_a_refused_commit_publishes_nothing(place: Place) -> None:
    driver = await place.started()
    told = listened(driver)
    place.clock.shift_ms += 120_000
    await place.claimed()
    with pytest.raises(FencedError):
        await driver.commit(Commit(puts=PUTS, published=[publication(1, place.clock.now())]))
    assert told == []
    assert ids(await tail(place)) == []


@pytest.mark.parametrize("lost", [LOST, Answer("InternalServerError")])
async def test_an_answer_that_is_lost_doubles_nothing(moto_place: Place, lost: Exception) -> None:
    place = moto_place
    driver = await place.started()
    told = listened(driver)
    place.client.plan["transact_write_items"] = [("after", lost)]
    await driver.commit(Commit(puts=PUTS, published=[publication(1, place.clock.now())]))
    assert told == ["id-0001"]
    assert ids(await tail(place)) == ["id-0001"]


async def test_an_end_publishes_too(place: Place) -> None:
    driver = await place.started()
    now = place.clock.now()
    await driver.commit(Commit(puts=PUTS, state=WorkflowState.COMPLETED, published=[publication(1, now)]))
    assert ids(await tail(place)) == ["id-0001"]


async def test_what_no_item_can_hold_is_refused_whole(ministack_place: Place) -> None:
    place = ministack_place
    driver = await place.started()
    told = listened(driver)
    large = publication(1, place.clock.now(), body=bytes(MESSAGE_BYTES_MAX + 1))
    with pytest.raises(CommitTooLarge, match="the publication 'progress'"):
        await driver.commit(Commit(puts=PUTS, published=[large]))
    assert told == []
    await driver.commit(Commit(puts=PUTS, published=[publication(2, place.clock.now(), body=bytes(MESSAGE_BYTES_MAX))]))
    assert ids(await tail(place)) == ["id-0002"]


# --- reading ----------------------------------------------------------------------------------------------------------


async def test_a_late_subscriber_gets_the_last_and_then_only_later_ones(place: Place) -> None:
    driver = await place.started()
    now = place.clock.now()
    await driver.commit(Commit(puts=PUTS, published=[publication(number, now + number) for number in range(5)]))
    last = await tail(place, limit=1)
    assert ids(last) == ["id-0004"]
    assert ids(await tail(place, after=last.cursor)) == []
    await driver.commit(Commit(puts=PUTS, published=[publication(5, now + 5), publication(6, now + 5)]))
    later = await tail(place, after=last.cursor)
    assert ids(later) == ["id-0005", "id-0006"]
    assert not later.has_gap
    assert ids(await tail(place, after=later.cursor)) == []


async def test_a_topic_is_an_exact_text(place: Place) -> None:
    driver = await place.started()
    now = place.clock.now()
    topics = ["order:1", "order:2", "order:1:part", "*"]
    published = [publication(number, now + number, topic) for number, topic in enumerate(topics)]
    await driver.commit(Commit(puts=PUTS, published=published))
    assert ids(await tail(place, topic="order:1")) == ["id-0000"]
    assert ids(await tail(place, topic="*")) == ["id-0003"]
    assert ids(await tail(place, topic="order")) == []
    assert ids(await tail(place)) == ["id-0000", "id-0001", "id-0002", "id-0003"]


async def test_a_message_that_lands_late_is_given_all_the_same_and_once(place: Place) -> None:
    driver = await place.started()
    now = place.clock.now()
    await driver.commit(Commit(puts=PUTS, published=[publication(1, now)]))
    first = await tail(place)
    await driver.commit(Commit(puts=PUTS, published=[publication(2, now - TAIL_OVERLAP_MS + 5000)]))
    second = await tail(place, after=first.cursor)
    assert ids(second) == ["id-0002"]
    assert ids(await tail(place, after=second.cursor)) == []


async def test_pages_lose_and_double_nothing(place: Place) -> None:
    driver = await place.started()
    start = await tail(place)
    now = place.clock.now()
    # Many of one millisecond: the end of a page is within it.
    published = [publication(number, now + number // 10, f"topic:{number}") for number in range(40)]
    await driver.commit(Commit(puts=PUTS, published=published))
    cursor, found = start.cursor, []
    for _ in range(9):
        page = await tail(place, after=cursor, limit=7)
        found += ids(page)
        cursor = page.cursor
    assert found == [one.id for one in published]


async def test_an_answer_holds_only_so_many_bytes(place: Place) -> None:
    driver = await place.started()
    start = await tail(place)
    now = place.clock.now()
    body = bytes(TAIL_ANSWER_BYTES_MAX // 2)
    for number in range(3):
        await driver.commit(Commit(puts=PUTS, published=[publication(number, now + number, body=body)]))
    page = await tail(place, after=start.cursor)
    assert ids(page) == ["id-0000", "id-0001"]
    assert ids(await tail(place, after=page.cursor)) == ["id-0002"]
    assert ids(await tail(place)) == ["id-0001", "id-0002"]


@pytest.mark.parametrize("topic", [None, "*"])
async def test_no_more_is_read_than_an_answer_holds(moto_place: Place, topic: str | None) -> None:
    place = moto_place
    driver = await place.started()
    start = await tail(place, topic)
    now = place.clock.now()
    body = bytes(TAIL_ANSWER_BYTES_MAX // 2)
    numbers = range(20)
    for number in numbers:
        other = publication(100 + number, now + number, topic=f"t{number}")
        await driver.commit(Commit(puts=PUTS, published=[publication(number, now + number, body=body), other]))
    # The large ones are seven pages of their partition, of which an answer needs the first.
    for after in (None, start.cursor):
        place.client.calls.clear()
        await tail(place, topic, after)
        assert len(place.client.sent("query")) <= 1 + (0 if topic else TAIL_SHARDS)
    found, page = [], await tail(place, topic, start.cursor)
    while page.messages:
        found += ids(page)
        page = await tail(place, topic, page.cursor)
    others = () if topic else numbers
    assert sorted(found) == [f"id-{number:04d}" for number in (*numbers, *(100 + number for number in others))]


async def test_what_is_older_than_the_tail_is_gone_whatever_the_table_still_holds(place: Place) -> None:
    driver = await place.started()
    start = await tail(place)
    await driver.commit(Commit(puts=PUTS, published=[publication(1, place.clock.now())]))
    place.clock.shift_ms += TAIL_TTL_S * 1000 + 1000
    assert ids(await tail(place)) == []
    late = await tail(place, after=start.cursor)
    assert (ids(late), late.has_gap) == ([], True)


async def test_a_cursor_is_of_one_name_and_topic(moto_place: Place) -> None:
    cursor = (await tail(moto_place, topic="a")).cursor
    for name, topic in (("progress", None), ("progress", "b"), ("other", "a")):
        with pytest.raises(InvalidIdError, match="cursor"):
            await moto_place.store.messages(name, topic=topic, after=cursor, limit=1)
    for odd in ("", "x", "AAAA", "A" * 20, "ü", "?" * 16, cursor + "AA", cursor[:-3]):
        with pytest.raises(InvalidIdError, match="cursor"):
            await tail(moto_place, topic="a", after=odd)


async def test_names_are_checked(moto_place: Place) -> None:
    for name, topic in (("", None), ("a\0", None), ("torpor.message", None), ("progress", ""), ("\ud800", None)):
        with pytest.raises(InvalidIdError):
            await moto_place.store.messages(name, topic=topic, after=None, limit=1)


# --- a reader's position ----------------------------------------------------------------------------------------------


def message(number: int, at: int) -> Told:
    return Told(id=f"id-{number}", name="n", topic="*", body=b"", sent_at=at, workflow_id="w")


def test_a_position_forgets_what_it_need_not_know() -> None:
    now = 10**12
    old, recent = message(1, now - TAIL_OVERLAP_MS - 1), message(2, now - 1)
    moved = Position(floor=now - 90_000).moved([old, recent], skipped=0, left=None, now=now)
    assert moved.floor == now - TAIL_OVERLAP_MS
    assert len(moved.seen) == 1
    assert not moved.wants(recent)
    assert read_cursor("n", None, write_cursor("n", None, moved)) == moved


def test_a_position_never_passes_what_is_left() -> None:
    now = 10**12
    moved = Position(floor=now - 90_000).moved([message(1, now - 80_000)], skipped=0, left=now - 80_000, now=now)
    assert moved.floor == now - 80_000
    assert not moved.wants(message(1, now - 80_000))


def test_a_cursor_stays_short_in_a_crowd() -> None:
    now = 10**12
    given = [message(number, now - 5000 + number) for number in range(TAIL_SEEN_MAX + 50)]
    moved = Position(floor=now - 90_000).moved(given, skipped=0, left=None, now=now)
    assert len(moved.seen) == TAIL_SEEN_MAX
    assert not any(moved.wants(one) and one.sent_at >= moved.floor for one in given)
    assert len(write_cursor("n", None, moved)) < 6000
