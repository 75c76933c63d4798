"""An inbox with more in it than one commit can move."""

from __future__ import annotations

from engine import Context, run_workflow, values
from engine.entry import Message
from engine.testing import MemoryDriver


class Bounded(MemoryDriver):
    """A driver whose commits move as many messages as one transaction on DynamoDB can."""

    commit_messages_max = 84


async def test_branches_that_hold_more_than_a_commit_moves_leave_no_message_behind() -> None:
    driver = Bounded()

    async def take(inner: Context) -> int:
        return len(await inner.queue.next_batch("some", count=60))

    async def body(ctx: Context, _: None) -> dict[str, int]:
        return await ctx.join("all", {"a": take, "b": take, "c": take})

    for number in range(170):
        await driver.message_driver.add(Message(id=str(number), name="m", body=values.encode(number), sent_at=number))
    result = await run_workflow("w", body, None, driver).result
    assert result.output == {"a": 60, "b": 60, "c": 50}
    assert driver.messages == []
    assert max(len(commit.consumed) for commit in driver.commits) <= 84


async def test_one_operation_takes_no_more_than_a_commit_can_record() -> None:
    driver = Bounded()

    async def body(ctx: Context, _: None) -> list[int]:
        return [len(await ctx.queue.next_batch(name, count=100)) for name in ("first", "second")]

    for number in range(100):
        await driver.message_driver.add(Message(id=str(number), name="m", body=values.encode(number), sent_at=number))
    assert (await run_workflow("w", body, None, driver).result).output == [84, 16]
