"""What operations refuse at the call, before anything is recorded, and how they say so."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from engine import Break, Context, WorkflowState
from engine.durations import milliseconds, timeout_milliseconds, to_seconds
from engine.entry import SleepEntry
from engine.errors import InvalidIdError
from tests.unit.bench import Bench

if TYPE_CHECKING:
    from collections.abc import Callable


async def returning(*_given: Any) -> Any:
    return Break(1)


ANYTHING: Any = None
REFUSED: dict[str, tuple[Callable[[Context], Any], type[Exception], str]] = {
    "branch without text": (lambda ctx: ctx.join("j", {1: returning}), TypeError, "the name 1 is no text"),  # type: ignore[dict-item]
    "branch of half a character": (lambda ctx: ctx.join("j", {"\udcff": returning}), InvalidIdError, "udcff"),
    "racing branch without text": (lambda ctx: ctx.race("r", {b"a": returning}), TypeError, "the name b'a'"),  # type: ignore[dict-item]
    "float count": (lambda ctx: ctx.queue.next_batch("q", count=2.5), ValueError, "from 1 on, not 2.5"),  # type: ignore[arg-type]
    "no messages": (lambda ctx: ctx.queue.next_batch("q", count=0), ValueError, "from 1 on, not 0"),
    "endless sleep": (lambda ctx: ctx.sleep("s", math.inf), ValueError, "of inf s is not possible"),
    "endless sleep back": (lambda ctx: ctx.sleep("s", -math.inf), ValueError, "of -inf s is not possible"),
    "sleep of text": (lambda ctx: ctx.sleep("s", "5"), TypeError, "number of seconds, not '5'"),  # type: ignore[call-overload]
    "sleep until a number": (lambda ctx: ctx.sleep_until("s", 5), TypeError, "aware datetime, not 5"),  # type: ignore[call-overload]
    "endless back-off": (
        lambda ctx: ctx.step("s", returning, retry_backoff_max=math.inf),
        ValueError,
        "of inf s is not possible",
    ),
    "no number of retries": (
        lambda ctx: ctx.step("s", returning, max_retries=None),  # type: ignore[call-overload]
        TypeError,
        "step 's': max_retries must be an integer, not None",
    ),
    "fewer than no retries": (lambda ctx: ctx.step("s", returning, max_retries=-1), ValueError, "0 or more, not -1"),
    "float interval": (
        lambda ctx: ctx.loop("l", returning, history_prune_interval=2.5),  # type: ignore[call-overload]
        TypeError,
        "history_prune_interval must be an integer, not 2.5",
    ),
    "float size": (
        lambda ctx: ctx.loop("l", returning, history_size=2.5),  # type: ignore[call-overload]
        TypeError,
        "history_size must be an integer, not 2.5",
    ),
}


@pytest.mark.parametrize("call", REFUSED)
async def test_it_is_refused_at_the_call_and_the_failure_is_stored(call: str) -> None:
    operation, kind, match = REFUSED[call]
    bench = Bench()

    async def work(ctx: Context) -> None:
        with pytest.raises(kind, match=match):
            operation(ctx)
        # Nothing of it is left behind: the scope goes on as if it had not been called.
        await ctx.step("next", bench.giving("next"))
        await operation(ctx)

    with pytest.raises(kind, match=match):
        await bench.through(work)
    assert (bench.state(), list(bench.entries())) == ("failed", ["next"])


async def test_a_timeout_in_the_past_is_over_at_once() -> None:
    bench = Bench()

    async def work(ctx: Context) -> Any:
        return await ctx.queue.next_batch("q", timeout=-1e12)

    result = await bench.once(work)
    assert (result.state, result.output) == (WorkflowState.COMPLETED, [])
    kind = bench.entries()["q:deadline"].kind
    assert isinstance(kind, SleepEntry)
    assert kind.deadline == bench.clock.now()


async def test_as_many_messages_as_there_can_be_is_no_mistake() -> None:
    bench = Bench()
    bench.send("a", 1)

    async def work(ctx: Context) -> Any:
        return len(await ctx.queue.next_batch("q", count=10**30))

    assert (await bench.once(work)).output == 1


def test_durations_are_numbers_or_timedeltas() -> None:
    assert (milliseconds(timedelta(seconds=1.5)), milliseconds(0.0001), milliseconds(-2)) == (1500, 1, -2000)
    assert (timeout_milliseconds(None), timeout_milliseconds(-5), timeout_milliseconds(5)) == (None, 0, 5000)
    with pytest.raises(TypeError, match="not None"):
        to_seconds(ANYTHING)
    with pytest.raises(ValueError, match="not possible"):
        to_seconds(10**400)
