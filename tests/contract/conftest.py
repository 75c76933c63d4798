"""The stores that the contract is held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from engine.commit import Commit
from engine.memory.driver import MemoryDriver
from tests.contract.aws import Place, place_on
from tests.moto_server import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from engine.driver import EngineDriver
    from engine.entry import Message

EMULATORS = ["moto", pytest.param("ministack", marks=pytest.mark.ministack)]


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    with serving() as endpoint:
        yield endpoint


def _place(request: pytest.FixtureRequest, emulator: str) -> AbstractAsyncContextManager[Place]:
    # One of the two is called as functions do it, the other with every request checked for its form.
    return place_on(request.getfixturevalue(emulator), by_short_way=emulator == "ministack")


@pytest.fixture(params=EMULATORS)
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async with _place(request, request.param) as made:
        yield made


@pytest.fixture
async def moto_place(moto: str) -> AsyncIterator[Place]:
    async with place_on(moto) as made:
        yield made


@pytest.fixture
async def ministack_place(ministack: str) -> AsyncIterator[Place]:
    async with place_on(ministack, by_short_way=True) as made:
        yield made


@dataclass
class Subject:
    """A driver under test, and ways round it: a message from outside, and what another process would load."""

    driver: EngineDriver
    send: Callable[[Message], Awaitable[None]]
    reloaded: Callable[[], Awaitable[EngineDriver]]


@pytest.fixture(params=["memory", *EMULATORS])
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    if request.param == "memory":
        memory = MemoryDriver()

        async def add(message: Message) -> None:
            await memory.message_driver.add(message)

        async def same() -> EngineDriver:
            await memory.message_driver.refresh()
            return memory

        yield Subject(memory, add, same)
        return
    async with _place(request, request.param) as made:
        driver = await made.started()
        await driver.commit(Commit(prefixes=[b""]))

        async def send(message: Message) -> None:
            await made.store.send("w", name=message.name, body=message.body, message_id=message.id)

        async def reload() -> EngineDriver:
            made.clock.shift_ms += 120_000
            return await made.claimed()

        yield Subject(driver, send, reload)
