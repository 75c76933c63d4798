"""The signal that what one waits for is no longer wanted, as whoever may set it holds it."""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary


class AbortEvent:
    """An abort signal whose owner can set it; one made for a parent is set with it."""

    __slots__ = ("__weakref__", "_children", "_event")

    def __init__(self, parent: AbortEvent | None = None) -> None:
        self._event = asyncio.Event()
        # Weak, since a run may make one for each of its many waits; in their order, so that equal runs stay equal.
        self._children: WeakKeyDictionary[AbortEvent, None] = WeakKeyDictionary()
        if parent is not None:
            parent._children[self] = None  # noqa: SLF001 - of its own class
            if parent.is_set():
                self._event.set()

    def set(self) -> None:
        """Set it, and all that were made for it, for good."""
        self._event.set()
        for child in list(self._children):
            child.set()

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Return once it is set."""
        await self._event.wait()
