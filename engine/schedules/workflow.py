"""The schedule itself: a workflow that sleeps until an occurrence, starts its run, and hears what it is told.

Schedules outlive deploys of torpor, and their histories hold the names below: they must stay.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from engine.author.registry import Registry, workflow
from engine.durations import to_datetime
from engine.errors import CallerError, CriticalError, RollbackError
from engine.ops import output
from engine.ops.loop import Break, Continue
from engine.schedules import limits
from engine.schedules.commands import obey
from engine.schedules.deciding import Start, Turn, look_ahead
from engine.schedules.identity import SCHEDULE_TYPE, instant_text, schedule_name
from engine.schedules.record import Ahead, Fate, Occurrence, Schedule, Spec
from engine.values import decode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.author.context import Context

BUILT_IN = Registry()
"""The workflows of torpor's own."""

TURNS = "turns"
"""The loop in which a schedule lives; its state is how far it is."""

_LOOK = "look"
"""The step that sees which runs have ended; the time at which it began is that of its turn."""

_LOOKS_MAX = 10**9
"""As good as without end: that a process dies or must stop while it looks is no reason for a schedule to fail."""

_MESSAGES_A_TURN = 10
_TURNS_KEPT = 5
_WAIT_MAX_MS = 365 * 86_400_000
"""Longest wait at one time: what is further ahead is looked at again on the way, long before sleeps have a limit."""


class Told(Struct, frozen=True, kw_only=True):
    """A message, as the schedule keeps it until it has obeyed."""

    name: str
    body: Any = None


class Woken(Struct, frozen=True, kw_only=True):
    """Why a schedule goes on: messages, or the end of a run that it watches; neither where the time has come."""

    told: list[Told] = []
    ended: str | None = None


@workflow(SCHEDULE_TYPE, registry=BUILT_IN)
async def schedule(ctx: Context, spec: Spec) -> dict[str, int]:
    """Occur as ``spec`` says until nothing is left to come; how many occurrences had which fate."""
    begun = _with_ahead(Schedule.begun(spec, _milliseconds(ctx)).checked())
    counts: dict[str, int] = await ctx.loop(TURNS, _turn, begun, history_prune_interval=_TURNS_KEPT)
    return counts


async def _turn(ctx: Context, state: Schedule) -> Continue[Schedule] | Break[dict[str, int]]:
    ahead = state.ahead or look_ahead(state.checked())
    # Not at the end of the turn before: only a state that the loop goes on with is there to be seen afterwards.
    if ahead.is_over:
        return Break(asdict(state.counts))
    woken = await _wait(ctx, state, ahead)
    # The time at which the wait was over may be long past; this one is now.
    look = functools.partial(_ended, ctx, state)
    ended = await ctx.step(_LOOK, look, ephemeral=True, timeout=None, max_retries=_LOOKS_MAX)
    now_ms = _looked_at(ctx)
    state = replace(state, running=_under_way(state.running, ended, woken))
    turn = Turn(state, schedule_name(ctx.workflow_id), now_ms)
    for told in woken.told:
        obey(turn, told.name, told.body, now_ms)
    turn.schedule = turn.schedule.checked()
    turn.decide()
    state = turn.schedule
    for number, start in enumerate(turn.starts):
        state = await _start(ctx, f"start-{number}", state, start)
    return Continue(_with_ahead(state))


def _with_ahead(state: Schedule) -> Schedule:
    return replace(state, ahead=look_ahead(state))


async def _ended(ctx: Context, state: Schedule) -> list[str] | int | None:
    """The runs that have ended: who is told of that late leaves nothing out for what is over."""
    scope = ctx._scope  # noqa: SLF001 - of torpor's own
    return [run_id for run_id in state.running if await output.has_ended(scope, run_id)]


def _under_way(running: list[str], ended: list[str] | int | None, woken: Woken) -> list[str]:
    # Schedules in the middle of a turn when this build came have recorded how many of the first had ended, or nothing.
    gone = ended if isinstance(ended, list) else running[: ended or 0]
    return [run_id for run_id in running if run_id not in gone and run_id != woken.ended]


def _looked_at(ctx: Context) -> int:
    """When the look began, in milliseconds: until then runs were under way that it has not seen ended.

    Its answer may come much later, where the process was frozen meanwhile.
    """
    scope = ctx._scope  # noqa: SLF001 - of torpor's own
    storage = scope.turn.storage
    entry = storage.find_below(scope.key, _LOOK)
    assert entry is not None
    metadata = storage.find_metadata(entry.id)
    assert metadata is not None
    return metadata.last_attempt_at


def _milliseconds(ctx: Context) -> int:
    return round(ctx.now().timestamp() * 1000)


# --- waiting ------------------------------------------------------------------------------------------------------


async def _wait(ctx: Context, state: Schedule, ahead: Ahead) -> Woken:
    """Wait until there is something to do; messages are heard even where there is more to do than one turn takes."""
    if ahead.has_more:
        return await _hear(ctx, timeout=0)
    branches: dict[str, Callable[[Context], Awaitable[Woken]]] = {"told": _hear}
    next_ms = ahead.next_ms
    if next_ms is not None:
        until_ms = min(next_ms, state.decided_ms + _WAIT_MAX_MS)

        async def due(inner: Context) -> Woken:
            await inner.sleep_until("next", to_datetime(until_ms))
            return Woken()

        branches["due"] = due
    if state.running:
        branches["ended"] = functools.partial(_see_end, state.running)
    return (await ctx.race("wait", branches)).value


async def _hear(ctx: Context, timeout: float | None = None) -> Woken:
    messages = await ctx.queue.next_batch("messages", count=_MESSAGES_A_TURN, timeout=timeout)
    return Woken(told=[Told(name=message.name, body=message.body) for message in messages])


async def _see_end(running: list[str], ctx: Context) -> Woken:
    """Wait for the end of one of the runs, whichever is the first."""
    first, *others = running
    if not others:
        # The usual case, at the place where it has always stood: histories of earlier builds have it there.
        return await _see_end_of(first, ctx)
    branches = {str(number): functools.partial(_see_end_of, run_id) for number, run_id in enumerate(running)}
    return (await ctx.race("ends", branches)).value


async def _see_end_of(run_id: str, ctx: Context) -> Woken:
    try:
        await ctx.output(run_id, name="end")
    except (CallerError, CriticalError, RollbackError) as error:
        # That it failed, or is gone, is an end too.
        ctx.log.info("a run has failed", extra={"run_id": run_id, "error": type(error).__name__})
    return Woken(ended=run_id)


# --- starting -----------------------------------------------------------------------------------------------------


async def _start(ctx: Context, operation: str, state: Schedule, start: Start) -> Schedule:
    """Start one run; where that is refused, it is told of, and the schedule goes on."""
    spec = state.spec
    name = schedule_name(ctx.workflow_id)
    tags = {**spec.tags, "schedule": name, "scheduled_at": instant_text(start.at_ms)}
    occurrence = Occurrence(at_ms=start.at_ms, decided_ms=state.decided_ms, fate=Fate.STARTED, run_id=start.run_id)
    try:
        await ctx.dispatch(spec.type, decode(spec.input), name=operation, id=start.run_id, tags=tags)
    except (CallerError, CriticalError, TypeError, ValueError) as error:
        # Nothing that is wrong with one run may end the schedule.
        reason = f"{type(error).__name__}: {error}"[: limits.NOTE_CHARACTERS_MAX]
        state = replace(state, running=[each for each in state.running if each != start.run_id], problem=reason)
        occurrence = replace(occurrence, fate=Fate.FAILED, run_id=None, reason=reason)
    return state.with_fate(occurrence)
