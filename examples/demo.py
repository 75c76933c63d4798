"""``make demo``: twelve orders on a local AWS, with messages early, late and twice, a timeout, and a worker killed."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.clock import SystemClock
from examples.demo_log import Runs, read_runs
from examples.demo_view import Row, View
from examples.scenario import read_orders
from infra.api_client import segment
from infra.fault import DeployError
from infra.local_stack import LocalStack
from infra.ministack import wait
from infra.target import DevNote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from examples.scenario import ScriptedOrder

LEASE_S = 5
"""Seconds until a killed worker is taken to be dead: short, so that nobody has to wait for the template's minute."""

PARAMETERS = {"LeaseSeconds": str(LEASE_S)}
"""What of the template differs from its defaults."""

DEADLINE_S = 140.0
"""Seconds that the orders may take; the killed one needs its lease to end and then a sweep, which comes each minute."""

LOOK_S = 0.3
"""Seconds between two looks at the orders."""

RESULTS = ("ORDER", "STATE", "OUTPUT", "ATTEMPTS", "WAKES", "WRITE UNITS")
FIGURES = frozenset(("ATTEMPTS", "WAKES", "WRITE UNITS"))

ENDED = frozenset({"completed", "failed", "cancelled"})


class Demo:
    """Plays the shop, the carrier and a failing machine to the orders, and shows what becomes of them."""

    def __init__(self, stack: LocalStack, orders: Sequence[ScriptedOrder], view: View) -> None:
        self._stack = stack
        self._orders = orders
        self._view = view
        self._known: dict[str, dict[str, Any]] = {}
        self._endings: dict[str, dict[str, Any]] = {}
        self._posted: set[str] = set()
        self._killed: set[str] = set()
        self._revived: set[str] = set()
        self._miscounted: set[str] = set()

    def play(self) -> bool:
        """Play it all; whether every order ended as expected."""
        clock = SystemClock()
        deadline = clock.now() + int(DEADLINE_S * 1000)
        slow = [order for order in self._orders if order.is_slow]
        self._view.heading(f"{len(self._orders)} orders, over HTTP")
        for order in slow:
            self._start(order)
        # The first commit of a run says that it is running: what comes after it is the charge.
        while clock.now() < deadline and not all(self._is_at_work(order) for order in slow):
            self._look()
        # They are alone yet, so whatever works works on them.
        self._kill(self._stack.worker_pids(), slow)
        for order in self._orders:
            if order not in slow:
                self._start(order)
        while clock.now() < deadline and len(self._endings) < len(self._orders):
            self._look()
        return self._conclude()

    # --- the shop and the carrier -----------------------------------------------------------------------------------

    def _start(self, order: ScriptedOrder) -> None:
        self._ask("POST", "/workflows/order", body={"id": order.id, "input": order.input})
        if order.message == "early":
            self._ship(order)
            self._view.note(f"{order.id} is shipped before it waits for it: its inbox keeps that")

    def _ship(self, order: ScriptedOrder) -> dict[str, Any]:
        self._posted.add(order.id)
        path = f"/workflows/{segment(order.id)}/messages/shipped"
        key = f"shipped-{order.id}"
        accepted: dict[str, Any] = self._ask("POST", path, body={"parcel": f"P{order.id[-4:]}"}, key=key)
        return accepted

    def _ship_twice(self, order: ScriptedOrder) -> None:
        first, second = self._ship(order), self._ship(order)
        if first["duplicate"] or not second["duplicate"]:
            self._miscounted.add(order.id)
        told = "twice" if order.id in self._miscounted else "once"
        self._view.note(f"{order.id} is told twice, with one Idempotency-Key: it counts {told}")

    # --- the failing machine ----------------------------------------------------------------------------------------

    def _kill(self, pids: Sequence[int], orders: Sequence[ScriptedOrder]) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self._killed = {order.id for order in orders}
        names, processes = ", ".join(sorted(self._killed)), ", ".join(map(str, pids))
        self._view.note(f"{names} is being charged: its worker, process {processes}, is killed")
        self._view.note(f"  its lease ends in {LEASE_S} s; the sweeper, once a minute, then finds it")

    # --- looking ----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """See how far everyone is, and post what is waited for."""
        page = self._ask("GET", "/workflows", query={"type": "order", "limit": "100"})
        self._known = {found["id"]: found for found in page["workflows"]}
        for order in self._orders:
            self._attend(order, self._known.get(order.id, {}))
        self._view.show([self._row(order) for order in self._orders if order.id in self._known])
        wait(LOOK_S)

    def _is_at_work(self, order: ScriptedOrder) -> bool:
        known = self._known.get(order.id, {})
        return known.get("state") == "running" and bool(known["is_running"])

    def _attend(self, order: ScriptedOrder, known: dict[str, Any]) -> None:
        if known.get("deaths") and order.id not in self._revived:
            self._revived.add(order.id)
            self._view.note(f"{order.id} has been found: another worker charges it again, as attempt 2")
        if known.get("state") in ENDED and order.id not in self._endings:
            self._endings[order.id] = self._ask("GET", f"/workflows/{segment(order.id)}/output")
        if order.id in self._posted or "shipped" not in (known.get("waiting_for") or ()):
            return
        if order.message == "twice":
            self._ship_twice(order)
        elif order.message == "late":
            self._ship(order)

    def _row(self, order: ScriptedOrder) -> Row:
        known = self._known[order.id]
        return Row(
            order_id=order.id,
            customer=order.input["customer"],
            total=order.total,
            state=known["state"],
            doing=self._doing(order, known),
        )

    def _doing(self, order: ScriptedOrder, known: dict[str, Any]) -> str:
        if order.id in self._endings:
            return _short(self._endings[order.id])
        if "shipped" in (known["waiting_for"] or ()):
            return "will not wait for long" if order.message == "none" else "waits for its parcel"
        if known["wake_at"] is not None and not known["is_running"]:
            return "sleeps until its alarm"
        if not self._is_at_work(order):
            return "has been started" if known["state"] == "pending" else "is due"
        if known["deaths"]:
            return "is being charged again"
        return "its worker is dead" if order.id in self._killed else "is being charged"

    def _ask(
        self, method: str, path: str, *, body: Any = None, query: dict[str, str] | None = None, key: str | None = None
    ) -> Any:
        reply = self._stack.api.request(
            method,
            path,
            query=query,
            body=None if body is None else json.dumps(body).encode(),
            headers={} if key is None else {"Idempotency-Key": key},
        )
        if not reply.is_success:
            raise DeployError(
                f"{method} {path} was answered with {reply.status}: {reply.body.decode(errors='replace')}"
            )
        return reply.json()

    # --- the end ----------------------------------------------------------------------------------------------------

    def _conclude(self) -> bool:
        # The line of the last run in the log may be a moment behind its end in the table.
        wait(LOOK_S)
        runs = read_runs(self._stack.logs("worker"))
        attempts = {order.id: self._attempts(order) for order in self._orders}
        good = [order for order in self._orders if self._is_good(order, attempts[order.id])]
        self._view.finish()
        self._view.heading("how they ended")
        rows = [
            self._result(order, runs.get(order.id, Runs()), attempts[order.id], is_good=order in good)
            for order in self._orders
        ]
        self._view.table(RESULTS, rows, FIGURES)
        self._view.line("attempts: of the step that took most; write units: of every run that lived to tell")
        states = [ending["state"] for ending in self._endings.values()]
        self._view.verdict(
            f"{len(good)} of {len(self._orders)} orders ended as expected: "
            f"{states.count('completed')} completed, {states.count('failed')} failed",
            is_good=len(good) == len(self._orders),
        )
        return len(good) == len(self._orders)

    def _attempts(self, order: ScriptedOrder) -> int:
        entries = self._ask("GET", f"/workflows/{segment(order.id)}/history")["entries"]
        return max((entry["attempts"] for entry in entries), default=0)

    def _is_good(self, order: ScriptedOrder, attempts: int) -> bool:
        is_as_expected = order.is_as_expected(self._endings.get(order.id, {}))
        return is_as_expected and attempts == order.attempts and order.id not in self._miscounted

    def _result(self, order: ScriptedOrder, runs: Runs, attempts: int, *, is_good: bool) -> tuple[str, ...]:
        ending = self._endings.get(order.id, {})
        state = ending.get("state") or self._known.get(order.id, {}).get("state", "unknown")
        mark = "" if is_good else f"  (expected: {order.ends}, {order.attempts} attempts)"
        return (order.id, state, _short(ending) + mark, str(attempts), str(runs.wakes), f"{runs.write_units:g}")


def _short(ending: dict[str, Any]) -> str:
    match ending:
        case {"output": {"outcome": outcome, "parcel": str(parcel)}}:
            return f"{outcome}, parcel {parcel}"
        case {"output": {"outcome": outcome}}:
            return str(outcome)
        case {"error": {"name": name, "message": message}}:
            return f"{name}: {message}"
    return "-"


def _keep(stack: LocalStack, view: View) -> None:
    """Leave the stack to whoever wants to look around, until Ctrl-C."""
    note = DevNote(endpoint=stack.endpoint, host=stack.api_host, pid=os.getpid(), outputs=stack.outputs)
    with note.held(Path.cwd()):
        view.heading("the stack stays; Ctrl-C ends it")
        view.line(f"  AWS endpoint  {stack.endpoint}")
        view.line(f"  HTTP API      {stack.endpoint} with the header Host: {stack.api_host}")
        view.line("  in another terminal, in this folder:")
        for command in ("list", "get order-1001", "history order-1004", "dump order-1005"):
            view.line(f"    .venv/bin/torpor {command}")
        while stack.ministack.is_running:
            wait(1.0)


def main() -> int:
    """Run the demo; 0 where every order ended as expected."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the stack running at the end, until Ctrl-C")
    parser.add_argument("--plain", action="store_true", help="lines instead of a live table")
    options = parser.parse_args()
    view = View(sys.stdout, is_live=sys.stdout.isatty() and not options.plain)
    # A terminated process must take the local AWS with it as an interrupted one does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with LocalStack.start(parameters=PARAMETERS, report=view.note) as stack:
            try:
                is_good = Demo(stack, read_orders(), view).play()
                if options.keep:
                    _keep(stack, view)
            except KeyboardInterrupt:
                view.finish()
                view.note("ending the local AWS")
                raise
    except KeyboardInterrupt:
        return 130
    except DeployError as error:
        view.line(f"demo: {error}")
        return 1
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
