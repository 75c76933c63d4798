"""A Query is no snapshot: it may show the HEAD of a transaction, and its other items as they were before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from adapters.dynamodb.store import NotDue, Unreadable
from engine.commit import Commit
from engine.errors import CorruptHistoryError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.driver import Timer
    from tests.contract.aws import Place


async def torn(place: Place) -> Callable[[], Awaitable[Any]]:
    """A workflow whose last commit a reader does not see whole; the answer makes it appear."""
    driver = await place.started()
    await driver.commit(Commit(puts=[(b"k", b"v")]))
    await driver.release(wake_at=place.clock.now())
    last = [item for name, item in sorted((await place.items()).items()) if name.startswith("LOG#")][-1]
    address = {name: last[name] for name in ("pk", "sk")}
    await place.client.delete_item(TableName=place.table, Key=address)

    async def appear() -> None:
        await place.client.put_item(TableName=place.table, Item=last)

    return appear


async def test_a_claim_looks_again_until_the_log_is_whole(place: Place) -> None:
    appear = await torn(place)
    place.client.plan["query"] = [None, None, appear]
    driver = await place.claimed()
    assert dict(await driver.list(b""))[b"k"] == b"v"


async def test_a_history_looks_again_too(place: Place) -> None:
    appear = await torn(place)
    place.client.plan["query"] = [None, appear]
    assert dict(await place.store.history("w"))[b"k"] == b"v"


async def test_a_history_is_given_time_to_settle(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    appear = await torn(place)
    pauses: list[float] = []
    call_later = place.clock.call_later

    def told(delay_s: float, callback: Callable[[], None]) -> Timer:
        pauses.append(delay_s)
        return call_later(delay_s, callback)

    async def settle() -> None:
        if sum(pauses) >= 0.01:
            await appear()

    monkeypatch.setattr(place.clock, "call_later", told)
    place.client.plan["query"] = [settle] * 5
    assert dict(await place.store.history("w"))[b"k"] == b"v"


async def test_what_never_appears_is_a_corrupt_history_and_not_an_older_one(place: Place) -> None:
    await torn(place)
    claim = await place.store.claim("w")
    assert isinstance(claim, Unreadable)
    assert isinstance(claim.error, CorruptHistoryError)
    with pytest.raises(StoreUnavailableError):
        await place.store.history("w")


async def test_a_folded_log_is_whole_without_what_was_folded(place: Place) -> None:
    driver = await place.started()
    for number in range(60):
        await driver.commit(Commit(puts=[(b"k", bytes([number]) * 4000)]))
    assert any(name.startswith("SNAP#") for name in await place.items())
    await driver.release(wake_at=place.clock.now())
    assert dict(await (await place.claimed()).list(b""))[b"k"] == bytes([59]) * 4000


async def test_a_message_is_taken_once_though_its_deletion_is_not_seen_yet(place: Place) -> None:
    driver = await place.started()
    await place.store.send("w", name="go", body=b"\x01", message_id="first")
    await driver.refresh()
    [first] = await driver.message_driver.receive(("go",), 1)
    ghost = (await place.items())["MSG#000000000001"]
    await driver.commit(Commit(puts=[(b"k", b"v")], consumed=[first.id], yields=True, names=("go",)))
    await place.client.put_item(TableName=place.table, Item=ghost)
    assert isinstance(await place.store.claim("w"), NotDue)
    await place.store.send("w", name="go", body=b"\x02", message_id="second")
    again = await place.claimed()
    assert [message.id for message in await again.message_driver.receive((), 9)] == ["second"]
    await again.refresh()
    assert [message.id for message in await again.message_driver.receive((), 9)] == ["second"]


async def test_a_message_that_was_given_back_is_waited_for(place: Place) -> None:
    driver = await place.started()
    await place.store.send("w", name="go", body=b"\x01", message_id="first")
    await driver.refresh()
    [first] = await driver.message_driver.receive(("go",), 1)
    await driver.commit(Commit(puts=[(b"k", b"v")], consumed=[first.id]))
    await driver.commit(Commit(deletes=[b"k"], returned=[first]))
    await driver.release(wake_at=place.clock.now())
    item = (await place.items())["MSG#000000000001"]
    address = {name: item[name] for name in ("pk", "sk")}
    await place.client.delete_item(TableName=place.table, Key=address)

    async def appear() -> None:
        await place.client.put_item(TableName=place.table, Item=item)

    place.client.plan["query"] = [None, appear]
    assert await (await place.claimed()).message_driver.receive(("go",), 1) == [first]
