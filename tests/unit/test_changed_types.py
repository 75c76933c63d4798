"""Values that an earlier build recorded, and the types that code declares now: no failure of the business."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from engine import Break, Context, Continue, HistoryDivergedError, UnstorableValueError, WorkflowState
from engine.handle import recover_workflow
from tests.unit.bench import WORKFLOW_ID, Bench


@dataclass
class Old:
    amount: int


@dataclass
class New:
    amount: int
    currency: str


@dataclass
class Grown:
    amount: int
    currency: str = "EUR"


def step_of(kind: Any) -> Any:
    async def fn() -> Any:
        return Old(1)

    return lambda ctx: ctx.step("s", fn, returns=kind)


def branches_of(kind: Any) -> Any:
    async def body(_ctx: Context) -> Any:
        return Old(1)

    body.__annotations__["return"] = kind
    return {"a": body}


def join_of(kind: Any) -> Any:
    return lambda ctx: ctx.join("s", branches_of(kind))


def race_of(kind: Any) -> Any:
    return lambda ctx: ctx.race("s", branches_of(kind))


def loop_of(kind: Any) -> Any:
    async def body(ctx: Context, state: Any) -> Any:
        await ctx.sleep("between", 60)
        return Break(None) if state.amount else Continue(Old(1))

    body.__annotations__["state"] = kind
    return lambda ctx: ctx.loop("s", body, Old(0))


@pytest.mark.parametrize("operation", [step_of, join_of, race_of, loop_of])
async def test_a_recorded_value_that_no_longer_fits_rolls_nothing_back_and_can_be_recovered(operation: Any) -> None:
    bench = Bench()
    undone: list[Any] = []

    def workflow(kind: Any) -> Any:
        async def body(ctx: Context) -> str:
            await ctx.rollback_checkpoint("c")
            await ctx.step("first", bench.giving("first"), rollback=lambda _ctx, output: undone.append(output))
            await operation(kind)(ctx)
            await ctx.sleep("after", 60)
            return "done"

        return body

    assert (await bench.once(workflow(Old))).state is WorkflowState.SLEEPING
    with pytest.raises(HistoryDivergedError, match=r"'s(/a)?' is none of the type .* Give new\s+fields a default"):
        await bench.once(workflow(New))
    assert bench.state() == "failed"
    assert undone == []
    assert await recover_workflow(WORKFLOW_ID, bench.driver)
    assert (await bench.through(workflow(Old))).output == "done"
    assert bench.runs == {"first": 1}


async def test_code_cannot_catch_it_as_a_failure_of_the_step() -> None:
    bench = Bench()

    def workflow(kind: Any) -> Any:
        async def body(ctx: Context) -> str:
            result = await ctx.try_block("t", step_of(kind))
            await ctx.sleep("after", 60)
            return str(result.ok)

        return body

    await bench.once(workflow(Old))
    with pytest.raises(HistoryDivergedError):
        await bench.once(workflow(New))


@pytest.mark.parametrize("kind", [Grown, Old | New])
async def test_a_field_with_a_default_and_a_union_of_both_read_what_is_old(kind: Any) -> None:
    bench = Bench()

    async def before(ctx: Context) -> None:
        await step_of(Old)(ctx)
        await ctx.sleep("after", 60)

    async def after(ctx: Context) -> Any:
        value = await step_of(kind)(ctx)
        await ctx.sleep("after", 60)
        return value.amount

    await bench.once(before)
    assert (await bench.through(after)).output == 1


async def test_a_rollback_goes_on_once_the_input_can_be_read_again() -> None:
    bench = Bench()
    undone: list[Any] = []
    is_down = True

    def undo(_ctx: Any, output: Any) -> None:
        if is_down:
            raise ConnectionError("down")
        undone.append(output)

    def workflow(kind: Any) -> Any:
        async def body(ctx: Context, _given: Any) -> None:
            await ctx.rollback_checkpoint("c")
            await ctx.step("first", bench.giving("first"), rollback=undo)
            raise ValueError("no")

        body.__annotations__["_given"] = kind
        return body

    with pytest.raises(ConnectionError):
        await bench.once(workflow(Old), Old(1))
    assert bench.state() == "rolling_back"
    is_down = False
    with pytest.raises(UnstorableValueError, match="the workflow's input is none of the type"):
        await bench.once(workflow(New))
    assert (bench.state(), undone) == ("rolling_back", [])
    with pytest.raises(Exception, match="no"):
        await bench.once(workflow(Old))
    assert (bench.state(), undone) == ("failed", [None])
