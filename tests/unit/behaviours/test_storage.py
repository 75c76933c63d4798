"""What is stored: state, output, error, names and metadata; one commit or batches within their limits; and failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cbor2
import pytest

from engine import keys, limits
from engine.errors import StoreUnavailableError

if TYPE_CHECKING:
    from engine import Context
    from tests.unit.behaviours.world import Counter, World


async def test_state_and_output_are_stored(world: World) -> None:
    async def workflow(_ctx: Context, _given: Any) -> str:
        return "value"

    await world.through(workflow)

    stored = world.stored()
    assert stored[keys.STATE_KEY] == b"completed"
    assert cbor2.loads(stored[keys.OUTPUT_KEY]) == "value"


async def test_an_error_is_stored_with_its_name_and_scalars(world: World) -> None:
    class DeclinedError(Exception):
        def __init__(self, code: int) -> None:
            super().__init__("declined")
            self.code = code
            self.card = object()

    async def workflow(_ctx: Context, _given: Any) -> None:
        raise DeclinedError(51)

    with pytest.raises(DeclinedError):
        await world.through(workflow)

    stored = world.stored()
    error = cbor2.loads(stored[keys.ERROR_KEY])
    assert stored[keys.STATE_KEY] == b"failed"
    assert (error["name"], error["message"], error["metadata"]) == ("DeclinedError", "declined", {"code": 51})
    assert "DeclinedError" in error["stack"]


async def test_names_and_metadata_are_stored(world: World) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        return await ctx.step("named", lambda: "ok")

    started = world.clock.now()
    await world.through(workflow)

    _, metadata = world.step("named")
    assert world.stored()[keys.name_key(0)] == b"named"
    assert (metadata.status.name, metadata.attempts, metadata.error) == ("COMPLETED", 1, None)
    assert metadata.created_at == metadata.last_attempt_at == metadata.completed_at == started


async def test_the_first_input_is_the_input(world: World) -> None:
    async def workflow(ctx: Context, given: Any) -> Any:
        await ctx.sleep("nap", 60)
        return given

    if world.mode == "yield":
        await world.once(workflow, {"n": 1})

    assert (await world.through(workflow, {"n": 1} if world.mode == "live" else {"n": 2})).output == {"n": 1}


async def test_an_empty_store_reads_as_pending(world: World) -> None:
    assert world.driver.dump() == []
    assert await world.state() == "pending"


# --- how it is written ------------------------------------------------------------------------------------------------


async def gives(value: Any) -> Any:
    return value


def many(number: int, text: str = "") -> Any:
    async def workflow(ctx: Context, _given: Any) -> Any:
        for index in range(number):
            await ctx.step(f"{index}", gives, text, ephemeral=True)
        return await ctx.step("durable", gives, "done")

    return workflow


async def test_an_atomic_driver_gets_a_flush_whole(world: World) -> None:
    await world.through(many(200))

    assert max(len(commit.puts) for commit in world.driver.commits) > 200 * 3


async def test_another_driver_gets_it_in_batches(batched: World) -> None:
    assert (await batched.through(many(200, "x" * 10_000))).output == "done"

    sizes = [[len(key) + len(value) for key, value in batch] for batch in batched.driver.batches]
    assert max(map(len, sizes)) <= limits.BATCH_ENTRIES_MAX
    assert max(map(sum, sizes)) <= limits.BATCH_BYTES_MAX
    assert (await batched.through(many(200, "x" * 10_000))).output == "done"


async def test_a_pair_that_fits_no_batch_is_refused_before_anything_is_written(batched: World) -> None:
    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.step("huge", lambda: "x" * (limits.BATCH_BYTES_MAX + 1))

    with pytest.raises(Exception, match=r"\d{6,}"):
        await batched.through(workflow)
    assert all(len(value) <= limits.BATCH_BYTES_MAX for batch in batched.driver.batches for _, value in batch)


@pytest.mark.parametrize("failing", range(1, 4))
async def test_a_run_whose_commit_fails_goes_on_from_the_last_one(
    yielding: World, count: Counter, failing: int
) -> None:
    async def workflow(ctx: Context, _given: Any) -> Any:
        first = await ctx.step("first", count.giving("first", 1))
        second = await ctx.step("second", count.giving("second", 2))
        await ctx.sleep("nap", 60)
        return first + second

    yielding.fail_commit(failing)
    with pytest.raises(StoreUnavailableError):
        await yielding.through(workflow)
    assert await yielding.state() in {"pending", "running", "sleeping"}

    assert (await yielding.through(workflow)).output == 3
    assert max(count.values()) <= 2


async def test_steps_from_start_to_end_make_a_commit_each(yielding: World) -> None:
    async def workflow(ctx: Context, _given: Any) -> None:
        for index in range(20):
            await ctx.step(f"{index}", lambda: None)

    await yielding.through(workflow)

    assert len(yielding.driver.commits) <= 21


async def test_a_replay_without_news_writes_nothing(yielding: World) -> None:
    async def workflow(ctx: Context, _given: Any) -> None:
        await ctx.step("one", lambda: 1)
        await ctx.queue.next("take", names=["never"])

    await yielding.once(workflow)
    before = yielding.driver.dump()
    puts = [commit.puts for commit in yielding.driver.commits]

    assert (await yielding.once(workflow)).state == "sleeping"
    assert yielding.driver.dump() == before
    assert [commit.puts for commit in yielding.driver.commits if commit.puts] == [found for found in puts if found]
