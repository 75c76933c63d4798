"""What an operator is told of a workflow that waits: over HTTP, of a run by the worker on moto."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from adapters.dynamodb.model.limits import RETRYING_ERROR_CHARACTERS, RETRYING_TOLD_MAX
from engine import Context, workflow

if TYPE_CHECKING:
    from tests.integration.driven import Driven


async def charge() -> str:
    raise ConnectionError("the card service refuses")


async def refuse() -> None:
    raise OSError("x" * 1000)


@workflow("under-way-listens")
async def listens(ctx: Context, _given: None) -> Any:
    return (await ctx.queue.next()).body


@workflow("under-way-everything")
async def everything(ctx: Context, child_id: str) -> Any:
    async def pays(inner: Context) -> str:
        return await inner.step("charge", charge, max_retries=4, retry_backoff_base=600, retry_backoff_max=1200)

    async def hears(inner: Context) -> Any:
        return [message.body for message in await inner.queue.next_batch("until", "stop", timeout=7200)]

    async def rests(inner: Context) -> None:
        await inner.sleep("nap", timedelta(hours=1))

    async def awaits(inner: Context) -> Any:
        return await inner.output(await inner.dispatch("under-way-listens", None, id=child_id))

    return await ctx.join("all", {"pays": pays, "hears": hears, "rests": rests, "awaits": awaits})


@workflow("under-way-many")
async def many(ctx: Context, _given: None) -> None:
    async def fails(inner: Context, number: int) -> None:
        await inner.step("refuse", refuse, max_retries=10**30, retry_backoff_base=600 + number, retry_backoff_max=9999)

    await ctx.map("each", range(RETRYING_TOLD_MAX + 2), fails)


@workflow("under-way-gives-up")
async def gives_up(ctx: Context, _given: None) -> None:
    async def pays(inner: Context) -> None:
        await inner.step("refuse", refuse, max_retries=3, retry_backoff_base=600)

    async def stops(inner: Context) -> None:
        await inner.queue.next("stopped", "stop")

    await ctx.race("race", {"pays": pays, "stops": stops})
    await ctx.queue.next("ever", "never")


def entry_at(told: dict[str, Any], location: str) -> dict[str, Any]:
    [found] = [entry for entry in told["entries"] if entry["location"] == location]
    return dict(found)


def test_a_workflow_that_waits_for_everything_tells_of_each(driven: Driven) -> None:
    driven.start("under-way-everything", "w", "w-child")
    driven.drain()
    known = driven.http.get("/workflows/w").value
    assert known["state"] == "sleeping"
    assert (known["waiting_for"], known["waiting_for_workflows"]) == (["stop"], ["w-child"])
    [step] = known["retrying"]
    assert (step["location"], step["attempts"], step["attempts_max"]) == ("all/pays/charge", 1, 5)
    assert step["error"] == "ConnectionError: the card service refuses"
    # The base of the backoff, doubled with each attempt, and bounded.
    waits = datetime.fromisoformat(step["retry_at"]) - datetime.fromisoformat(known["created_at"])
    assert timedelta(seconds=1200) <= waits < timedelta(seconds=1230)
    assert known["wake_at"] == step["retry_at"]
    told = driven.http.get("/workflows/w/history").value
    assert told["workflow"] == known
    failed = entry_at(told, "all/pays/charge")
    assert (failed["id"], failed["attempts"], failed["attempts_max"]) == (step["entry_id"], 1, 5)
    assert (failed["status"], failed["retry_at"]) == ("failed", step["retry_at"])
    nap = entry_at(told, "all/rests/nap")
    assert (nap["status"], nap["retry_at"], nap["attempts_max"]) == ("pending", None, None)
    assert driven.http.get("/workflows/w-child").value["waiting_for"] == []


def test_a_step_that_is_tried_no_more_is_told_of_no_more(driven: Driven) -> None:
    driven.start("under-way-gives-up", "w", None)
    driven.drain()
    assert [step["location"] for step in driven.http.get("/workflows/w").value["retrying"]] == ["race/pays/refuse"]
    driven.http.post("/workflows/w/messages/stop")
    driven.drain()
    known = driven.http.get("/workflows/w").value
    assert (known["state"], known["retrying"], known["waiting_for"]) == ("sleeping", [], ["never"])
    driven.http.post("/workflows/w/cancel")
    assert driven.http.get("/workflows/w").value["retrying"] == []


def test_of_many_steps_the_first_are_told_with_the_beginnings_of_their_errors(driven: Driven) -> None:
    driven.start("under-way-many", "m", None)
    driven.drain()
    told = driven.http.get("/workflows/m/history").value
    steps = told["workflow"]["retrying"]
    assert [step["location"] for step in steps] == [f"each/{number}/refuse" for number in range(RETRYING_TOLD_MAX)]
    assert {len(step["error"]) for step in steps} == {RETRYING_ERROR_CHARACTERS}
    assert {step["attempts_max"] for step in steps} == {2**32 - 1}
    rest = entry_at(told, f"each/{RETRYING_TOLD_MAX}/refuse")
    assert (rest["attempts"], rest["attempts_max"], len(rest["error"])) == (1, None, len("OSError: ") + 1000)
