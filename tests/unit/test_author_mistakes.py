"""What author code may raise, cancel or call at the wrong moment: it harms its own workflow, and nothing else."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from engine import (
    Context,
    CriticalError,
    RecordedError,
    StepExhaustedError,
    WorkflowFailedError,
    WorkflowState,
    YieldSwallowedError,
    run_workflow,
)
from engine.testing import MemoryDriver, VirtualClock, drive

if TYPE_CHECKING:
    from collections.abc import Callable


class Odd(BaseException):
    """No Exception."""


def leaves() -> None:
    sys.exit(3)


def raises_odd() -> None:
    raise Odd("odd")


def starves() -> Any:
    return next(iter([]))


async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def ended(body: Callable[..., Any]) -> tuple[Exception, Exception, WorkflowState]:
    """How a workflow fails, how it tells of it later, and its state."""
    driver = MemoryDriver()
    with pytest.raises(Exception) as live:  # noqa: PT011 - the caller looks at it
        await run_workflow("w", body, None, driver).result
    handle = run_workflow("w", body, None, driver)
    with pytest.raises(Exception) as later:  # noqa: PT011
        await handle.result
    return live.value, later.value, await handle.get_state()


@pytest.mark.parametrize(
    ("fn", "name"), [(leaves, "SystemExit"), (raises_odd, "Odd"), (starves, "RuntimeError: the function raised")]
)
async def test_a_step_that_raises_what_no_exception_is_has_failed(fn: Callable[[], Any], name: str) -> None:
    async def body(ctx: Context, _: None) -> None:
        await ctx.step("s", fn, max_retries=0)

    live, later, state = await ended(body)
    assert isinstance(live, StepExhaustedError)
    assert name in str(live)
    assert (str(later), state) == (f"StepExhaustedError: {live}", WorkflowState.FAILED)


async def test_a_step_that_cancels_its_own_task_fails_the_workflow() -> None:
    async def body(ctx: Context, _: None) -> None:
        await ctx.step("s", cancels_itself)

    live, later, state = await ended(body)
    assert isinstance(live, RuntimeError)
    assert (type(later), state) == (WorkflowFailedError, WorkflowState.FAILED)


async def test_a_workflow_that_raises_what_no_exception_is_has_failed() -> None:
    async def body(_ctx: Context, _: None) -> None:
        raise Odd("odd")

    live, _, state = await ended(body)
    assert isinstance(live, RecordedError)
    assert (live.name, live.message, state) == ("Odd", "odd", WorkflowState.FAILED)


async def test_a_task_group_around_an_operation_is_told_as_a_swallowed_signal() -> None:
    async def body(ctx: Context, _: None) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.sleep("nap", 3600))

    live, _, state = await ended(body)
    assert isinstance(live, YieldSwallowedError)
    assert state == WorkflowState.FAILED


async def test_the_context_of_a_races_loser_is_of_no_use_later() -> None:
    async def body(ctx: Context, _: None) -> None:
        kept: list[Context] = []

        async def loses(inner: Context) -> None:
            kept.append(inner)
            await inner.sleep("long", 3600)

        async def wins(inner: Context) -> int:
            return await inner.step("quick", lambda: 1)

        await ctx.race("race", {"loses": loses, "wins": wins})
        await kept[0].step("late", lambda: 2)

    live, _, state = await ended(body)
    assert "another branch won the race" in str(live)
    assert state == WorkflowState.FAILED


async def test_an_undo_that_raises_what_no_exception_is_has_failed() -> None:
    async def undo(_ctx: Any, _output: Any) -> None:
        raise Odd("odd")

    async def body(ctx: Context, _: None) -> None:
        await ctx.rollback_checkpoint("from here")
        await ctx.step("s", lambda: 1, rollback=undo)
        raise ValueError("no")

    driver = MemoryDriver()
    handle = run_workflow("w", body, None, driver)
    with pytest.raises(RecordedError, match="odd"):
        await handle.result
    assert await handle.get_state() == WorkflowState.ROLLING_BACK


# --- errors that cannot be stored or made again --------------------------------------------------------------------


class KeyedError(Exception):
    """With attributes that have no stored form."""

    def __init__(self) -> None:
        super().__init__("keyed")
        attributes: dict[Any, Any] = {7: "seven", "path": "caf\udce9", "fine": 1}
        self.__dict__.update(attributes)


async def test_an_error_with_unstorable_attributes_still_fails_and_rolls_back() -> None:
    undone: list[int] = []

    async def body(ctx: Context, _: None) -> None:
        await ctx.rollback_checkpoint("from here")
        await ctx.step("s", lambda: 1, rollback=lambda _ctx, output: undone.append(output))
        raise KeyedError

    live, later, state = await ended(body)
    assert (type(live), state, undone) == (KeyedError, WorkflowState.FAILED, [1])
    assert isinstance(later, WorkflowFailedError)
    assert later.metadata == {"path": "caf\\udce9", "fine": 1}


@dataclass(frozen=True)
class FrozenError(CriticalError):
    """Takes no attribute."""

    code: int = 0


class NeedyError(CriticalError):
    """Cannot be made from a message alone."""

    def __new__(cls, first: int, second: int) -> NeedyError:  # noqa: ARG004, PYI034 - what history cannot give
        return super().__new__(cls)

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} {second}")


class TellingError(CriticalError):
    """Its text is made of what only its constructor gives."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code

    def __str__(self) -> str:
        return f"code {self.code}"


@pytest.mark.parametrize(
    "error", [FrozenError(3), NeedyError(1, 2), TellingError(7)], ids=["frozen", "needy", "telling"]
)
async def test_a_critical_error_of_any_class_is_caught_live_as_on_replay(error: CriticalError) -> None:
    def fail() -> None:
        raise error

    seen: list[tuple[bool, str | None]] = []

    async def body(ctx: Context, _: None) -> None:
        result = await ctx.try_step("s", fail)
        assert result.failure is not None
        seen.append((result.ok, result.failure.kind))
        await ctx.sleep("between", 10)

    clock = VirtualClock()
    await drive("w", body, None, MemoryDriver(clock=clock), clock)
    assert seen == [(False, "critical")] * 2


class PrefixedError(CriticalError):
    """Says more than it was given."""

    def __str__(self) -> str:
        return f"the bank: {super().__str__()}"


class UnreachableError(CriticalError, OSError):
    """Is an error of the system too."""


@pytest.mark.parametrize(
    "error",
    [NeedyError(1, 2), TellingError(7), PrefixedError("no"), UnreachableError("away")],
    ids=["needy", "telling", "prefixed", "of two bases"],
)
async def test_a_critical_error_is_of_its_class_and_has_its_text_on_replay_too(error: CriticalError) -> None:
    def fail() -> None:
        raise error

    seen: list[str] = []

    async def body(ctx: Context, _: None) -> None:
        for number in (1, 2):
            try:
                await ctx.step(f"s{number}", fail)
            except type(error) as caught:
                seen.append(f"{type(caught).__name__}: {caught}")
        await ctx.sleep("between", 10)

    clock = VirtualClock()
    await drive("w", body, None, MemoryDriver(clock=clock), clock)
    await drive("w2", body, None, MemoryDriver(clock=clock), clock)
    assert seen == [f"{type(error).__name__}: {error}"] * 8


# --- answers and results at the wrong moment ------------------------------------------------------------------------


async def test_a_reply_in_a_finally_waits_for_the_end_of_the_wait() -> None:
    driver = MemoryDriver()

    async def body(ctx: Context, _: None) -> None:
        message = await ctx.queue.next("ask", completable=True)
        try:
            await ctx.sleep("long", 3600)
        finally:
            await message.complete("done")

    handle = run_workflow("w", body, None, driver)
    await handle.message("ask", 1, id="m")
    assert (await handle.result).state == WorkflowState.SLEEPING
    assert driver.message_driver.replies == {}
    assert [message.id for message in driver.messages] == ["m"]


async def test_a_result_that_cannot_be_kept_wins_no_race_live_nor_on_replay() -> None:
    seen: list[str] = []

    async def body(ctx: Context, _: None) -> None:
        async def first(_inner: Context) -> object:
            return object()

        async def second(inner: Context) -> int:
            await inner.sleep("while", 5)
            return 2

        seen.append((await ctx.race("race", {"first": first, "second": second})).winner)
        await ctx.sleep("between", 10)

    clock = VirtualClock()
    await drive("w", body, None, MemoryDriver(clock=clock), clock)
    assert seen == ["second", "second"]


async def charge(*_args: Any) -> str:
    return "charged"


@pytest.mark.parametrize(
    ("operation", "told"),
    [
        (lambda ctx: ctx.step("charge", charge(7)), r"step\('charge'\) takes a function and calls it, not coroutine"),
        (lambda ctx: ctx.try_step("charge", charge(7)), r"try_step\('charge'\) takes a function"),
        (lambda ctx: ctx.join("all", {"one": charge(ctx)}), "the branch 'one' takes a function"),
        (lambda ctx: ctx.race("any", {"one": charge(ctx)}), "the branch 'one' takes a function"),
        (lambda ctx: ctx.map("each", [1], charge(ctx)), r"map\('each'\) takes a function"),
        (lambda ctx: ctx.loop("again", charge(ctx)), r"loop\('again'\) takes a function"),
        (lambda ctx: ctx.try_block("part", charge(ctx)), r"try_block\('part'\) takes a function"),
        (lambda ctx: ctx.inline(charge(ctx)), "inline takes a function"),
        (lambda ctx: ctx.activity(charge(ctx)), "activity takes a function"),
    ],
)
async def test_a_call_in_place_of_a_function_fails_at_once_and_is_told_how_to_be_written(
    operation: Callable[[Any], Any], told: str
) -> None:
    async def work(ctx: Context, _input: Any) -> Any:
        return await operation(ctx)

    clock = VirtualClock()
    driver = MemoryDriver(clock=clock)
    with pytest.raises(TypeError, match=told) as caught:
        await drive("w", work, None, driver, clock)
    assert "write charge, without calling it" in str(caught.value)
    # Nothing was tried again, and no call is left that nobody awaits: that would be a warning.
    assert driver.clock.now() == VirtualClock().now()


async def test_branches_in_a_list_are_told_to_be_a_mapping() -> None:
    async def work(ctx: Context, _input: Any) -> Any:
        return await ctx.join("all", [charge])  # type: ignore[call-overload]

    clock = VirtualClock()
    with pytest.raises(TypeError, match="mapping of names to functions, not list"):
        await drive("w", work, None, MemoryDriver(clock=clock), clock)


async def test_a_step_that_blocks_the_loop_is_named_since_no_timeout_can_end_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def blocking(seconds: float) -> str:
        threading.Event().wait(seconds)
        return "late"

    async def blocks() -> str:
        return blocking(0.7)

    async def work(ctx: Context, _input: Any) -> Any:
        await ctx.step("in a thread", blocking, 0.001, timeout=30)
        return await ctx.step("charge", blocks, timeout=0.1)

    result = await run_workflow("w", work, None, MemoryDriver()).result
    assert result.output == "late"
    [warning] = [record.getMessage() for record in caplog.records]
    # Seven tenths of a second, or as long as the machine stood still meanwhile.
    assert re.match(r"step 'charge' of workflow w ran for \d+\.\d s, beyond its timeout", warning)
    assert "make its function a plain def" in warning
