"""Histories that the reference engine wrote are continued by ours: what each file expects comes true."""

from __future__ import annotations

import datetime as dt
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from engine import (
    Break,
    Context,
    Continue,
    CriticalError,
    HistoryDivergedError,
    WorkflowFailedError,
    WorkflowState,
    bare,
    keys,
    values,
)
from engine.entry import EntryStatus, LoopEntry, Message
from engine.testing import MemoryDriver, VirtualClock, drive

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine import RollbackContext, WorkflowResult

GOLDEN = Path(__file__).parent / "golden"
START_MS = 1_800_000_000_000


class History:
    """A golden history on a driver, and what is stored of it later."""

    def __init__(self, name: str, *, without: tuple[bytes, ...] = ()) -> None:
        pairs = json.loads((GOLDEN / f"{name}.json").read_text())["kv"]
        self.clock = VirtualClock(START_MS)
        kept = [pair for pair in pairs if bytes.fromhex(pair[0]) not in without]
        self.driver = MemoryDriver.load(kept, clock=self.clock)
        self.runs: list[str] = []

    def never(self, name: str) -> Callable[[], Any]:
        """A step body that must not run."""

        async def body() -> Any:
            raise AssertionError(f"{name} ran again")

        return body

    def giving(self, name: str, value: Any) -> Callable[[], Any]:
        """A step body that notes its run."""

        async def body() -> Any:
            self.runs.append(name)
            return value

        return body

    def send(self, name: str, body: Any) -> None:
        message = Message(id=f"id of {name}", name=name, body=values.encode(body), sent_at=START_MS)
        assert self.driver.message_driver.put(message)

    async def resume(self, fn: Any, given: Any = None) -> WorkflowResult[Any]:
        return await drive("golden", fn, given, self.driver, self.clock)

    def stored(self) -> dict[bytes, bytes]:
        return {bytes.fromhex(key): bytes.fromhex(value) for key, value in self.driver.dump()}

    def names(self) -> list[str]:
        return [value.decode() for key, value in sorted(self.stored().items()) if key.startswith(keys.NAMES_PREFIX)]


async def test_an_order_goes_on_where_it_waited() -> None:
    history = History("order_waiting")

    async def order(ctx: Context, given: dict[str, Any]) -> Any:
        charge = await ctx.step("charge", history.never("charge"))
        await ctx.sleep("cooldown", 0.005)
        shipped = await ctx.queue.next("wait-shipping", "shipped")
        tracking = shipped.body["tracking"]
        sent = await ctx.step("notify", history.giving("notify", f"sent:{tracking}"))
        return {"orderId": given["orderId"], "receipt": charge["receipt"], "tracking": tracking, "notify": sent}

    waiting = await history.resume(order, "an input that is ignored")
    assert (waiting.state, waiting.waiting_for_messages) == (WorkflowState.SLEEPING, ["shipped"])
    history.send("shipped", {"tracking": "T-9"})
    result = await history.resume(order)
    assert result.output == {"orderId": "o-1", "receipt": "r-1", "tracking": "T-9", "notify": "sent:T-9"}
    assert history.runs == ["notify"]


async def test_a_loop_goes_on_at_its_iteration() -> None:
    history = History("loop_iteration_45")

    async def drain(ctx: Context) -> Any:
        async def body(inner: Context, state: dict[str, int]) -> Any:
            n = await inner.step("add", history.giving(f"add {state['n']}", state["n"]))
            if n == 45:
                await inner.queue.next("more", "go")
            if n == 47:
                return Break(state["sum"])
            return Continue({"n": n + 1, "sum": state["sum"] + n})

        return await ctx.loop("drain", body, {"n": 0, "sum": 0}, history_prune_interval=20)

    history.send("go", None)
    result = await history.resume(drain)
    assert result.output == sum(range(47)) == 1081
    assert history.runs == ["add 46", "add 47"]
    entries = [
        bare.decode_entry(value) for key, value in history.stored().items() if key.startswith(keys.HISTORY_PREFIX)
    ]
    (loop,) = [entry for entry in entries if isinstance(entry.kind, LoopEntry)]
    assert isinstance(loop.kind, LoopEntry)
    assert loop.kind.iteration == 47
    assert {entry.location[1] for entry in entries if len(entry.location) > 1} >= {
        (0, number) for number in range(28, 48)
    }


async def test_a_join_goes_on_and_retries_what_the_reference_left_running() -> None:
    history = History("join_partial")

    async def fan(ctx: Context) -> Any:
        async def a(inner: Context) -> Any:
            return await inner.step("sa", history.never("sa"))

        async def b(inner: Context) -> Any:
            return (await inner.queue.next("wb", "b")).body

        async def c(inner: Context) -> Any:
            return await inner.step("sc", history.giving("sc", 3), max_retries=3)

        return await ctx.join("fan", {"a": a, "b": b, "c": c})

    waiting = await history.resume(fan)
    assert waiting.waiting_for_messages == ["b"]
    assert history.runs == ["sc"]
    history.send("b", 7)
    result = await history.resume(fan)
    assert result.output == {"a": 1, "b": 7, "c": 3}
    assert history.runs == ["sc"]
    attempts = [
        bare.decode_metadata(value) for key, value in history.stored().items() if key.startswith(keys.METADATA_PREFIX)
    ]
    assert sorted((one.status, one.attempts) for one in attempts) == [
        (EntryStatus.COMPLETED, 1),
        (EntryStatus.COMPLETED, 2),
    ]


async def undo_nothing(_ctx: RollbackContext, _output: Any) -> None:
    raise AssertionError("undone twice")


async def test_what_was_rolled_back_stays_failed_and_is_not_undone_again() -> None:
    history = History("rolled_back")
    before = history.driver.dump()

    async def shop(ctx: Context) -> Any:
        await ctx.rollback_checkpoint("cp")
        await ctx.step("reserve", history.never("reserve"), rollback=undo_nothing)
        await ctx.step("ship", history.never("ship"))

    with pytest.raises(WorkflowFailedError, match="no stock") as caught:
        await history.resume(shop)
    assert caught.value.name == "CriticalError"
    assert history.driver.dump() == before


async def test_a_failure_of_the_reference_replays_as_itself() -> None:
    history = History("rolled_back", without=(keys.STATE_KEY, keys.ERROR_KEY))

    async def shop(ctx: Context) -> Any:
        await ctx.rollback_checkpoint("cp")
        await ctx.step("reserve", history.never("reserve"), rollback=undo_nothing)
        with pytest.raises(CriticalError, match=r"^no stock$"):
            await ctx.step("ship", history.never("ship"))
        return "caught"

    assert (await history.resume(shop)).output == "caught"


EXPECTED: list[Any] = [
    None, None, True, 0, -1, 1.5, math.nan, math.inf, 2**32, 2**53 - 1, None, None, "", [], None, {}, None,
    b"\x00\x01\xff", b"bytes", dt.datetime(2026, 1, 2, 3, 4, 5, 678000, dt.UTC), {1, 2}, {"k": 1}, "x" * 300,
    list(range(30)),
]  # fmt: skip


async def test_every_value_of_the_reference_is_read() -> None:
    history = History("values_completed")
    assert (await history.resume(lambda ctx: ctx)).output == 24

    again = History("values_completed", without=(keys.STATE_KEY, keys.OUTPUT_KEY))
    seen: list[Any] = []

    async def read(ctx: Context) -> Any:
        for number in range(24):
            seen.append(await ctx.step(f"v{number}", again.never(f"v{number}")))  # noqa: PERF401 - one at a time
        return len(seen)

    assert (await again.resume(read)).output == 24
    for number, (value, expected) in enumerate(zip(seen, EXPECTED, strict=True)):
        if number == 6:
            assert math.isnan(value)
        elif number in (10, 11, 14, 16):
            assert type(value) in (int, str, list, dict)
        else:
            # JavaScript has one kind of number, and writes large whole ones as floats.
            assert value == expected, number
            assert isinstance(value, bool) == isinstance(expected, bool), number


async def test_code_that_no_longer_fits_a_history_of_the_reference_diverges() -> None:
    history = History("order_waiting")
    before = {key: value for key, value in history.stored().items() if key.startswith(keys.HISTORY_PREFIX)}

    async def other(ctx: Context) -> Any:
        await ctx.sleep("charge", 1)

    with pytest.raises(HistoryDivergedError, match="'charge' is a sleep in the code, but history has a step there"):
        await history.resume(other)
    after = {key: value for key, value in history.stored().items() if key.startswith(keys.HISTORY_PREFIX)}
    assert after == before
