"""Who calls from outside: starters, and senders who try until they are acknowledged."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from adapters.events import MESSAGE
from engine.errors import DriverError
from handlers.resume import ResumeFunction
from tests.simulation.author import WHO
from tests.simulation.expectation import body_of
from tests.simulation.http import HttpCall, HttpClient, RefusedError, address
from tests.simulation.ledger import Sent
from tests.simulation.operators import Operators
from tests.simulation.planners import Planners
from tests.simulation.timeline import ProcessLoop
from tests.simulation.wire import ProcessDiedError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from tests.simulation.http import HttpAnswer
    from tests.simulation.sandbox import Sandbox
    from tests.simulation.world import Story, World

EVENT_SHARE = 0.2
KEY_IN_QUERY_SHARE = 0.2
WAIT_SHARE = 0.05
OK = (200, 201, 202)


class Callers:
    """Everybody outside, on a loop of their own that nothing befalls."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.loop = ProcessLoop(world.timeline, "callers")
        self.http = HttpClient(world, self.loop)
        self.operators = Operators(world, self)
        self.planners = Planners(world, self)
        self.at_work: Counter[str] = Counter()

    @property
    def are_done(self) -> bool:
        """Whether nobody waits for an answer."""
        return not self.at_work.total()

    def begin(self) -> None:
        """Let everybody begin."""
        for story in self._world.stories.values():
            self.spawn(self.tell_story(story), story.workflow_id)
        if self._world.stories:
            self.operators.begin()
        self.planners.begin()

    def spawn(self, work: Coroutine[Any, Any, None], workflow_id: str = "") -> None:
        """Let one more caller begin, who has to do with this workflow; the world is not over until it is done."""
        self.at_work[workflow_id] += 1
        self.loop.start(work).add_done_callback(lambda task: self._done(task, workflow_id))

    async def do(self, work: Coroutine[Any, Any, None], workflow_id: str) -> None:
        """As ``spawn``, and wait until it is done."""
        self.at_work[workflow_id] += 1
        try:
            await work
        except RefusedError:
            pass
        finally:
            self.at_work[workflow_id] -= 1

    def watch(self, work: Coroutine[Any, Any, None]) -> None:
        """Let somebody look on who has nobody's answer to wait for: the world may be over without him."""
        self.loop.start(work).add_done_callback(self._judge)

    def _done(self, task: asyncio.Task[None], workflow_id: str) -> None:
        self.at_work[workflow_id] -= 1
        self._judge(task)

    def _judge(self, task: asyncio.Task[None]) -> None:
        error = task.exception()
        if error is not None and not isinstance(error, RefusedError):
            self._world.bug(f"a caller was told {error!r}")

    async def pause(self, delay_s: float) -> None:
        """Wait for so many seconds."""
        future = self.loop.create_future()
        self.loop.call_later(delay_s, future.set_result, None)
        await future

    def spread_s(self, what: str) -> float:
        """Mostly soon, sometimes much later."""
        return float(10 ** (self._world.plan.chance(what) * 4 - 2))

    async def ask(self, call: HttpCall, *, refusals: tuple[int, ...] = ()) -> HttpAnswer:
        """Send a call, again and again until it is answered.

        Raises:
            RefusedError: it was, with one of the statuses that are ``refusals``.
        """
        while True:
            try:
                answer = await self.http.once(call)
            except ProcessDiedError:
                self._world.note(f"a caller tries again: {call.method} {call.path}")
            else:
                if answer.status in OK:
                    return answer
                if answer.status in refusals:
                    raise RefusedError(answer.value)
                if answer.status != 503:
                    raise AssertionError(f"{call.method} {call.path}: {answer.status} {answer.value}")
            await self.pause(0.5 + 4 * self._world.plan.chance("again"))

    # --- a workflow's life, as callers see it -----------------------------------------------------------------------

    async def tell_story(self, story: Story) -> None:
        """Start a workflow, and let its senders and operators begin."""
        world = self._world
        await self.pause(self.spread_s("start") / 10)
        delay_ms = round(world.plan.chance("start at") * 40_000) if world.plan.chance("starts later") < 0.2 else 0
        await self._start(story, world.now_ms + delay_ms if delay_ms else None)
        life = world.views[story.workflow_id].life
        for sender, names in enumerate(_shares(list(story.program.messages), 3)):
            if names:
                self.spawn(self._send_all(story, life, f"s{sender}", names), story.workflow_id)
        for name in story.program.noise:
            self.spawn(self._make_noise(story, life, name), story.workflow_id)
        if story.expected.is_long:
            self.watch(self._repeat_much_later(story, life))
        self.operators.see_to(story, life)

    async def _start(self, story: Story, start_at: int | None) -> None:
        value: dict[str, Any] = {"input": "given", "tags": {WHO: story.workflow_id, "of": "all"}}
        headers = {}
        if self._world.plan.chance("start by key") < 0.3:
            headers["idempotency-key"] = story.workflow_id
        else:
            value["id"] = story.workflow_id
        if start_at is not None:
            value["start_at"] = start_at
        call = HttpCall(method="POST", path=address(story.workflow_id), headers=headers, value=value)
        await self.ask(call)
        if self._world.plan.chance("starts again") < 0.15:
            await self.ask(call)

    async def _send_all(self, story: Story, life: str, sender: str, names: list[str]) -> None:
        world = self._world
        for name in names:
            for index in range(story.program.messages[name]):
                await self.pause(self.spread_s("send") / 2)
                sent = Sent(life=life, sender=sender, name=name, index=index)
                # The same id in every life of the workflow: what one has counted does not count in the next.
                message_id = f"{story.workflow_id} {name} {index}"
                world.ledger.sent[life, message_id] = sent
                as_event = world.plan.chance("as event") < EVENT_SHARE
                await self.send(story, sent, message_id, as_event=as_event)
                if world.plan.chance("sends again") < 0.1:
                    await self.send(story, sent, message_id, as_event=as_event)

    async def send(self, story: Story, sent: Sent, message_id: str, *, as_event: bool = False) -> None:
        """Send a message until it is acknowledged; raises ``RefusedError`` where nobody takes it any more."""
        world = self._world
        body = body_of(sent.name, sent.index)
        if as_event:
            await self._post(story.workflow_id, sent.name, body, message_id)
        else:
            await self.ask(self._message(story, sent, body, message_id), refusals=(404, 409))
        # An event to a workflow that has ended is dropped without an error.
        if not (as_event and world.lives[sent.life].has_ended):
            sent.is_acknowledged = True
            world.acknowledged(sent.life, message_id)

    def _message(self, story: Story, sent: Sent, body: Any, message_id: str) -> HttpCall:
        plan = self._world.plan
        is_in_query = plan.chance("key in query") < KEY_IN_QUERY_SHARE
        query = {"id": message_id} if is_in_query else {}
        if plan.chance("waits") < WAIT_SHARE:
            query["wait"] = f"{plan.chance('how long') * 20:.2f}"
        return HttpCall(
            method="POST",
            path=address(story.workflow_id, "messages", sent.name),
            query=query,
            headers={} if is_in_query else {"idempotency-key": message_id},
            value=body,
            life=sent.life,
        )

    async def _post(self, workflow_id: str, name: str, body: Any, message_id: str) -> None:
        detail = {"workflow_id": workflow_id, "name": name, "body": body, "id": message_id}
        event = {"detail-type": MESSAGE, "id": message_id, "detail": detail}

        async def work(sandbox: Sandbox) -> None:
            await ResumeFunction(sandbox.wiring)._handle(event)

        while True:
            try:
                await self._world.functions.call("resume", self.loop, work)
            except (DriverError, ProcessDiedError):
                await self.pause(0.5 + 4 * self._world.plan.chance("again"))
            else:
                return

    async def _make_noise(self, story: Story, life: str, name: str) -> None:
        """Messages without an id of their own, sent once each: acknowledged they count, else they may or may not."""
        world = self._world
        for index in range(3):
            await self.pause(self.spread_s("noise"))
            path = address(story.workflow_id, "messages", name)
            try:
                answer = await self.http.once(HttpCall(method="POST", path=path, value=index, life=life))
            except ProcessDiedError:
                continue
            if answer.status in (404, 409):
                return
            if answer.status in OK:
                message_id = answer.value["message_id"]
                world.ledger.sent[life, message_id] = Sent(
                    life=life, sender=f"noise {index}", name=name, index=index, is_acknowledged=True
                )
                world.acknowledged(life, message_id)

    async def _repeat_much_later(self, story: Story, life: str) -> None:
        """A message that nobody waits for, sent again within a day or after it: an id counts once a day."""
        message_id = f"{story.workflow_id} daily"
        sent = Sent(life=life, sender="daily", name="daily", index=0)
        self._world.ledger.sent[life, message_id] = sent
        for _ in range(3):
            if self._world.lives[life].is_purged:
                return
            await self.do(self.send(story, sent, message_id), story.workflow_id)
            await self.pause(DAILY_PAUSES_S[int(self._world.plan.chance("daily") * len(DAILY_PAUSES_S))])


DAILY_PAUSES_S = (4_000.0, 50_000.0, 85_000.0, 87_500.0, 92_000.0)
"""Between two sendings of one message: some within the day for which its id is remembered, some beyond it."""


def _shares(names: list[str], count: int) -> list[list[str]]:
    return [names[start::count] for start in range(count)]
