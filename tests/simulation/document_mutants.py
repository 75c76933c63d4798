"""Mutants of the law of documents: 18."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from engine import values
from engine.author import knowing
from engine.history import documents
from engine.history.documents import Document, Documents, Draft
from engine.ops.attempt import Attempt
from tests.simulation.mutant import Mutant

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.mutant import Patch


def _in_a_commit_of_its_own() -> list[Patch]:
    gather = Documents.gather
    held: dict[int, list[tuple[bytes, bytes]]] = {}

    def mutant(self: Documents, entry_keys: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
        before = held.pop(id(self), [])
        held[id(self)] = gather(self, entry_keys)
        return before

    return [(Documents, "gather", mutant)]


def _failed_draft_is_kept() -> list[Patch]:
    failed = Attempt._failed

    async def mutant(self: Attempt, error: Exception) -> bool:
        if self.draft is not None:
            kept = self.turn.storage.documents
            kept.current = Document(kept.current.version, values.encode(self.draft.content))
        return await failed(self, error)

    return [(Attempt, "_failed", mutant)]


def _not_loaded() -> list[Patch]:
    return [(Documents, "load", lambda *_: None)]


def _forgotten_with_its_iteration() -> list[Patch]:
    return [(Documents, "within", lambda *_: documents.EMPTY)]


def _loser_is_kept() -> list[Patch]:
    return [(Documents, "drop_between", lambda *_: [])]


def _last_one_wins() -> list[Patch]:
    version = Draft.version

    def mutant(self: Draft, check_bytes: Any) -> Document | None:
        base, newest = self._base, self._documents.current
        self._base = newest
        made = version(self, check_bytes)
        self._base = base
        return made

    return [(Draft, "version", mutant)]


def _branches_are_seen() -> list[Patch]:
    def state(self: Any) -> Any:
        return MappingProxyType(values.decode(self._scope.turn.storage.documents.current.data))

    return [(knowing.Knowing, "state", property(state))]


def _replayed_is_not_seen() -> list[Patch]:
    return [(Documents, "of", lambda *_: documents.EMPTY)]


DOCUMENT_MUTANTS = [
    Mutant(name="a document in a commit of its own", law=18, patches=_in_a_commit_of_its_own),
    Mutant(name="a failed attempt's draft is kept", law=18, patches=_failed_draft_is_kept),
    Mutant(name="a document is not loaded", law=18, patches=_not_loaded),
    Mutant(name="a document is forgotten with its iteration", law=18, patches=_forgotten_with_its_iteration),
    Mutant(name="a loser's document is kept", law=18, patches=_loser_is_kept),
    Mutant(name="of two writers the last one wins", law=18, patches=_last_one_wins),
    Mutant(name="branches see each other's documents", law=18, patches=_branches_are_seen),
    Mutant(name="a replay does not see what was written", law=18, patches=_replayed_is_not_seen),
]
