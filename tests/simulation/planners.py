"""Who has schedules: they create them, tell them what to do, look at them, and delete them in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.http import HttpCall, RefusedError
from tests.simulation.ledger import Sent

if TYPE_CHECKING:
    from tests.simulation.actors import Callers
    from tests.simulation.timetables import Asked, Order
    from tests.simulation.world import World


class Planners:
    """Everybody who has a schedule."""

    def __init__(self, world: World, callers: Callers) -> None:
        self._world = world
        self._callers = callers

    def begin(self) -> None:
        """Let everybody begin."""
        for asked in self._world.plans:
            self._callers.spawn(self._keep(asked))

    async def _keep(self, asked: Asked) -> None:
        world, callers = self._world, self._callers
        await callers.pause(callers.spread_s("schedules") / 5)
        try:
            await self._create(asked)
        except RefusedError:
            # The single time has passed, or the schedule has come to its end, before an answer was heard.
            if asked.life not in world.lives:
                return
        callers.watch(self._look_after(asked))
        began_s = world.timeline.now_s
        for number, order in enumerate(asked.orders):
            await callers.pause(order.after_s)
            try:
                await self._tell(asked, order, number)
            except RefusedError:
                break
        await callers.pause(max(0.0, began_s + asked.lifetime_s - world.timeline.now_s))
        await self._delete(asked)

    async def _create(self, asked: Asked) -> None:
        call = HttpCall(method="POST", path="/schedules", value=asked.body)
        await self._callers.ask(call, refusals=(400, 409))
        if self._world.plan.chance("creates again") < 0.2:
            await self._callers.ask(call, refusals=(409,))

    async def _tell(self, asked: Asked, order: Order, number: int) -> None:
        message_id = f"{asked.name} order {number}"
        sent = Sent(life=asked.life, sender="planner", name=order.command, index=number)
        self._world.ledger.sent[asked.life, message_id] = sent
        more = {} if order.value is None else {"value": order.value}
        call = HttpCall(
            method="POST",
            path=f"/schedules/{asked.name}/{order.command}",
            headers={"idempotency-key": message_id},
            life=asked.life,
            **more,
        )
        for _ in range(2 if self._world.plan.chance("tells again") < 0.15 else 1):
            await self._callers.ask(call, refusals=(404, 409))
        sent.is_acknowledged = True
        self._world.acknowledged(asked.life, message_id)
        if self._world.plan.chance("looks") < 0.3:
            look = HttpCall(method="GET", path=f"/schedules/{asked.name}", life=asked.life)
            await self._callers.ask(look, refusals=(404,))

    async def _delete(self, asked: Asked) -> None:
        self._world.ledger.purged.add(asked.life)
        call = HttpCall(method="DELETE", path=f"/schedules/{asked.name}", life=asked.life)
        await self._callers.ask(call, refusals=(404,))

    async def _look_after(self, asked: Asked) -> None:
        """Recover a schedule that counts as stalled."""
        view = self._world.lives[asked.life]
        while not view.is_purged and view.state not in ("completed", "cancelled"):
            await self._callers.pause(30)
            if view.state == "failed":
                self._world.told.add(asked.life)
                call = HttpCall(method="POST", path=f"/workflows/schedule%3A{asked.name}/recover", life=asked.life)
                await self._callers.ask(call, refusals=(404,))
