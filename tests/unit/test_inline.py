"""Inline workflows: one history, typed input and output, failures that pass through, and undo by the outer one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

import pytest

from engine import (
    Context,
    CriticalError,
    HistoryDivergedError,
    Registry,
    RollbackContext,
    UnstorableValueError,
    WorkflowState,
    workflow,
)
from tests.unit.bench import WORKFLOW_ID, Bench

registry = Registry()


@dataclass(frozen=True)
class Parcel:
    address: str


@dataclass(frozen=True)
class Label:
    text: str


async def test_it_shares_the_history_and_its_types_are_those_declared() -> None:
    bench = Bench()

    @workflow("ship", registry=registry)
    async def ship(ctx: Context, parcel: Parcel) -> Label:
        assert isinstance(parcel, Parcel)
        await ctx.step("pack", bench.giving("pack"))
        await ctx.sleep("truck", 3600)
        return Label(f"{ctx.workflow_id}: {parcel.address}")

    async def outer(ctx: Context, _given: Any) -> list[Any]:
        first = await ctx.inline(ship, Parcel("here"))
        assert_type(first, Label)
        second = await ctx.inline(ship, Parcel("there"), name="ship-again")
        return [isinstance(first, Label), first.text, second.text]

    result = await bench.through(outer)
    assert result.output == [True, f"{WORKFLOW_ID}: here", f"{WORKFLOW_ID}: there"]
    assert bench.runs == {"pack": 2}
    assert list(bench.entries()) == ["ship/pack", "ship/truck", "ship-again/pack", "ship-again/truck"]


async def test_plain_functions_and_those_without_an_input_run_too() -> None:
    async def alone(ctx: Context) -> str:
        return await ctx.step("one", Bench().giving("one", "alone"))

    async def doubled(_ctx: Context, number: int) -> int:
        return number * 2

    async def outer(ctx: Context, _given: Any) -> list[Any]:
        text = await ctx.inline(alone)
        number = await ctx.inline(doubled, 4)
        assert_type(text, str)
        assert_type(number, int)
        return [text, number]

    bench = Bench()
    assert (await bench.through(outer)).output == ["alone", 8]
    assert list(bench.entries()) == ["alone/one"]


async def test_a_failure_passes_through_as_it_is() -> None:
    class NoRoomError(CriticalError):
        pass

    async def store(ctx: Context, _given: Any) -> None:
        await ctx.step("put", bench.raising("put", NoRoomError("full")))

    async def plain(_ctx: Context, _given: Any) -> None:
        raise LookupError("gone")

    async def outer(ctx: Context, _given: Any) -> list[str]:
        said = []
        for fn in (store, plain):
            try:
                await ctx.inline(fn, None)
            except (NoRoomError, LookupError) as error:
                said.append(f"{type(error).__name__}: {error}")
        await ctx.sleep("wait", 3600)
        return said

    bench = Bench()
    assert (await bench.through(outer)).output == ["NoRoomError: full", "LookupError: gone"]
    assert bench.runs == {"put": 1}


async def test_its_steps_are_undone_when_the_outer_workflow_fails() -> None:
    undone: list[str] = []

    async def undo(_ctx: RollbackContext, output: str) -> None:
        undone.append(output)

    async def inner(ctx: Context, _given: Any) -> None:
        await ctx.rollback_checkpoint("start")
        await ctx.step("do", bench.giving("do", "inner"), rollback=undo)

    async def outer(ctx: Context, _given: Any) -> None:
        await ctx.inline(inner, None)
        raise ValueError("no")

    bench = Bench()
    with pytest.raises(ValueError, match="no"):
        await bench.through(outer)
    assert undone == ["inner"]


async def test_what_it_no_longer_reaches_diverges_when_it_returns() -> None:
    steps = ["one", "two"]

    async def inner(ctx: Context, _given: Any) -> None:
        for name in steps:
            await ctx.step(name, bench.giving(name))

    async def outer(ctx: Context, _given: Any) -> None:
        await ctx.inline(inner, None)
        await ctx.sleep("wait", 3600)
        await ctx.step("after", bench.giving("after"))

    bench = Bench()
    assert (await bench.once(outer)).state is WorkflowState.SLEEPING
    del steps[1]
    with pytest.raises(HistoryDivergedError, match="'inner/two'"):
        await bench.through(outer)
    assert bench.runs["after"] == 0


async def test_a_name_that_history_has_for_something_else_diverges() -> None:
    is_new = [False]

    async def inner(_ctx: Context, _given: Any) -> None: ...

    async def outer(ctx: Context, _given: Any) -> None:
        if is_new[0]:
            await ctx.inline(inner, None)
        else:
            await ctx.step("inner", bench.giving("inner"))
        await ctx.sleep("wait", 3600)

    bench = Bench()
    await bench.once(outer)
    is_new[0] = True
    with pytest.raises(HistoryDivergedError, match="'inner' is an inline workflow"):
        await bench.through(outer)


async def test_a_name_used_twice_diverges() -> None:
    async def inner(_ctx: Context, _given: Any) -> None: ...

    async def outer(ctx: Context, _given: Any) -> None:
        await ctx.inline(inner, None)
        await ctx.inline(inner, None)

    with pytest.raises(HistoryDivergedError, match="'inner' is used twice"):
        await Bench().through(outer)


async def test_an_input_that_does_not_fit_is_refused() -> None:
    async def inner(_ctx: Context, parcel: Parcel) -> str:
        return parcel.address

    async def outer(ctx: Context, _given: Any) -> str:
        return await ctx.inline(inner, "no parcel")  # type: ignore[arg-type]  # the fault under test

    with pytest.raises(UnstorableValueError, match="Parcel"):
        await Bench().through(outer)
