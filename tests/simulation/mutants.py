"""All mutants, those of the laws 1 to 8 here: each must be caught by the checker that is meant for it."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from adapters.dynamodb import committing, compaction, control, hold, inbox, lease, table
from adapters.dynamodb.inbox import Accepted
from adapters.dynamodb.model import log, partition, plan, tickets
from adapters.dynamodb.model.expressions import Change, Condition
from engine.entry import EntryStatus, SleepEntry, SleepState, StepEntry
from engine.errors import StoreUnavailableError
from engine.history import storage
from engine.lifecycle import ENDED
from engine.ops import loop, race, rollback, sleep, step
from handlers import sweeper
from tests.simulation.document_mutants import DOCUMENT_MUTANTS
from tests.simulation.mutant import SEEDS_MAX, Mutant
from tests.simulation.outer_mutants import OUTER_MUTANTS
from tests.simulation.schedule_mutants import SCHEDULE_MUTANTS

if TYPE_CHECKING:
    from tests.simulation.mutant import Patch

# --- 1: committed steps ----------------------------------------------------------------------------------------------


def _last_commit_not_loaded() -> list[Patch]:
    fold = partition.Partition.fold
    return [(partition.Partition, "fold", lambda self, head: fold(self, replace(head, seq=max(1, head.seq - 1))))]


def _completed_decided_anew() -> list[Patch]:
    look = step._look

    def mutant(*arguments: Any) -> Any:
        verdict, metadata = look(*arguments)
        return (step.Run(1) if isinstance(verdict, step.Replay) else verdict), metadata

    async def by_the_long_way(scope: Any, name: str, *more: Any) -> Any:
        _, entry = scope.open(name, StepEntry)
        return await step._go_on(scope, name, entry, *more)

    # The short way for what is completed is closed too, so that the verdict is asked for.
    return [(step, "_look", mutant), (step, "run", by_the_long_way)]


def _exhausted_tried_again() -> list[Patch]:
    decide = step.decide

    def mutant(name: str, entry: Any, metadata: Any, *rest: Any) -> Any:
        if metadata.status is EntryStatus.EXHAUSTED:
            return step.Run(metadata.attempts + 1)
        return decide(name, entry, metadata, *rest)

    return [(step, "decide", mutant)]


# --- 2: one holder ---------------------------------------------------------------------------------------------------


def _epoch_not_counted() -> list[Patch]:
    def change(**parts: Any) -> Change:
        return Change(**{**parts, "adds": {name: by for name, by in parts.get("adds", {}).items() if name != "epoch"}})

    def with_old_epoch(head: Any, **parts: Any) -> Any:
        return replace(head, **{name: value for name, value in parts.items() if name != "epoch"})

    return [(lease, "Change", change), (lease, "replace", with_old_epoch)]


def _fence(expression: str, *names: str) -> list[Patch]:
    is_mine = plan.is_mine

    def mutant(head: Any) -> Condition:
        values = is_mine(head).values
        return Condition(expression, {name: values[name] for name in names})

    return [(module, "is_mine", mutant) for module in (plan, committing, hold)]


def _no_fence() -> list[Patch]:
    return _fence("attribute_exists(#pk)")


def _fence_of_numbers_alone() -> list[Patch]:
    return _fence("#seq = :seq", ":seq")


# --- 3: messages -----------------------------------------------------------------------------------------------------


def _consumed_not_deleted() -> list[Patch]:
    moves = plan._moves
    return [(plan, "_moves", lambda *arguments: ([], moves(*arguments)[1]))]


def _no_deduplication() -> list[Patch]:
    async def nothing(*_: Any) -> None:
        return None

    async def put(connection: Any, workflow_id: str, message: Any) -> Accepted:
        return await inbox._put(connection.table, workflow_id, message)

    return [(inbox, "find_reply", nothing), (inbox, "_put_once", put)]


def _loser_keeps_messages() -> list[Patch]:
    return [(storage.Storage, "give_back", lambda _self, _message: None)]


def _acknowledged_too_soon() -> list[Patch]:
    put_once = inbox._put_once

    async def put(connection: Any, workflow_id: str, message: Any) -> Accepted:
        try:
            return await put_once(connection, workflow_id, message)
        except StoreUnavailableError:
            return Accepted(message_id=message.id)

    return [(inbox, "_put_once", put), (table, "ATTEMPTS_MAX", 2)]


def _newest_first() -> list[Patch]:
    def receive(self: Any, names: Any, count: int) -> Any:
        found = [self._by_ticket[ticket] for ticket in sorted(self._by_ticket, reverse=True)]
        return [message for message in found if not names or message.name in names][:count]

    return [(tickets.Inbox, "receive", receive)]


# --- 4: due ----------------------------------------------------------------------------------------------------------


def _yield_unconditioned() -> list[Patch]:
    return [(plan, "_seen", lambda _inbox: None)]


def _outstanding_forgotten() -> list[Patch]:
    return [(tickets.Account, "is_outstanding", property(lambda _self: False))]


def _ticket_not_due() -> list[Patch]:
    return [(inbox, "due", lambda *_: {})]


def _alarm_not_due() -> list[Patch]:
    next_head = plan.next_head

    def mutant(turn: Any, commit: Any) -> Any:
        after = next_head(turn, commit)
        return replace(after, due_at=None) if commit.yields else after

    return [(plan, "next_head", mutant)]


def _released_not_due() -> list[Patch]:
    change = hold.Hold._change

    async def mutant(self: Any, after: Any) -> None:
        await change(self, replace(after, due_at=None) if after.owner is None else after)

    return [(hold.Hold, "_change", mutant)]


# --- 5: all or nothing -----------------------------------------------------------------------------------------------


def _one_by_one() -> list[Patch]:
    transact = table.Table.transact

    async def mutant(self: Any, actions: Any, identity: str) -> None:
        for index, action in enumerate(actions):
            await transact(self, [action], f"{identity}/{index}")

    return [(table.Table, "transact", mutant)]


def _state_left_behind() -> list[Patch]:
    next_head = plan.next_head

    def mutant(turn: Any, commit: Any) -> Any:
        after = next_head(turn, commit)
        return after if after.state in ENDED else replace(after, state=turn.head.state)

    return [(plan, "next_head", mutant)]


def _inbox_left_open() -> list[Patch]:
    change = plan._inbox_change

    def mutant(turn: Any, after: Any, **how: Any) -> Any:
        return None if after.state in ENDED else change(turn, after, **how)

    return [(plan, "_inbox_change", mutant)]


def _snapshot_incomplete() -> list[Patch]:
    def encode(record: Any) -> bytes:
        return log.encode(replace(record, puts=record.puts[1:]))

    return [(compaction, "log", SimpleNamespace(encode=encode, Record=log.Record, cut=log.cut))]


# --- 6: history grows ------------------------------------------------------------------------------------------------


def _too_much_pruned() -> list[Patch]:
    prune = loop.Loop._prune
    return [
        (loop.Loop, "_prune", lambda self, index, before: prune(self, index, before + self._policy.kept + 1)),
    ]


def _winner_forgotten_too() -> list[Patch]:
    forget_all = race._forget_all

    async def mutant(scope: Any, key: bytes, _losers: Any) -> None:
        await forget_all(scope, key, list(scope.turn.storage.find(key).kind.branches))

    return [(race, "_forget_all", mutant)]


def _deadline_recomputed() -> list[Patch]:
    run = sleep.run

    async def mutant(scope: Any, name: str, deadline: int) -> None:
        key = scope.key_of(name)
        entry = scope.turn.storage.find(key)
        if entry is not None and isinstance(entry.kind, SleepEntry) and entry.kind.state is SleepState.PENDING:
            scope.rewrite(key, entry, SleepEntry(deadline=deadline))
        await run(scope, name, deadline)

    return [(sleep, "run", mutant)]


# --- 7: ended --------------------------------------------------------------------------------------------------------


def _ended_is_claimed() -> list[Patch]:
    return [(lease, "IS_FREE", Condition("attribute_exists(#pk) AND attribute_not_exists(#owner)"))]


def _cancel_is_overwritten() -> list[Patch]:
    return _no_fence()


def _cancels_what_has_ended() -> list[Patch]:
    return [(control, "HAS_NOT_ENDED", Condition("attribute_exists(#pk)"))]


# --- 8: ends as it would ---------------------------------------------------------------------------------------------


def _no_sweep() -> list[Patch]:
    async def mutant(*_: Any) -> dict[str, int]:
        return {}

    return [(sweeper, "sweep", mutant)]


def _nobody_takes_over() -> list[Patch]:
    async def mutant(_self: Any, _table: Any, head: Any, *_: Any) -> Any:
        return lease.Held(head.lease_until or 0)

    return [(lease.Claims, "_take_over", mutant)]


def _deaths_never_reset() -> list[Patch]:
    next_head = plan.next_head
    return [(plan, "next_head", lambda turn, commit: replace(next_head(turn, commit), deaths=turn.head.deaths + 1))]


def _one_undo_is_enough() -> list[Patch]:
    order = rollback.order
    return [(rollback, "order", lambda undos: order(undos)[:1])]


MUTANTS = [
    Mutant(name="the last commit is not loaded", law=1, patches=_last_commit_not_loaded),
    Mutant(name="a completed step is decided anew", law=1, patches=_completed_decided_anew),
    Mutant(name="an exhausted step is tried again", law=1, patches=_exhausted_tried_again),
    Mutant(name="a claim does not count the epoch up", law=2, patches=_epoch_not_counted),
    Mutant(name="a commit without the fence", law=2, patches=_no_fence),
    Mutant(name="a fence that minds the commit's number alone", law=2, patches=_fence_of_numbers_alone),
    Mutant(name="consumed messages are not deleted", law=3, patches=_consumed_not_deleted),
    Mutant(name="a message id is not remembered", law=3, patches=_no_deduplication),
    Mutant(name="a race's loser keeps its messages", law=3, patches=_loser_keeps_messages),
    Mutant(name="a message is acknowledged too soon", law=3, patches=_acknowledged_too_soon),
    Mutant(name="the newest message first", law=3, patches=_newest_first),
    Mutant(name="a yield without the inbox condition", law=4, patches=_yield_unconditioned),
    Mutant(name="due is cleared in spite of an outstanding ticket", law=4, patches=_outstanding_forgotten),
    Mutant(name="a ticket does not make due", law=4, patches=_ticket_not_due),
    Mutant(name="an alarm is not due", law=4, patches=_alarm_not_due),
    Mutant(name="what is released is not due", law=4, patches=_released_not_due),
    Mutant(name="a transaction item by item", law=5, patches=_one_by_one),
    Mutant(name="HEAD keeps the old state", law=5, patches=_state_left_behind),
    Mutant(name="the inbox of what ended stays open", law=5, patches=_inbox_left_open),
    Mutant(name="a snapshot lacks a pair", law=5, patches=_snapshot_incomplete),
    Mutant(name="the iteration in progress is pruned", law=6, patches=_too_much_pruned),
    Mutant(name="the race's winner is forgotten too", law=6, patches=_winner_forgotten_too),
    Mutant(name="a sleep's deadline is computed anew", law=6, patches=_deadline_recomputed),
    Mutant(name="what has ended is claimed", law=7, patches=_ended_is_claimed),
    Mutant(name="a cancel is overwritten", law=7, patches=_cancel_is_overwritten),
    Mutant(name="what has ended is cancelled", law=7, patches=_cancels_what_has_ended),
    Mutant(name="no sweep", law=8, patches=_no_sweep),
    Mutant(name="nobody takes over from the dead", law=8, patches=_nobody_takes_over),
    Mutant(name="deaths are never forgotten", law=8, patches=_deaths_never_reset),
    Mutant(name="one undo is enough", law=8, patches=_one_undo_is_enough),
    *OUTER_MUTANTS,
    *DOCUMENT_MUTANTS,
    *SCHEDULE_MUTANTS,
]


def catch_all() -> bool:
    """Play every mutant, and tell of each; whether all were caught."""
    caught = 0
    for mutant in MUTANTS:
        found = mutant.caught()
        caught += found is not None
        says = "NOT CAUGHT" if found is None else f"seed {found[0]}: {found[1]}"
        sys.stdout.write(f"law {mutant.law}  {mutant.name:50} {says[:160]}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{caught} of {len(MUTANTS)} mutants caught, within {SEEDS_MAX} seeds each\n")
    return caught == len(MUTANTS)
