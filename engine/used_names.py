"""The names that operations of a scope had in one execution: each once, and numbered where the engine gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class UsedNames:
    """Names in the order in which they were used; a name stays used."""

    __slots__ = ("_numbers", "_used")

    def __init__(self) -> None:
        self._used: dict[str, None] = {}
        self._numbers: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._used

    def __iter__(self) -> Iterator[str]:
        return iter(self._used)

    def add(self, name: str) -> None:
        """It is used from here on."""
        self._used[name] = None

    def next(self, stem: str) -> str:
        """The first of ``stem``, ``stem:2``, ``stem:3`` and so on that is not used."""
        # Those below the latest answer are used, however many they are, and are not looked at again.
        number = self._numbers.get(stem, 1)
        while (name := stem if number == 1 else f"{stem}:{number}") in self._used:
            number += 1
        self._numbers[stem] = number
        return name
