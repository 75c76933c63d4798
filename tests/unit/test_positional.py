"""Scopes without names: where operations stand, how code may be edited under them, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, assert_type

import pytest

from engine import (
    ActivityContext,
    Break,
    Context,
    Continue,
    EntryInProgressError,
    HistoryDivergedError,
    RollbackContext,
    TryResult,
    UnstorableValueError,
    WorkflowState,
    values,
)
from engine.author.activities import Activity
from engine.bare import decode_entry
from engine.entry import JoinEntry, StepEntry
from engine.errors import InvalidIdError
from engine.keys import HISTORY_PREFIX
from engine.testing import MemoryDriver
from tests.unit.bench import Bench

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.entry import Entry

Edit = list[tuple[str, int]]


async def echo(label: str) -> str:
    return label


async def edited(*edits: Edit) -> dict[str, str]:
    """Run one workflow with one edit of its code after the other; the place of each step, by its label."""
    bench = Bench()
    for edit in edits:

        async def workflow(ctx: Context, _given: Any, edit: Edit = edit) -> None:
            for label, version in edit:
                await ctx.v(version).step(echo, label)
            await ctx.queue.next(names="never")

        assert (await bench.once(workflow)).state is WorkflowState.SLEEPING
    return places(bench)


def places(bench: Bench) -> dict[str, str]:
    return {
        values.decode(entry.kind.output): place
        for place, entry in bench.entries().items()
        if isinstance(entry.kind, StepEntry) and entry.kind.output is not None
    }


def steps(text: str) -> list[tuple[str, int]]:
    """``a b2`` as the steps a, of version 1, and b2, of version 2."""
    return [(label, int(label[1:] or 1)) for label in text.split()]


# --- the algebra, through the engine ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edits", "label", "place"),
    [
        (["a b c"], "c", "{3}"),
        (["a b", "a x2 b"], "x2", "{1.1}@2"),
        (["a", "x2 a"], "x2", "{0.1}@2"),
        (["a b", "a x2 y2 b", "a x2 z3 y2 b"], "z3", "{1.1.1}@3"),
        (["a b", "a x2 b", "a x2 z3 b"], "z3", "{1.2}@3"),
        (["a b c", "a b x2 c", "a b x2 y3 c"], "y3", "{2.2}@3"),
        (["a b c", "a b x2 c", "a b x2 y3 z3 c"], "z3", "{2.3}@3"),
        (["a", "x2 a", "x2 y3 a"], "y3", "{0.2}@3"),
        (["a", "x2 a", "y3 x2 a"], "y3", "{0.0.1}@3"),
        (["a", "x2 a", "y3 x2 a", "z4 y3 x2 a"], "z4", "{0.0.0.1}@4"),
        (["a b", "a x2 b", "a y3 x2 b"], "y3", "{1.0.1}@3"),
        (["a b", "a x2 b", "a y3 x2 b", "a z4 y3 x2 b"], "z4", "{1.0.0.1}@4"),
        (["a b c", "a b x2 y2 c", "a b x2 z3 y2 c"], "z3", "{2.1.1}@3"),
        (["a b c", "a b x2 y2 c", "a b x2 z3 y2 c", "a b x2 w4 z3 y2 c"], "w4", "{2.1.0.1}@4"),
        (["a", "a b2", "a b2 c"], "b2", "{2}@2"),
        (["a", "a b2", "a b2 c"], "c", "{3}"),
        (["a", "a b2", "a x3 b2"], "x3", "{1.1}@3"),
    ],
)
async def test_where_a_step_stands(edits: list[str], label: str, place: str) -> None:
    found = await edited(*map(steps, edits))
    assert found[label] == place
    assert len(found) == len(edits[-1].split())


def put_inside(count: int) -> Callable[[Context], Awaitable[None]]:
    async def body(ctx: Context) -> None:
        for number in range(count):
            await ctx.v(2).step(echo, f"inner {number + 1}")
        await ctx.step(echo, "inner first")
        await ctx.queue.next(names="never")

    return body


def put_between(put_in: int, inner_count: int | None) -> Callable[[Context], Awaitable[None]]:
    async def body(ctx: Context) -> None:
        for number in range(put_in):
            if number == 3 and inner_count is not None:
                await ctx.v(3).join({"b": put_inside(inner_count)})
            await ctx.v(2).step(echo, f"put in {number + 1}")
        await ctx.step(echo, "first")
        await ctx.queue.next(names="never")

    return body


async def test_places_nest_as_scopes_do() -> None:
    """`{4, 0.3.1, 0.6}`: the sixth that was put before the first of what was put between two that were put in."""
    bench = Bench()

    shapes: list[tuple[int, int | None]] = [(0, None), (4, None), (4, 0), (4, 6)]
    for shape in shapes:

        async def workflow(ctx: Context, _given: Any, shape: tuple[int, int | None] = shape) -> None:
            for number in range(3):
                await ctx.step(echo, f"root {number + 1}")
            await ctx.join({"b": put_between(*shape)})

        await bench.once(workflow)
    found = places(bench)
    assert found["put in 3"] == "{4}/b/{0.3}@2"
    assert found["inner first"] == "{4}/b/{0.3.1}@3/b/{1}@3"
    assert found["inner 6"] == "{4}/b/{0.3.1}@3/b/{0.6}@4"


async def test_iterations_of_a_loop_have_places_of_their_own() -> None:
    async def body(ctx: Context, number: int) -> Break[int] | Continue[int]:
        await ctx.step(echo, f"step {number}")
        return Break(number) if number == 3 else Continue(number + 1)

    async def workflow(ctx: Context, _given: Any) -> int:
        await ctx.step(echo, "before")
        answer = await ctx.loop(body, 1)
        assert_type(answer, int)
        await ctx.sleep(3600)
        return answer

    bench = Bench()
    assert (await bench.through(workflow)).output == 3
    assert places(bench) == {
        "before": "{1}",
        "step 1": "{2}/~0/{1}",
        "step 2": "{2}/~1/{1}",
        "step 3": "{2}/~2/{1}",
    }


# --- every operation -------------------------------------------------------------------------------------------------


async def test_every_operation_stands_without_a_name_and_replays() -> None:
    bench = Bench()

    async def charge(ctx: ActivityContext, what: str) -> str:
        return f"{what} {ctx.attempt}"

    async def branch(ctx: Context) -> str:
        return await ctx.step(echo, "branch")

    async def workflow(ctx: Context, _given: Any) -> list[Any]:
        said: list[Any] = [await ctx.step(echo, "one")]
        await ctx.rollback_checkpoint()
        said.append(await ctx.step(Activity("charge", charge, {}), "two"))
        tried = await ctx.try_step(bench.raising("fails", LookupError("no")), max_retries=0)
        assert_type(tried, TryResult[Any])
        said.append(tried.ok)
        await ctx.sleep(3600)
        await ctx.sleep(timedelta(hours=1))
        await ctx.sleep_until(datetime(2100, 1, 1, tzinfo=UTC))
        said.append(await ctx.join({"b": branch}))
        said.append((await ctx.race({"b": branch})).winner)
        await ctx.queue.send("note", 1)
        said.append((await ctx.queue.next(names="note")).body)
        said.append(await ctx.queue.next_batch(timeout=60))
        said.append(await ctx.check_version(3))
        await ctx.removed(original_type="step")
        await ctx.sleep(3600)
        return said

    assert (await bench.through(workflow)).output == ["one", "two 1", False, {"b": "branch"}, "b", 1, [], 3]
    assert bench.runs == {"fails": 1}
    assert {place for place in bench.entries() if "/" not in place} == {
        *(f"{{{number}}}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14)),
        *("{10}:0", "{10}:count", "{11}:count", "{11}:deadline", "send:note"),
    }


async def test_undo_works_without_names() -> None:
    undone: list[str] = []

    async def undo(_ctx: RollbackContext, output: str) -> None:
        undone.append(output)

    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.rollback_checkpoint()
        await ctx.step(echo, "one", rollback=undo)
        await ctx.step(echo, "two", rollback=undo)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await Bench().through(workflow)
    assert undone == ["two", "one"]


async def test_an_operation_that_fails_and_leaves_nothing_ends_the_workflow() -> None:
    """Nothing says where it stood, so a replay would take the next operation's place for its own."""

    async def body(_ctx: Context, _state: Any) -> Break[int]:
        return Break(1)

    async def workflow(ctx: Context, _given: Any) -> str:
        await ctx.step(echo, "one")
        try:
            await ctx.loop(body, object())
        except UnstorableValueError:
            await ctx.step(echo, "two")
        return "done"

    bench = Bench()
    with pytest.raises(UnstorableValueError, match="first state"):
        await bench.through(workflow)
    assert list(bench.entries()) == ["{1}"]


async def test_a_step_that_failed_for_good_keeps_its_place() -> None:
    bench = Bench()

    async def workflow(ctx: Context, _given: Any) -> str:
        try:
            await ctx.step(bench.raising("fails", LookupError("no")), max_retries=0)
        except Exception:  # noqa: BLE001 - whatever it is
            await ctx.step(echo, "two")
        await ctx.sleep(3600)
        return "done"

    assert (await bench.through(workflow)).output == "done"
    assert bench.runs == {"fails": 1}
    assert places(bench) == {"two": "{2}"}


async def test_a_join_whose_entry_a_crash_has_lost_goes_on_from_what_is_inside() -> None:
    """Divided commits may carry what is inside before the join itself, which is written again and again."""
    bench = Bench()

    async def branch(ctx: Context) -> str:
        await ctx.step(bench.giving("inside"))
        await ctx.queue.next(names="go")
        return "joined"

    async def workflow(ctx: Context, _given: Any) -> dict[str, str]:
        return await ctx.join({"b": branch})

    async def other(ctx: Context, _given: Any) -> None:
        await ctx.sleep(1)

    await bench.once(workflow)
    [lost] = [key for key, entry in _stored_entries(bench) if isinstance(entry.kind, JoinEntry)]
    await bench.driver.delete(lost)
    copy = Bench(MemoryDriver.load(bench.driver.dump()))
    with pytest.raises(HistoryDivergedError, match="history has a join, race or loop of version 1"):
        await copy.through(other)
    bench.send("go")
    assert (await bench.through(workflow)).output == {"b": "joined"}
    assert bench.runs == {"inside": 1}


def _stored_entries(bench: Bench) -> list[tuple[bytes, Entry]]:
    return [(key, decode_entry(value)) for key, value in bench.stored().items() if key.startswith(HISTORY_PREFIX)]


# --- editing ---------------------------------------------------------------------------------------------------------


async def test_code_half_way_through_an_edit_finishes_under_the_new_code() -> None:
    bench = Bench()

    async def old(ctx: Context, _given: Any) -> None:
        await ctx.step(bench.giving("validate"))
        await ctx.step(bench.giving("notify"))
        await ctx.step(bench.giving("charge"))
        await ctx.sleep(3600)
        await ctx.step(bench.giving("ship"))

    async def new(ctx: Context, _given: Any) -> str:
        await ctx.step(bench.giving("validate"))
        await ctx.v(2).step(bench.giving("screen"))
        await ctx.removed(original_type="step")  # notify
        await ctx.step(bench.giving("charge"))
        await ctx.removed(original_type="sleep")
        await ctx.v(2).step(bench.giving("pack"))
        await ctx.sleep(60)
        return "new"

    assert (await bench.once(old)).state is WorkflowState.SLEEPING
    assert (await bench.through(new)).output == "new"
    assert bench.runs == {"validate": 1, "notify": 1, "charge": 1, "screen": 1, "pack": 1}
    assert list(bench.entries()) == ["{1}", "{2}", "{3}", "{4}", "{1.1}@2", "{5}@2", "{6}"]
    fresh = Bench()
    bench.runs.clear()
    assert (await fresh.through(new)).output == "new"
    assert bench.runs == {"validate": 1, "charge": 1, "screen": 1, "pack": 1}
    assert list(fresh.entries()) == ["{1}", "{2}@2", "{3}", "{4}", "{5}", "{6}@2", "{7}"]


async def two(ctx: Context) -> None:
    await ctx.step(echo, "a")
    await ctx.step(echo, "b")


async def kind_differs(ctx: Context) -> None:
    await ctx.step(echo, "a")
    await ctx.sleep(1)


async def swapped(ctx: Context) -> None:
    await ctx.sleep(0)
    await ctx.step(echo, "a")


async def too_few(ctx: Context) -> None:
    await ctx.step(echo, "a")


async def removes_another_kind(ctx: Context) -> None:
    await ctx.removed(original_type="sleep")
    await ctx.step(echo, "b")


async def inserted(ctx: Context) -> None:
    await ctx.step(echo, "a")
    await ctx.v(2).step(echo, "x")
    await ctx.step(echo, "b")


async def inserted_without_version(ctx: Context) -> None:
    await ctx.step(echo, "a")
    await ctx.step(echo, "x")
    await ctx.step(echo, "b")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (two, kind_differs, r"a sleep of version 1 where history has a step of version 1, at \{2\}"),
        (two, swapped, r"a sleep of version 1 where history has a step of version 1, at \{1\}"),
        (two, too_few, r"history has a step at '\{2\}', which the code no longer reaches.*ctx.removed\(original_type"),
        (two, removes_another_kind, r"ctx.removed\(original_type='sleep'\), but history has a step at \{1\}"),
        (inserted, inserted_without_version, r"a step of version 1 where history has a step of version 2, at \{2\}@2"),
    ],
)
async def test_what_does_not_fit_diverges(old: Any, new: Any, message: str) -> None:
    bench = Bench()

    async def first(ctx: Context, _given: Any) -> None:
        await old(ctx)
        await ctx.queue.next(names="go")

    async def second(ctx: Context, _given: Any) -> None:
        await new(ctx)

    await bench.once(first)
    with pytest.raises(HistoryDivergedError, match=message):
        await bench.through(second)


# --- one sort or the other -------------------------------------------------------------------------------------------


async def named_then_not(ctx: Context) -> None:
    await ctx.step("a", echo, "a")
    await ctx.step(echo, "b")


async def not_then_named(ctx: Context) -> None:
    await ctx.step(echo, "a")
    await ctx.step("b", echo, "b")


async def block_between(ctx: Context) -> None:
    await ctx.step(echo, "a")
    await ctx.try_block("block", two)


@pytest.mark.parametrize("body", [named_then_not, not_then_named, block_between])
async def test_a_scope_has_names_throughout_or_nowhere(body: Callable[[Context], Awaitable[None]]) -> None:
    async def workflow(ctx: Context, _given: Any) -> None:
        await body(ctx)

    with pytest.raises(HistoryDivergedError, match="Name all operations of a scope, or none of them"):
        await Bench().through(workflow)


async def test_scopes_of_both_sorts_nest() -> None:
    async def workflow(ctx: Context, _given: Any) -> str:
        await ctx.step("a", echo, "a")
        await ctx.try_block("block", two)
        await ctx.queue.send("note")
        return "done"

    bench = Bench()
    assert (await bench.through(workflow)).output == "done"
    assert list(bench.entries()) == ["a", "block/{1}", "block/{2}", "send:note"]


async def test_a_scope_that_a_workflow_has_begun_keeps_its_sort() -> None:
    async def named(ctx: Context, _given: Any) -> None:
        await ctx.step("a", echo, "a")
        await ctx.queue.next("wait", "go")

    async def placed(ctx: Context, _given: Any) -> None:
        await ctx.step(echo, "a")
        await ctx.queue.next(names="go")

    bench = Bench()
    await bench.once(named)
    with pytest.raises(HistoryDivergedError, match="history has 'a' here, which has a name"):
        await bench.through(placed)
    bench = Bench()
    await bench.once(placed)
    bench.send("go")
    with pytest.raises(HistoryDivergedError, match="no longer reaches"):
        await bench.through(named)


NOT_HERE = r"ctx.v\(n\) is for operations that stand at a place and may be put in, not for"
WRONG_USES: list[tuple[Callable[[Context], Any], type[Exception], str]] = [
    (lambda ctx: ctx.v(2).step("a", echo, "a"), ValueError, NOT_HERE),
    (lambda ctx: ctx.v(2).queue.next("a"), ValueError, NOT_HERE),
    (lambda ctx: ctx.v(2).queue.send("a"), ValueError, NOT_HERE),
    (lambda ctx: ctx.v(2).signal("a", to="b"), ValueError, NOT_HERE),
    (lambda ctx: ctx.v(2).removed(original_type="step"), ValueError, NOT_HERE),
    (lambda ctx: ctx.v(0).step(echo, "a"), InvalidIdError, "integer from 1 to 1000000"),
    (lambda ctx: ctx.v(2**32).step(echo, "a"), InvalidIdError, "integer from 1 to 1000000"),
    (lambda ctx: ctx.check_version(0), InvalidIdError, "integer from 1 to 1000000"),
    (lambda ctx: ctx.check_version(2**32), InvalidIdError, "integer from 1 to 1000000"),
    (lambda ctx: ctx.step(1), TypeError, "step takes a name and a function"),  # type: ignore[call-overload]
    (lambda ctx: ctx.step("name"), TypeError, r"step\('name'\) needs a function"),  # type: ignore[call-overload]
]


@pytest.mark.parametrize(("use", "kind", "message"), WRONG_USES)
async def test_wrong_uses_are_refused(use: Callable[[Context], Any], kind: type[Exception], message: str) -> None:
    async def workflow(ctx: Context, _given: Any) -> None:
        await use(ctx)

    with pytest.raises(kind, match=message):
        await Bench().through(workflow)


async def test_one_that_is_not_awaited_is_told_of() -> None:
    async def workflow(ctx: Context, _given: Any) -> None:
        ctx.step(echo, "a")  # type: ignore[unused-coroutine]  # the fault under test
        await ctx.step(echo, "b")

    with pytest.raises(EntryInProgressError, match="a step without a name"):
        await Bench().through(workflow)
