"""Our engine as a subject: reads one JSON request a line, runs the workflow it names in memory, answers with times.

Requests are ``{"kind": "steps" | "loop" | "join" | "commits", "n": <int>, "times": <int>}``; ``times`` (1 where it is
left out) is how many workflows of N are run one after the other. Times in answers are microseconds per step, iteration
or branch.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from engine import Break, Context, Continue, WorkflowState, run_workflow
from engine.entry import Message
from engine.testing import MemoryDriver
from engine.values import encode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.commit import Commit

HOUR_S = 3600

KEYS_EVERY = 1000
"""Iterations of a loop between two looks at how many keys are stored; a multiple of the pruning interval."""


async def echo(value: int) -> int:
    """The body of every step: as little as a step can do."""
    return value


async def _steps(ctx: Context, n: int) -> int:
    total = 0
    for number in range(n):
        total += await ctx.step(f"s{number}", echo, number)
    return total


async def _steps_then_sleep(ctx: Context, n: int) -> int:
    total = await _steps(ctx, n)
    await ctx.sleep("pause", HOUR_S)
    return total


async def _message_then_step(ctx: Context, _input: Any) -> None:
    for number in range(2):
        await ctx.queue.next(f"wait{number}", names=["go"])
        await ctx.step(f"act{number}", echo, number)
        await ctx.sleep(f"pause{number}", HOUR_S)


class Tally(list["Commit"]):
    """Counts commits where the driver in memory would keep them: they are not the engine's cost."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def append(self, _commit: Commit, /) -> None:
        """Count one."""
        self.seen += 1

    def __len__(self) -> int:
        return self.seen


def new_driver() -> MemoryDriver:
    """A driver in memory that counts its commits; as the reference's counts its batches."""
    driver = MemoryDriver()
    driver.commits = Tally()
    return driver


class Spent:
    """Microseconds that runs took.

    Attributes:
        wall: by the clock on the wall, as a user waits.
        cpu: by the processor, which leaves out what others on this machine took of it.
    """

    def __init__(self) -> None:
        self.wall = 0.0
        self.cpu = 0.0

    async def run(
        self, workflow: Callable[..., Awaitable[Any]], driver: MemoryDriver, given: Any, expected: WorkflowState
    ) -> None:
        """Run a workflow once and add what it took."""
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        result = await run_workflow("bench", workflow, given, driver).result
        self.cpu += (time.process_time() - cpu) * 1e6
        self.wall += (time.perf_counter() - wall) * 1e6
        assert result.state is expected, result

    def by(self, name: str, count: int) -> dict[str, float]:
        """``name`` and ``name_cpu``: microseconds by each of ``count``."""
        return {name: self.wall / count, f"{name}_cpu": self.cpu / count}


async def steps(n: int, times: int) -> dict[str, Any]:
    """N steps and a long sleep, each workflow twice: once fresh, once replayed."""
    fresh, replay = Spent(), Spent()
    news = 0
    for _ in range(times):
        driver = new_driver()
        await fresh.run(_steps_then_sleep, driver, n, WorkflowState.SLEEPING)
        commits = len(driver.commits)
        await replay.run(_steps_then_sleep, driver, n, WorkflowState.SLEEPING)
        news += len(driver.commits) - commits
    return {**fresh.by("fresh", n * times), **replay.by("replay", n * times), "replay_commits": news}


async def loop(n: int, _times: int) -> dict[str, Any]:
    """A loop of N iterations with one step each."""
    driver = new_driver()
    marks: list[float] = []
    counts: list[int] = []
    tenth = n // 10

    async def iteration(ctx: Context, number: int) -> Continue[int] | Break[int]:
        if number % tenth == 0:
            marks.append(time.process_time())
        if number % KEYS_EVERY == 0:
            counts.append(len(driver.dump()))
        if number == n:
            return Break(number)
        await ctx.step("act", echo, number)
        return Continue(number + 1)

    async def workflow(ctx: Context, _input: Any) -> Any:
        return await ctx.loop("l", iteration, state=0)

    whole = Spent()
    await whole.run(workflow, driver, None, WorkflowState.COMPLETED)
    lengths = [(end - start) * 1e6 / tenth for start, end in itertools.pairwise(marks)]
    return {
        **whole.by("iteration", n),
        "first_tenth_cpu": lengths[0],
        "last_tenth_cpu": lengths[-1],
        "keys_most": max(counts),
        "keys_end": len(driver.dump()),
        "commits": len(driver.commits),
    }


async def join(n: int, times: int) -> dict[str, Any]:
    """A join of N branches with one step each."""

    def branch(number: int) -> Callable[[Context], Awaitable[int]]:
        async def body(ctx: Context) -> int:
            return await ctx.step("act", echo, number)

        return body

    async def workflow(ctx: Context, _input: Any) -> int:
        return len(await ctx.join("all", {f"b{number}": branch(number) for number in range(n)}))

    whole = Spent()
    for _ in range(times):
        await whole.run(workflow, new_driver(), None, WorkflowState.COMPLETED)
    return whole.by("branch", n * times)


async def commits(n: int, _times: int) -> dict[str, Any]:
    """Commits of N steps from start to completion; of a wake that takes a message, runs a step and sleeps again."""
    driver = new_driver()
    await Spent().run(_steps, driver, n, WorkflowState.COMPLETED)
    waking = new_driver()
    await Spent().run(_message_then_step, waking, None, WorkflowState.SLEEPING)
    before = len(waking.commits)
    await waking.message_driver.add(Message(id="m", name="go", body=encode(1), sent_at=waking.clock.now()))
    await Spent().run(_message_then_step, waking, None, WorkflowState.SLEEPING)
    return {"steps": len(driver.commits), "wake": len(waking.commits) - before}


KINDS = {"steps": steps, "loop": loop, "join": join, "commits": commits}


def main() -> None:
    """Answer requests until the input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(asyncio.run(KINDS[request["kind"]](request["n"], request.get("times", 1)))), flush=True)


if __name__ == "__main__":
    main()
