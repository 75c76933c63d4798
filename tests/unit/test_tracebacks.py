"""The way from a failed workflow back to the author's line: by its exception's causes, and by an event's frames."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import pytest

from engine import Context, JoinError, RaceError, StepExhaustedError
from engine.error_info import error_info
from engine.testing import MemoryDriver, VirtualClock, drive

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine import RollbackErrorEvent, RunErrorEvent, StepErrorEvent


async def failure(
    fn: Callable[..., Any],
    on_error: Callable[[StepErrorEvent | RollbackErrorEvent | RunErrorEvent], None] | None = None,
) -> Exception:
    """What driving ``fn`` raises."""
    clock = VirtualClock()
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the tests look at what it is
        await drive("w", fn, None, MemoryDriver(clock=clock), clock, on_error=on_error)
    assert isinstance(caught.value, Exception)
    return caught.value


def functions(error: BaseException | None) -> list[str]:
    assert error is not None
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def divides_in_a_thread() -> float:
    return 1 / 0


async def divides() -> float:
    return 1 / 0


@pytest.mark.parametrize("fn", [divides_in_a_thread, divides])
@pytest.mark.parametrize("retries", [0, 2])
async def test_an_exhausted_step_is_raised_from_what_its_function_raised(fn: Callable[[], Any], retries: int) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        return await ctx.step("divide", fn, max_retries=retries)

    error = await failure(workflow)
    assert isinstance(error, StepExhaustedError)
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert functions(error.__cause__)[-1] == fn.__name__


async def test_what_an_author_raises_while_handling_another_keeps_it_as_its_context() -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        try:
            await ctx.step("divide", divides, max_retries=0)
        except StepExhaustedError:
            raise ValueError("no quotient")  # noqa: B904 - what an author forgets, Python does not

    error = await failure(workflow)
    assert isinstance(error, ValueError)
    assert isinstance(error.__context__, StepExhaustedError)
    assert not error.__suppress_context__
    assert "divides" in "".join(traceback.format_exception(error))


async def branch(ctx: Context) -> Any:
    return await ctx.step("divide", divides_in_a_thread, max_retries=0)


async def test_a_join_and_each_of_its_errors_lead_to_the_authors_line() -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        return await ctx.join("both", {"a": branch, "b": branch})

    error = await failure(workflow)
    assert isinstance(error, JoinError)
    assert list(error.errors) == ["a", "b"]
    for cause in (error.__cause__, error.errors["a"].__cause__, error.errors["b"].__cause__):
        assert isinstance(cause, StepExhaustedError)
        assert "branch" in functions(cause)
        assert functions(cause.__cause__)[-1] == "divides_in_a_thread"


async def test_a_race_that_all_have_lost_leads_to_the_authors_line() -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        return await ctx.race("either", {"a": branch, "b": branch})

    error = await failure(workflow)
    assert isinstance(error, RaceError)
    assert error.__cause__ is error.errors["a"].__cause__
    assert error.__cause__ is not None
    assert functions(error.__cause__.__cause__)[-1] == "divides_in_a_thread"


# --- frames -------------------------------------------------------------------------------------------------------


def places(frames: list[str]) -> list[str]:
    """The functions of frames, all of which must be of this file."""
    assert all(frame.startswith(f"{__file__}:") for frame in frames), frames
    return [frame.split(" ", 1)[1].rpartition(".")[2] for frame in frames]


async def test_an_events_frames_are_the_authors_only() -> None:
    events: list[Any] = []

    async def workflow(ctx: Context, _given: Any) -> Any:
        return await ctx.join("both", {"a": branch})

    await failure(workflow, on_error=events.append)
    assert [places(event.error.frames) for event in events] == [
        ["divides_in_a_thread"],
        ["divides_in_a_thread", "branch", "workflow"],
    ]


def recurses(depth: int) -> None:
    if depth:
        recurses(depth - 1)
    raise ValueError('two lines\n  File "secret.py", line 1, in secret')


def test_frames_are_bounded_and_hold_nothing_of_the_message() -> None:
    with pytest.raises(ValueError, match="two lines") as caught:
        recurses(200)
    caught.value.__cause__ = caught.value
    frames = error_info(caught.value).frames
    assert places(frames) == ["recurses"] * 16
    assert "secret" not in "".join(frames)


async def test_frames_of_the_engine_are_told_where_there_are_no_others() -> None:
    events: list[Any] = []

    async def workflow(_ctx: Context, _given: int) -> None:
        """Never entered: nothing is no number."""

    await failure(workflow, on_error=events.append)
    [event] = events
    assert event.error.name == "UnstorableValueError"
    assert any("values.py:" in frame for frame in event.error.frames)
