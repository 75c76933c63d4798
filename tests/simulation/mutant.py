"""A mutant: the product, broken in one decision, while it is played; afterwards it is as before."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.simulation.run import first_breach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SEEDS_MAX = 300
"""Seeds within which a mutant must be caught."""

Patch = tuple[Any, str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One broken decision: the law that it breaks, and what replaces what (owner, attribute, replacement)."""

    name: str
    law: int
    patches: Callable[[], list[Patch]]

    @contextlib.contextmanager
    def alive(self) -> Iterator[None]:
        """Within the block the product is broken."""
        patches = self.patches()
        before = [(owner, name, vars(owner)[name]) for owner, name, _ in patches]
        for owner, name, replacement in patches:
            setattr(owner, name, replacement)
        try:
            yield
        finally:
            for owner, name, original in before:
                setattr(owner, name, original)

    def caught(self) -> tuple[int, str] | None:
        """The first seed in which its law's checker sees it, and what that says."""
        with self.alive():
            found = first_breach(range(SEEDS_MAX), self.law)
        return None if found is None else (found[0], str(found[1]))
