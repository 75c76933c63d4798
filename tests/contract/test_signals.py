"""Workflows that signal each other over DynamoDB: one commit for both, and a failure that is recorded for nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from adapters.dynamodb.model.limits import MESSAGE_BYTES_MAX
from engine import Context, WorkflowState, run_workflow
from engine.commit import Commit
from engine.errors import (
    CallerError,
    InvalidIdError,
    UnstorableValueError,
    ValueTooLargeError,
    WorkflowEndedError,
    WorkflowNotFoundError,
)
from engine.origin import Origin

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contract.aws import Place

runs: list[str] = []


async def work(name: str) -> str:
    runs.append(name)
    return name


async def receiver(ctx: Context, _given: Any) -> list[int]:
    return [(await ctx.queue.next(f"wait-{number}", "news")).body for number in range(2)]


async def run(place: Place, workflow_id: str, fn: Callable[..., Any]) -> Any:
    driver = await place.claimed(workflow_id)
    return await run_workflow(workflow_id, fn, None, driver).result


async def stored(place: Place) -> list[Any]:
    return list((await place.client.scan(TableName=place.table))["Items"])


@pytest.fixture(autouse=True)
def forget() -> None:
    runs.clear()


async def test_signals_reach_their_workflow_in_the_commits_of_the_steps_before_them(place: Place) -> None:
    async def sender(ctx: Context, _given: Any) -> str:
        for number in (1, 2):
            await ctx.step(f"work-{number}", work, "work")
            await ctx.signal("news", number, to="there")
        return "sent"

    for workflow_id in ("here", "there"):
        await place.store.start(workflow_id=workflow_id, type="order", input=b"\xf6")
    assert (await run(place, "there", receiver)).state is WorkflowState.SLEEPING
    driver = await place.claimed("here")
    began = driver.head.seq
    assert (await run_workflow("here", sender, None, driver).result).output == "sent"
    # The second one goes with the end.
    assert driver.head.seq - began == 2
    assert driver.made_due == {"there"}
    assert "there" in await place.due()
    assert (await run(place, "there", receiver)).output == [1, 2]


@pytest.mark.parametrize("target", ["never", "ended"])
async def test_a_signal_to_nobody_fails_once_and_loses_nothing_beside_it(place: Place, target: str) -> None:
    said: list[str] = []

    async def sender(ctx: Context, _given: Any) -> str:
        await ctx.step("work", work, "work")
        delivered = await ctx.signal("news", 0, to=target, missing="ignore")
        try:
            await ctx.signal("news", 1, to=target)
        except (WorkflowNotFoundError, WorkflowEndedError) as error:
            said.append(f"{delivered} {type(error).__name__}")
        await ctx.queue.next("wait", "go")
        return "over"

    for workflow_id in ("here", "ended"):
        await place.store.start(workflow_id=workflow_id, type="order", input=b"\xf6")
    await (await place.claimed("ended")).commit(Commit(state=WorkflowState.COMPLETED))
    assert (await run(place, "here", sender)).state is WorkflowState.SLEEPING
    if target == "never":
        await place.store.start(workflow_id="never", type="order", input=b"\xf6")
    await place.store.send("here", name="go", body=b"\xf6", message_id="m")
    assert (await run(place, "here", sender)).output == "over"
    kind = "WorkflowNotFoundError" if target == "never" else "WorkflowEndedError"
    assert said == [f"False {kind}"] * 2
    assert runs == ["work"]


async def test_a_child_that_can_never_be_is_refused_where_it_is_dispatched_and_leaves_the_workflow_alive(
    place: Place,
) -> None:
    async def parent(ctx: Context, _given: Any) -> list[str]:
        said = []
        for tags in ({str(number): "" for number in range(17)}, {"long": "x" * 9000}, {"name\n": ""}):
            try:
                await ctx.dispatch("ship", tags=tags)
            except InvalidIdError as error:
                said.append(str(error))
        said.append(str(len(await ctx.dispatch("ship", tags={"fine": "yes"}))))
        return said

    await place.store.start(workflow_id="here", type="order", input=b"\xf6")
    driver = await place.claimed("here")
    began = driver.head.seq
    said = (await run_workflow("here", parent, None, driver).result).output or []
    assert [text.split(";")[0] for text in said[:2]] == [
        "a workflow has at most 16 tags",
        "all tags together have at most 8192 bytes",
    ]
    assert "control character" in said[2]
    assert said[3] == "36"
    # The start goes with the end, tags or not.
    assert driver.head.seq - began == 1
    assert len(await place.store.find("ship", {"fine": "yes"})) == 1


async def test_what_no_item_holds_is_refused_where_it_is_sent_and_leaves_the_workflow_alive(place: Place) -> None:
    large = "x" * 500_000

    async def sender(ctx: Context, _given: Any) -> list[str]:
        refused = []
        for send in (
            lambda: ctx.queue.send("note", large),
            lambda: ctx.signal("news", large, to="here"),
            lambda: ctx.publish("told", large),
        ):
            try:
                await send()
            except UnstorableValueError as error:
                refused.append(str(error).split(" has ")[0])
        kept = await ctx.step("kept", work, large)
        return [*refused, str(len(kept))]

    await place.store.start(workflow_id="here", type="order", input=b"\xf6")
    said = (await run(place, "here", sender)).output
    told = "the value of the message"
    assert said == [f"{told} 'note'", f"{told} 'news'", f"{told} 'told'", "500000"]


async def test_a_signal_sent_again_goes_to_nobody_who_has_other_tags_by_now(place: Place) -> None:
    sent: dict[str, Any] = {"name": "go", "body": b"\xf6", "message_id": "once"}
    await place.store.start(workflow_id="a", type="order", input=b"\x01", tags={"customer": "1"})
    assert (await place.store.signal("order", {"customer": "1"}, **sent)).workflow_id == "a"
    await place.store.cancel("a")
    place.clock.shift_ms += 3_600_000
    await place.store.purge("a")
    await place.store.start(workflow_id="a", type="ship", input=b"\x01")
    with pytest.raises(WorkflowNotFoundError):
        await place.store.signal("order", {"customer": "1"}, **sent)
    await place.store.start(workflow_id="b", type="order", input=b"\x01", tags={"customer": "1"})
    signalled = await place.store.signal("order", {"customer": "1"}, **sent)
    assert (signalled.workflow_id, signalled.accepted.duplicate) == ("b", False)
    assert not [name for name in await place.items("a") if name.startswith("MSG#")]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"message_id": ""}, InvalidIdError),
        ({"message_id": "i" * 1_024}, InvalidIdError),
        ({"name": "go\n"}, InvalidIdError),
        ({"origin": Origin(ray_id="one ray")}, InvalidIdError),
        ({"body": bytes(MESSAGE_BYTES_MAX + 1)}, ValueTooLargeError),
    ],
    ids=["no id", "long id", "name", "origin", "body"],
)
async def test_of_a_message_that_no_inbox_takes_nothing_is_remembered(
    place: Place, wrong: dict[str, Any], error: type[CallerError]
) -> None:
    await place.store.start(workflow_id="a", type="order", input=b"\x01", tags={"customer": "1"})
    before = await stored(place)
    with pytest.raises(error):
        await place.store.signal(
            "order", {"customer": "1"}, **{"name": "go", "body": b"\xf6", "message_id": "once", **wrong}
        )
    assert await stored(place) == before
