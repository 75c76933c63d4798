"""What durability costs on AWS: DynamoDB units of every kind of write, on a local AWS that bills as AWS does."""

from __future__ import annotations

import asyncio
import statistics
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiobotocore.session import get_session

from adapters.dynamodb.model.items import Head
from adapters.dynamodb.model.schema import TABLE_DEFINITION
from adapters.dynamodb.model.tags import tag_items
from adapters.dynamodb.store import Claimed, Store
from adapters.dynamodb.table import Table
from bench.figure import Figure
from bench.ledger import Ledger
from bench.subject import BenchFailedError
from engine import Context, WorkflowState, run_workflow
from engine.clock import SystemClock
from engine.commit import Alarm, Child, Commit
from engine.ids import Ids
from engine.values import encode
from examples.orders import order
from infra.aws import LOCAL_ACCESS_KEY, LOCAL_REGION, LOCAL_SECRET_KEY
from infra.ministack import MiniStack

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from adapters.dynamodb.driver import DynamoDriver
    from engine.driver import Timer
    from engine.result import WorkflowResult

STEPS = 100
RESULT_BYTES = 550
"""Bytes of a step's result. Source: the limit is stated for results under 600 bytes."""

STEP_UNITS_MAX = 4.0
START_UNITS_MAX, CLAIM_UNITS_MAX, YIELD_UNITS_MAX = 6, 3, 7
"""Source: the table's design: what each write may cost while records are under a kilobyte."""

SIGNALS = 3
"""Signals that one workflow sends between a step and a sleep."""

CROWD = 10_000
"""Workflows that have the same tag, among which one is looked for."""

HOUR_S = 3600
TABLE = "units"

ORDER = {
    "customer": "Ada",
    "currency": "EUR",
    "items": [{"name": "lamp", "quantity": 2, "price_cents": 4900}],
}
"""The order whose workflow is itemised: it is charged, cools off, waits for its parcel and ends as shipped."""


class _ShiftedClock(SystemClock):
    """The system's clock, moved ahead by ``shift_ms``: what sleeps for hours is woken at once."""

    def __init__(self) -> None:
        self.shift_ms = 0

    def now(self) -> int:
        """Milliseconds since the epoch, ahead of the system's."""
        return super().now() + self.shift_ms

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """As the system's clock."""
        return super().call_later(delay_s, callback)


class Bench:
    """A store whose calls go through a ledger."""

    def __init__(self, client: Any) -> None:
        self.ledger = Ledger(client)
        self.clock = _ShiftedClock()
        self.store = Store(self.ledger, TABLE, self.clock, Ids(self.clock), owner="bench", random=lambda: 0.5)

    async def start(self, workflow_id: str, given: Any) -> None:
        """Start a workflow; charged to ``<id> start``."""
        self.ledger.purpose = f"{workflow_id} start"
        await self.store.start(workflow_id=workflow_id, type=workflow_id, input=encode(given))

    async def wake(self, workflow_id: str, workflow: Any, number: int, *, after_s: float = 0) -> WorkflowResult[Any]:
        """Claim and run a workflow; charged to ``<id> claim <number>`` and ``<id> run <number>``."""
        self.clock.shift_ms += round(after_s * 1000)
        self.ledger.purpose = f"{workflow_id} claim {number}"
        claim = await self.store.claim(workflow_id)
        if not isinstance(claim, Claimed):
            raise BenchFailedError(f"{workflow_id} cannot be claimed for its wake {number}: {claim}")
        self.ledger.purpose = f"{workflow_id} run {number}"
        return await run_workflow(workflow_id, workflow, None, claim.driver, clock=self.clock).result

    async def send(self, workflow_id: str, name: str, body: Any) -> None:
        """Send a message; charged to ``<id> message``."""
        self.ledger.purpose = f"{workflow_id} message"
        await self.store.send(workflow_id, name=name, body=encode(body))


def measure(*, is_quick: bool, report: Callable[[str], None]) -> list[Figure]:  # noqa: ARG001 - it is as quick as can be
    """The figures of units; raises BenchFailedError where a workflow does not do what it should."""
    report("starting a local AWS")
    with MiniStack.start() as ministack:
        return asyncio.run(_measure(ministack.endpoint, report))


@asynccontextmanager
async def opened(endpoint: str) -> AsyncIterator[Bench]:
    """A table of its own on the local AWS at ``endpoint``."""
    client = get_session().create_client(
        "dynamodb",
        region_name=LOCAL_REGION,
        endpoint_url=endpoint,
        aws_access_key_id=LOCAL_ACCESS_KEY,
        aws_secret_access_key=LOCAL_SECRET_KEY,
    )
    async with client as made:
        await made.create_table(TableName=TABLE, **TABLE_DEFINITION)
        yield Bench(made)


async def _measure(endpoint: str, report: Callable[[str], None]) -> list[Figure]:
    async with opened(endpoint) as bench:
        # The first start of each type also notes the type: once in the life of a table, not of a workflow.
        for workflow_type in ("steps", "napper", "order"):
            await bench.store.start(workflow_id=f"first-{workflow_type}", type=workflow_type, input=encode(None))
        report(f"{STEPS} steps of {RESULT_BYTES} bytes")
        figures = await _steps(bench)
        report("wakes")
        figures += await _wakes(bench)
        report("others")
        figures += await _others(bench)
        report(f"tags of {CROWD} workflows")
        figures += await _tags(bench)
        report("an order")
        return figures + await _order(bench)


async def _result(number: int) -> str:
    return f"{number:06d}".ljust(RESULT_BYTES, ".")


async def _steps_workflow(ctx: Context, _input: Any) -> None:
    for number in range(STEPS):
        await ctx.step(f"s{number}", _result, number)


async def _napper_workflow(ctx: Context, _input: Any) -> None:
    for number in range(2):
        await ctx.queue.next(f"wait{number}", names=["go"])
        await ctx.step(f"act{number}", _result, number)
        await ctx.sleep(f"nap{number}", HOUR_S)


async def _silent_workflow(ctx: Context, _input: Any) -> None:
    await ctx.step("act", _result, 0)
    await ctx.sleep("nap", HOUR_S)


async def _teller_workflow(ctx: Context, _input: Any) -> None:
    await ctx.step("act", _result, 0)
    for number in range(SIGNALS):
        await ctx.signal("news", number, to="told")
    await ctx.sleep("nap", HOUR_S)


def _expect(result: WorkflowResult[Any], state: WorkflowState) -> None:
    if result.state is not state:
        raise BenchFailedError(f"the workflow is {result.state} and should be {state}")


async def _steps(bench: Bench) -> list[Figure]:
    await bench.start("steps", None)
    _expect(await bench.wake("steps", _steps_workflow, 1), WorkflowState.COMPLETED)
    ledger = bench.ledger
    commits = ledger.commits("steps run 1")
    ledger.purpose = "steps load"
    await bench.store.history("steps")
    read_bytes = sum(charge.read_bytes for charge in ledger.charges if charge.purpose == "steps load")
    return [
        Figure(
            name="write_units_per_step",
            value=statistics.mean(commits[:-1]),
            unit="units",
            limit=STEP_UNITS_MAX,
            note=f"the mean of commits that carry one step with a result of {RESULT_BYTES} bytes and nothing else",
        ),
        Figure(name=f"commits_per_{STEPS}_steps", value=len(commits), unit="commits", limit=STEPS),
        Figure(
            name="write_units_completion",
            value=commits[-1],
            unit="units",
            note="the commit of the last step's result, the output, the end and the release",
        ),
        Figure(
            name=f"read_units_load_{STEPS}_steps",
            value=ledger.read_units("steps load"),
            unit="units",
            note=f"{read_bytes} bytes, strongly consistent",
        ),
    ]


async def _wakes(bench: Bench) -> list[Figure]:
    await bench.start("napper", None)
    _expect(await bench.wake("napper", _napper_workflow, 1), WorkflowState.SLEEPING)
    await bench.send("napper", "go", {"number": 1})
    _expect(await bench.wake("napper", _napper_workflow, 2), WorkflowState.SLEEPING)
    ledger = bench.ledger
    commits = ledger.commits("napper run 2")
    return [
        Figure(name="write_units_start", value=ledger.write_units("napper start"), unit="units", limit=START_UNITS_MAX),
        Figure(
            name="write_units_claim", value=ledger.write_units("napper claim 1"), unit="units", limit=CLAIM_UNITS_MAX
        ),
        Figure(name="write_units_yield", value=ledger.commits("napper run 1")[-1], unit="units", limit=YIELD_UNITS_MAX),
        Figure(name="write_units_message", value=ledger.write_units("napper message"), unit="units"),
        Figure(
            name="commits_of_wake_message_step_sleep",
            value=len(commits),
            unit="commits",
            limit=2,
            note=f"{' + '.join(f'{units:g}' for units in commits)} write units",
        ),
        Figure(name="read_units_load_short", value=ledger.read_units("napper claim 2"), unit="units"),
    ]


async def _claimed(bench: Bench, workflow_id: str) -> DynamoDriver:
    claim = await bench.store.claim(workflow_id)
    if not isinstance(claim, Claimed):
        raise BenchFailedError(f"{workflow_id} cannot be claimed: {claim}")
    return claim.driver


async def _others(bench: Bench) -> list[Figure]:
    """What a workflow does to others: a child, a wait for an end, an end that is told; and signals."""
    for workflow_id in ("parent", "plain"):
        await bench.store.start(workflow_id=workflow_id, type="steps", input=encode(None))
    parent, plain = await _claimed(bench, "parent"), await _claimed(bench, "plain")
    puts = [(b"k", b"v")]
    child = Child(workflow_id="child", workflow_type="steps", workflow_input=encode(None))
    ended = Commit(puts=puts, alarm=Alarm(None), state=WorkflowState.COMPLETED)

    async def cost_of(driver: DynamoDriver, commit: Commit) -> float:
        bench.ledger.purpose = f"others {len(bench.ledger.charges)}"
        await driver.commit(commit)
        return bench.ledger.write_units(bench.ledger.purpose)

    step = await cost_of(parent, Commit(puts=puts))
    costs = {"child": await cost_of(parent, Commit(puts=puts, children=[child])) - step}
    awaits = await cost_of(parent, Commit(puts=puts, yields=True, awaited=("child",), state=WorkflowState.SLEEPING))
    costs["wait_for_an_end"] = awaits - YIELD_UNITS_MAX
    told = await cost_of(await _claimed(bench, "child"), ended)
    costs["telling_an_end"] = told - await cost_of(plain, ended)
    figures = [Figure(name=f"write_units_{name}", value=value, unit="units") for name, value in costs.items()]
    return figures + await _signals(bench)


async def _signals(bench: Bench) -> list[Figure]:
    """What signals add to a workflow that takes a step and goes to sleep."""
    await bench.store.start(workflow_id="told", type="steps", input=encode(None))
    for workflow_id, workflow in (("silent", _silent_workflow), ("teller", _teller_workflow)):
        bench.ledger.purpose = f"{workflow_id} start"
        await bench.store.start(workflow_id=workflow_id, type="steps", input=encode(None))
        _expect(await bench.wake(workflow_id, workflow, 1), WorkflowState.SLEEPING)
    ledger = bench.ledger
    added = ledger.write_units("teller run 1") - ledger.write_units("silent run 1")
    commits = len(ledger.commits("teller run 1")) - len(ledger.commits("silent run 1"))
    return [
        Figure(
            name="write_units_signal",
            value=added / SIGNALS,
            unit="units",
            note=f"of {SIGNALS} signals between a step and a sleep: what they add, by their number",
        ),
        Figure(name="commits_of_signals", value=commits, unit="commits", limit=0, note="what the same signals add"),
    ]


async def _tags(bench: Bench) -> list[Figure]:
    """What tags cost to have, and to look for among many."""
    ledger = bench.ledger
    costs = []
    for number, tags in enumerate(({}, {"a": "1"}, {"a": "1", "b": "2"})):
        ledger.purpose = f"tagged {number}"
        await bench.store.start(workflow_id=f"tagged-{number}", type="steps", input=encode(None), tags=tags)
        costs.append(ledger.write_units(ledger.purpose))
    ledger.purpose = "crowd"
    heads = [
        Head(workflow_id=f"w{number:05d}", type="crowd", tags=_crowd_tags(number), created_at=0, updated_at=0)
        for number in range(CROWD)
    ]
    table = Table(ledger, TABLE, bench.clock, random=lambda: 0.5)
    await table.batch_write([item for head in heads for item in tag_items(head)], [])
    looks = {
        "one": {"order": "07000"},
        "ten": {"day": "7", "tenant": "one"},
        "one_the_wrong_way_round": {"tenant": "one", "order": f"{CROWD - 1:05d}"},
    }
    for name, tags in looks.items():
        ledger.purpose = f"find {name}"
        await bench.store.find("crowd", tags, limit=10)
    return [
        Figure(name="write_units_start_a_tag", value=costs[2] - costs[1], unit="units", note="and as many at its end"),
        *(
            Figure(
                name=f"read_units_find_{name}_of_{CROWD}",
                value=ledger.read_units(f"find {name}"),
                unit="units",
                note=", ".join(f"{key}={value}" for key, value in tags.items()),
            )
            for name, tags in looks.items()
        ),
    ]


def _crowd_tags(number: int) -> dict[str, str]:
    return {"tenant": "one", "order": f"{number:05d}", "day": f"{number % (CROWD // 10)}"}


async def _order(bench: Bench) -> list[Figure]:
    await bench.start("order", ORDER)
    _expect(await bench.wake("order", order, 1), WorkflowState.SLEEPING)
    _expect(await bench.wake("order", order, 2, after_s=3), WorkflowState.SLEEPING)
    await bench.send("order", "shipped", {"parcel": "1Z"})
    _expect(await bench.wake("order", order, 3), WorkflowState.COMPLETED)
    ledger = bench.ledger
    purposes = dict.fromkeys(charge.purpose for charge in ledger.charges if charge.purpose.startswith("order "))
    items = [
        Figure(
            name=f"units_of_{purpose.replace(' ', '_')}",
            value=ledger.write_units(purpose),
            unit="units",
            note=_itemised(ledger, purpose),
        )
        for purpose in purposes
    ]
    reads = sum(ledger.read_units(purpose) for purpose in purposes)
    total = sum(item.value for item in items)
    whole = Figure(
        name="units_per_workflow", value=total, unit="units", note=f"and {reads} read units; an order, whole"
    )
    return [*items, whole]


def _itemised(ledger: Ledger, purpose: str) -> str:
    made = [charge for charge in ledger.charges if charge.purpose == purpose and charge.write_units]
    return " + ".join(f"{charge.operation} {charge.write_units:g}" for charge in made)
