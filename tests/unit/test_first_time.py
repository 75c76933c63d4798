"""Operations that have not run: a rollback begins none of them, nor does a run whose process always dies at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from engine import Break, Context, WorkflowState, run_workflow
from engine.errors import StalledError
from engine.keys import HISTORY_PREFIX
from engine.limits import DEATHS_MAX
from engine.testing import MemoryWorld

if TYPE_CHECKING:
    from engine.entry import Message


async def nothing(*_: Any) -> None:
    """A step, a branch or a handler that does nothing."""


async def over(_ctx: Context, _state: Any) -> Break[None]:
    return Break(None)


async def ended(_ctx: Context, _given: Any) -> str:
    return "ended"


async def listening(ctx: Context, _given: Any) -> None:
    await ctx.queue.next("wait", "never")


WITHOUT_STEPS: dict[str, Any] = {
    "sleep": lambda ctx: ctx.sleep("new", 60),
    "no sleep": lambda ctx: ctx.sleep("new", 0),
    "loop": lambda ctx: ctx.loop("new", over),
    "join": lambda ctx: ctx.join("new", {"a": nothing}),
    "race": lambda ctx: ctx.race("new", {"a": nothing}),
    "message": lambda ctx: ctx.queue.next("new", "left"),
    "message with a timeout": lambda ctx: ctx.queue.next_batch("new", "never", timeout=60),
    "send": lambda ctx: ctx.queue.send("new"),
    "signal": lambda ctx: ctx.signal("new", to="listening"),
    "dispatch": lambda ctx: ctx.dispatch("ended"),
    "dispatch under an id": lambda ctx: ctx.dispatch("ended", id="child"),
    "dispatch of one of a kind": lambda ctx: ctx.dispatch("ended", unique=True),
    "output": lambda ctx: ctx.output("ended"),
    "publication": lambda ctx: ctx.publish("new"),
    "checkpoint": lambda ctx: ctx.rollback_checkpoint("new"),
}
OPERATIONS: dict[str, Any] = {
    **WITHOUT_STEPS,
    "step": lambda ctx: ctx.step("new", nothing),
    "step to undo": lambda ctx: ctx.step("new", nothing, rollback=nothing),
    "try_step": lambda ctx: ctx.try_step("new", nothing),
    "try_block": lambda ctx: ctx.try_block("new", lambda inner: inner.step("a", nothing)),
}
AS_THE_FIRST: dict[str, Any] = {
    **WITHOUT_STEPS,
    # A rollback does pass it, since what stands behind it may have run.
    "removal": lambda ctx: ctx.removed("new", "step"),
}


class Place:
    """A workflow that undoes a step, with code that may end with one more operation; and two others beside it."""

    def __init__(self) -> None:
        self.world = MemoryWorld()
        self.undone: list[str] = []
        for fn in (ended, listening):
            self.world.start(fn.__name__, fn)
        self.world.start("w", self.code())
        self.world.send("w", "left")

    def code(self, last: Any = nothing) -> Any:
        async def undo(_ctx: Any, output: str) -> None:
            self.undone.append(output)

        async def act() -> str:
            return "a"

        async def workflow(ctx: Context, _given: Any = None) -> None:
            await ctx.rollback_checkpoint("cp")
            await ctx.step("a", act, rollback=undo)
            await last(ctx)
            await ctx.sleep("s", 3600)

        return workflow

    def stored(self) -> tuple[Any, ...]:
        """What operations have left: in the history, in inboxes, with others, for those who listen."""
        drivers = self.world.drivers
        history = {key for key, _ in drivers["w"].dump() if bytes.fromhex(key).startswith(HISTORY_PREFIX)}
        inboxes = {
            name: [self._known(one) for one in drivers[name].message_driver.messages.values()] for name in drivers
        }
        return history, inboxes, list(drivers), self.world.published

    def _known(self, message: Message) -> tuple[str, str]:
        return message.id, message.name

    def begin(self, code: Any) -> Any:
        return run_workflow("w", code, None, self.world.drivers["w"], clock=self.world.clock)


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_rollback_begins_no_operation(operation: str) -> None:
    place = Place()
    for workflow_id in ("ended", "listening", "w"):
        await place.world.run(workflow_id)
    code = place.code(OPERATIONS[operation])
    await place.begin(code).cancel(rollback=True)
    before = place.stored()
    result = await place.begin(code).result
    assert (place.undone, result.state) == (["a"], WorkflowState.CANCELLED)
    assert place.stored() == before


async def test_a_rollback_answers_no_message() -> None:
    async def asked(ctx: Context) -> Any:
        return await ctx.queue.next("question", "left", completable=True)

    async def answered(ctx: Context) -> None:
        await (await asked(ctx)).complete("answer")

    place = Place()
    await place.begin(place.code(asked)).result
    await place.begin(place.code(answered)).cancel(rollback=True)
    before = place.stored()
    await place.begin(place.code(answered)).result
    assert place.undone == ["a"]
    assert place.stored() == before
    assert place.world.drivers["w"].message_driver.replies == {}


@pytest.mark.parametrize("operation", AS_THE_FIRST)
async def test_where_the_process_always_dies_only_a_step_goes_on(operation: str) -> None:
    place = Place()
    for workflow_id in ("ended", "listening", "w"):
        await place.world.run(workflow_id)
    place.world.drivers["w"].deaths = DEATHS_MAX
    before = place.stored()
    with pytest.raises(StalledError):
        await place.begin(place.code(AS_THE_FIRST[operation])).result
    assert place.world.state("w") is WorkflowState.FAILED
    assert place.stored() == before
