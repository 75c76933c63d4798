"""A race: all branches run side by side, the first to succeed wins, and the others leave no trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from engine import keys, message_record
from engine.abort import AbortEvent
from engine.entry import BranchState, BranchStatus, MessageEntry, RaceEntry
from engine.error_info import error_text, parse_error
from engine.errors import RaceError, UnstorableValueError
from engine.ops.branch import Branch, Branches, Failed, Outcome, Returned, check, first_stop, merged_wait, scope_of
from engine.reading import recorded_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.entry import Entry
    from engine.scope import Scope

T = TypeVar("T")


class RaceResult(Generic[T]):
    """The ``winner`` of a race, by name, and its ``value``."""

    __slots__ = ("value", "winner")

    def __init__(self, winner: str, value: T) -> None:
        self.winner = winner
        self.value = value

    def __repr__(self) -> str:
        return f"RaceResult(winner={self.winner!r}, value={self.value!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RaceResult) and (self.winner, self.value) == (other.winner, other.value)

    __hash__ = None  # type: ignore[assignment]  # its value may be anything


async def run(scope: Scope, name: str, branches: Mapping[str, Branch]) -> RaceResult[Any]:
    """The winner's name and value.

    Raises:
        RaceError: every branch failed.
    """
    return RaceResult(*await _run(scope, name, branches))


async def _run(scope: Scope, name: str, branches: Mapping[str, Branch]) -> tuple[str, Any]:
    turn = scope.turn
    _, entry = scope.open(name, RaceEntry)
    if entry is None:
        scope.act()
        pending = {branch: BranchStatus() for branch in branches}
        entry = scope.record(name, RaceEntry(branches=pending), is_urgent=False)
    kind = entry.kind
    assert isinstance(kind, RaceEntry)
    check(scope, name, kind.branches, branches)
    key = scope.key_of(name)
    if kind.winner is not None:
        return await _replay_winner(scope, name, kind, kind.winner, branches)
    statuses = dict(kind.branches)
    entered = [branch for branch in branches if statuses[branch].status is not BranchState.FAILED or turn.is_collecting]
    for branch in branches.keys() - set(entered):
        scope.visit_below(scope_of(scope, key, branch).key)
    outcomes, winner = await _run_all(scope, key, {branch: branches[branch] for branch in entered})
    # Where a branch has diverged meanwhile there is no winner: its history must be there for code that fits.
    if winner is not None and not turn.is_collecting and turn.fatal is None:
        return winner, await _decide(scope, key, entry, statuses, winner, outcomes[winner], branches)
    return _undecided(scope, name, entry, statuses, outcomes)


async def _run_all(scope: Scope, key: bytes, branches: Mapping[str, Branch]) -> tuple[dict[str, Outcome], str | None]:
    work = {}
    for branch in branches:
        below = scope_of(scope, key, branch)
        below.abort = AbortEvent(scope.abort)
        below.is_in_race = True
        work[branch] = (branches[branch], below)

    def is_decided(name: str, outcome: Outcome) -> bool:
        if not isinstance(outcome, Returned) or scope.turn.is_collecting or scope.turn.fatal is not None:
            return False
        try:
            scope.store(outcome.value, branches[name].returns, f"branch {name!r}")
        except UnstorableValueError as error:
            # A result that cannot be kept is no result: the branch has failed, live as on replay.
            running.outcomes[name] = Failed(error)
            return False
        for branch, (_, below) in work.items():
            if branch != name:
                below.abort.set()
        return True

    running = Branches(scope, work, is_decided)
    await running.run()
    winner = next((branch for branch, outcome in running.outcomes.items() if isinstance(outcome, Returned)), None)
    return running.outcomes, winner


async def _replay_winner(
    scope: Scope, name: str, kind: RaceEntry, winner: str, branches: Mapping[str, Branch]
) -> tuple[str, Any]:
    key = scope.key_of(name)
    if scope.turn.is_collecting:
        await _run_all(scope, key, {winner: branches[winner]})
    if not scope.turn.flusher.is_atomic and not scope.turn.is_collecting:
        # A crash between the writes of a driver that is not atomic may have left something of the losers.
        await _forget_all(scope, key, [branch for branch in branches if branch != winner])
    scope.visit_below(key)
    scope.finished(0, composite=key)
    return winner, recorded_value(scope, f"{name}/{winner}", kind.branches[winner].output, branches[winner].returns)


async def _decide(
    scope: Scope,
    key: bytes,
    entry: Entry,
    statuses: dict[str, BranchStatus],
    winner: str,
    outcome: Outcome,
    branches: Mapping[str, Branch],
) -> Any:
    """Record the winner and remove the others, all in one commit: their messages go back to their old places."""
    assert isinstance(outcome, Returned)
    output, value = scope.store(outcome.value, branches[winner].returns, f"branch {winner!r}")
    for branch in branches:
        if branch == winner:
            statuses[branch] = BranchStatus(status=BranchState.COMPLETED, output=output)
            continue
        if statuses[branch].status is not BranchState.FAILED:
            statuses[branch] = BranchStatus(status=BranchState.CANCELLED)
    scope.rewrite(key, entry, RaceEntry(winner=winner, branches=statuses))
    await _forget_all(scope, key, [branch for branch in branches if branch != winner])
    # What the losers wrote is nothing that this scope could see again.
    scope.finished(0, composite=key)
    await scope.turn.recorded()
    return value


async def _forget_all(scope: Scope, key: bytes, losers: list[str]) -> None:
    gave_back = [_forget(scope, scope_of(scope, key, branch).key) for branch in losers]
    if any(gave_back):
        # Others of this run may wait for the messages that are back.
        await scope.turn.flush()
        await scope.turn.look_again()


def _forget(scope: Scope, branch_key: bytes) -> bool:
    """Remove what is below ``branch_key``; whether messages went back to the inbox."""
    storage = scope.turn.storage
    gave_back = False
    for removed in storage.remove_range(*keys.range_of(branch_key)):
        scope.turn.undos.pop(removed.id, None)
        if isinstance(removed.kind, MessageEntry):
            record = message_record.decode(removed.kind.name, removed.kind.data)
            if record.id and not record.is_completed:
                storage.give_back(message_record.to_message(record))
                gave_back = True
    return gave_back


def _undecided(
    scope: Scope, name: str, entry: Entry, statuses: dict[str, BranchStatus], outcomes: Mapping[str, Outcome]
) -> tuple[str, Any]:
    """Nobody has won: record who failed, and raise what the race waits for, or that all failed."""
    was_over = all(status.status is BranchState.FAILED for status in statuses.values())
    for branch, outcome in outcomes.items():
        if isinstance(outcome, Failed):
            statuses[branch] = BranchStatus(status=BranchState.FAILED, error=error_text(outcome.error))
            scope.turn.hooks.mark_reported(outcome.error)
        else:
            statuses[branch] = BranchStatus(status=BranchState.RUNNING)
    kind = RaceEntry(branches=statuses)
    if not scope.turn.is_collecting and kind != entry.kind:
        scope.rewrite(scope.key_of(name), entry, kind, is_urgent=False)
    ending = scope.turn.fatal or first_stop(outcomes.values()) or merged_wait(outcomes.values())
    if ending is not None:
        raise ending
    if not was_over:
        scope.frontier()
    scope.finished(0, composite=scope.key_of(name))
    errors = {branch: parse_error(status.error or "Error: branch failed") for branch, status in statuses.items()}
    causes = {branch: outcome.error for branch, outcome in outcomes.items() if isinstance(outcome, Failed)}
    for branch, cause in causes.items():
        errors[branch].__cause__ = cause
    raise RaceError(errors, name) from next(iter(causes.values()), None)
