"""Senders, workers that die, a sweeper and no wakes at all, with calls lost at random: each message counts once."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any

import pytest

from adapters.dynamodb.model.limits import LEASE_MS
from adapters.dynamodb.store import Claimed
from engine.commit import Commit, Outgoing
from engine.entry import Message
from engine.errors import FencedError, InboxMovedError, StoreUnavailableError
from tests.contract.aws import Answer

if TYPE_CHECKING:
    from adapters.dynamodb.store import Store
    from tests.contract.aws import Place

SENDERS, MESSAGES = 2, 3
GOT = b"got"


class Chaos:
    """One seed's world: what goes wrong, who sends, who works, and what each was told."""

    def __init__(self, place: Place, seed: int) -> None:
        self.place = place
        self.random = random.Random(seed)
        self.acknowledged: list[str] = []
        self.is_calm = True
        self.workers: set[asyncio.Future[None]] = set()
        place.client.chance = self._chance

    def _chance(self, operation: str) -> Any:
        if self.is_calm:
            return None
        lost = ConnectionResetError("lost")
        dice = self.random.random()
        if dice < 0.05:
            return lost
        if dice < 0.10:
            return ("after", lost)
        if dice < 0.13 and operation == "transact_write_items":
            return Answer("TransactionCanceledException", ["TransactionConflict", "None"])
        return self._stall if dice < 0.30 else None

    async def _stall(self) -> None:
        # Long enough for others to get everything done meanwhile: who goes on after it may be a zombie.
        self.place.clock.shift_ms += self.random.choice([0, 10_000, LEASE_MS + 1])
        await asyncio.sleep(self.random.choice([0, 0.02, 0.06]))

    async def send(self, store: Store, sender: int) -> None:
        for number in range(MESSAGES):
            message_id = f"{sender}-{number}"
            while True:
                try:
                    await store.send("w", name="go", body=b"", message_id=message_id)
                except StoreUnavailableError:
                    continue
                self.acknowledged.append(message_id)
                break
            await asyncio.sleep(self.random.choice([0, 0.02]))

    async def work(self, store: Store) -> None:
        try:
            claim = await store.claim("w")
            if isinstance(claim, Claimed):
                await self._run(claim.driver)
        except (StoreUnavailableError, FencedError):
            # The process ends here; its lease runs out.
            return

    async def _run(self, driver: Any) -> None:
        while self.is_calm or self.random.random() > 0.1:
            found = await driver.message_driver.receive(("go",), self.random.randint(1, 3))
            try:
                if found:
                    got = (await driver.get(GOT) or b"").decode().split()
                    got += [message.id for message in found]
                    await driver.commit(self._taking(got, found))
                    continue
                await driver.commit(Commit(yields=True, names=("go",)))
            except InboxMovedError:
                await driver.refresh()
                continue
            return

    def _taking(self, got: list[str], found: list[Message]) -> Commit:
        """Record and consume; now and then a message to oneself rides in the same commit."""
        echoes = [
            Outgoing(message=Message(id=f"echo-{message.id}", name="go", body=b"", sent_at=0))
            for message in found
            if message.id.endswith("-0") and not message.id.startswith("echo")
        ]
        return Commit(
            puts=[(GOT, " ".join(got).encode())],
            consumed=[message.id for message in found],
            outgoing=echoes,
        )

    async def sweep(self) -> bool:
        """Start a worker for whatever is overdue; whether there was anything."""
        is_due = "w" in await self.place.due()
        if is_due:
            worker = self.place.another(f"worker {self.random.random()}")
            self.workers |= {asyncio.ensure_future(self.work(worker)) for _ in range(self.random.choice([1, 1, 2]))}
        return is_due

    async def run(self) -> list[str]:
        place = self.place
        await place.store.start(workflow_id="w", type="order", input=b"")
        self.is_calm = False
        sending = asyncio.gather(*(self.send(place.another(f"sender {n}"), n) for n in range(SENDERS)))
        while not sending.done():
            with contextlib.suppress(StoreUnavailableError):
                await self.sweep()
            place.clock.shift_ms += self.random.choice([0, 1000])
            await asyncio.sleep(0.01)
        await sending
        self.is_calm = True
        quiet = 0
        for _ in range(40):
            await asyncio.gather(*self.workers)
            # A few sweeps in a row find nothing once all is at rest: an outstanding ticket is looked for within 30 s.
            quiet = 0 if await self.sweep() else quiet + 1
            place.clock.shift_ms += LEASE_MS + 1
            if quiet > 2:
                break
        assert quiet > 2
        return dict(await place.store.history("w"))[GOT].decode().split()


@pytest.mark.parametrize("seed", range(2))
async def test_every_message_counts_once_and_in_its_senders_order(place: Place, seed: int) -> None:
    chaos = Chaos(place, seed)
    got = await chaos.run()
    sent = [f"{sender}-{number}" for sender in range(SENDERS) for number in range(MESSAGES)]
    echoes = [f"echo-{sender}-0" for sender in range(SENDERS)]
    assert sorted(got) == sorted(sent + echoes)
    for sender in range(SENDERS):
        mine = [found for found in got if found.startswith(f"{sender}-")]
        assert mine == sorted(mine)
    left = [name for name in await place.items() if name.startswith("MSG#")]
    assert left == []
