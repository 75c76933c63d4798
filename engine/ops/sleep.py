"""A sleep: a deadline that is fixed when it is first reached, and waited for once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.entry import SleepEntry, SleepState
from engine.errors import SleepError

if TYPE_CHECKING:
    from engine.scope import Scope


def is_over(entry: SleepEntry, now: int) -> bool:
    """Whether a sleep need not wait any more."""
    return entry.state is not SleepState.PENDING or entry.deadline <= now


async def run(scope: Scope, name: str, deadline: int) -> None:
    """Sleep until ``deadline`` (milliseconds), or until the one recorded when this sleep was first reached."""
    turn = scope.turn
    key, entry = scope.open(name, SleepEntry)
    if entry is None:
        scope.act()
        entry = scope.record(name, SleepEntry(deadline=deadline))
        key = scope.key_of(name)
    assert key is not None
    kind = entry.kind
    assert isinstance(kind, SleepEntry)
    if kind.state is not SleepState.PENDING:
        scope.finished(kind.deadline if kind.state is SleepState.COMPLETED else 0)
        return
    scope.act()
    while not is_over(kind, turn.clock.now()):
        await turn.park(SleepError(kind.deadline), is_short=True)
    scope.rewrite(key, entry, SleepEntry(deadline=kind.deadline, state=SleepState.COMPLETED))
    scope.finished(kind.deadline)
    await turn.recorded()
