"""What a program's code may see of its workflow's document at each place, by interpreting its data alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulation.programs import IN_PLACE, message_name, place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.programs import Op, Program

BIG = "y" * 6_000

LOST = "lost "
"""How the keys begin that branches write which lose their races: whether anybody sees them is a matter of chance."""


def change(document: dict[str, Any], variant: str, key: str, path: str) -> None:
    """Change a document as the operation at ``path`` does, under its own ``key``."""
    match variant:
        case "toggle":
            if document.pop(key, None) is None:
                document[key] = path
        case "big":
            document[key] = BIG
        case "same" | "hopeless":
            pass
        case _:
            document[key] = document.get(key, 0) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What must be seen at a place (``certain``), and the keys of what may be seen beside it (``possible``)."""

    certain: dict[str, Any]
    possible: frozenset[str]


@dataclass(slots=True, kw_only=True)
class _Branch:
    """Where the walk is: what is certain, what may be seen, and what is written by branches beside this one."""

    document: dict[str, Any] = field(default_factory=dict)
    possible: frozenset[str] = frozenset()
    beside: frozenset[str] = frozenset()


class Foreseen:
    """What a program's looks see.

    Attributes:
        sights: the path of a look -> what is seen there.
        lost: the names of the writes in branches that lose.
    """

    def __init__(self, program: Program) -> None:
        self.sights: dict[str, Sight] = {}
        self.lost: set[str] = set()
        self._walk(program.ops, "", _Branch())

    def key(self, path: str) -> str:
        """The key under which the operation at ``path`` writes; the iterations of its loops share it."""
        name = message_name(path)
        return LOST + name if name in self.lost else name

    def _walk(self, ops: list[Op], path: str, here: _Branch) -> None:
        for op in ops:
            self._visit(op, place(path, op.name), here)

    def _visit(self, op: Op, path: str, here: _Branch) -> None:
        match op.kind:
            case "write":
                change(here.document, op.variant, self.key(path), path)
                if op.variant != "hopeless":
                    # Based on what all branches had written by then.
                    here.possible |= here.beside
            case "look":
                certain = {key: value for key, value in here.document.items() if key not in here.possible}
                self.sights[path] = Sight(certain=certain, possible=here.possible)
            case "loop":
                for index in range(op.number):
                    self._walk(op.below["body"], place(path, f"~{index}"), here)
            case "join" | "map" | "race":
                self._fork(op, path, here)
            case kind if kind in IN_PLACE:
                self._walk(op.below["body"], path, here)

    def _fork(self, op: Op, path: str, here: _Branch) -> None:
        written = {name: set(_names(ops, place(path, name))) for name, ops in op.below.items()}
        winners = [list(op.below)[op.number]] if op.kind == "race" else list(op.below)
        for name in written.keys() - set(winners):
            self.lost |= written[name]
        ended = []
        for name, ops in op.below.items():
            others = {key for other, keys in written.items() if other != name for key in keys}
            branch = _Branch(
                document=dict(here.document), possible=here.possible, beside=here.beside | frozenset(others)
            )
            self._walk(ops, place(path, name), branch)
            ended.append((name, branch))
        for name, branch in ended:
            if name not in winners:
                continue
            for key in written[name]:
                here.document.pop(key, None)
                if key in branch.document:
                    here.document[key] = branch.document[key]
            here.possible |= branch.possible & here.beside


def _names(ops: list[Op], path: str) -> Iterator[str]:
    """The names of all writes in a scope and below it."""
    for op in ops:
        here = place(path, op.name)
        if op.kind == "write":
            yield message_name(here)
        for branch, below in op.below.items():
            yield from _names(below, message_name(here if op.kind in IN_PLACE else place(here, branch)))
