"""Branches that run side by side in scopes of their own; how each ended is data, and joins and races decide on it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from engine.abandoning import held
from engine.errors import (
    AuthorError,
    CriticalError,
    EntryInProgressError,
    EvictedError,
    HistoryDivergedError,
    LoopResultError,
    RollbackCheckpointError,
    RollbackStopError,
    Yield,
)
from engine.scope import Scope
from engine.waits import merge, untied

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from engine.entry import BranchStatus


class Branch(Struct, frozen=True, kw_only=True):
    """One branch: its body, and the type that its value is read back as."""

    body: Callable[[Scope], Awaitable[Any]]
    returns: Any


class Returned(Struct, frozen=True):
    """The branch is done, with a value."""

    value: Any


class Failed(Struct, frozen=True):
    """The branch failed for good."""

    error: Exception


class Waiting(Struct, frozen=True):
    """The run yields; this branch waits for what ``signal`` says."""

    signal: Yield


class Stopped(Struct, frozen=True):
    """The branch was stopped by something that ends more than itself."""

    error: BaseException


Outcome = Returned | Failed | Waiting | Stopped

_PRECEDENCE = (EvictedError, HistoryDivergedError, EntryInProgressError, RollbackCheckpointError, RollbackStopError)


def scope_of(scope: Scope, key: bytes, name: str) -> Scope:
    """The scope of branch ``name`` of the join or race at ``key``."""
    storage = scope.turn.storage
    operation = storage.find(key)
    assert operation is not None
    below = scope.child(operation.location[-1], key)
    index = storage.register_name(name)
    branch = below.child(index, below.key_of(name))
    branch.is_branch = True
    return branch


def nested(scope: Scope, name: str, sort: str) -> Scope:
    """The scope ``name`` of an operation that leaves no entry itself; ``sort`` says in messages what it is."""
    scope.claim(name)
    storage = scope.turn.storage
    key = scope.key_of(name)
    if storage.find(key) is not None:
        storage.visited.add(key)
        raise scope.diverged(f"{name!r} is {sort} in the code, but history has another operation there")
    return scope.child(storage.register_name(name), key)


def check(scope: Scope, name: str, recorded: Mapping[str, BranchStatus], branches: Mapping[str, Branch]) -> None:
    """Raise where the code's branches are not those that history has for the operation ``name``."""
    if recorded.keys() != branches.keys():
        missing = ", ".join(sorted(recorded.keys() - branches.keys())) or "none"
        added = ", ".join(sorted(branches.keys() - recorded.keys())) or "none"
        raise scope.diverged(
            f"{name!r} was started with other branches (missing in the code: {missing}; new in the code: {added}). Keep"
            " the branches of a running join or race, or branch on ctx.get_version(name, latest)"
        )


def first_stop(outcomes: Iterable[Outcome]) -> BaseException | None:
    """Of those that were stopped, the error that counts most, or None."""
    stops = [outcome.error for outcome in outcomes if isinstance(outcome, Stopped)]
    for kind in _PRECEDENCE:
        for error in stops:
            if isinstance(error, kind):
                return error
    return stops[0] if stops else None


def merged_wait(outcomes: Iterable[Outcome]) -> Yield | None:
    """Everything that branches wait for, as one yield, or None where none waits."""
    return merge(outcome.signal for outcome in outcomes if isinstance(outcome, Waiting))


class Branches:
    """Runs branches, at most ``limit`` at once, until all have ended or ``is_decided`` says that it is enough.

    ``outcomes`` has how each ended, in the order in which they ended. What is cut off by a decision is cancelled and
    awaited, and is not among them.
    """

    __slots__ = ("_decided", "_done", "_is_decided", "_limit", "_running", "_scope", "_turn", "_waiting", "outcomes")

    def __init__(
        self,
        scope: Scope,
        branches: Mapping[str, tuple[Branch, Scope]],
        is_decided: Callable[[str, Outcome], bool],
        limit: int | None = None,
    ) -> None:
        self._scope = scope
        self._turn = scope.turn
        self._is_decided = is_decided
        self._limit = limit or len(branches)
        self._waiting = list(branches.items())[::-1]
        self._running: dict[str, asyncio.Task[None]] = {}
        self._decided = False
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.outcomes: dict[str, Outcome] = {}

    async def run(self) -> None:
        """Run them; returns when none runs any more."""
        try:
            await self._run()
        finally:
            # What decides may know of this in its turn, and such a circle would keep the whole run in memory.
            del self._is_decided

    async def _run(self) -> None:
        if not self._waiting:
            return
        while self._waiting and len(self._running) < self._limit:
            self._start_next()
        self._turn.leave()
        try:
            await self._done
        except asyncio.CancelledError:
            # Whoever cancelled this branch or run wants all of it to end, and waits for that.
            if not self._done.done() or self._done.cancelled():
                self._turn.enter()
            self._decided = True
            await self._cancel_running()
            raise
        await self._cancel_running()

    def _start_next(self) -> None:
        name, (branch, scope) = self._waiting.pop()
        self._turn.enter()
        self._running[name] = self._turn.spawn(lambda: self._work(name, branch, scope))

    async def _work(self, name: str, branch: Branch, scope: Scope) -> None:
        try:
            outcome = await _outcome_of(branch, scope)
        finally:
            self._running.pop(name, None)
            if self._decided:
                self._turn.leave()
        if self._decided:
            return
        self.outcomes[name] = outcome
        self._decided = self._is_decided(name, outcome)
        if not self._decided and self._waiting and self._may_start():
            self._start_next()
        if self._decided or not self._running:
            self._decided = True
            if not self._done.done():
                # The parent works again before this branch stops, so that the run is never idle in between.
                self._turn.enter()
                self._done.set_result(None)
        self._turn.leave()

    def _may_start(self) -> bool:
        turn = self._turn
        return not (turn.is_unwinding or turn.abort.is_set() or turn.fatal is not None)

    async def _cancel_running(self) -> None:
        cancelled: asyncio.CancelledError | None = None
        while self._running:
            for task in list(self._running.values()):
                task.cancel()
            try:
                await asyncio.wait(list(self._running.values()))
            except asyncio.CancelledError as error:
                # Whoever cancels this too waits for all of it to end.
                cancelled = error
            for name, task in list(self._running.items()):
                # One that was cancelled before its first step has never reached its own end.
                if task.done():
                    del self._running[name]
                    self._turn.leave()
        if cancelled is not None:
            raise cancelled


async def _outcome_of(branch: Branch, scope: Scope) -> Outcome:
    try:
        value = await held(lambda: branch.body(scope))
        scope.close()
    except Yield as signal:
        return Waiting(untied(signal))
    except Exception as error:  # noqa: BLE001 - an author's error is an outcome here
        if (stop := scope.overridden(error)) is not None:
            return Stopped(stop)
        return Stopped(error) if _ends_the_run(error) else Failed(error)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it ends more than this branch
        return Stopped(error)
    return Returned(value)


def _ends_the_run(error: Exception) -> bool:
    return isinstance(error, AuthorError) and not isinstance(error, (CriticalError, LoopResultError))
