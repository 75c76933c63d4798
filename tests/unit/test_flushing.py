"""How commits reach a driver: one at a time, shared, shielded, divided, in batches where the driver wants them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine import Context, WorkflowState, keys, limits
from engine.commit import Alarm, Child, Commit
from engine.entry import Entry, EntryMetadata, StepEntry
from engine.errors import ChildRefusedError, CommitTooLarge, EntryInProgressError, EvictedError, StoreUnavailableError
from engine.history import writing
from engine.history.flushing import Flusher
from engine.history.hooks import Hooks
from engine.history.storage import Storage
from engine.testing import MemoryDriver, VirtualClock
from tests.unit.bench import Bench


class Slow(MemoryDriver):
    """A driver whose commits end when they are let go."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.begun = 0
        self.gate = asyncio.Event()

    async def commit(self, commit: Commit) -> None:
        self.begun += 1
        await self.gate.wait()
        await super().commit(commit)


def put(storage: Storage, name: str) -> None:
    index = storage.register_name(name)
    entry = Entry(f"018f0000-0000-7000-8000-{index:012d}", (index,), StepEntry(output=b"\x01"))
    storage.put(keys.entry_key((index,)), entry)


def flusher_of(storage: Storage, driver: MemoryDriver, clock: VirtualClock | None = None) -> Flusher:
    return Flusher(storage, driver, clock or VirtualClock(), Hooks(), 0)


class Refusing(MemoryDriver):
    """A driver that refuses every child."""

    async def commit(self, commit: Commit) -> None:
        if commit.children:
            error = ChildRefusedError("it is there already")
            error.workflow_id = commit.children[0].workflow_id
            raise error
        await super().commit(commit)


async def test_a_commit_that_was_refused_a_child_is_made_without_it_and_else_the_same() -> None:
    storage, driver = Storage(), Refusing()
    told: list[Exception] = []
    storage.start("entry", Child(workflow_id="child", workflow_type="type", workflow_input=b"\x01"))
    storage.refusals["entry"] = told.append
    storage.state = WorkflowState.SLEEPING
    await flusher_of(storage, driver).finish(alarm=Alarm(5, "w"), yields=True, names=("x",), awaited=("other",))
    assert [str(error) for error in told] == ["it is there already"]
    (commit,) = driver.commits
    assert (commit.yields, commit.names, commit.awaited, commit.alarm) == (True, ("x",), ("other",), Alarm(5, "w"))
    assert commit.state is WorkflowState.SLEEPING


async def test_what_went_with_its_branch_while_it_was_refused_is_committed_without() -> None:
    storage = Storage()
    told: list[Exception] = []
    entry = Entry("entry", (storage.register_name("dispatch"),), StepEntry())

    class Deciding(Refusing):
        """A driver during whose commit a race is decided."""

        async def commit(self, commit: Commit) -> None:
            if commit.children:
                storage.remove(keys.entry_key(entry.location))
            await super().commit(commit)

    storage.put(keys.entry_key(entry.location), entry)
    storage.put_metadata("entry", EntryMetadata(created_at=0))
    storage.start("entry", Child(workflow_id="child", workflow_type="type", workflow_input=b"\x01"))
    storage.refusals["entry"] = told.append
    driver = Deciding()
    flusher = flusher_of(storage, driver)
    await flusher.flush()
    assert flusher.failure is None
    (commit,) = driver.commits
    assert (commit.children, told) == ([], [])


async def test_a_refusal_that_nobody_expects_ends_the_run() -> None:
    storage, driver = Storage(), Refusing()
    storage.start("entry", Child(workflow_id="child", workflow_type="type", workflow_input=b"\x01"))
    flusher = flusher_of(storage, driver)
    with pytest.raises(ChildRefusedError):
        await flusher.flush()
    assert isinstance(flusher.failure, ChildRefusedError)
    assert driver.commits == []


async def test_who_comes_during_a_commit_shares_the_next_one() -> None:
    storage, driver = Storage(), Slow()
    flusher = flusher_of(storage, driver)
    put(storage, "a")
    first = asyncio.create_task(flusher.flush())
    await asyncio.sleep(0)
    others = []
    for name in "bcd":
        put(storage, name)
        others.append(asyncio.create_task(flusher.flush()))
    await asyncio.sleep(0)
    driver.gate.set()
    await asyncio.gather(first, *others)
    assert driver.begun == 2
    assert len(driver.dump()) == 9  # four names, four entries, the state


async def test_a_commit_goes_on_when_its_caller_is_cancelled() -> None:
    storage, driver = Storage(), Slow()
    flusher = flusher_of(storage, driver)
    put(storage, "a")
    caller = asyncio.create_task(flusher.flush())
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert flusher.is_busy
    driver.gate.set()
    await flusher.landed()
    assert len(driver.dump()) == 3  # a name, an entry, the state
    assert not storage.is_dirty()


async def test_a_failure_is_kept_and_nothing_more_is_written() -> None:
    def fail(_operation: str, _phase: str) -> None:
        raise StoreUnavailableError("gone")

    storage, driver = Storage(), MemoryDriver(on_call=fail)
    flusher = flusher_of(storage, driver)
    put(storage, "a")
    with pytest.raises(StoreUnavailableError):
        await flusher.flush()
    driver.on_call = None
    with pytest.raises(StoreUnavailableError):
        await flusher.flush()
    with pytest.raises(StoreUnavailableError):
        await flusher.finish(alarm=None)
    assert driver.dump() == []
    assert storage.is_dirty()


async def test_a_result_is_committed_after_five_milliseconds_if_nobody_else_does() -> None:
    storage, clock = Storage(), VirtualClock()
    driver = MemoryDriver(clock=clock)
    flusher = flusher_of(storage, driver, clock)
    put(storage, "a")
    flusher.flush_later()
    clock.advance(0.004)
    await asyncio.sleep(0)
    assert driver.commits == []
    clock.advance(0.002)
    await flusher.landed()
    assert len(driver.commits) == 1
    assert clock.next_timer() is None


async def test_closing_lets_go_of_the_timer() -> None:
    clock = VirtualClock()
    flusher = flusher_of(Storage(), MemoryDriver(), clock)
    flusher.flush_later()
    flusher.close()
    assert clock.next_timer() is None


async def test_deaths_count_until_the_first_commit() -> None:
    storage = Storage()
    flusher = Flusher(storage, MemoryDriver(), VirtualClock(), Hooks(), 3)
    assert flusher.deaths == 3
    put(storage, "a")
    await flusher.flush()
    assert flusher.deaths == 0


class Small(MemoryDriver):
    """A driver whose commits are bounded."""

    commit_bytes_max = 100_000
    commit_messages_max = 5

    async def commit(self, commit: Commit) -> None:
        size = sum(len(key) + len(value) for key, value in commit.puts)
        moved = len(commit.consumed) + len(commit.returned) + len(commit.outgoing)
        if size > self.commit_bytes_max or moved > self.commit_messages_max:
            raise CommitTooLarge(f"{size} bytes, {moved} messages")
        await super().commit(commit)


@pytest.mark.parametrize("latency", [False, True])
async def test_many_large_results_at_once_go_in_several_commits(*, latency: bool) -> None:
    bench = Bench(Small())
    if latency:
        bench.driver.latency_s = 0.0001

    async def fan(ctx: Context) -> Any:
        def branch(name: str) -> Any:
            async def body(inner: Context) -> int:
                return len(await inner.step("s", bench.giving(name, "x" * 40_000)))

            return body

        return await ctx.join("fan", {f"b{number}": branch(f"b{number}") for number in range(12)})

    handle = bench.start(fan)
    result = await asyncio.wait_for(handle.result, 60)
    assert result.output == {f"b{number}": 40_000 for number in range(12)}
    assert len(bench.driver.commits) >= 6
    assert bench.state() == "completed"
    assert set(bench.runs.values()) == {1}


@pytest.mark.parametrize("crash", range(1, 9))
async def test_a_message_leaves_with_its_record_however_commits_are_divided(crash: int) -> None:
    bench = Bench(Small())

    async def fan(ctx: Context) -> Any:
        def branch(name: str) -> Any:
            async def body(inner: Context) -> Any:
                return (await inner.queue.next("m", name)).body

            return body

        return await ctx.join("fan", {f"n{number}": branch(f"n{number}") for number in range(20)})

    for number in range(20):
        bench.send(f"n{number}", number)
    commits = 0

    def fail(operation: str, phase: str) -> None:
        nonlocal commits
        commits += (operation, phase) == ("commit", "before")
        if commits == crash and operation == "commit" and phase == "before":
            raise StoreUnavailableError("a crash")

    bench.driver.on_call = fail
    try:
        result = await bench.once(fan)
    except StoreUnavailableError:
        recorded = sum(place.endswith(":0") for place in bench.entries())
        assert recorded + len(bench.driver.messages) == 20
        result = await bench.once(fan)
    assert result.output == {f"n{number}": number for number in range(20)}
    assert bench.driver.messages == []


async def test_one_entry_that_no_commit_holds_fails_the_workflow() -> None:
    bench = Bench(Small())

    async def large(ctx: Context) -> Any:
        await ctx.step("small", bench.giving("small", 1))
        return len(await ctx.step("large", bench.giving("large", "x" * 200_000)))

    with pytest.raises(CommitTooLarge):
        await bench.once(large)
    assert bench.state() == "failed"
    assert bench.runs == {"small": 1, "large": 1}


# --- drivers that are not atomic -------------------------------------------------------------------------------------


class Counting(MemoryDriver):
    """A driver that notes its batches, and how many deletes are under way at once."""

    def __init__(self) -> None:
        super().__init__(atomic=False)
        self.batches: list[list[tuple[bytes, bytes]]] = []
        self.deleting = self.most = 0

    async def batch(self, writes: Any) -> None:
        self.batches.append(list(writes))
        await super().batch(writes)

    async def delete_range(self, start: bytes, end: bytes) -> None:
        self.deleting += 1
        self.most = max(self.most, self.deleting)
        await asyncio.sleep(0)
        self.deleting -= 1
        await super().delete_range(start, end)


async def test_batches_hold_128_pairs_and_976_kib_in_order() -> None:
    driver = Counting()
    many = [(f"{number:04}".encode(), b"v") for number in range(300)]
    await writing.write_in_batches(driver, Commit(puts=many))
    assert [len(batch) for batch in driver.batches] == [128, 128, 44]
    assert [pair for batch in driver.batches for pair in batch] == many

    driver.batches.clear()
    large = [(b"k%d" % number, bytes(limits.BATCH_BYTES_MAX // 2 - 2)) for number in range(3)]
    await writing.write_in_batches(driver, Commit(puts=large))
    assert [len(batch) for batch in driver.batches] == [2, 1]


async def test_a_pair_that_no_batch_holds_is_refused_before_anything_is_written() -> None:
    driver = Counting()
    puts = [(b"a", b"v"), (b"b", bytes(limits.BATCH_BYTES_MAX))]
    with pytest.raises(CommitTooLarge, match="nothing was written"):
        await writing.write_in_batches(driver, Commit(puts=puts))
    assert driver.dump() == []


async def test_deletes_go_64_at_once() -> None:
    driver = Counting()
    ranges = [(b"%03d" % number, b"%03d\xff" % number) for number in range(200)]
    await writing.write_in_batches(driver, Commit(ranges=ranges))
    assert driver.most == limits.DELETES_CONCURRENT_MAX == 64


async def test_such_a_driver_flushes_at_the_end_of_each_step() -> None:
    bench = Bench(atomic=False)

    async def three(ctx: Context) -> Any:
        for name in "abc":
            await ctx.step(name, bench.giving(name, name))
            assert name in bench.entries()

    assert (await bench.once(three)).state is WorkflowState.COMPLETED


async def test_n_steps_make_n_commits_on_an_atomic_one() -> None:
    bench = Bench()

    async def five(ctx: Context) -> Any:
        for name in "abcde":
            await ctx.step(name, bench.giving(name, name))

    await bench.once(five)
    assert len(bench.driver.commits) == 5


async def test_a_wake_with_a_message_a_step_and_a_wait_makes_two_commits_and_a_replay_none() -> None:
    bench = Bench()

    async def serve(ctx: Context) -> Any:
        for number in range(3):
            await ctx.queue.next(f"n{number}", "go")
            await ctx.step(f"s{number}", bench.giving("s"))

    await bench.once(serve)
    for _ in range(2):
        before = len(bench.driver.commits)
        bench.send("go")
        await bench.once(serve)
        assert len(bench.driver.commits) - before <= 2
    stored = bench.driver.dump()
    commits = len(bench.driver.commits)
    await bench.once(serve)
    assert bench.driver.dump() == stored
    assert len(bench.driver.commits) == commits


async def test_nothing_is_written_once_it_is_closed() -> None:
    storage, driver, clock = Storage(), MemoryDriver(), VirtualClock()
    flusher = flusher_of(storage, driver, clock)
    flusher.close()
    put(storage, "a")
    with pytest.raises(EvictedError):
        await flusher.flush()
    with pytest.raises(EvictedError):
        await flusher.finish(alarm=None)
    with pytest.raises(EvictedError):
        flusher.flush_later()
    flusher.flush_now()
    await asyncio.sleep(0)
    assert (driver.dump(), flusher.is_busy) == ([], False)


async def test_a_task_that_outlives_its_run_changes_nothing() -> None:
    bench = Bench()
    gate, foreign = asyncio.Event(), []

    async def slow() -> int:
        await gate.wait()
        return 7

    async def work(ctx: Context) -> str:
        foreign.append(asyncio.create_task(ctx.step("slow", slow)))
        await asyncio.sleep(0)
        return "returned"

    with pytest.raises(EntryInProgressError):
        await bench.through(work)
    before = bench.driver.dump()
    gate.set()
    with pytest.raises(EvictedError):
        await foreign[0]
    bench.clock.advance(1000)
    assert bench.driver.dump() == before
