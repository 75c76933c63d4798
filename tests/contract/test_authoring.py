"""What authors may say, on every store: activities and their document, messages by class, places, edits of code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from engine import ActivityContext, Context, WorkflowState, activity, run_workflow, values
from engine.entry import Message
from engine.inspect import describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contract.conftest import Subject

runs: list[str] = []


@dataclass(frozen=True)
class ParcelSent:
    carrier: str


@dataclass(frozen=True)
class OrderDropped:
    reason: str = "none given"


@activity(max_retries=1, retry_backoff_base=0)
async def weigh_and_note(ctx: ActivityContext, item: str) -> int:
    runs.append(item)
    if ctx.attempt == 1 and item == "lamp":
        ctx.state["lost"] = True
        raise ConnectionError("the scales are away")
    ctx.state.setdefault("weights", {})[item] = len(item)
    return len(item)


async def work(name: str) -> str:
    runs.append(name)
    return name


async def patience(ctx: Context) -> None:
    """Wait for the message, however often it is looked at on the way."""
    for _ in range(4):
        if await ctx.queue.next_batch(names="go", timeout=60):
            return


@pytest.fixture(autouse=True)
def forget() -> None:
    runs.clear()


class Lives:
    """A workflow on one store, each run in a process of its own."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._driver = subject.driver
        self._sent = 0

    async def run(self, fn: Callable[..., Any]) -> Any:
        return await run_workflow("w", fn, None, self._driver).result

    async def send(self, name: str, body: Any = None) -> None:
        self._sent += 1
        sent = Message(id=f"m{self._sent}", name=name, body=values.encode(body), sent_at=1)
        await self._subject.send(sent)
        await self.later()

    async def later(self) -> None:
        """Another process has it, because of a message or of its alarm."""
        self._driver = await self._subject.reloaded()

    async def document(self) -> Any:
        return describe(await self._driver.list(b"")).document


async def test_activities_their_document_and_messages_by_class(subject: Subject) -> None:
    async def packed(ctx: Context, item: str) -> int:
        return await ctx.activity(weigh_and_note, item)

    async def inner(ctx: Context, carriers: list[str]) -> str:
        return await ctx.step("choose", work, min(carriers))

    async def workflow(ctx: Context, _given: Any) -> list[Any]:
        said: list[Any] = [await ctx.map("pack", ["lamp", "tea"], packed, concurrency=1)]
        said.append(dict(ctx.state))
        said.append(await ctx.inline(inner, ["snail", "horse"], name="carrier"))
        event = await ctx.listen(ParcelSent, OrderDropped)
        said.append(f"sent with {event.carrier}" if isinstance(event, ParcelSent) else event.reason)
        said.append(len(await ctx.listen(ParcelSent, OrderDropped, limit=5, timeout=0, name="rest")))
        return said

    lives = Lives(subject)
    assert (await lives.run(workflow)).state is WorkflowState.SLEEPING
    assert await lives.document() == {"weights": {"lamp": 4, "tea": 3}}
    await lives.send("order_dropped")
    await lives.send("parcel_sent", {"carrier": "horse"})
    weights = {"weights": {"lamp": 4, "tea": 3}}
    assert (await lives.run(workflow)).output == [[4, 3], weights, "horse", "none given", 1]
    assert runs == ["lamp", "lamp", "tea", "horse"]


async def test_code_without_names_is_edited_under_a_workflow_that_is_half_way(subject: Subject) -> None:
    async def first(ctx: Context, _given: Any) -> None:
        for name in ("validate", "notify", "charge"):
            await ctx.step(work, name)
        await patience(ctx)
        await ctx.step(work, "ship")

    async def second(ctx: Context, _given: Any) -> int:
        await ctx.step(work, "validate")
        await ctx.v(2).step(work, "screen")
        await ctx.removed(original_type="step")  # notify
        version = await ctx.check_version(2)
        await ctx.step(work, "charge")
        await patience(ctx)
        await ctx.step(work, "ship" if version == 1 else "fly")
        return version

    async def third(ctx: Context, _given: Any) -> list[int]:
        await ctx.step(work, "validate")
        await ctx.v(2).step(work, "screen")
        await ctx.v(3).step(work, "screen again")
        await ctx.removed(original_type="step")
        versions = [await ctx.v(3).check_version(3), await ctx.check_version(2)]
        await ctx.step(work, "charge")
        await patience(ctx)
        await ctx.step(work, "ship" if versions[1] == 1 else "fly")
        return versions

    lives = Lives(subject)
    for code in (first, second, third):
        assert (await lives.run(code)).state is WorkflowState.SLEEPING
        await lives.later()
    assert runs == ["validate", "notify", "charge", "screen", "screen again"]
    await lives.send("go")
    assert (await lives.run(third)).output == [1, 1]
    assert runs[5:] == ["ship"]
