"""SQS and EventBridge Scheduler in memory: what they lose, repeat, delay and reorder, and the rules that they hold."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tests.simulation.wire import answer_error

if TYPE_CHECKING:
    from tests.simulation.wire import Request
    from tests.simulation.world import World

RECEIVES_MAX = 20
"""After so many receives a message goes to the dead-letter queue."""

_NAME = re.compile(r"[0-9a-zA-Z\-_.]{1,64}")


@dataclass(slots=True, kw_only=True)
class Record:
    """A message in the queue; ``is_visible``: nobody is at work on it, and its delay is over."""

    number: int
    body: str
    is_visible: bool = False
    is_gone: bool = False
    receives: int = 0


class Sqs:
    """The wake queue and its dead letters."""

    name = "sqs"

    def __init__(self, world: World) -> None:
        self._world = world
        self._count = 0
        self.records: dict[int, Record] = {}
        self.dead: list[Record] = []

    def execute(self, request: Request) -> dict[str, Any]:
        """``send_message``."""
        arguments = request.arguments
        delay_s = arguments["DelaySeconds"]
        if not 0 <= delay_s <= 900 or len(arguments["MessageBody"].encode()) > 1024 * 1024:
            raise answer_error("InvalidParameterValue", request.operation)
        self.put(arguments["MessageBody"], delay_s)
        return {"MessageId": "sent"}

    def refusal(self, _kind: str, request: Request) -> Exception:
        """The service's answer where it is throttled."""
        return answer_error("ThrottlingException", request.operation)

    def put(self, body: str, delay_s: float) -> None:
        """Take a message in, as well as this service does."""
        world, weather = self._world, self._world.weather
        if not world.is_calm:
            if world.plan.chance("sqs loss") < weather.sqs_loss:
                world.note(f"sqs loses {body}")
                return
            if world.plan.chance("sqs late") < weather.sqs_late:
                delay_s += world.plan.chance("sqs how late") ** 4 * 120
            if world.plan.chance("sqs twice") < weather.sqs_twice:
                self._add(body, delay_s + world.plan.chance("sqs how much later") ** 2 * 90)
        self._add(body, delay_s + 0.05 * world.plan.chance("sqs"))

    def _add(self, body: str, delay_s: float) -> None:
        self._count += 1
        record = Record(number=self._count, body=body)
        self.records[record.number] = record
        self._world.timeline.after(delay_s, self._show, record)

    def _show(self, record: Record) -> None:
        if record.is_gone:
            return
        if record.receives >= RECEIVES_MAX:
            self.delete(record)
            self.dead.append(record)
            return
        record.is_visible = True
        self._world.functions.pump()

    def receive(self, count: int) -> list[Record]:
        """At most ``count`` visible messages, in no order; hidden until deleted or given back."""
        visible = [record for record in self.records.values() if record.is_visible]
        visible.sort(key=lambda record: (self._world.plan.chance("sqs order"), record.number))
        taken = visible[:count]
        for record in taken:
            record.is_visible = False
            record.receives += 1
        return taken

    def give_back(self, record: Record, after_s: float) -> None:
        """A message whose handling failed becomes visible when its timeout is over."""
        self._world.timeline.after(after_s, self._show, record)

    def delete(self, record: Record) -> None:
        """Forget a message."""
        record.is_gone = True
        record.is_visible = False
        self.records.pop(record.number, None)


class Schedules:
    """The schedules of EventBridge Scheduler."""

    name = "scheduler"

    def __init__(self, world: World) -> None:
        self._world = world
        self._schedules: dict[str, int] = {}
        self._version = 0

    def execute(self, request: Request) -> dict[str, Any]:
        """``create_schedule``, ``update_schedule`` or ``delete_schedule``."""
        arguments, operation = request.arguments, request.operation
        name = arguments["Name"]
        if not _NAME.fullmatch(name):
            raise answer_error("ValidationException", operation)
        is_there = name in self._schedules
        if operation == "create_schedule" and is_there:
            raise answer_error("ConflictException", operation, status=409)
        if operation != "create_schedule" and not is_there:
            raise answer_error("ResourceNotFoundException", operation, status=404)
        if operation == "delete_schedule":
            del self._schedules[name]
            return {}
        self._set(name, arguments, operation)
        return {"ScheduleArn": name}

    def refusal(self, _kind: str, request: Request) -> Exception:
        """The service's answer where it is throttled."""
        return answer_error("ThrottlingException", request.operation, status=429)

    def _set(self, name: str, arguments: dict[str, Any], operation: str) -> None:
        world = self._world
        expression = arguments["ScheduleExpression"]
        match = re.fullmatch(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)", expression)
        if match is None or arguments["FlexibleTimeWindow"] != {"Mode": "OFF"}:
            raise answer_error("ValidationException", operation)
        at = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
        ahead_s = at.timestamp() - world.now_ms / 1000
        if ahead_s < -60:
            raise answer_error("ValidationException", operation)
        self._version += 1
        self._schedules[name] = self._version
        body = arguments["Target"]["Input"]
        if not world.is_calm and world.plan.chance("schedule never") < world.weather.schedule_never:
            world.note(f"scheduler will forget {body}")
            return
        late_s = max(0.0, ahead_s) + 60 * world.plan.chance("schedule late")
        world.timeline.after(late_s, self._fire, name, self._version, body)
        if not world.is_calm and world.plan.chance("schedule twice") < world.weather.schedule_twice:
            world.timeline.after(late_s + 30, self._again, self._version, body)

    def _fire(self, name: str, version: int, body: str) -> None:
        if self._schedules.get(name) != version:
            return
        # ActionAfterCompletion=DELETE.
        del self._schedules[name]
        self._world.queue.put(body, 0)

    def _again(self, _version: int, body: str) -> None:
        self._world.queue.put(body, 0)
