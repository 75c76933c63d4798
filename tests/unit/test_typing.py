"""What a type checker knows of workflows that are run and called: mypy reads this file too, and refuses what is off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

from engine import Context, Registry, WorkflowHandle, WorkflowResult, run_workflow, workflow
from engine.handle import NoOutput
from engine.testing import MemoryDriver, VirtualClock, drive

REGISTRY = Registry()


@dataclass(frozen=True)
class Parcel:
    number: int


@dataclass(frozen=True)
class Label:
    text: str


@workflow("ship", registry=REGISTRY)
async def ship(_ctx: Context, parcel: Parcel) -> Label:
    return Label(f"parcel {parcel.number}")


@workflow("count", registry=REGISTRY)
async def count(_ctx: Context) -> int:
    return 7


async def plain(_ctx: Context, number: int = 1) -> str:
    return "x" * number


async def test_the_result_of_a_run_is_what_its_workflow_returns() -> None:
    handle = run_workflow("w", ship, Parcel(3), MemoryDriver())
    assert_type(handle, WorkflowHandle[Label])
    result = await handle.result
    assert_type(result, WorkflowResult[Label])
    assert_type(result.output, Label | None)
    assert result.output == Label("parcel 3")
    assert_type(await handle.get_output(), Label | NoOutput)


async def test_what_takes_no_input_and_what_is_no_workflow_object_are_known_as_well() -> None:
    counted = run_workflow("w", count, driver=MemoryDriver())
    assert_type(counted, WorkflowHandle[int])
    assert (await counted.result).output == 7
    repeated = run_workflow("w", plain, 3, MemoryDriver())
    assert_type(repeated, WorkflowHandle[str])
    assert (await repeated.result).output == "xxx"


async def test_a_later_run_gives_no_input() -> None:
    driver = MemoryDriver()
    await run_workflow("w", ship, Parcel(3), driver).result
    again = run_workflow("w", ship, driver=driver)
    assert_type(again, WorkflowHandle[Label])
    assert (await again.result).output == Label("parcel 3")


async def test_an_input_of_another_type_is_for_the_type_checker_to_refuse() -> None:
    # Each of these comments is asked for: where mypy would have nothing to refuse, it says that one is unused.
    run_workflow("w", ship, "3", MemoryDriver()).evict(0)  # type: ignore[arg-type]
    run_workflow("w", count, 3, MemoryDriver()).evict(0)  # type: ignore[arg-type]
    run_workflow("w", plain, Parcel(3), MemoryDriver()).evict(0)  # type: ignore[arg-type]


async def test_a_call_of_a_workflow_is_a_call_of_its_function() -> None:
    async def outer(ctx: Context) -> str:
        label = await ship(ctx, Parcel(4))
        assert_type(label, Label)
        again = await ship(_ctx=ctx, parcel=Parcel(5))
        return f"{label.text}, {again.text}"

    result = await run_workflow("w", outer, driver=MemoryDriver()).result
    assert result.output == "parcel 4, parcel 5"


async def test_a_driven_run_takes_what_a_caller_would_send() -> None:
    clock = VirtualClock()
    result = await drive("w", ship, {"number": 5}, MemoryDriver(clock=clock), clock)
    assert_type(result, WorkflowResult[Label])
    assert result.output == Label("parcel 5")
