"""Calls side by side, none of which is left running where another one has failed; and what is done by and by."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Iterator, Sequence

T = TypeVar("T")


async def together(calls: Iterable[Awaitable[T]]) -> list[T]:
    """The answers to ``calls``, in their order; where some fail, the first of their errors, once all are over."""
    found: list[T] = []
    for answer in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(answer, BaseException):
            raise answer
        found.append(answer)
    return found


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """``items`` in their order, ``size`` at a time."""
    return (items[first : first + size] for first in range(0, len(items), size))
