"""What a wake has loaded is gone with it: a full inbox is not kept until the garbage collector comes by."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

from adapters.dynamodb.driver import DynamoDriver
from engine import Context, workflow

if TYPE_CHECKING:
    from tests.integration.driven import Driven


@workflow("lets-go")
async def lets_go(ctx: Context, _input: Any) -> None:
    await ctx.queue.next("wait", names=["wanted"])


def test_a_wake_leaves_no_driver_behind(driven: Driven) -> None:
    driven.start("lets-go", "w")
    driven.drain()
    gc.collect()
    gc.disable()
    try:
        for number in range(2):
            assert driven.http.post("/workflows/w/messages/other", number).status == 202
            driven.drain()
        assert driven.state("w") == "sleeping"
        assert [one for one in gc.get_objects() if type(one) is DynamoDriver] == []
    finally:
        gc.enable()
