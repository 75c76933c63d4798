"""Operators: who cancel, wake, recover, replay, purge and list workflows, as the command line would have the API do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.http import API_TIMEOUT_S, HttpCall, address
from tests.simulation.laws import Listing
from tests.simulation.ledger import Sent
from tests.simulation.wire import ProcessDiedError

if TYPE_CHECKING:
    from tests.simulation.actors import Callers
    from tests.simulation.view import View
    from tests.simulation.world import Story, World

CANCEL_SHARE = 0.1
WAKE_SHARE = 0.3
RECOVER_SHARE = 0.4
REPLAY_SHARE = 0.15
PURGE_SHARE = 0.25
AGAIN_SHARE = 0.7
DOCUMENT_SHARE = 0.7
LISTINGS_MAX = 2
HURRIED_S = 10.1
"""Seconds of a purge that comes back after its first deletions: it leaves ten of them to a worker."""

STALLED = "StalledError"


class Operators:
    """Everybody who looks after workflows."""

    def __init__(self, world: World, callers: Callers) -> None:
        self._world = world
        self._callers = callers

    def begin(self) -> None:
        """Let those begin who look at all workflows at once."""
        if self._world.plan.chance("lists") < 0.35:
            self._callers.spawn(self._list_now_and_then())

    def see_to(self, story: Story, life: str) -> None:
        """Let those begin who have to do with one life of a workflow."""
        callers, chance = self._callers, self._world.plan.chance
        if chance("cancels") < CANCEL_SHARE:
            callers.spawn(self._cancel(story, life), story.workflow_id)
        if chance("wakes") < WAKE_SHARE:
            callers.spawn(self._wake(story, life), story.workflow_id)
        if chance("asks") < 0.2:
            callers.spawn(self._ask_for_output(story, life), story.workflow_id)
        callers.watch(self._look_after(story, self._world.lives[life]))
        fate = chance("fate")
        if fate < REPLAY_SHARE:
            callers.watch(self._replay_some_time(story, self._world.lives[life]))
        elif fate < REPLAY_SHARE + PURGE_SHARE:
            callers.watch(self._purge_some_time(story, self._world.lives[life]))

    def _call(self, method: str, life: str, *parts: str, **more: Any) -> HttpCall:
        workflow_id = self._world.lives[life].workflow_id
        return HttpCall(method=method, path=address(workflow_id, *parts), life=life, **more)

    # --- reaching in ------------------------------------------------------------------------------------------------

    async def _cancel(self, story: Story, life: str) -> None:
        world = self._world
        await self._callers.pause(self._callers.spread_s("cancel"))
        rollback = world.plan.chance("cancel how") < 0.5
        query = {"rollback": "true"} if rollback else {}
        world.ledger.cancelled.add(life)
        await self._callers.ask(self._call("POST", life, "cancel", query=query), refusals=(404, 409))
        if rollback:
            world.ledger.undoing.add(life)
        world.note(f"{story.workflow_id} was cancelled")

    async def _wake(self, _story: Story, life: str) -> None:
        for _ in range(3):
            await self._callers.pause(self._callers.spread_s("wake"))
            await self._callers.ask(self._call("POST", life, "wake"), refusals=(404, 409))

    async def _ask_for_output(self, _story: Story, life: str) -> None:
        await self._callers.pause(self._callers.spread_s("ask"))
        query = {"wait": f"{self._world.plan.chance('asks how long') * 10:.2f}"}
        await self._callers.ask(self._call("GET", life, "output", query=query), refusals=(404,))
        query = {"document": "true"} if self._world.plan.chance("asks for the document") < DOCUMENT_SHARE else {}
        await self._callers.ask(self._call("GET", life, query=query), refusals=(404,))

    async def _look_after(self, story: Story, view: View) -> None:
        """Recover what counts as stalled: somebody has mended what killed it; sometimes, once, what has failed too."""
        may_recover = self._world.plan.chance("recovers") < RECOVER_SHARE
        while True:
            await self._pause(100)
            if view.is_purged:
                return
            error = view.stored_error() or {} if view.state == "failed" else {}
            is_stalled = error.get("name") == STALLED
            if is_stalled or (error and may_recover):
                may_recover = may_recover and is_stalled
                await self._callers.do(self._recover(view.life), story.workflow_id)
            elif view.has_ended:
                return

    async def _pause(self, delay_s: float) -> None:
        """Wait for so long, and for longer in a world that lasts for days."""
        await self._callers.pause(max(delay_s, self._world.timeline.now_s / 50))

    async def _recover(self, life: str) -> None:
        self._world.told.add(life)
        await self._callers.ask(self._call("POST", life, "recover"), refusals=(404,))

    # --- replaying --------------------------------------------------------------------------------------------------

    async def _replay_some_time(self, story: Story, view: View) -> None:
        """Run it again from a step once it has ended as it should, and send again what it then asks for again."""
        while not (view.has_ended and self._callers.at_work[story.workflow_id] == 0):
            await self._pause(10 + self._callers.spread_s("replay"))
        if view.state == "cancelled" or (view.stored_error() or {}).get("name") == STALLED:
            return
        await self._callers.do(self._replay(view.life), story.workflow_id)
        self._callers.watch(self._look_after(story, view))
        number = 0
        while not view.has_ended:
            await self._callers.pause(5)
            for name, body in self._lacking(view):
                number += 1
                sent = Sent(life=view.life, sender="refill", name=name, index=number)
                await self._callers.do(self._refill(view.life, sent, body), story.workflow_id)

    async def _replay(self, life: str) -> None:
        self._world.told.add(life)
        history = await self._callers.ask(self._call("GET", life, "history"), refusals=(404,))
        steps = [entry["id"] for entry in history.value["entries"] if entry["kind"] == "step"]
        place = int(self._world.plan.chance("replay from") * (len(steps) + 1))
        value = {"entry_id": steps[place]} if place < len(steps) else {}
        await self._callers.ask(self._call("POST", life, "replay", value=value), refusals=(404, 409))

    def _lacking(self, view: View) -> list[tuple[str, Any]]:
        """Messages that a replayed workflow waits for, and that nobody will send it again."""
        head = view.head
        if head is None or "owner" in head or "waiting" not in head:
            return []
        there = {item["name"]["S"] for item in view.messages().values()}
        asked = [name["S"] for name in head["waiting"]["L"]]
        wanted = self._world.ledger.wanted.get(view.life, {})
        return [(name, wanted[name]) for name in asked if wanted.get(name) is not None and name not in there]

    async def _refill(self, life: str, sent: Sent, body: Any) -> None:
        message_id = f"{life} refill {sent.index}"
        self._world.ledger.sent[life, message_id] = sent
        call = self._call("POST", life, "messages", sent.name, value=body, headers={"idempotency-key": message_id})
        await self._callers.ask(call, refusals=(404, 409))
        sent.is_acknowledged = True
        self._world.acknowledged(life, message_id)

    # --- purging ----------------------------------------------------------------------------------------------------

    async def _purge_some_time(self, story: Story, view: View) -> None:
        """Delete it once it has ended as it should, and perhaps begin anew when nothing is left of it."""
        callers, chance = self._callers, self._world.plan.chance
        if chance("purges too soon") < 0.3:
            await callers.do(self._purge(view), story.workflow_id)
        while not view.is_purged:
            await self._pause(callers.spread_s("purge"))
            is_stalled = (view.stored_error() or {}).get("name") == STALLED
            if view.has_ended and not is_stalled:
                await callers.do(self._purge(view), story.workflow_id)
        if view.number or chance("lives again") > AGAIN_SHARE:
            return
        while not self._is_clear_of(view):
            await callers.pause(15)
        callers.spawn(callers.tell_story(story), story.workflow_id)

    async def _purge(self, view: View) -> None:
        chance = self._world.plan.chance
        while True:
            timeout_s = HURRIED_S if chance("hurried") < 0.4 else API_TIMEOUT_S
            call = self._call("DELETE", view.life, timeout_s=timeout_s)
            self._world.ledger.purged.add(view.life)
            answer = await self._callers.ask(call, refusals=(404, 409))
            # The rest is a worker's, or this operator's too, or both's.
            if answer.value["is_gone"] or chance("leaves it") < 0.5:
                return
            await self._callers.pause(20 * chance("purges on"))

    def _is_clear_of(self, view: View) -> bool:
        """Whether nothing can come any more that belongs to a life that is gone."""
        world = self._world
        is_quiet = world.wire.quiet_us < world.timeline.now_us and not view.is_in_somebodys_hands()
        return view.is_gone and is_quiet and not view.items and self._callers.at_work[view.workflow_id] == 0

    # --- looking ----------------------------------------------------------------------------------------------------

    async def _list_now_and_then(self) -> None:
        callers, chance = self._callers, self._world.plan.chance
        for _ in range(1 + int(chance("listings") * LISTINGS_MAX)):
            await callers.pause(callers.spread_s("list") * 2)
            query = {"limit": str(1 + int(chance("limit") * 7))}
            if chance("of a type") < 0.3:
                query["type"] = list(self._world.stories)[int(chance("which type") * len(self._world.stories))]
            if chance("of a state") < 0.4:
                query["state"] = ("completed", "failed", "cancelled", "sleeping")[int(chance("which state") * 4)]
            await self._list(query)

    async def _list(self, query: dict[str, str]) -> None:
        """Page through a listing; given up where a page does not come."""
        began_us, found, more = self._world.timeline.now_us, [], query
        while True:
            try:
                answer = await self._callers.http.once(HttpCall(method="GET", path="/workflows", query=more))
            except ProcessDiedError:
                return
            if answer.status == 503:
                return
            found += answer.value["workflows"]
            if answer.value["cursor"] is None:
                break
            more = {**query, "cursor": answer.value["cursor"]}
        self._world.listed(Listing(query=query, found=found, began_us=began_us))
