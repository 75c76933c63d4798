"""The names that operations of a scope had in one execution: each once, and numbered where the engine gives them."""

from __future__ import annotations


class UsedNames(dict[str, None]):
    """Names in the order in which they were used; a name stays used. A dictionary, for its speed at every operation."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def next(self, stem: str) -> str:
        """The first of ``stem``, ``stem:2``, ``stem:3`` and so on that is not used."""
        # Those below the latest answer are used, however many they are, and are not looked at again.
        number = self._numbers.get(stem, 1)
        while (name := stem if number == 1 else f"{stem}:{number}") in self:
            number += 1
        self._numbers[stem] = number
        return name
