"""What is told outside of the system: which bodies ran where, what callers were answered, what operators asked for."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulation.timeline import ProcessLoop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.world import World


@dataclass(slots=True, kw_only=True)
class Sent:
    """A message as its sender knows it: the ``index``-th of its name from this sender, to this ``life``."""

    life: str
    sender: str
    name: str
    index: int
    is_acknowledged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A copy of a document as an activity that returned got it and left it; ``number`` counts all of a world."""

    number: int
    path: str
    process: str
    before: dict[str, Any]
    after: dict[str, Any]


@dataclass(slots=True)
class Ledger:
    """The outside's own account.

    Attributes:
        bodies: how often which body of which workflow was entered.
        undo_order: life -> the paths whose rollback handlers ran.
        sent: (life, message id) -> the message.
        drafts: what activities have made of documents, which of their results says which.
        wanted: life -> message name -> the body that its code waits for, as its holder knows it.
        awaited: lives, and the workflows whose ends their code waits for.
        cancelled, undoing, purged: lives that were to be cancelled, undone as well, deleted.
    """

    world: World
    bodies: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    undo_order: dict[str, list[str]] = field(default_factory=dict)
    seen: dict[tuple[str, str], Any] = field(default_factory=dict)
    sent: dict[tuple[str, str], Sent] = field(default_factory=dict)
    drafts: list[Draft] = field(default_factory=list)
    wanted: dict[str, dict[str, Any]] = field(default_factory=dict)
    awaited: dict[tuple[str, str], None] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    undoing: set[str] = field(default_factory=set)
    purged: set[str] = field(default_factory=set)
    is_closed: bool = False

    def _process(self) -> str:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ProcessLoop)
        return loop.name

    def run_began(self, workflow_id: str) -> None:
        """Workflow code was entered."""
        if not self.is_closed:
            self.world.ran(workflow_id, "", self._process())

    def body_began(self, workflow_id: str, path: str) -> None:
        """A step's body was entered."""
        if not self.is_closed:
            self.bodies[workflow_id, path] += 1
            self.world.ran(workflow_id, path, self._process())

    def body_ended(self, workflow_id: str, path: str) -> None:
        """A step's body returned."""
        if not self.is_closed:
            self.world.note(f"{workflow_id} body {path} returns")

    def fails(self, workflow_id: str, path: str, times: int) -> bool:
        """Whether a body that fails so many times has to fail again."""
        self.failures[workflow_id, path] += 1
        return self.failures[workflow_id, path] <= times

    def drafted(self, path: str, before: dict[str, Any], after: dict[str, Any]) -> int:
        """An activity is about to return that has changed its copy of the document; the number of what it made."""
        number = len(self.drafts)
        self.drafts.append(Draft(number=number, path=path, process=self._process(), before=before, after=after))
        return number

    def looked(self, workflow_id: str, path: str, seen: dict[str, Any]) -> None:
        """Workflow code has looked at its document."""
        if not self.is_closed:
            self.world.looked(workflow_id, path, seen, self._process())

    def undone(self, workflow_id: str, path: str) -> None:
        """A rollback handler ran."""
        if not self.is_closed:
            life = self.world.run_by(workflow_id, self._process()).life
            self.undo_order.setdefault(life, []).append(path)
            self.world.note(f"{workflow_id} undoes {path}")

    @contextlib.contextmanager
    def wanting(self, workflow_id: str, name: str, body: Any) -> Iterator[None]:
        """Within the block workflow code waits for a message."""
        self._want(workflow_id, name, body)
        yield
        self._want(workflow_id, name, None)

    @contextlib.contextmanager
    def awaiting(self, workflow_id: str, child: str) -> Iterator[None]:
        """Within the block workflow code waits for another workflow's end."""
        mark = (self.world.run_by(workflow_id, self._process()).life, str(child))
        if not self.is_closed:
            self.awaited[mark] = None
        yield
        self.awaited.pop(mark, None)

    def _want(self, workflow_id: str, name: str, body: Any) -> None:
        # What a holder that was taken over waits for is of no interest.
        view = self.world.views[workflow_id]
        if not self.is_closed and view.claims and view.claims[-1].sandbox == self._process():
            self.wanted.setdefault(view.life, {})[name] = body

    def saw(self, workflow_id: str, path: str, value: Any) -> None:
        """Workflow code saw a value that must be the same whenever it is replayed."""
        known = self.seen.setdefault((workflow_id, path), value)
        if known != value:
            self.world.bug(f"{workflow_id} saw {value} at {path}, and {known} before")
