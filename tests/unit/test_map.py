"""Maps: order, the bound on concurrency, failures, waits, and what a replay with other items gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

import pytest

from engine import Break, Context, Continue, HistoryDivergedError, JoinError, Registry, WorkflowState, workflow
from tests.unit.bench import Bench


@dataclass(frozen=True)
class Page:
    url: str
    size: int


async def test_results_come_in_the_order_of_the_items_with_their_types() -> None:
    bench = Bench()

    async def fetch(ctx: Context, url: str) -> Page:
        # The first takes longest, so that they end in the opposite order.
        await ctx.step("get", bench.giving(url, takes_s=10 - len(url)))
        return Page(url, len(url))

    async def workflow(ctx: Context, urls: list[str]) -> list[Any]:
        pages = await ctx.map("fetch", urls, fetch)
        assert_type(pages, list[Page])
        await ctx.sleep("wait", 3600)
        return [isinstance(pages[0], Page), [page.size for page in pages]]

    result = await bench.through(workflow, ["a", "bb", "ccc"])
    assert result.output == [True, [1, 2, 3]]
    assert bench.runs == {"a": 1, "bb": 1, "ccc": 1}
    assert {"fetch/0/get", "fetch/1/get", "fetch/2/get"} <= set(bench.entries())


@pytest.mark.parametrize(("concurrency", "expected"), [(1, 1), (3, 3), (20, 7)])
async def test_no_more_than_concurrency_work_at_once(concurrency: int, expected: int) -> None:
    bench = Bench()
    working: list[int] = []
    most: list[int] = [0]

    async def body(ctx: Context, item: int) -> int:
        async def work() -> int:
            working.append(item)
            most[0] = max(most[0], len(working))
            await bench.clock.sleep(1)
            working.remove(item)
            return item * item

        return await ctx.step("work", work)

    async def workflow(ctx: Context, _given: Any) -> list[int]:
        return await ctx.map("squares", range(7), body, concurrency=concurrency)

    assert (await bench.through(workflow)).output == [item * item for item in range(7)]
    assert most == [expected]


async def test_nothing_to_do_gives_an_empty_list_that_replays() -> None:
    async def body(_ctx: Context, item: int) -> int:
        return item

    async def workflow(ctx: Context, _given: Any) -> list[int]:
        found = await ctx.map("none", list[int](), body)
        await ctx.sleep("wait", 3600)
        return found

    bench = Bench()
    assert (await bench.through(workflow)).output == []
    assert list(bench.entries()) == ["none", "wait"]


async def test_a_workflow_may_be_the_body_of_a_map_a_branch_or_a_loop() -> None:
    own = Registry()

    @workflow("doubling", registry=own)
    async def doubling(_ctx: Context, number: int) -> set[int]:
        return {2 * number}

    @workflow("nothing", registry=own)
    async def nothing(_ctx: Context) -> set[int]:
        return set()

    @workflow("counting", registry=own)
    async def counting(_ctx: Context, seen: set[int]) -> Continue[set[int]] | Break[set[int]]:
        return Break(seen) if len(seen) == 3 else Continue({*seen, len(seen)})

    async def work(ctx: Context) -> list[Any]:
        mapped = await ctx.map("m", [1, 2], doubling)
        joined = await ctx.join("j", {"a": nothing})
        raced = await ctx.race("r", {"a": nothing})
        return [mapped, joined["a"], raced.value, await ctx.loop("l", counting, set())]

    assert (await Bench().once(work)).output == [[{2}, {4}], set(), set(), {0, 1, 2}]


async def test_failures_are_named_by_index_and_replay() -> None:
    seen: list[dict[str, str]] = []

    async def body(_ctx: Context, item: int) -> int:
        if item % 2:
            raise ValueError(f"odd: {item}")
        return item

    async def workflow(ctx: Context, _given: Any) -> str:
        try:
            await ctx.map("evens", [10, 11, 12, 13], body)
        except JoinError as error:
            seen.append({index: one.message for index, one in error.errors.items()})
        await ctx.sleep("wait", 3600)
        return "done"

    assert (await Bench().through(workflow)).output == "done"
    assert seen == [{"1": "odd: 11", "3": "odd: 13"}] * 2


async def test_items_that_wait_go_on_where_they_were() -> None:
    bench = Bench()

    async def body(ctx: Context, item: int) -> int:
        await ctx.step("before", bench.giving(f"before {item}"))
        await ctx.sleep("wait", item * 3600)
        return item

    async def workflow(ctx: Context, _given: Any) -> list[int]:
        return await ctx.map("waits", [1, 2, 3], body, concurrency=2)

    assert (await bench.through(workflow)).output == [1, 2, 3]
    assert set(bench.runs.values()) == {1}


async def test_another_number_of_items_diverges() -> None:
    count = [3]

    async def body(ctx: Context, item: int) -> int:
        await ctx.sleep("wait", 3600)
        return item

    async def workflow(ctx: Context, _given: Any) -> list[int]:
        return await ctx.map("items", range(count[0]), body)

    bench = Bench()
    assert (await bench.once(workflow)).state is WorkflowState.SLEEPING
    count[0] = 2
    with pytest.raises(HistoryDivergedError, match="missing in the code: 2"):
        await bench.through(workflow)


@pytest.mark.parametrize(
    ("bound", "error", "told"),
    [(0, ValueError, "concurrency must be 1 or more"), (2.5, TypeError, "concurrency must be an integer, not 2.5")],
)
async def test_what_is_no_bound_is_refused(bound: Any, error: type[Exception], told: str) -> None:
    async def body(_ctx: Context, item: int) -> int:
        return item

    async def workflow(ctx: Context, _given: Any) -> list[int]:
        return await ctx.map("items", [1], body, concurrency=bound)

    with pytest.raises(error, match=told):
        await Bench().through(workflow)
