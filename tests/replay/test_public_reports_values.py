"""Values, sizes and exceptions.

Faults that others have had in public, each as a test by the number of its case; those that the engine alone can show.
"""

from __future__ import annotations

import enum
import math
import threading
from decimal import Decimal
from typing import Any, NewType

import pytest

from engine import (
    Break,
    Context,
    JoinError,
    StepExhaustedError,
    UnstorableValueError,
    WorkflowFailedError,
    WorkflowState,
)
from engine.errors import StoreUnavailableError
from tests.unit.bench import Bench


class Color(str, enum.Enum):  # noqa: UP042 - the older form is what it is about
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Word(enum.StrEnum):
    A = "a"


UserId = NewType("UserId", str)


@pytest.mark.parametrize(
    ("value", "returns"),
    [
        (Color.RED, Color),
        (Number.ONE, Number),
        (Word.A, Word),
        ({1: "a"}, dict[int, str]),
        ({UserId("u"): 1}, dict[UserId, int]),
    ],
)
async def test_b22_a_value_has_the_same_type_after_a_restart(value: Any, returns: Any) -> None:
    bench = Bench()
    seen: list[Any] = []

    async def work(ctx: Context) -> None:
        seen.append(await ctx.step("s", bench.giving("s", value), returns=returns))
        await ctx.sleep("wait", 60)

    await bench.through(work)
    assert seen == [value, value]
    assert [type(one) for one in seen] == [type(value)] * 2


ODD = [math.nan, math.inf, -math.inf, -0.0, 2**53 + 1, 10**60, Decimal("1." + "3" * 39), "\0", "", 1e-320, b"", [], {}]


@pytest.mark.parametrize("value", ODD, ids=repr)
async def test_b24_odd_values_survive_every_place_exactly(value: Any) -> None:
    bench = Bench()
    seen: list[Any] = []

    async def body(_ctx: Context, state: Any) -> Any:
        seen.append(state)
        return Break(state)

    async def work(ctx: Context, given: Any) -> Any:
        seen.append(given)
        seen.append(await ctx.step("s", bench.giving("s", value)))
        seen.append((await ctx.queue.next("n", "m")).body)
        await ctx.sleep("wait", 60)
        seen.append(await ctx.loop("l", body, value))
        return value

    bench.send("m", value)
    result = await bench.through(work, value)
    seen.append(result.output)
    seen.append(await bench.start(work).get_output())
    assert {repr(one) for one in seen} == {repr(value)}
    assert {type(one) for one in seen} == {type(value)}


async def test_b24_a_lone_surrogate_comes_back_or_fails_by_name() -> None:
    bench = Bench()
    with pytest.raises(UnstorableValueError, match="step 's'"):
        await bench.once(lambda ctx: ctx.step("s", bench.giving("s", "\ud800")))
    assert bench.runs == {"s": 1}


@pytest.mark.parametrize("value", [None, "", 0, False, []], ids=repr)
async def test_b25_an_empty_result_is_a_result(value: Any) -> None:
    bench = Bench()

    async def body(ctx: Context) -> Any:
        await ctx.step("inner", bench.giving("inner", value))
        return Break(value)

    async def work(ctx: Context) -> Any:
        await ctx.step("s", bench.giving("s", value))
        await ctx.loop("l", body)
        for number in range(3):
            await ctx.sleep(f"restart {number}", 60)
        return value

    result = await bench.through(work)
    assert (result.state, result.output) == (WorkflowState.COMPLETED, value)
    assert await bench.start(work).get_output() == value
    assert bench.runs == {"s": 1, "inner": 1}


@pytest.mark.parametrize("where", ["step", "try_step", "output", "input"])
async def test_b26_what_cannot_be_stored_fails_at_once_by_name(where: str) -> None:
    bench = Bench()
    undone: list[int] = []

    async def work(ctx: Context, _given: Any) -> Any:
        await ctx.rollback_checkpoint("cp")
        await ctx.step("before", bench.giving("before", 1), rollback=lambda _ctx, output: undone.append(output))
        if where == "step":
            await ctx.step("bad", bench.giving("bad", (number for number in range(3))))
        if where == "try_step":
            result = await ctx.try_step("bad", bench.giving("bad", threading.Lock()))
            return result.failure is not None and result.failure.kind
        return threading.Lock()

    if where == "try_step":
        assert (await bench.through(work)).output == "critical"
        assert bench.runs["bad"] == 1
        return
    with pytest.raises(UnstorableValueError, match="lock" if where != "step" else "step 'bad'.*generator"):
        await bench.through(work, threading.Lock() if where == "input" else None)
    if where == "input":
        assert bench.runs == {}
        return
    assert bench.state() == "failed"
    assert undone == [1]


class BoomError(Exception):
    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.lock = threading.Lock()


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def chained() -> Exception:
    error = ValueError("effect")
    error.__cause__ = KeyError("cause")
    return error


ERRORS = [
    (BoomError(7, detail="x"), "BoomError", "7: x"),
    (ExceptionGroup("many", [ValueError("a"), KeyError("b")]), "ExceptionGroup", "many (2 sub-exceptions)"),
    (chained(), "ValueError", "effect"),
    (KeyError("k"), "KeyError", "'k'"),
    (ValueError(), "ValueError", ""),
    (MuteError(), "MuteError", "<text unavailable: RuntimeError>"),
]


@pytest.mark.parametrize(("error", "name", "text"), ERRORS, ids=lambda one: one if isinstance(one, str) else "")
@pytest.mark.parametrize("where", ["workflow", "step", "branch"])
async def test_b29_an_error_of_any_make_is_stored_and_read(error: Exception, name: str, text: str, where: str) -> None:
    bench = Bench()

    async def branch(_ctx: Context) -> None:
        raise error

    async def work(ctx: Context) -> None:
        if where == "step":
            await ctx.step("s", bench.raising("s", error), max_retries=0)
        if where == "branch":
            await ctx.join("j", {"b": branch})
        raise error

    with pytest.raises((type(error), StepExhaustedError, JoinError)):
        await bench.through(work)
    with pytest.raises(WorkflowFailedError) as caught:
        await bench.once(work)
    if where == "workflow":
        assert (caught.value.name, caught.value.message) == (name, text)
        assert caught.value.metadata.get("code") == getattr(error, "code", None)
    if where == "step":
        assert caught.value.name == "StepExhaustedError"
        assert f"{name}: {text}" in caught.value.message or not text


async def test_b29_a_megabyte_of_text_is_cut() -> None:
    bench = Bench()

    async def work(_ctx: Context) -> None:
        raise ValueError("x" * 2**20)

    with pytest.raises(ValueError, match="xxx"):
        await bench.once(work)
    with pytest.raises(WorkflowFailedError, match=r"\[1048576 characters\]"):
        await bench.once(work)
    assert max(map(len, bench.stored().values())) < 100_000


async def test_b32_an_error_that_looks_like_one_of_the_store_is_the_steps_own() -> None:
    bench = Bench()
    commits = 0

    def count(operation: str, phase: str) -> None:
        nonlocal commits
        commits += (operation, phase) == ("commit", "before")

    async def work(ctx: Context) -> Any:
        result = await ctx.try_step("s", bench.raising("s", StoreUnavailableError("throttled")), max_retries=0)
        return result.failure is not None and [result.failure.error.name, result.failure.error.message]

    bench.driver.on_call = count
    assert (await bench.once(work)).output == ["StoreUnavailableError", "throttled"]
    assert commits <= 2
