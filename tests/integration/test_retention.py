"""What is kept of an ended workflow, through every function: the API tells, the sweeper finds, the worker forgets."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from adapters.dynamodb.model.limits import DUE_SHARDS
from engine import ActivityContext, Context, activity, workflow
from handlers.sweeper import sweep
from tests.integration.driven import Driven, told
from tests.integration.test_sweeper import AheadClock

if TYPE_CHECKING:
    import pytest

MINUTE_MS = 60_000


@activity
async def remember_word(ctx: ActivityContext, word: str) -> str:
    ctx.state["word"] = word
    return word


@workflow("kept-outcome", prune="history", retention=0)
async def kept_outcome(ctx: Context, word: str) -> str:
    return await ctx.activity(remember_word, word)


@workflow("kept-nothing", prune="all", retention=0)
async def kept_nothing(ctx: Context, word: str) -> str:
    return await ctx.activity(remember_word, word)


@workflow("kept-sleeper", prune="history", retention=timedelta(days=1))
async def kept_sleeper(ctx: Context, _given: Any) -> None:
    await ctx.sleep("long", timedelta(days=30))


def swept(driven: Driven) -> list[dict[str, int]]:
    """Sweep as often as it takes to have looked at everything once."""
    wiring = driven.wiring

    async def run() -> list[dict[str, int]]:
        store, queue = await wiring.store(), await wiring.queue()
        return [await sweep(store, queue, AheadClock(wiring, number * MINUTE_MS)) for number in range(DUE_SHARDS)]

    return wiring.process.run(run())


def test_the_history_goes_and_the_outcome_stays(driven: Driven, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    driven.start("kept-outcome", "order-1", "tea")
    driven.drain()
    known = driven.http.get("/workflows/order-1").value
    assert (known["state"], known["prune_at"], known["pruned_at"]) == ("completed", known["ended_at"], None)
    history = driven.http.get("/workflows/order-1/history").value
    assert (history["input"], history["pruned_at"]) == ("tea", None)
    assert swept(driven) == [{"overdue": 0, "woken": 0}] * DUE_SHARDS
    assert [(one["outlived"], one["woken"]) for one in told(caplog, "outlived")] == [(1, 1)]
    driven.drain()
    assert told(caplog, "history forgotten")[0]["is_done"] is True
    known = driven.http.get("/workflows/order-1", query={"document": "true"}).value
    assert known["prune_at"] is None
    assert known["document"] == {"word": "tea"}
    history = driven.http.get("/workflows/order-1/history").value
    assert (history["entries"], history["document"]) == ([], {"word": "tea"})
    assert history["input"] == "tea"
    assert history["pruned_at"] == known["pruned_at"]
    assert driven.output("order-1")["output"] == "tea"
    caplog.clear()
    swept(driven)
    assert told(caplog, "outlived") == []


def test_all_of_it_goes(driven: Driven) -> None:
    driven.start("kept-nothing", "order-1", "tea")
    driven.drain()
    swept(driven)
    driven.drain()
    assert driven.http.get("/workflows/order-1").status == 404
    # What is left of it waits for senders that may be under way; the wake for the rest is in the queue.
    assert {item["sk"]["S"] for item in driven.cloud.items() if item["pk"]["S"] == "order-1"} == {"HEAD", "INBOX"}
    assert driven.delayed() == 1


def test_what_the_api_cancels_is_kept_as_its_type_says(driven: Driven) -> None:
    driven.start("kept-sleeper", "order-1")
    driven.drain()
    cancelled = driven.http.post("/workflows/order-1/cancel").value
    assert cancelled["state"] == "cancelled"
    assert cancelled["prune_at"] is not None
    assert cancelled["prune_at"][:10] > cancelled["ended_at"][:10]
