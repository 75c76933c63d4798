"""EventBridge in memory: what reaches the bus, whether or not whoever put it there has the answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.simulation.wire import answer_error

if TYPE_CHECKING:
    from tests.simulation.wire import Request
    from tests.simulation.world import World

NAME = "bus"
ENTRIES_MAX = 10
REFUSED = 0.1
"""The share of entries that the service refuses while things go wrong."""


class Bus:
    """The stack's event bus."""

    name = "events"

    def __init__(self, world: World) -> None:
        self._world = world

    def execute(self, request: Request) -> dict[str, Any]:
        """``put_events``."""
        world, entries = self._world, request.arguments["Entries"]
        if not 1 <= len(entries) <= ENTRIES_MAX or any(entry["EventBusName"] != NAME for entry in entries):
            raise answer_error("ValidationException", request.operation)
        answers: list[dict[str, Any]] = []
        for entry in entries:
            if not world.is_calm and world.plan.chance("bus refuses") < REFUSED:
                answers.append({"ErrorCode": "InternalFailure", "ErrorMessage": "try again"})
                continue
            world.heard(json.loads(entry["Detail"]))
            answers.append({"EventId": str(len(answers))})
        return {"FailedEntryCount": sum("ErrorCode" in answer for answer in answers), "Entries": answers}

    def refusal(self, _kind: str, request: Request) -> Exception:
        """The service's answer where it is throttled."""
        return answer_error("ThrottlingException", request.operation)
