"""Calls side by side."""

from __future__ import annotations

import asyncio

import pytest

from adapters.dynamodb.together import together
from engine.errors import StoreUnavailableError


async def answers(number: int, after_rounds: int) -> int:
    for _ in range(after_rounds):
        await asyncio.sleep(0)
    return number


async def fails() -> int:
    raise StoreUnavailableError("away")


async def test_answers_are_in_the_order_of_the_calls() -> None:
    assert await together(answers(number, 5 - number) for number in range(5)) == [0, 1, 2, 3, 4]
    assert await together([]) == []


async def test_none_is_left_running_where_another_one_fails() -> None:
    before = asyncio.all_tasks()
    slow = asyncio.ensure_future(answers(1, 5))
    with pytest.raises(StoreUnavailableError):
        await together([fails(), slow])
    assert slow.done()
    assert asyncio.all_tasks() == before


async def test_all_are_called_off_where_the_caller_is() -> None:
    before = asyncio.all_tasks()
    calling = asyncio.ensure_future(together(answers(number, 10**9) for number in range(3)))
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert asyncio.all_tasks() == before
