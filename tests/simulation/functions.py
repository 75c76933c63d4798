"""Lambda: processes that are started, reused, frozen in between and killed at their deadline; what invokes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.errors import StoreUnavailableError
from handlers import sweeper
from handlers.worker import Batch
from tests.simulation.http import API_TIMEOUT_S
from tests.simulation.sandbox import Sandbox
from tests.simulation.wire import ProcessDiedError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.simulation.queueing import Record
    from tests.simulation.world import World

BATCH_MAX = 10
SWEEP_EVERY_S = 60.0
ZOMBIE_S = 5.0


class Functions:
    """Every function of the stack, and its processes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.sandboxes: list[Sandbox] = []
        self._pumping = False

    # --- processes --------------------------------------------------------------------------------------------------

    def _sandbox(self, role: str) -> Sandbox:
        """A process that is idle, or a new one."""
        world = self._world
        for sandbox in self.sandboxes:
            is_idle = sandbox.role == role and not sandbox.loop.is_dead and not sandbox.is_busy
            if is_idle and sandbox.frozen_until_us <= world.timeline.now_us:
                return sandbox
        skew_ms = round((world.plan.chance("skew") * 2 - 1) * world.weather.skew_ms)
        sandbox = Sandbox(world, f"{role}-{len(self.sandboxes)}", role=role, skew_ms=skew_ms)
        self.sandboxes.append(sandbox)
        return sandbox

    def busy(self, role: str) -> list[Sandbox]:
        """The processes of a function that are at work."""
        return [one for one in self.sandboxes if one.role == role and one.is_busy and not one.loop.is_dead]

    def _invoke(
        self,
        sandbox: Sandbox,
        work: Callable[[], Coroutine[Any, Any, Any]],
        timeout_s: float,
        done: Callable[[Any, BaseException | None], None],
    ) -> None:
        """Run one invocation; ``done`` gets its result or error, ``ProcessDiedError`` where it died."""
        timeline = self._world.timeline
        is_over = False

        def over(result: Any, error: BaseException | None) -> None:
            nonlocal is_over
            if is_over:
                return
            is_over = True
            sandbox.on_death = None
            sandbox.invocations += 1
            deadline.cancel()
            # Between invocations Lambda gives a process no time.
            sandbox.loop.is_frozen = True
            done(result, error)

        def finished(task: Any) -> None:
            # Outside of the loop that it runs on.
            error = task.exception() if not task.cancelled() else ProcessDiedError("cancelled")
            timeline.after(0, over, None if error else task.result(), error)

        def at_deadline() -> None:
            frozen_s = (sandbox.frozen_until_us - timeline.now_us) / 1e6
            if frozen_s > 0 and not is_over:
                # Whatever froze it also keeps Lambda from ending it: for a moment it is a zombie.
                timeline.after(frozen_s + ZOMBIE_S, at_deadline)
            elif not is_over:
                self._world.kill(sandbox, "out of time")

        sandbox.on_death = lambda: over(None, ProcessDiedError(sandbox.name))
        sandbox.began_us = timeline.now_us
        sandbox.loop.thaw()
        deadline = timeline.after(timeout_s, at_deadline)
        sandbox.process.start(work, finished)

    # --- the worker -------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Hand what is visible in the queue to workers, soon."""
        if not self._pumping:
            self._pumping = True
            self._world.timeline.after(0.01, self._pump)

    def _pump(self) -> None:
        self._pumping = False
        world = self._world
        while len(self.busy("worker")) < world.weather.workers:
            records = world.queue.receive(1 + int(world.plan.chance("batch") * BATCH_MAX))
            if not records:
                return
            self._work(records)

    def _work(self, records: list[Record]) -> None:
        world = self._world
        sandbox = self._sandbox("worker")
        timeout_s = world.weather.function_timeout_s
        deadline_ms = sandbox.clock.now() + round(timeout_s * 1000)
        batch = Batch([{"messageId": str(record.number), "body": record.body} for record in records])
        world.note(f"{sandbox.name} gets {[wanted.workflow_id for wanted in batch.wanted]}")

        def done(result: Any, error: BaseException | None) -> None:
            if error is not None and not isinstance(error, ProcessDiedError):
                world.bug(f"the worker raised {error!r}")
            failed = {str(record.number) for record in records} if error is not None else set(result)
            for record in records:
                if str(record.number) in failed:
                    world.queue.give_back(record, timeout_s * 6)
                else:
                    world.queue.delete(record)
            self.pump()

        self._invoke(sandbox, lambda: sandbox.worker._handle(batch, deadline_ms), timeout_s, done)

    # --- the sweeper ------------------------------------------------------------------------------------------------

    def start_sweeping(self) -> None:
        """Sweep every minute from here on."""
        self._world.timeline.after(SWEEP_EVERY_S, self._tick)

    def _tick(self) -> None:
        world = self._world
        world.timeline.after(SWEEP_EVERY_S, self._tick)
        # A sweep that would find nothing changes nothing: a year of them need not be played.
        if not world.dynamo.has_overdue(world.now_ms + world.weather.skew_ms) or self.busy("sweeper"):
            return
        sandbox = self._sandbox("sweeper")

        async def work() -> None:
            wiring = sandbox.wiring
            await sweeper.sweep(await wiring.store(), await wiring.queue(), wiring.clock)

        def done(_result: Any, error: BaseException | None) -> None:
            if error is not None and not isinstance(error, (ProcessDiedError, StoreUnavailableError)):
                world.bug(f"the sweeper raised {error!r}")

        self._invoke(sandbox, work, SWEEP_EVERY_S, done)

    # --- what callers call ------------------------------------------------------------------------------------------

    async def call(
        self,
        role: str,
        caller: Any,
        work: Callable[[Sandbox], Coroutine[Any, Any, Any]],
        *,
        timeout_s: float = API_TIMEOUT_S,
    ) -> Any:
        """Have a process of a function do ``work`` for a caller on the loop ``caller``; raises what that raises."""
        future = caller.create_future()
        sandbox = self._sandbox(role)

        def done(result: Any, error: BaseException | None) -> None:
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self._invoke(sandbox, lambda: work(sandbox), timeout_s, done)
        return await future
