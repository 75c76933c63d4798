"""What a workflow's type says of its end, and which commit carries that."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from engine import Context, workflow
from engine.author.registry import Registry
from engine.commit import Pruning
from tests.unit.bench import Bench

if TYPE_CHECKING:
    from engine import Workflow
    from engine.testing import MemoryDriver

DAY_MS = 86_400_000


def made(**options: Any) -> Workflow[Any]:
    @workflow("order", registry=Registry(), **options)
    async def order(ctx: Context, given: str) -> str:
        if given == "fail":
            raise ValueError(given)
        await ctx.sleep("pause", 10)
        await ctx.sleep("long", 3600)
        return given

    return order


def carried(driver: MemoryDriver) -> list[tuple[str | None, Pruning | None]]:
    return [(commit.state, commit.pruning) for commit in driver.commits if commit.state is not None]


def test_a_type_says_what_is_forgotten_and_when() -> None:
    assert made().pruning is None
    assert made(prune="none").pruning is None
    assert made(prune="all").pruning == Pruning(is_whole=True, after_ms=7 * DAY_MS)
    assert made(prune="history", retention=timedelta(days=2)).pruning == Pruning(is_whole=False, after_ms=2 * DAY_MS)
    assert made(prune="all", retention=0).pruning == Pruning(is_whole=True, after_ms=0)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"prune": "some"}, ValueError),
        ({"retention": 3600}, ValueError),
        ({"prune": "none", "retention": 3600}, ValueError),
        ({"prune": "all", "retention": -1}, ValueError),
        ({"prune": "all", "retention": "a week"}, TypeError),
        ({"prune": "all", "retention": float("inf")}, ValueError),
    ],
)
def test_what_says_nothing_sound_is_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        made(**options)


async def test_the_commit_that_completes_a_workflow_carries_it() -> None:
    flow = made(prune="all")
    bench = Bench()
    await bench.through(flow, "x")
    assert carried(bench.driver) == [("sleeping", None), ("completed", flow.pruning)]


async def test_the_commit_that_fails_a_workflow_does_not() -> None:
    bench = Bench()
    with pytest.raises(ValueError, match="fail"):
        await bench.through(made(prune="all"), "fail")
    assert carried(bench.driver) == [("failed", None)]


async def test_a_cancelled_workflow_carries_it_whether_it_ran_or_slept() -> None:
    flow = made(prune="history")
    bench = Bench()
    handle = bench.start(flow, "x")
    await bench.idle(handle)
    await handle.cancel()
    assert carried(bench.driver)[-1] == ("cancelled", flow.pruning)

    bench = Bench()
    running = bench.start(flow, "x", mode="live")
    await bench.idle(running)
    await running.cancel()
    assert carried(bench.driver)[-1] == ("cancelled", flow.pruning)
