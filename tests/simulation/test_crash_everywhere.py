"""A process is killed before and after each single call to AWS, one call a world: everything ends as it would have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from engine import values
from engine.entry import StepEntry
from engine.keys import OUTPUT_KEY
from examples.orders import Item, Order, order
from tests.simulation import timetables
from tests.simulation.children import CHILD
from tests.simulation.http import HttpCall, address
from tests.simulation.plan import Fault, quiet_plan
from tests.simulation.programs import Op, Program
from tests.simulation.run import finish
from tests.simulation.world import World

KINDS = ("kill before", "kill after")


def leaf(kind: str, name: str, variant: str = "", number: int = 1, other: int = 0, **more: Any) -> Op:
    return Op(kind=kind, name=name, variant=variant, number=number, other=other, **more)


EVERYTHING = Program(
    ops=[
        leaf("checkpoint", "checkpoint"),
        leaf("step", "plain", "plain", has_rollback=True),
        leaf("step", "sync", "sync"),
        leaf("step", "flaky", "flaky"),
        leaf("step", "ephemeral", "ephemeral"),
        leaf("try_step", "critical", "critical"),
        leaf("try_step", "exhausted", "exhausted"),
        leaf("sleep", "short", "0.05"),
        leaf("sleep", "long", "5"),
        leaf("next", "next", "plain"),
        leaf("next", "answered", "completable"),
        leaf("batch", "batch", "plain"),
        leaf("timeout", "timeout"),
        leaf("send", "send"),
        leaf("version", "version"),
        leaf("removed", "removed"),
        leaf("helpers", "helpers"),
        leaf("retake", "retake"),
        leaf("loop", "loop", number=3, other=1, below={"body": [leaf("step", "s", "plain")]}),
        leaf("join", "join", "ok", 0, below={"a": [leaf("step", "s", "plain")], "b": [leaf("sleep", "s", "2")]}),
        leaf("race", "race", "waits", 0, below={"a": [leaf("sleep", "s", "2")], "b": [leaf("step", "s", "plain")]}),
        leaf("inline", "inline", below={"body": [leaf("step", "s", "plain")]}),
        leaf("map", "map", number=2, below={item: [leaf("step", "s", "plain")] for item in "01"}),
        leaf("try_block", "block", "fails", below={"body": [leaf("step", "s", "plain")]}),
    ],
    is_failing=False,
    messages={"next": 1, "answered": 1, "batch": 2, "retake": 1},
    noise=[],
)
REACHING = Program(
    ops=[
        leaf("checkpoint", "checkpoint"),
        leaf("activity", "activity", "flaky", has_rollback=True),
        leaf("listen", "typed", "plain"),
        leaf("signal", "ignored", "nobody", other=1),
        leaf("signal", "refused", "nobody", other=0),
        leaf("signal", "own", "w0", other=0),
        leaf("gather", "gather"),
        leaf("child", "child", "named"),
        leaf(
            "placed",
            "placed",
            below={
                "body": [
                    leaf("step", "{1}", "plain"),
                    leaf("sleep", "{2}", "2"),
                    leaf("next", "{3}", "plain"),
                    leaf("check", "{4}"),
                    leaf("newer", "{5}@2"),
                    leaf("gone", "{6}"),
                ]
            },
        ),
    ],
    is_failing=False,
    messages={"typed": 1, "placed/{3}": 1},
    noise=[],
)
KEEPING = Program(
    ops=[
        leaf("checkpoint", "checkpoint"),
        leaf("write", "count", "count"),
        leaf("look", "first"),
        leaf("loop", "loop", number=3, other=1, below={"body": [leaf("write", "w", "flaky"), leaf("look", "l")]}),
        leaf("write", "fails", "hopeless"),
        leaf("sleep", "sleep", "5"),
        leaf("join", "join", "ok", 0, below={name: [leaf("write", "w", "count"), leaf("look", "l")] for name in "ab"}),
        leaf("race", "race", "waits", 0, below={"a": [leaf("sleep", "s", "2")], "b": [leaf("write", "w", "slow")]}),
        leaf("write", "toggle", "toggle"),
        leaf("look", "last"),
    ],
    is_failing=False,
    messages={},
    noise=[],
)
UNDONE = Program(
    ops=[
        leaf("checkpoint", "checkpoint"),
        leaf("step", "first", "plain", has_rollback=True),
        leaf("join", "join", "ok", 0, below={branch: [leaf("step", "s", has_rollback=True)] for branch in ("a", "b")}),
        leaf("step", "last", "plain", has_rollback=True),
    ],
    is_failing=True,
    messages={},
    noise=[],
)


MANY_CALLS = 100
"""Calls from which on a world is cut at each of them once: it takes a minute to do so from both sides."""


def cuts(calls: int, kind: str) -> range:
    """At which calls there is a kill of this kind: at all, or, where they are many, at every other one.

    A kill after a call leaves what one before the next call does, but for answers under way.
    """
    return range(calls) if calls < MANY_CALLS else range(KINDS.index(kind), calls, len(KINDS))


# --- programs --------------------------------------------------------------------------------------------------------


def world_of(program: Program, fault: Fault | None) -> World:
    world = World(quiet_plan([] if fault is None else [fault]))
    world.tell("w0", program)
    return finish(world)


def check_program(program: Program, straight: World, fault: Fault, in_flight: int) -> None:
    world = world_of(program, fault)
    assert world.breach is None, (str(fault), str(world.breach))
    extra = {place: count - straight.ledger.bodies[place] for place, count in world.ledger.bodies.items()}
    # A race that is over before its loser could begin never begins it.
    missing = {path for _, path in straight.ledger.bodies.keys() - world.ledger.bodies.keys()}
    assert missing <= {"race/b/s"}, str(fault)
    assert max(extra.values()) <= 1, (str(fault), extra)
    assert sum(max(0, more) for more in extra.values()) <= in_flight, (str(fault), extra)


@pytest.mark.parametrize(
    ("program", "in_flight"),
    # Beside the step in flight: an ephemeral one before it, and a branch beside it, which may have to try again.
    [
        pytest.param(EVERYTHING, 2, id="everything"),
        pytest.param(REACHING, 2, id="reaching"),
        pytest.param(KEEPING, 3, id="keeping"),
        pytest.param(UNDONE, 2, id="undone"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_program_ends_as_it_would(program: Program, in_flight: int, kind: str) -> None:
    straight = world_of(program, None)
    assert straight.breach is None
    assert straight.wire.calls > 10
    for ordinal in cuts(straight.wire.calls, kind):
        check_program(program, straight, Fault(number=0, kind=kind, ordinal=ordinal), in_flight)


# --- a schedule ------------------------------------------------------------------------------------------------------


def schedule_with(fault: Fault | None) -> World:
    world = World(quiet_plan([] if fault is None else [fault]))
    world.plans.append(
        timetables.Asked(
            name="s0",
            body={
                "name": "s0",
                "every": "10s",
                "start_at": "2025-12-31T23:00:05Z",
                "overlap": "queue",
                "type": CHILD,
                "input": {"path": "run", "sleep_s": 3.0, "fails": False, "generations": 0},
            },
            orders=[
                timetables.Order(after_s=1, command="trigger"),
                timetables.Order(after_s=5, command="pause"),
                timetables.Order(after_s=6, command="resume"),
                timetables.Order(
                    after_s=1,
                    command="backfill",
                    value={"from": "2025-12-31T23:50:00Z", "to": "2025-12-31T23:50:09Z", "overlap": "allow"},
                ),
            ],
            lifetime_s=18,
        )
    )
    return finish(world)


@pytest.mark.parametrize("kind", KINDS)
def test_a_schedule_occurs_as_it_would(kind: str) -> None:
    straight = schedule_with(None)
    assert straight.breach is None, str(straight.breach)
    runs = {run for run in straight.views if run.startswith("s0/")}
    assert len(runs) >= 4
    assert straight.wire.calls > 50
    for ordinal in cuts(straight.wire.calls, kind):
        fault = Fault(number=0, kind=kind, ordinal=ordinal)
        world = schedule_with(fault)
        assert world.breach is None, (str(fault), str(world.breach))


# --- the order -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an order ended, as stored: its state, its output, and how often each step was attempted."""

    state: str
    output: Any
    attempts: dict[str, int]
    calls: int


def order_with(payment: str, *, ships: bool, fault: Fault | None = None) -> Ending:
    world = World(quiet_plan([] if fault is None else [fault]))
    world.application.workflows["order"] = order
    given = Order(
        customer="Ada",
        currency="EUR",
        items=[Item(name="tea", quantity=2, price_cents=350)],
        payment=payment,
        patience_s=30.0,
    )

    start = HttpCall(
        method="POST", path=address("order"), value={"id": "o1", "input": values.decode(values.encode(given))}
    )
    ship = HttpCall(
        method="POST",
        path=address("o1", "messages", "shipped"),
        headers={"idempotency-key": "shipping"},
        value={"parcel": "P-1"},
        life="o1.0",
    )

    async def shop() -> None:
        await world.callers.ask(start)
        await world.callers.pause(1)
        if ships:
            await world.callers.ask(ship, refusals=(409,))

    world.callers.spawn(shop())
    finish(world)
    assert world.breach is None, (str(fault), str(world.breach))
    view = world.views["o1"]
    attempts = {}
    for entry in view.entries().values():
        metadata = view.metadata(entry.id)
        if isinstance(entry.kind, StepEntry) and metadata is not None:
            attempts[view.path(entry)] = metadata.attempts
    output = view.pairs.get(OUTPUT_KEY)
    return Ending(
        state=view.state,
        output=None if output is None else values.decode(output),
        attempts=attempts,
        calls=world.wire.calls,
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("payment", "ships"), [("prompt", True), ("flaky", False), ("refused", True)])
def test_an_order_ends_as_it_would(payment: str, kind: str, *, ships: bool) -> None:
    straight = order_with(payment, ships=ships)
    assert straight.state == ("failed" if payment == "refused" else "completed")
    for ordinal in range(straight.calls):
        fault = Fault(number=0, kind=kind, ordinal=ordinal)
        ending = order_with(payment, ships=ships, fault=fault)
        assert (ending.state, ending.output) == (straight.state, straight.output), str(fault)
        assert ending.attempts.keys() == straight.attempts.keys(), str(fault)
        extra = {name: count - straight.attempts[name] for name, count in ending.attempts.items()}
        assert sum(max(0, more) for more in extra.values()) <= 1, (str(fault), extra)
