"""A join: all branches run side by side, and it waits for every one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.entry import BranchState, BranchStatus, JoinEntry
from engine.error_info import error_text, parse_error
from engine.errors import EvictedError, JoinError, RecordedError, RollbackStopError, UnstorableValueError
from engine.ops.branch import Branches, Failed, Returned, check, first_stop, merged_wait, scope_of
from engine.reading import recorded_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.entry import Entry
    from engine.ops.branch import Branch, Outcome
    from engine.scope import Scope

_ENDED = (BranchState.COMPLETED, BranchState.FAILED)


def to_run(recorded: Mapping[str, BranchStatus], *, is_collecting: bool) -> list[str]:
    """The branches to enter: those that have not ended; all of them where undos are collected."""
    return [name for name, status in recorded.items() if is_collecting or status.status not in _ENDED]


async def run(scope: Scope, name: str, branches: Mapping[str, Branch], limit: int | None) -> dict[str, Any]:
    """The value of every branch, by name.

    Raises:
        JoinError: branches failed; all others have ended too.
    """
    turn = scope.turn
    _, entry = scope.open(name, JoinEntry)
    if entry is None:
        scope.act()
        pending = {branch: BranchStatus() for branch in branches}
        # Not urgent: a run that dies before the next commit opens the same join again.
        entry = scope.record(name, JoinEntry(branches=pending), is_urgent=False)
    kind = entry.kind
    assert isinstance(kind, JoinEntry)
    check(scope, name, kind.branches, branches)
    key = scope.key_of(name)
    statuses = dict(kind.branches)
    entered = to_run(statuses, is_collecting=turn.is_collecting)
    if not entered:
        scope.visit_below(key)
    else:
        left = set(entered)
        for branch in statuses.keys() - left:
            scope.visit_below(scope_of(scope, key, branch).key)
        work = {branch: (branches[branch], scope_of(scope, key, branch)) for branch in branches if branch in left}
        running = Branches(scope, work, lambda _name, _outcome: False, limit)
        await running.run()
        outcomes = running.outcomes
        if not turn.is_collecting:
            causes = _settle(scope, statuses, branches, outcomes)
            _keep(scope, name, entry, statuses, outcomes)
            scope.finished(0, composite=key)
            return _result(scope, name, statuses, branches, causes)
        _reach_frontier(scope, name, statuses, branches, outcomes)
    scope.finished(0, composite=key)
    return _result(scope, name, statuses, branches, {})


def _reach_frontier(
    scope: Scope,
    name: str,
    statuses: Mapping[str, BranchStatus],
    branches: Mapping[str, Branch],
    outcomes: Mapping[str, Outcome],
) -> None:
    """End the replay that collects undos where the join has not ended, unless it failed in a way that left no record.

    Raises:
        UnstorableValueError: one entry could not hold all the results; code may have caught that and gone on.
    """
    unended = {branch: outcome for branch, outcome in outcomes.items() if not _has_ended(statuses, branch)}
    _raise_stop(unended)
    if unended:
        reached = dict(statuses)
        _settle(scope, reached, branches, unended)
        _check_size(scope, name, reached)
        scope.frontier()


def _has_ended(statuses: Mapping[str, BranchStatus], branch: str) -> bool:
    return statuses[branch].status in _ENDED


def _settle(
    scope: Scope, statuses: dict[str, BranchStatus], branches: Mapping[str, Branch], outcomes: Mapping[str, Outcome]
) -> dict[str, Exception]:
    """Write every outcome into ``statuses``; the exceptions of those that failed."""
    causes: dict[str, Exception] = {}
    for branch, outcome in list(outcomes.items()):
        match outcome:
            case Returned(value):
                try:
                    output, _ = scope.store(value, branches[branch].returns, f"branch {branch!r}")
                    statuses[branch] = BranchStatus(status=BranchState.COMPLETED, output=output)
                except UnstorableValueError as unstorable:
                    causes[branch] = unstorable
            case Failed(failure):
                causes[branch] = failure
            case _:
                statuses[branch] = BranchStatus(status=BranchState.RUNNING)
    for branch, cause in causes.items():
        statuses[branch] = BranchStatus(status=BranchState.FAILED, error=error_text(cause))
        scope.turn.hooks.mark_reported(cause)
    return causes


def _keep(
    scope: Scope, name: str, entry: Entry, statuses: Mapping[str, BranchStatus], outcomes: Mapping[str, Outcome]
) -> None:
    """Record how the branches stand; raise what keeps the join from ending now.

    Raises:
        UnstorableValueError: all have ended, and one entry cannot hold all the results.
    """
    try:
        # A branch that could not be kept would be lost to every later run.
        _check_size(scope, name, statuses)
    except UnstorableValueError:
        # As any failure of a join this is told when nobody waits any more; until then they are entered again.
        _raise_unfinished(scope, statuses, outcomes)
        raise
    kind = JoinEntry(branches=dict(statuses))
    if kind != entry.kind:
        scope.rewrite(scope.key_of(name), entry, kind, is_urgent=False)
    _raise_unfinished(scope, statuses, outcomes)


def _check_size(scope: Scope, name: str, statuses: Mapping[str, BranchStatus]) -> None:
    scope.check_bytes(sum(len(status.output or b"") for status in statuses.values()), f"join {name!r}")


def _raise_unfinished(scope: Scope, statuses: Mapping[str, BranchStatus], outcomes: Mapping[str, Outcome]) -> None:
    _raise_stop(outcomes)
    if not all(_has_ended(statuses, branch) for branch in statuses):
        # Some were not even started, since the run must stop.
        scope.turn.check()
        raise EvictedError


def _raise_stop(outcomes: Mapping[str, Outcome]) -> None:
    stop = first_stop(outcomes.values())
    if stop is not None:
        raise stop
    wait = merged_wait(outcomes.values())
    if wait is not None:
        raise wait


def _result(
    scope: Scope,
    name: str,
    statuses: Mapping[str, BranchStatus],
    branches: Mapping[str, Branch],
    causes: Mapping[str, Exception],
) -> dict[str, Any]:
    errors: dict[str, RecordedError] = {}
    for branch, status in statuses.items():
        if status.status is BranchState.FAILED:
            errors[branch] = parse_error(status.error or "Error: branch failed")
            errors[branch].__cause__ = causes.get(branch)
        elif status.status is not BranchState.COMPLETED:
            raise RollbackStopError
    if errors:
        # Its traceback leads to the author's line: that of the first branch that failed just now.
        raise JoinError(errors, name) from next(iter(causes.values()), None)
    return {
        branch: recorded_value(scope, f"{name}/{branch}", statuses[branch].output, branches[branch].returns)
        for branch in branches
    }
