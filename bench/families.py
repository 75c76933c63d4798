"""What a family of workflows costs: a parent of a hundred children beside one of a thousand, on a local AWS.

All run in this process, each claimed in the order in which it became due, as a queue would have it: while one window
of children ends, its parent becomes due once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING

from msgspec import Struct

from adapters.dynamodb.store import Claimed
from bench.figure import Figure, Peer
from bench.subject import BenchFailedError
from bench.units import Bench, opened
from engine import Context, run_workflow
from engine.values import encode
from infra.ministack import MiniStack

if TYPE_CHECKING:
    from collections.abc import Callable

FEW, MANY = 100, 1_000
FEW_QUICK, MANY_QUICK = 50, 200

WINDOW = 50
"""Children under way at once."""

GROWTH_MAX = 1.2
"""How much more a child may cost where there are ten times as many. Design choice: linear, but for what a parent reads
at its wakes, which grows with its history."""


class Cost(Struct, frozen=True, kw_only=True):
    """What one child cost, with its share of its parent: write and read units, milliseconds."""

    write_units: float
    read_units: float
    time_ms: float


async def _child(_ctx: Context, number: int) -> int:
    return number


async def _parent(ctx: Context, count: int) -> int:
    async def one(ctx: Context, number: int) -> int:
        return int(await ctx.output(await ctx.dispatch("child", number)))

    return sum(await ctx.map("all", range(count), one, concurrency=WINDOW))


_WORKFLOWS = {"parent": _parent, "child": _child}


def measure(*, is_quick: bool, report: Callable[[str], None]) -> list[Figure]:
    """The figures of families; raises BenchFailedError where one does not end as it should."""
    few, many = (FEW_QUICK, MANY_QUICK) if is_quick else (FEW, MANY)
    report("starting a local AWS")
    with MiniStack.start() as ministack:
        return asyncio.run(_measure(ministack.endpoint, few, many, report))


async def _measure(endpoint: str, few: int, many: int, report: Callable[[str], None]) -> list[Figure]:
    async with opened(endpoint) as bench:
        # What only the first family of a process pays for is nobody's share.
        await _family(bench, "warm-up", WINDOW)
        costs = {}
        for count in (few, many):
            report(f"{count} children")
            costs[count] = await _family(bench, f"parent-{count}", count)
    note = f"of {many} children, at most {WINDOW} at once, beside {few}"
    return [
        Figure(
            name=f"{name}_a_child_of_{many}",
            value=getattr(costs[many], name),
            unit=unit,
            limit=limit,
            peer=Peer(name=f"of {few}", value=getattr(costs[few], name)),
            note=note,
        )
        for name, unit, limit in (
            ("write_units", "units", GROWTH_MAX),
            ("read_units", "units", None),
            ("time_ms", "ms", GROWTH_MAX),
        )
    ]


async def _family(bench: Bench, workflow_id: str, count: int) -> Cost:
    """Run a parent and its children to their ends."""
    ledger = bench.ledger
    ledger.purpose = workflow_id
    began = perf_counter()
    await bench.store.start(workflow_id=workflow_id, type="parent", input=encode(count))
    due = deque([workflow_id])
    output = None
    while due:
        claim = await bench.store.claim(due.popleft())
        if not isinstance(claim, Claimed):
            continue
        driver = claim.driver
        result = await run_workflow(driver.workflow_id, _WORKFLOWS[driver.type], None, driver, clock=bench.clock).result
        due.extend(other for other in sorted(driver.made_due) if other not in due)
        if driver.workflow_id == workflow_id:
            output = result.output
    if output != sum(range(count)):
        raise BenchFailedError(f"{workflow_id} has returned {output}")
    return Cost(
        write_units=ledger.write_units(workflow_id) / count,
        read_units=ledger.read_units(workflow_id) / count,
        time_ms=(perf_counter() - began) * 1000 / count,
    )
