"""A schedule and its runs in memory, on a clock that jumps: what was started, and when."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from engine import values
from engine.author.registry import Registry, Workflow
from engine.errors import StoreUnavailableError
from engine.lifecycle import ENDED
from engine.memory.clock import VirtualClock
from engine.memory.world import MemoryWorld
from engine.schedules import status
from engine.schedules.identity import schedule_id
from engine.schedules.workflow import schedule

if TYPE_CHECKING:
    from engine.author.context import Context
    from engine.memory.driver import CallHook
    from engine.schedules.record import Schedule, Spec

REPORT = "report"
FAILING = "failing"


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


class ScheduleWorld:
    """One schedule, ``daily``, and the runs it starts: each works for ``work_s`` seconds."""

    def __init__(self, start: str, *, work_s: float = 0) -> None:
        self.clock = VirtualClock(ms(start))
        self.started: list[tuple[str, int]] = []
        self.inputs: list[Any] = []
        self.on_call: CallHook | None = None
        self.work_s = work_s

        async def report(ctx: Context, given: Any) -> str:
            await ctx.step("begin", self._begin, ctx.workflow_id, given)
            if self.work_s:
                await ctx.sleep("work", self.work_s)
            return "done"

        async def failing(ctx: Context, given: Any) -> None:
            await report(ctx, given)
            raise ValueError("no report today")

        self.world = MemoryWorld(
            self.clock, workflows=[Workflow(REPORT, report), Workflow(FAILING, failing)], registry=Registry()
        )

    async def _begin(self, workflow_id: str, given: Any) -> None:
        self.started.append((workflow_id, self.clock.now()))
        self.inputs.append(given)

    def create(self, spec: Spec) -> None:
        self.world.start(schedule_id("daily"), schedule, values.decode(values.encode(spec)))

    def tell(self, command: str, body: Any = None) -> None:
        self.world.send(schedule_id("daily"), command, body)

    async def until(self, end: str, *, without: str = "") -> None:
        """Let the time pass until ``end``, running whatever is due on the way but the workflow ``without``."""
        world, end_ms = self.world, ms(end)
        for _ in range(100_000):
            there = [each for each in world.drivers if each != without]
            due = [each for each in there if world._is_due(each)]
            for each in due:
                await self._run(each)
            if due:
                continue
            alarms = [at for each in there if (at := world._alarm_of(each)) is not None]
            if not alarms or min(alarms) > end_ms:
                self.clock.advance_to(end_ms)
                return
            self.clock.advance_to(min(alarms))
        raise AssertionError("there is always something due")

    async def _run(self, workflow_id: str) -> None:
        self.world.drivers[workflow_id].on_call = self.on_call
        await self.world.run(workflow_id)
        while isinstance(self.world.results[workflow_id], StoreUnavailableError):
            # The lease runs out, and somebody else goes on.
            await self.world.run(workflow_id)

    @property
    def status(self) -> Schedule:
        driver = self.world.drivers[schedule_id("daily")]
        pairs = [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in driver.dump()]
        return status.read(pairs, driver.started_at or 0)

    @property
    def is_over(self) -> bool:
        return self.world.state(schedule_id("daily")) in ENDED

    @property
    def runs(self) -> list[str]:
        """Occurrences that have a run, in the order of their beginning."""
        return [workflow_id.removeprefix("daily/") for workflow_id, _ in self.started]
