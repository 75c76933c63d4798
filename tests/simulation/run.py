"""Playing seeds, and making a failure small: faults and stories are left out one by one while it still fails."""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.plan import make_plan
from tests.simulation.world import SCHEDULE_NUMBER, World

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tests.simulation.laws import BreachError

SHRINK_S_MAX = 90.0
TRACE_LINES_MAX = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A seed, and what is left out of it: numbers of faults and of stories."""

    seed: int
    without: frozenset[int] = frozenset()
    mute: frozenset[int] = frozenset()

    @property
    def command(self) -> str:
        """How to play it again."""
        parts = [f"python -m tests.simulation --seed {self.seed}"]
        if self.without:
            parts.append("--without " + ",".join(map(str, sorted(self.without))))
        if self.mute:
            parts.append("--mute " + ",".join(map(str, sorted(self.mute))))
        return " ".join(parts)


def play(case: Case, *, laws: Collection[int] | None = None, is_traced: bool = False) -> World:
    """Play a case to its end; one in which nothing can break any of the ``laws`` is over before it begins."""
    plan = make_plan(case.seed, without=case.without, mute=case.mute)
    world = World(plan, laws=laws, is_traced=is_traced)
    world.populate()
    return finish(world) if any(law.is_at_stake() for law in world.laws) else world


def finish(world: World) -> World:
    """Play a world that has been peopled."""
    with _listening(world):
        world.run()
    return world


class _Ear(logging.Handler):
    """Hears what the handlers log of bugs of ours, which they survive; everything else they log is expected here."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        is_unforeseen = getattr(record, "problem", None) == "unexpected"
        if is_unforeseen or record.msg in ("turn failed", "tasks refuse to end"):
            error = record.exc_info[1] if record.exc_info else getattr(record, "tasks", None)
            self._world.bug(f"a process logs {record.msg!r}: {error!r}")


@contextlib.contextmanager
def _listening(world: World) -> Iterator[None]:
    logger = logging.getLogger("handlers")
    ear = _Ear(world)
    disabled, propagates = logging.root.manager.disable, logger.propagate
    logging.disable(logging.WARNING)
    logger.addHandler(ear)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(ear)
        logger.propagate = propagates
        logging.disable(disabled)


def shrink(case: Case, law: int) -> Case:
    """A smaller case that breaks the same law: stories are left out, then faults, big bites first."""
    deadline = time.monotonic() + SHRINK_S_MAX  # noqa: TID251 - bounds the work of a tool

    def smaller(current: Case, *, without: frozenset[int] = frozenset(), mute: frozenset[int] = frozenset()) -> Case:
        candidate = Case(seed=case.seed, without=current.without | without, mute=current.mute | mute)
        if candidate == current or time.monotonic() > deadline:  # noqa: TID251
            return current
        breach = play(candidate).breach
        return candidate if breach is not None and breach.law == law else current

    world = play(Case(seed=case.seed))
    stories = [*range(len(world.stories)), *(SCHEDULE_NUMBER for _ in world.plans)]
    for number in stories:
        if len(case.mute) < len(stories) - 1:
            case = smaller(case, mute=frozenset({number}))
    faults = [fault.number for fault in make_plan(case.seed).faults]
    size = len(faults)
    while size:
        for start in range(0, len(faults), size):
            case = smaller(case, without=frozenset(faults[start : start + size]))
        size //= 2
    return case


def told(case: Case) -> str:
    """The trace of a case that fails, and how to play it again."""
    world = play(case, is_traced=True)
    lines = [f"{at_us / 1e6:14.6f}  {text}" for at_us, text in world.trace]
    if len(lines) > TRACE_LINES_MAX:
        lines = [f"... {len(lines) - TRACE_LINES_MAX} lines before ...", *lines[-TRACE_LINES_MAX:]]
    heading = [
        f"seed {case.seed}: {world.breach}",
        f"weather: {world.weather}",
        *(f"story {story.workflow_id}: {story.program}" for story in world.stories.values()),
        *(f"schedule {asked.name}: {asked}" for asked in world.plans),
        *(str(fault) for fault in world.plan.active()),
    ]
    return "\n".join([*heading, *lines, f"to play it again: {case.command}"])


def first_breach(seeds: range, law: int) -> tuple[int, BreachError] | None:
    """The first of ``seeds`` in which the checker of ``law`` finds a breach, every other checker being off."""
    for seed in seeds:
        world = play(Case(seed=seed), laws=[law])
        if world.breach is not None and world.breach.law == law:
            return seed, world.breach
    return None
