"""Who calls from outside: starters, senders who try until they are acknowledged, operators who cancel and recover."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.errors import DriverError, FencedError, WorkflowEndedError
from engine.values import encode
from handlers.resume import MESSAGE, resume
from tests.simulation.expectation import body_of
from tests.simulation.functions import ProcessDiedError
from tests.simulation.ledger import Sent
from tests.simulation.timeline import ProcessLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from adapters.dynamodb.store import Accepted
    from handlers.bootstrap import Wiring
    from tests.simulation.world import Story, World

CANCEL_SHARE = 0.1
WAKE_SHARE = 0.3
RECOVER_SHARE = 0.4
RETRIED = (DriverError, ProcessDiedError, FencedError)


class Callers:
    """Everybody outside, on a loop of their own that nothing befalls."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.loop = ProcessLoop(world.timeline, "callers")
        self._at_work = 0

    @property
    def are_done(self) -> bool:
        """Whether nobody waits for an answer."""
        return self._at_work == 0

    def begin(self) -> None:
        """Let everybody begin."""
        for story in self._world.stories.values():
            self.spawn(self._tell_story(story))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Let one more caller begin."""
        self._at_work += 1
        self.loop.start(self._working(work))

    async def _working(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except WorkflowEndedError:
            pass
        except Exception as error:  # noqa: BLE001 - whatever a caller is told that it should not be told
            self._world.bug(f"a caller was told {error!r}")
        finally:
            self._at_work -= 1

    async def pause(self, delay_s: float) -> None:
        """Wait for so many seconds."""
        future = self.loop.create_future()
        self.loop.call_later(delay_s, future.set_result, None)
        await future

    def _spread_s(self, what: str) -> float:
        """Mostly soon, sometimes much later."""
        return float(10 ** (self._world.plan.chance(what) * 4 - 2))

    async def until_answered(self, work: Callable[[Wiring], Coroutine[Any, Any, Any]]) -> Any:
        """Have the API do ``work``, again and again until it answers."""
        while True:
            try:
                return await self._world.functions.call_api(self.loop, work)
            except RETRIED as error:
                self._world.note(f"a caller tries again: {type(error).__name__}")
            await self.pause(0.5 + 4 * self._world.plan.chance("again"))

    # --- a workflow's life, as callers see it -----------------------------------------------------------------------

    async def _tell_story(self, story: Story) -> None:
        world = self._world
        await self.pause(self._spread_s("start") / 10)
        delay_ms = round(world.plan.chance("start at") * 40_000) if world.plan.chance("starts later") < 0.2 else 0
        start_at = world.now_ms + delay_ms if delay_ms else None

        async def start(wiring: Wiring) -> None:
            store = await wiring.store()
            await store.start(
                workflow_id=story.workflow_id, type=story.workflow_id, input=encode("given"), start_at=start_at
            )
            await hint(wiring, story.workflow_id)

        await self.until_answered(start)
        world.ledger.started.add(story.workflow_id)
        for sender, names in enumerate(_shares(list(story.program.messages), 3)):
            if names:
                self.spawn(self._send_all(story, f"s{sender}", names))
        for name in story.program.noise:
            self.spawn(self._make_noise(story, name))
        if world.plan.chance("cancels") < CANCEL_SHARE:
            self.spawn(self._cancel(story))
        if world.plan.chance("wakes") < WAKE_SHARE:
            self.spawn(self._wake(story))
        # It has nobody's answer to wait for.
        self.loop.start(self._look_after(story))

    async def _send_all(self, story: Story, sender: str, names: list[str]) -> None:
        world = self._world
        for name in names:
            for index in range(story.program.messages[name]):
                await self.pause(self._spread_s("send") / 2)
                sent = Sent(workflow_id=story.workflow_id, sender=sender, name=name, index=index)
                message_id = f"{story.workflow_id} {name} {index}"
                world.ledger.sent[message_id] = sent
                as_event = world.plan.chance("as event") < 0.2
                await self._send(sent, message_id, as_event=as_event)
                if world.plan.chance("sends again") < 0.1:
                    await self._send(sent, message_id, as_event=as_event)

    async def _send(self, sent: Sent, message_id: str, *, as_event: bool) -> None:
        body = body_of(sent.name, sent.index)

        async def send(wiring: Wiring) -> None:
            store = await wiring.store()
            await store.send(
                sent.workflow_id,
                name=sent.name,
                body=encode(body),
                message_id=message_id,
                sent_at=wiring.clock.now(),
            )
            await hint(wiring, sent.workflow_id)

        async def post(wiring: Wiring) -> None:
            detail = {"workflow_id": sent.workflow_id, "name": sent.name, "body": body, "id": message_id}
            event = {"detail-type": MESSAGE, "id": message_id, "detail": detail}
            await resume(await wiring.store(), await wiring.queue(), wiring.clock, event)

        await self.until_answered(post if as_event else send)
        view = self._world.views[sent.workflow_id]
        # An event to a workflow that has ended is dropped without an error.
        if not (as_event and view.has_ended):
            sent.is_acknowledged = True
            self._world.acknowledged(sent.workflow_id, message_id)

    async def _make_noise(self, story: Story, name: str) -> None:
        """Messages without an id of their own, sent once each: acknowledged they count, else they may or may not."""
        world = self._world
        for index in range(3):
            await self.pause(self._spread_s("noise"))

            async def send(wiring: Wiring, index: int = index) -> Accepted:
                store = await wiring.store()
                accepted = await store.send(story.workflow_id, name=name, body=encode(index))
                await hint(wiring, story.workflow_id)
                return accepted

            try:
                accepted = await world.functions.call_api(self.loop, send)
            except RETRIED:
                continue
            world.ledger.sent[accepted.message_id] = Sent(
                workflow_id=story.workflow_id, sender=f"noise {index}", name=name, index=index, is_acknowledged=True
            )
            world.acknowledged(story.workflow_id, accepted.message_id)

    # --- operators --------------------------------------------------------------------------------------------------

    async def _cancel(self, story: Story) -> None:
        world = self._world
        await self.pause(self._spread_s("cancel"))
        rollback = world.plan.chance("cancel how") < 0.5

        async def cancel(wiring: Wiring) -> None:
            store = await wiring.store()
            world.ledger.cancelled.add(story.workflow_id)
            await store.cancel(story.workflow_id, rollback=rollback)
            await hint(wiring, story.workflow_id)

        await self.until_answered(cancel)
        if rollback:
            world.ledger.undoing.add(story.workflow_id)

    async def _wake(self, story: Story) -> None:
        async def wake(wiring: Wiring) -> None:
            store = await wiring.store()
            await store.wake(story.workflow_id)
            await hint(wiring, story.workflow_id)

        for _ in range(3):
            await self.pause(self._spread_s("wake"))
            await self.until_answered(wake)

    async def _look_after(self, story: Story) -> None:
        """Recover what counts as stalled: somebody has mended what killed it; sometimes, once, what has failed too."""
        world = self._world
        may_recover = world.plan.chance("recovers") < RECOVER_SHARE
        while True:
            await self.pause(100)
            view = world.views[story.workflow_id]
            error = view.stored_error() or {} if view.state == "failed" else {}
            is_stalled = error.get("name") == "StalledError"
            if is_stalled or (error and may_recover):
                may_recover = may_recover and is_stalled
                await self._recover(story)
            elif view.has_ended:
                return

    async def _recover(self, story: Story) -> None:
        self._world.told.add(story.workflow_id)

        async def recover(wiring: Wiring) -> None:
            store = await wiring.store()
            await store.recover(story.workflow_id)
            await hint(wiring, story.workflow_id)

        await self.until_answered(recover)


async def hint(wiring: Wiring, workflow_id: str) -> None:
    """Send a wake, as the API does."""
    queue = await wiring.queue()
    try:
        await queue.wake(workflow_id, 0)
    except DriverError:
        # The fact is stored and due.
        return


def _shares(names: list[str], count: int) -> list[list[str]]:
    return [names[start::count] for start in range(count)]
