"""A place in a run, and the one door into history: every operation of every kind enters through ``open``.

A scope is the root of a workflow, a branch, a try block or one iteration of a loop. It knows which names its code has
used in this run, which operation is under way, and whether what it does is still a replay.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from typing import TYPE_CHECKING, Any, TypeVar

from engine import keys, limits, values
from engine.abandoning import give_up
from engine.entry import Entry, MessageEntry
from engine.errors import (
    CancelledError,
    ControlFlow,
    EntryInProgressError,
    EvictedError,
    HistoryDivergedError,
    RollbackStopError,
    UnstorableValueError,
    Yield,
)
from engine.history import mismatch
from engine.history.documents import EMPTY
from engine.history.instants import Latest
from engine.history.kept import UNREADABLE
from engine.history.positions import MIXED, NAMED_REMEDY, REMEDY, MisplacedError, Positions
from engine.location import check_name, render, spell
from engine.used_names import UsedNames

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from engine.abort import AbortEvent
    from engine.entry import EntryKind
    from engine.history.documents import Document
    from engine.history.positions import Placed
    from engine.location import Location, PathSegment
    from engine.turn import Turn

T = TypeVar("T")


class Scope:
    """One place in a run.

    Attributes:
        turn: the run that it belongs to.
        location: where it stands; ``()`` is the root.
        key: the key prefix of everything below it.
        abort: set when the work of this scope is no longer wanted.
        is_branch: whether it is the outermost scope of a branch, which runs as a task of its own.
        is_in_race: whether it lies in a race that is not decided, so that what it takes may have to be given back.
        is_replaying: no operation of it has acted in this run yet, and an earlier run left entries in it.
        open_messages: completable messages that were received here and are not completed.
        version: the version that its operations without names have, where they are given no other.
        inner_version: that of the scopes which its latest operation opens.
        document: the newest version of the document that this scope knows of.
        checkpoint: whether a rollback checkpoint was passed, here or in a parent before this scope began.
    """

    __slots__ = (
        "_chance",
        "_latest",
        "_leftover",
        "_parent",
        "_pending",
        "_pending_work",
        "_positions",
        "_signal",
        "_tellings",
        "_used",
        "abort",
        "checkpoint",
        "document",
        "inner_version",
        "is_branch",
        "is_in_race",
        "is_replaying",
        "key",
        "location",
        "open_messages",
        "turn",
        "version",
    )

    def __init__(self, turn: Turn, location: Location, key: bytes, parent: Scope | None) -> None:
        self.turn = turn
        self.location = location
        self.key = key
        self._parent = parent
        self.abort: AbortEvent = turn.abort if parent is None else parent.abort
        self.is_in_race: bool = parent is not None and parent.is_in_race
        self.checkpoint: bool = parent is not None and parent.checkpoint
        self.document: Document = EMPTY if parent is None else parent.document
        self.version: int = 1 if parent is None else parent.inner_version
        self.inner_version: int = self.version
        self.is_branch = False
        self.open_messages: dict[str, None] = {}
        self._leftover = turn.storage.first_unvisited(key)
        self.is_replaying = self._leftover is not None
        self._used = UsedNames()
        self._positions: Positions | None = None
        self._pending: str | None = None
        self._pending_work: tuple[Coroutine[Any, Any, Any], Coroutine[Any, Any, Any]] | None = None
        self._signal: BaseException | None = None
        self._latest = Latest()
        self._chance = 0
        self._tellings = 0

    @classmethod
    def root(cls, turn: Turn) -> Scope:
        """The scope of a workflow's own body."""
        return cls(turn, (), keys.HISTORY_PREFIX, None)

    def child(self, segment: PathSegment, key: bytes) -> Scope:
        """The scope at ``key``, one ``segment`` below this one."""
        return Scope(self.turn, (*self.location, segment), key, self)

    # --- one operation at a time -------------------------------------------------------------------------------------

    def operation(self, name: str, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """``work`` as the operation ``name`` of this scope; must be awaited before the next one is made.

        Raises:
            EntryInProgressError: another one is unfinished, or was never awaited.
        """
        if self._pending is not None:
            work.close()
            raise self._in_progress()
        self._pending = name
        guarded = self._guard(work)
        self._pending_work = (guarded, work)
        return guarded

    async def _guard(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            self._enter()
        except BaseException as signal:
            work.close()
            self._pending = None
            self._told(signal)
            await self._leave_swallowing(signal)
            raise
        try:
            return await work
        except UNREADABLE as unreadable:
            # No failure of the operation, which code might catch to do something else in its place.
            raise self.turn.fail(unreadable)  # noqa: B904 - the same error
        except ControlFlow as signal:
            self._told(signal)
            await self._leave_swallowing(signal)
            raise
        except asyncio.CancelledError:
            if self.turn.is_stopping or self.abort.is_set():
                self._told(EvictedError())
            raise
        finally:
            self._pending = None

    async def _leave_swallowing(self, signal: BaseException) -> None:
        if self._tellings > limits.UNWIND_OPERATIONS_MAX:
            await give_up(signal, self.describe())

    def _told(self, signal: BaseException) -> None:
        """The code of this scope, and what it is nested in within one branch, is told to wait or to stop."""
        self._tellings += 1
        scope: Scope | None = self
        while scope is not None:
            scope._signal = signal  # noqa: SLF001 - of its own class
            scope = None if scope.is_branch else scope._parent  # noqa: SLF001

    def _enter(self) -> None:
        turn = self.turn
        if turn.is_unwinding:
            if self._tellings >= limits.UNWIND_OPERATIONS_MAX:
                raise turn.fail(mismatch.swallowed(self.describe()))
            signal = turn.unwound
            assert signal is not None
            raise signal
        turn.check()
        if self.abort.is_set():
            raise CancelledError("another branch won the race")

    def _in_progress(self) -> EntryInProgressError:
        name, work = self._pending, self._pending_work
        if work is not None and inspect.getcoroutinestate(work[0]) == inspect.CORO_CREATED:
            for coroutine in work:
                coroutine.close()
        return self.turn.fail(mismatch.unfinished(self.describe(), name))

    def close(self) -> None:
        """The code of this scope has returned: everything that history holds for it must have been visited.

        Raises:
            HistoryDivergedError: something was not.
            EntryInProgressError: an operation was created and never awaited.
            YieldSwallowedError: the code was told to wait, and returned instead.
            ControlFlow, TorporError: the run must end, so what the code returned means nothing.
        """
        if (stop := self.overridden() or self._signal) is not None:
            raise stop
        if self._pending is not None:
            raise self._in_progress()
        if self.has_leftovers() and self._leftover is not None:
            remedy = NAMED_REMEDY if self._positions is None else REMEDY
            raise self.diverged(f"{mismatch.leftover(self.turn.storage, self._leftover)} {remedy}")

    def overridden(self, error: Exception | None = None) -> BaseException | None:
        """The code of this scope has raised ``error``, or returned: what it means nothing for, or None."""
        if isinstance(self._signal, Yield):
            return self.turn.fail(mismatch.swallowed(self.describe(), error))
        return self._signal if isinstance(self._signal, ControlFlow) else self.turn.fatal

    # --- the door ---------------------------------------------------------------------------------------------------

    def has_used(self, name: str) -> bool:
        """Whether this execution of the scope has an operation ``name``."""
        return name in self._used

    def claim(self, name: str) -> None:
        """Use ``name`` once in this execution of the scope."""
        if name in self._used:
            raise self.diverged(
                f"the name {name!r} is used twice; every operation needs a name of its own in its scope"
            )
        if self._positions is not None and not self._positions.admits(name):
            raise self.diverged(MIXED.format(name=repr(name), is_what="stands", are_what="have no names"))
        check_name(name)
        self._used[name] = None

    def place(self, find: Callable[[Positions], Placed]) -> Placed:
        """The place of an operation that has no name, which ``find`` takes from those of this scope.

        Raises:
            HistoryDivergedError: history has something else there, or other operations of this scope have names.
        """
        try:
            if self._positions is None:
                self._positions = Positions(self.turn.storage, self.location, self.key, self._used)
            placed = find(self._positions)
        except MisplacedError as misplaced:
            raise self.diverged(str(misplaced)) from None
        self.inner_version = placed.version
        return placed

    def next_name(self, stem: str) -> str:
        """``stem``, or ``stem:2`` and so on where this execution of the scope has used it."""
        return self._used.next(stem)

    def open(self, name: str, kind: type[EntryKind]) -> tuple[bytes | None, Entry | None]:
        """Enter history at ``name`` with an operation of ``kind``: its key, and the entry recorded there.

        The key is None where the name was never registered; ``key_of`` gives one. In the read-only replay that collects
        undos a missing entry is the frontier, where the replay ends.

        Raises:
            HistoryDivergedError: the name was used before, or the entry is of another kind.
        """
        self.claim(name)
        key, entry = self.look(name, kind)
        if entry is None:
            self.refuse_other(name, kind)
        return key, entry

    def open_parts(self, name: str) -> None:
        """As ``open``, for an operation that has no entry of its own at ``name``, only parts of it."""
        self.claim(name)
        storage = self.turn.storage
        if (entry := storage.find_below(self.key, name)) is not None:
            raise self.diverged(mismatch.text(storage, self.location, name, MessageEntry.kind, entry.kind))
        self.refuse_other(name, MessageEntry)

    def refuse_other(self, name: str, kind: type[EntryKind]) -> None:
        """Raise where history has an operation at ``name`` that left no entry of its own, and is none of ``kind``."""
        storage = self.turn.storage
        if storage.loaded_count and (found := mismatch.other_operation(storage, self.key, name, kind)) is not None:
            raise self.diverged(mismatch.text(storage, self.location, name, kind.kind, found))

    def look(self, name: str, kind: type[EntryKind]) -> tuple[bytes | None, Entry | None]:
        """As ``open``, for a part of an operation whose name is claimed already."""
        storage = self.turn.storage
        index = storage.find_name(name)
        key = None if index is None else keys.child_key(self.key, index)
        entry = None if key is None else storage.find(key)
        if entry is None or key is None:
            self.frontier(name)
            return key, None
        storage.visited.add(key)
        if type(entry.kind) is not kind:
            raise self.diverged(mismatch.text(storage, self.location, name, kind.kind, entry.kind))
        return key, entry

    def frontier(self, missing: str | None = None) -> None:
        """What is recorded here is not finished, or ``missing``: the replay that collects undos goes no further."""
        if not self.turn.is_collecting:
            return
        if missing and (why := mismatch.passed_over(self.turn.storage, self.location, missing)) is not None:
            raise self.diverged(why)
        raise RollbackStopError

    def act(self, *, is_step: bool = False) -> None:
        """An operation of this scope goes beyond what history has: from here on it is no replay."""
        if self.turn.is_collecting:
            raise RollbackStopError
        if self.turn.is_guarded:
            self.turn.guard(is_step=is_step)
        self.is_replaying = False

    def key_of(self, name: str) -> bytes:
        """The key of ``name`` in this scope; registers the name."""
        return keys.child_key(self.key, self.turn.storage.register_name(name))

    def record(self, name: str, kind: EntryKind, *, is_urgent: bool = True) -> Entry:
        """Write a new entry at ``name``."""
        storage = self.turn.storage
        index = storage.register_name(name)
        entry = Entry(self.turn.new_id(), (*self.location, index), kind)
        storage.put(keys.child_key(self.key, index), entry, is_urgent=is_urgent)
        return entry

    def rewrite(self, key: bytes, entry: Entry, kind: EntryKind, *, is_urgent: bool = True) -> Entry:
        """Change the entry at ``key``."""
        changed = Entry(entry.id, entry.location, kind)
        self.turn.storage.put(key, changed, is_urgent=is_urgent)
        return changed

    def store(self, value: Any, as_type: Any, what: str) -> tuple[bytes, Any]:
        """The stored form of ``value``, and the value as it will be read back; ``what`` names its origin in errors.

        Raises:
            UnstorableValueError: it has none, or is too large for the driver.
        """
        try:
            data, value = values.round_trip(value, as_type)
        except UnstorableValueError as error:
            raise UnstorableValueError(f"{what} returned what cannot be stored: {error}") from error
        self.check_bytes(len(data), what)
        return data, value

    def check_bytes(self, size: int, what: str, *, is_message: bool = False) -> None:
        """Raise where ``size`` bytes are more than the driver can keep in one entry, or in one message's body."""
        most: int = self.turn.driver.value_bytes_max
        if is_message:
            most = getattr(self.turn.driver, "message_bytes_max", most)
        if size > most:
            raise mismatch.too_large(what, size, most)

    def visit_below(self, key: bytes) -> None:
        """Count everything below ``key`` as visited: its operation answers from history without entering it."""
        storage = self.turn.storage
        if storage.loaded_count:
            storage.visited.update(storage.below(key))

    # --- divergence -------------------------------------------------------------------------------------------------

    def diverged(self, why: str) -> HistoryDivergedError:
        """The error that ends this run because code and history disagree, even where workflow code swallows it."""
        return self.turn.fail(HistoryDivergedError(f"at {self.describe()}: {why}"))

    def describe(self) -> str:
        """The location in words, for messages."""
        return repr(render(self.location, self.turn.storage.names)) if self.location else "the workflow's own scope"

    def has_leftovers(self) -> bool:
        """Whether an earlier run left an entry in this scope that this run has not visited yet."""
        if self._leftover is not None:
            self._leftover = self.turn.storage.first_unvisited(self.key, self._leftover)
        return self._leftover is not None

    # --- deterministic helpers --------------------------------------------------------------------------------------

    def finished(self, at: int, *, composite: bytes | None = None) -> None:
        """An operation of this scope finished at ``at``; ``composite`` is its key where what is below it counts too."""
        self._latest.add(at, composite)
        if composite is not None:
            self.see(self.turn.storage.documents.below(composite))

    def see(self, document: Document) -> None:
        """Know of a version of the document from here on, and so does what this scope is nested in; branches apart."""
        scope: Scope | None = self
        while scope is not None and document.version > scope.document.version:
            scope.document = document
            scope = None if scope.is_branch else scope._parent  # noqa: SLF001 - of its own class

    def now(self) -> int:
        """The instant (milliseconds) of the latest finished operation of this scope and its parents, else the start."""
        above = self.turn.started_at if self._parent is None else self._parent.now()
        return max(self._latest.of(self.turn.storage), above)

    def chance(self) -> bytes:
        """32 bytes that are different at every call and equal on replay."""
        self._chance += 1
        seed = f"{len(self.turn.workflow_id)}:{self.turn.workflow_id}:{self._chance}:".encode("utf-8", "surrogatepass")
        return hashlib.sha256(seed + spell(self.location, self.turn.storage.names)).digest()
