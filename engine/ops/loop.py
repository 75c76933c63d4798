"""A loop: iterations in scopes of their own, a state that survives each, and a history that stays short."""

from __future__ import annotations

import asyncio
from types import UnionType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Union, get_args, get_origin

from msgspec import Struct

from engine import keys, limits, values
from engine.entry import Entry, EntryMetadata, EntryStatus, LoopEntry
from engine.errors import LoopResultError
from engine.location import LoopIteration
from engine.ops.failures import opened
from engine.reading import recorded_value

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.scope import Scope

T = TypeVar("T")


class Continue(Struct, Generic[T], frozen=True):
    """Returned by a loop's body: go on, with this state."""

    state: T = None  # type: ignore[assignment]  # a loop without a state continues with Continue()


class Break(Struct, Generic[T], frozen=True):
    """Returned by a loop's body: the loop is over, with this value."""

    value: T = None  # type: ignore[assignment]  # a loop without a value ends with Break()


class LoopPolicy(Struct, frozen=True, kw_only=True):
    """How much history a loop keeps, in iterations; and the types that its state and value are read back as."""

    prune_interval: int = limits.HISTORY_PRUNE_INTERVAL
    history_size: int | None = None
    state_type: Any = values.PLAIN
    returns: Any = values.PLAIN

    @property
    def kept(self) -> int:
        """How many finished iterations stay in history."""
        return self.prune_interval if self.history_size is None else self.history_size


def break_type(declared: Any) -> Any:
    """What a body may break with, of all that it is ``declared`` to return; PLAIN where that does not say."""
    members = get_args(declared) if get_origin(declared) in (Union, UnionType) else (declared,)
    values_of = [get_args(member)[0] for member in members if get_origin(member) is Break]
    if not values_of or any(isinstance(each, TypeVar) for each in values_of):
        return values.PLAIN
    return Union[tuple(values_of)]  # noqa: UP007 - made of what is known only now


def is_pruning(iteration: int, policy: LoopPolicy) -> bool:
    """Whether the loop flushes and forgets before ``iteration`` begins."""
    return iteration % policy.prune_interval == 0


def result_of(name: str, answer: object, *, has_state: bool) -> Continue[Any] | Break[Any]:
    """What a body's answer means.

    Raises:
        LoopResultError: it means nothing.
    """
    if isinstance(answer, (Continue, Break)):
        return answer
    if answer is None and not has_state:
        return Continue(None)
    raise LoopResultError(
        f"the body of loop {name!r} returned {type(answer).__name__}; return Continue(state) or Break(value)"
    )


class Loop:
    """One loop in one run."""

    __slots__ = ("_body", "_created_at", "_entry", "_key", "_name", "_policy", "_scope", "_turn")

    def __init__(
        self,
        scope: Scope,
        name: str,
        body: Callable[[Scope, Any], Awaitable[Any]],
        policy: LoopPolicy,
    ) -> None:
        self._scope = scope
        self._turn = scope.turn
        self._name = name
        self._body = body
        self._policy = policy
        self._key = b""
        self._entry: Entry | None = None
        self._created_at = 0

    async def run(self, state: Any) -> Any:
        """The value that the body broke with."""
        entry = opened(self._scope, self._name, LoopEntry, lambda: self._first(state))
        self._key = self._scope.key_of(self._name)
        if entry is None:
            self._begin(state)
        else:
            self._entry = entry
            metadata = self._turn.storage.find_metadata(entry.id)
            self._created_at = metadata.created_at if metadata is not None else self._turn.clock.now()
            kind = entry.kind
            assert isinstance(kind, LoopEntry)
            if kind.output is not None or (metadata is not None and metadata.status is EntryStatus.COMPLETED):
                return self._replay(kind, metadata)
        return await self._iterate()

    def _first(self, state: Any) -> bytes:
        return self._scope.store(state, self._policy.state_type, f"the first state of loop {self._name!r}")[0]

    def _begin(self, state: Any) -> None:
        self._scope.act()
        data = self._first(state)
        self._created_at = self._turn.clock.now()
        self._entry = self._scope.record(self._name, LoopEntry(state=data), is_urgent=False)
        self._put_metadata(EntryStatus.RUNNING, None)

    def _prune_again(self, kind: LoopEntry, *, is_over: bool) -> None:
        """Remove what a crash between the writes of a driver that is not atomic has left of finished iterations."""
        if self._turn.flusher.is_atomic or self._turn.is_collecting:
            return
        assert self._entry is not None
        index = self._entry.location[-1]
        assert isinstance(index, int)
        self._prune(
            index, kind.iteration + 1 if is_over else kind.iteration - kind.iteration % self._policy.prune_interval
        )

    def _replay(self, kind: LoopEntry, metadata: EntryMetadata | None) -> Any:
        self._prune_again(kind, is_over=True)
        self._scope.visit_below(self._key)
        self._scope.see(self._turn.storage.documents.below(self._key))
        if metadata is not None and metadata.completed_at is not None:
            self._scope.finished(metadata.completed_at)
        return recorded_value(self._scope, self._name, kind.output, self._policy.returns)

    async def _iterate(self) -> Any:
        turn = self._turn
        assert self._entry is not None
        kind = self._entry.kind
        assert isinstance(kind, LoopEntry)
        self._prune_again(kind, is_over=False)
        data, iteration = kind.state, kind.iteration
        state = recorded_value(self._scope, self._name, data, self._policy.state_type)
        index = self._entry.location[-1]
        assert isinstance(index, int)
        # Finished iterations that are still in history are not entered again.
        self._visit_finished(index, iteration)
        pruned_before = -1
        while True:
            turn.check()
            if pruned_before >= 0 and iteration > pruned_before:
                # The pruning flush may overlap one iteration, not two.
                await turn.before_acting()
                pruned_before = -1
            inner = self._scope.child(index, self._key).child(
                LoopIteration(index, iteration), keys.iteration_key(self._key, index, iteration)
            )
            result = result_of(self._name, await self._body(inner, state), has_state=state is not None)
            inner.close()
            if isinstance(result, Break):
                return await self._end(result.value, data, index, iteration)
            iteration += 1
            data, state = self._scope.store(result.state, self._policy.state_type, f"loop {self._name!r}")
            self._scope.frontier()
            self._entry = self._scope.rewrite(
                self._key, self._entry, LoopEntry(state=data, iteration=iteration), is_urgent=False
            )
            self._forget_undos(index, iteration - 1)
            if is_pruning(iteration, self._policy):
                self._prune(index, iteration)
                turn.storage.close_group()
                pruned_before = iteration
                await self._flush_pruned()

    def _visit_finished(self, index: int, iteration: int) -> None:
        storage = self._turn.storage
        if storage.loaded_count:
            start, end = keys.iteration_range(self._key, index, 0, iteration)
            storage.visited.update(storage.between(start, end))
            self._scope.see(storage.documents.of(self._key))
            self._scope.see(storage.documents.within(start, end))

    def _prune(self, index: int, iteration: int) -> None:
        keep_from = iteration - self._policy.kept
        if keep_from > 0:
            storage, (start, end) = self._turn.storage, keys.iteration_range(self._key, index, 0, keep_from)
            if (document := storage.documents.within(start, end)).version:
                storage.put_document(self._key, document)
            storage.remove_range(start, end)

    def _forget_undos(self, index: int, iteration: int) -> None:
        """An iteration that is over cannot be undone."""
        storage, undos = self._turn.storage, self._turn.undos
        if undos:
            for key in storage.below(keys.iteration_key(self._key, index, iteration)):
                if (entry := storage.find(key)) is not None:
                    undos.pop(entry.id, None)

    async def _flush_pruned(self) -> None:
        turn = self._turn
        if turn.flusher.is_atomic:
            turn.flusher.flush_now()
        else:
            await turn.flusher.flush_all()
        # A body that never waits would keep evictions and timers from being noticed.
        await asyncio.sleep(0)

    async def _end(self, value: Any, data: bytes, index: int, iteration: int) -> Any:
        output, value = self._scope.store(value, self._policy.returns, f"loop {self._name!r}")
        self._scope.frontier()
        assert self._entry is not None
        self._forget_undos(index, iteration)
        self._prune(index, iteration + 1)
        self._scope.rewrite(self._key, self._entry, LoopEntry(state=data, iteration=iteration, output=output))
        now = self._turn.clock.now()
        self._put_metadata(EntryStatus.COMPLETED, now)
        self._scope.finished(now)
        await self._turn.recorded()
        return value

    def _put_metadata(self, status: EntryStatus, completed_at: int | None) -> None:
        assert self._entry is not None
        self._turn.storage.put_metadata(
            self._entry.id, EntryMetadata(status=status, created_at=self._created_at, completed_at=completed_at)
        )
