"""Stored bytes that this build cannot read are no failure of an operation: code cannot catch them and act instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from engine import Activity, ActivityContext, Context, keys
from engine.errors import CorruptHistoryError, UnknownVersionError
from engine.testing import MemoryDriver
from tests.unit.bench import Bench

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_ENTRY = keys.child_key(keys.HISTORY_PREFIX, 0)


def newer(key: bytes, value: bytes) -> bytes:
    return b"\2\0" + value[2:] if key == FIRST_ENTRY else value


def cut(key: bytes, value: bytes) -> bytes:
    return value[:-1] if key == FIRST_ENTRY else value


def no_value(key: bytes, value: bytes) -> bytes:
    # The output, one byte of CBOR, becomes one that announces more.
    return value[:-2] + b"\x18" + value[-1:] if key == FIRST_ENTRY else value


def cut_metadata(key: bytes, value: bytes) -> bytes:
    return value[:-1] if key.startswith(keys.METADATA_PREFIX) else value


SPOILT = [
    (newer, UnknownVersionError, "has format version 2; this engine knows version 1: run a newer build"),
    (cut, CorruptHistoryError, "the entry at key .* cannot be read"),
    (no_value, CorruptHistoryError, "the value of 'charge' cannot be read"),
    (cut_metadata, CorruptHistoryError, "the metadata of entry .* cannot be read"),
]


def spoil(bench: Bench, spoilt: Callable[[bytes, bytes], bytes]) -> list[tuple[str, str]]:
    """Spoil what is stored; what it was."""
    stored = bench.driver.dump()
    pairs = [(key, spoilt(bytes.fromhex(key), bytes.fromhex(value)).hex()) for key, value in stored]
    assert pairs != stored
    bench.driver = MemoryDriver.load(pairs, clock=bench.clock)
    return stored


@pytest.mark.parametrize(("spoilt", "kind", "text"), SPOILT)
async def test_code_that_catches_everything_does_not_go_another_way(
    spoilt: Callable[[bytes, bytes], bytes], kind: type[Exception], text: str
) -> None:
    bench = Bench()

    async def work(ctx: Context) -> str:
        try:
            await ctx.step("charge", bench.giving("charge"))
            await ctx.sleep("wait", 60)
        except Exception:  # noqa: BLE001 - as authors do
            await ctx.step("refund", bench.giving("refund"))
        return "done"

    await bench.once(work)
    stored = spoil(bench, spoilt)
    with pytest.raises(kind, match=text):
        await bench.once(work)
    assert bench.state() == "sleeping"
    assert bench.runs == {"charge": 1}
    bench.driver = MemoryDriver.load(stored, clock=bench.clock)
    assert (await bench.through(work)).output == "done"
    assert bench.runs == {"charge": 1}


async def test_an_entry_that_is_cut_short_is_no_failure_of_the_operation_that_makes_an_id() -> None:
    bench = Bench()

    async def work(ctx: Context) -> None:
        await ctx.step("charge", bench.giving("charge"))
        await ctx.sleep("wait", 60)

    await bench.driver.set(keys.child_key(keys.HISTORY_PREFIX, 7), b"\1\0")
    await bench.once(work)
    with pytest.raises(CorruptHistoryError, match=r"the entry at key .* cannot be read"):
        await bench.through(work)
    assert bench.state() == "sleeping"
    assert bench.runs == {"charge": 1}


async def test_a_rollback_does_not_end_without_the_undos_that_it_cannot_read() -> None:
    bench = Bench()
    undone: list[str] = []
    is_down = True

    def undo(name: str) -> Any:
        def handler(_ctx: Any, _output: Any) -> None:
            if is_down:
                raise ConnectionError("down")
            undone.append(name)

        return handler

    async def work(ctx: Context) -> None:
        await ctx.step("a", bench.giving("a"))
        await ctx.rollback_checkpoint("c")
        await ctx.step("b", bench.giving("b"), rollback=undo("b"))
        raise ValueError("no")

    with pytest.raises(ConnectionError):
        await bench.once(work)
    is_down = False
    stored = spoil(bench, cut)
    with pytest.raises(CorruptHistoryError):
        await bench.once(work)
    assert (bench.state(), undone) == ("rolling_back", [])
    bench.driver = MemoryDriver.load(stored, clock=bench.clock)
    with pytest.raises(Exception, match="no"):
        await bench.once(work)
    assert (bench.state(), undone) == ("failed", ["b"])


def cut_document(key: bytes, value: bytes) -> bytes:
    return value[:-1] if key.startswith(keys.DOCUMENT_PREFIX) else value


@pytest.mark.parametrize("is_read_by_activity", [True, False])
async def test_a_document_that_cannot_be_read_is_no_failure_of_who_reads_it(*, is_read_by_activity: bool) -> None:
    bench = Bench()

    async def count(ctx: ActivityContext) -> None:
        ctx.state["count"] = ctx.state.get("count", 0) + 1

    first, second = (Activity(name, count, {"max_retries": 0}) for name in ("first", "second"))

    async def work(ctx: Context) -> Any:
        await ctx.activity(first)
        await ctx.sleep("wait", 60)
        try:
            _ = None if is_read_by_activity else ctx.state["count"]
            await ctx.activity(second)
        except Exception:  # noqa: BLE001 - as authors do
            await ctx.step("refund", bench.giving("refund"))
        return ctx.state["count"]

    await bench.once(work)
    stored = spoil(bench, cut_document)
    bench.clock.advance(60)
    with pytest.raises(CorruptHistoryError):
        await bench.once(work)
    assert "second" not in bench.entries()
    bench.driver = MemoryDriver.load(stored, clock=bench.clock)
    assert (await bench.once(work)).output == 2
    assert not bench.runs
