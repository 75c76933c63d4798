"""The example's orders on the engine alone, each to the ending that its line promises; and what the demo draws."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from engine import WorkflowState, values
from engine.entry import Message
from engine.testing import MemoryDriver, VirtualClock, drive
from examples.demo_log import Runs, read_runs
from examples.demo_view import Row, View
from examples.orders import Receipt, order
from examples.scenario import ScriptedOrder, read_orders

ORDERS = read_orders()
# A step that really takes its time outlives its timeout on a clock that jumps.
QUICK = [scripted for scripted in ORDERS if not scripted.is_slow]


async def ending_of(scripted: ScriptedOrder) -> dict[str, Any]:
    driver, clock = MemoryDriver(), VirtualClock()
    if scripted.message != "none":
        body = values.encode({"parcel": "P1"})
        await driver.message_driver.add(Message(id="m1", name="shipped", body=body, sent_at=clock.now()))
    try:
        result = await drive(scripted.id, order, scripted.input, driver, clock)
    except Exception as error:  # noqa: BLE001 - how it fails is what is looked at
        return {"state": "failed", "error": {"name": type(error).__name__}}
    assert isinstance(result.output, Receipt)
    assert result.state is WorkflowState.COMPLETED
    return {"state": "completed", "output": {"outcome": result.output.outcome}}


@pytest.mark.parametrize("scripted", QUICK, ids=lambda scripted: scripted.id)
async def test_an_order_ends_as_its_line_says(scripted: ScriptedOrder) -> None:
    assert scripted.is_as_expected(await ending_of(scripted))


def test_the_demo_has_an_order_for_each_of_its_turns() -> None:
    assert len(ORDERS) == len({scripted.id for scripted in ORDERS}) == 12
    assert [scripted.is_slow for scripted in ORDERS].count(True) == 1
    assert {scripted.message for scripted in ORDERS} == {"early", "late", "twice", "none"}
    assert {scripted.ends for scripted in ORDERS} == {"shipped", "refunded", "PaymentRefusedError", "CriticalError"}
    assert {scripted.attempts for scripted in ORDERS} == {1, 2, 3}


@pytest.mark.parametrize("ending", [{}, {"state": "running"}, {"state": "failed", "error": None}])
def test_what_has_not_ended_well_is_not_as_expected(ending: dict[str, Any]) -> None:
    assert not any(scripted.is_as_expected(ending) for scripted in ORDERS)


# --- what the demo draws ------------------------------------------------------------------------------------------


def row(order_id: str, doing: str) -> Row:
    return Row(order_id=order_id, customer="Ada", total="EUR 1.00", state="running", doing=doing)


def screen(text: str) -> list[str]:
    """What a terminal is left with: colours dropped, erased lines gone."""
    lines = [""]
    for part in re.split(r"(\x1b\[\d+F|\x1b\[0J|\n)", re.sub(r"\x1b\[\d*m", "", text)):
        if up := re.fullmatch(r"\x1b\[(\d+)F", part):
            del lines[len(lines) - 1 - int(up[1]) :]
            lines.append("")
        elif part == "\n":
            lines.append("")
        elif not part.startswith("\x1b"):
            lines[-1] += part
    return lines


def test_a_live_table_stays_in_its_place() -> None:
    out = io.StringIO()
    view = View(out, is_live=True)
    view.note("begins")
    for doing in ("is started", "sleeps", "has ended"):
        view.show([row("order-1", doing), row("order-2", doing)])
    view.note("goes on")
    left = screen(out.getvalue())
    assert [line for line in left if "order-" in line] == [
        line for line in left if line.endswith("has ended") and "order-" in line
    ]
    assert len([line for line in left if "order-" in line]) == 2
    notes = [number for number, line in enumerate(left) if "begins" in line or "goes on" in line]
    assert notes == [0, 1]


def test_plain_lines_tell_changes_only() -> None:
    out = io.StringIO()
    view = View(out, is_live=False)
    for doing in ("sleeps", "sleeps", "has ended"):
        view.show([row("order-1", doing)])
    lines = out.getvalue().splitlines()
    assert [line.split("running")[1].strip() for line in lines] == ["sleeps", "has ended"]
    assert "\x1b" not in out.getvalue()


def test_runs_are_added_up_from_the_log() -> None:
    events = [
        "START RequestId: 1 Version: $LATEST\n",
        '{"message": "run ended", "workflow_id": "a", "wakes": 1, "write_units": 15.0}\n',
        (
            '{"message": "charging", "workflow_id": "a"}\n'
            '{"message": "run ended", "workflow_id": "a", "wakes": 3, "write_units": 4}'
        ),
        '{"message": "run ended", "workflow_id": "b", "wakes": 1, "write_units": 2}',
    ]
    assert read_runs(events) == {"a": Runs(wakes=3, write_units=19.0), "b": Runs(wakes=1, write_units=2.0)}
