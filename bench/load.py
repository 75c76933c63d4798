"""Load, bounded and on a local stack: ``python -m bench.load [--quick]`` prints a table and writes bench/results.json.

Three kinds: a crowd of workflows at once, a stream of messages from many senders into one workflow, and starts at a
steady rate. Crowd and stream are taken at two sizes, one the double of the other. The exit code is 1 where
something was lost, doubled or out of order. Everything shares this machine's processors with the local AWS.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from bench.figure import Figure, median, percentile
from bench.load_place import CONNECTIONS, Place, Told, all_of, timed
from bench.results import Results
from engine.lifecycle import WorkflowState
from engine.values import decode
from infra.fault import DeployError
from infra.local_stack import LocalStack
from infra.package import Application
from infra.place import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

BEGAN = time.perf_counter()
SENDERS = 50
BACKLOG = 20


class Sizes(Struct, frozen=True, kw_only=True):
    """How much load.

    Attributes:
        crowd, messages, unread: the larger of two sizes each.
        starts_per_second: for so many ``seconds``; over HTTP for ``http_seconds``.
        patience_s: seconds that all that was asked for may take to be dealt with.
    """

    crowd: int
    messages: int
    unread: int
    starts_per_second: int
    seconds: int
    http_seconds: int
    patience_s: int


WHOLE = Sizes(
    crowd=1_000, messages=5_000, unread=400, starts_per_second=200, seconds=60, http_seconds=10, patience_s=400
)
QUICK = Sizes(crowd=100, messages=500, unread=40, starts_per_second=200, seconds=3, http_seconds=2, patience_s=60)


class Faults(list[str]):
    """What went wrong that must not: everything that was lost, doubled, out of order or left over."""

    def unless(self, holds: bool, complaint: str) -> None:  # noqa: FBT001 - reads as a sentence
        """Put ``complaint`` on record where ``holds`` is False."""
        if not holds:
            _report(f"FAULT: {complaint}")
            self.append(complaint)


def main() -> int:
    """Put on the load; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.load", description="Put bounded load on a local stack.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the load: under a minute")
    is_quick = parser.parse_args().quick
    faults = Faults()
    application = Application(modules="bench.load_workflows", folder=ROOT)
    try:
        with LocalStack.start(application=application, report=_report) as stack:
            figures = asyncio.run(_measure(stack, QUICK if is_quick else WHOLE, faults))
    except DeployError as error:
        print(f"load: {error}", file=sys.stderr)
        return 1
    _report("stopped")
    results = Results.load()
    results.replace("load", figures, is_quick=is_quick)
    results.save()
    print("\n".join(results.table("load")))
    for fault in faults:
        print(f"FAULT: {fault}")
    return 1 if faults else 0


def _report(line: str) -> None:
    print(f"  {time.perf_counter() - BEGAN:6.1f} s  {line}", file=sys.stderr, flush=True)


async def _measure(stack: LocalStack, sizes: Sizes, faults: Faults) -> list[Figure]:
    figures: list[Figure] = []
    async with Place(stack) as place:
        # Two processes at least are warm, and the types are known to the table.
        await all_of(place.start("brief", f"warm-{number}", number) for number in range(BACKLOG))
        await place.until("warm-", BACKLOG, WorkflowState.COMPLETED, sizes.patience_s)
        crowd = [await _crowd(place, size, sizes, faults) for size in (sizes.crowd // 2, sizes.crowd)]
        stream = [await _stream(place, size, sizes, faults) for size in (sizes.messages // 2, sizes.messages)]
        for runs in (crowd, stream):
            figures += runs[0].figures()[:1] + runs[1].figures() + _growth(runs)
        figures += [await _unread(place, size) for size in (sizes.unread // 2, sizes.unread)]
        figures += await _starts(place, sizes, faults)
    return figures


class Run(Struct, frozen=True, kw_only=True):
    """One load at one size: ``size`` messages, sent in ``sent_s`` seconds and all dealt with after ``took_s``."""

    name: str
    size: int
    sent_s: float
    took_s: float
    told: Told
    peak_mb: float
    note: str = ""

    def figures(self) -> list[Figure]:
        """The figures of it, throughput first."""
        at, told = f"{self.name}_{self.size}", self.told
        conflicts = f"{told.repeats} tries made again; the local AWS itself never reports a conflict"
        return [
            Figure(name=f"{at}_per_second", value=self.size / self.took_s, unit="1/s", note=self.note),
            Figure(name=f"{at}_sent_per_second", value=self.size / self.sent_s, unit="1/s"),
            Figure(name=f"{at}_message_to_progress_p50", value=median(told.took_ms), unit="ms"),
            Figure(name=f"{at}_message_to_progress_p99", value=percentile(told.took_ms, 99), unit="ms"),
            Figure(
                name=f"{at}_turns",
                value=told.turns,
                unit="turns",
                note=f"and {told.drops} wakes dropped; as far as the log says, which may lack a line",
            ),
            Figure(name=f"{at}_commits", value=told.commits, unit="commits"),
            Figure(name=f"{at}_refused_writes", value=told.refusals, unit="writes", note=conflicts),
            Figure(
                name=f"{at}_write_units_each", value=told.write_units / self.size, unit="units", note="of the worker"
            ),
            Figure(name=f"{at}_worker_peak", value=self.peak_mb, unit="MB", note="resident, of the largest process"),
        ]


def _growth(runs: Sequence[Run]) -> list[Figure]:
    """What each message costs at the double of the load, by what it costs at the single: 1 where nothing grows."""
    small, large = runs
    name = small.name
    return [
        Figure(
            name=f"{name}_growth_of_time",
            value=(large.took_s / large.size) / (small.took_s / small.size),
            unit="ratio",
            note="seconds of each at the double by those at the single",
        ),
        Figure(
            name=f"{name}_growth_of_write_units",
            value=(large.told.write_units / large.size) / (small.told.write_units / small.size),
            unit="ratio",
        ),
        Figure(name=f"{name}_growth_of_memory", value=large.peak_mb / small.peak_mb, unit="ratio"),
    ]


# --- a crowd of workflows ---------------------------------------------------------------------------------------------


async def _crowd(place: Place, size: int, sizes: Sizes, faults: Faults) -> Run:
    """So many workflows at once: all are started, then each gets its message, and each ends."""
    _report(f"a crowd of {size} workflows")
    ids = [f"errand-{size}-{number:04d}" for number in range(size)]
    place.begin()
    began = time.perf_counter()
    await all_of(place.start("errand", workflow_id, number) for number, workflow_id in enumerate(ids))
    await place.until(f"errand-{size}-", size, WorkflowState.SLEEPING, sizes.patience_s)
    _report(f"all wait after {time.perf_counter() - began:.1f} s")
    sent_s = await timed(all_of(place.send(workflow_id, "go") for workflow_id in ids))
    await place.until(f"errand-{size}-", size, WorkflowState.COMPLETED, sizes.patience_s)
    took_s = time.perf_counter() - began
    told = await place.told()
    for number, workflow_id in enumerate(ids):
        outcome = await place.store.outcome(workflow_id)
        is_right = outcome.state is WorkflowState.COMPLETED and decode(outcome.output or b"\xf6") == number
        faults.unless(is_right, f"{workflow_id} is {outcome.state}")
    faults.unless(len(told.took_ms) <= size, f"{len(told.took_ms)} steps have run of {size}: some again")
    faults.extend(told.faults)
    note = "from the first start to the last end: two turns each, all in one burst"
    return Run(name="crowd", size=size, sent_s=sent_s, took_s=took_s, told=told, peak_mb=place.peak_mb, note=note)


# --- a stream of messages ---------------------------------------------------------------------------------------------


async def _stream(place: Place, size: int, sizes: Sizes, faults: Faults) -> Run:
    """So many messages into one workflow, from senders that each wait for one before they send the next."""
    _report(f"{size} messages from {SENDERS} senders")
    workflow_id, each = f"collector-{size}", size // SENDERS
    await place.start("collector", workflow_id, {"messages": each * SENDERS, "per_sender": each})
    await asyncio.sleep(1)
    place.begin()
    began = time.perf_counter()

    async def sender(name: str) -> None:
        for number in range(each):
            await place.send(workflow_id, "item", sender=name, number=number)

    sent_s = await timed(all_of(sender(f"sender-{number:02d}") for number in range(SENDERS)))
    _report(f"sent after {sent_s:.1f} s")
    await place.until(workflow_id, 1, WorkflowState.COMPLETED, sizes.patience_s)
    took_s = time.perf_counter() - began
    told = await place.told()
    outcome = await place.store.outcome(workflow_id)
    accounts = decode(outcome.output) if outcome.output else {}
    wanted = {f"sender-{number:02d}": each for number in range(SENDERS)}
    faults.unless(outcome.state is WorkflowState.COMPLETED, f"{workflow_id} is {outcome.state}")
    faults.unless(accounts.get("next_of") == wanted, f"{workflow_id} has got {accounts.get('next_of')}")
    faults.unless(not accounts.get("astray"), f"not in their sender's order: {accounts.get('astray')}")
    faults.unless(await place.messages_left(workflow_id) == 0, f"{workflow_id} has messages left")
    faults.extend(told.faults)
    note = f"from {SENDERS} senders into one workflow, each in order, none lost or doubled: held by the workflow itself"
    return Run(name="stream", size=size, sent_s=sent_s, took_s=took_s, told=told, peak_mb=place.peak_mb, note=note)


# --- messages that nobody reads ---------------------------------------------------------------------------------------


async def _unread(place: Place, size: int) -> Figure:
    """So many messages, one after the other, to a workflow that sleeps: what looking at them costs for nothing."""
    _report(f"{size} messages to a sleeper")
    workflow_id = f"idler-{size}"
    await place.start("idler", workflow_id, 3600)
    await asyncio.sleep(1)
    place.begin()
    took_s = 0.0
    for _ in range(size):
        took_s += await timed(place.send(workflow_id, "item"))
    await place.until_no_wakes(within_s=30)
    told = await place.told()
    note = f"{told.drops} wakes dropped and {told.turns} runs, for messages that the workflow does not wait for"
    return Figure(name=f"unread_{size}_sent_per_second", value=size / took_s, unit="1/s", note=note)


# --- starts at a steady rate ------------------------------------------------------------------------------------------


async def _starts(place: Place, sizes: Sizes, faults: Faults) -> list[Figure]:
    """Starts at a rate that does not wait for answers, as far as it can be kept."""
    rate, total = sizes.starts_per_second, sizes.starts_per_second * sizes.seconds
    _report(f"{rate} starts a second, for {sizes.seconds} s")
    place.begin()
    began = time.perf_counter()
    numbers = iter(range(total))
    times: list[float] = []
    ids: set[str] = set()

    async def client() -> None:
        for number in numbers:
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            if time.perf_counter() - began > sizes.seconds:
                return
            took_s = await timed(place.start("brief", f"brief-{number:05d}", number))
            times.append(took_s * 1000)
            ids.add(f"brief-{number:05d}")

    started_s = await timed(all_of(client() for _ in range(CONNECTIONS)))
    _report(f"{len(ids)} started after {started_s:.1f} s")
    waited_s = await place.until("brief-", len(ids), WorkflowState.COMPLETED, sizes.patience_s)
    ended_s = time.perf_counter() - began
    faults.unless(waited_s < sizes.patience_s, f"of {len(ids)} starts some have not ended after {ended_s:.0f} s")
    told = await place.told()
    faults.extend(told.faults)
    return [
        Figure(name="starts_per_second", value=len(ids) / started_s, unit="1/s", note=f"{rate} were offered"),
        Figure(name="starts_p50", value=median(times), unit="ms"),
        Figure(name="starts_p99", value=percentile(times, 99), unit="ms"),
        Figure(name="starts_ended_per_second", value=len(ids) / ended_s, unit="1/s", note=f"of {len(ids)}"),
        Figure(
            name="starts_write_units_each",
            value=told.write_units / max(1, told.turns),
            unit="units",
            note="of the worker",
        ),
        Figure(name="starts_worker_peak", value=place.peak_mb, unit="MB"),
        *await _http_starts(place, sizes),
    ]


async def _http_starts(place: Place, sizes: Sizes) -> list[Figure]:
    """The same through the HTTP API, as fast as one client after the other gets answers."""
    _report(f"starts over HTTP, one after the other, for {sizes.http_seconds} s")
    began = time.perf_counter()
    times: list[float] = []
    while time.perf_counter() - began < sizes.http_seconds:
        body = json.dumps({"id": f"http-{len(times)}", "input": len(times)}).encode()
        times.append(await timed(asyncio.to_thread(place.stack.api.request, "POST", "/workflows/brief", body=body)))
    note = "one client; what the local AWS's gateway and function take included"
    return [
        Figure(name="http_starts_per_second", value=len(times) / sum(times), unit="1/s", note=note),
        Figure(name="http_starts_p99", value=percentile(times, 99) * 1000, unit="ms"),
    ]


if __name__ == "__main__":
    sys.exit(main())
