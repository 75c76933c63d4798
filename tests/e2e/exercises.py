"""For each action that the template allows a function: something that the function cannot do without it.

An exercise prepares what it needs and gives the act: a call, which must then be refused somewhere. What AWS itself asks
for on a function's behalf, and no call of ours does, is in ``ASKED_BY_LAMBDA`` and ``ASKED_BY_AWS``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infra.api_client import segment
from tests.e2e.probe import until
from tests.tidy.template import read_template

if TYPE_CHECKING:
    from collections.abc import Callable

    from infra.local_stack import LocalStack
    from tests.e2e.wire import Call, Wire

Grant = tuple[str, str, str]
"""What a role may do: the role, the statement's Sid, the action."""

FAR = "2100-01-01T00:00:00Z"


def grants(template: str) -> set[Grant]:
    """Every action of every role of the template, but for what a parameter alone adds."""
    found = set()
    for role, resource in read_template(template)["Resources"].items():
        if resource["Type"] == "AWS::IAM::Role":
            [policy] = resource["Properties"]["Policies"]
            always = [each for each in policy["PolicyDocument"]["Statement"] if isinstance(each, dict)]
            for statement in always:
                actions = statement["Action"]
                for action in [actions] if isinstance(actions, str) else actions:
                    found.add((role, statement.get("Sid", ""), action))
    return found


@dataclass(frozen=True, slots=True)
class Hand:
    """What exercises have in hand: the stack, its wire, and an id that nobody else uses."""

    stack: LocalStack
    wire: Wire
    id: str

    def call(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        """The answer, whatever it is."""
        sent = None if body is None else json.dumps(body).encode()
        return self.stack.api.request(method, path, body=sent, query=query or None).json()

    def on(self, method: str, path: str = "", body: Any = None) -> Any:
        return self.call(method, f"/workflows/{segment(self.id)}{path}", body)

    def start(self, workflow_type: str, **more: Any) -> Any:
        return self.call("POST", f"/workflows/{workflow_type}", {"id": self.id, "input": {}, **more})

    def started(self, workflow_type: str, **more: Any) -> None:
        assert self.start(workflow_type, **more)["created"]

    def waits(self, state: str = "sleeping") -> None:
        """Until a worker has let go of it in this state."""

        def look() -> bool:
            told = self.on("GET")
            return (told["state"], told["is_running"]) == (state, False)

        until(look, f"{self.id} is {state}")

    def entry(self, location: str) -> str:
        [found] = [entry["id"] for entry in self.on("GET", "/history")["entries"] if entry["location"] == location]
        return str(found)

    def is_wake(self, call: Call) -> bool:
        return call.operation == "SendMessage" and self.id in call.body

    def schedules(self) -> int:
        group = self.stack.outputs["ScheduleGroupName"]
        return len(self.stack.client("scheduler").list_schedules(GroupName=group)["Schedules"])

    def invoke(self, output: str, event: Any) -> None:
        function = self.stack.outputs[output]
        self.stack.client("lambda").invoke(FunctionName=function, Payload=json.dumps(event).encode())

    def event(self, to: dict[str, Any]) -> dict[str, Any]:
        """An event that is a message."""
        detail = {**to, "name": "word", "body": "x"}
        return {"id": f"event-{self.id}", "detail-type": "torpor.message", "detail": detail}


# --- the API --------------------------------------------------------------------------------------------------------


def look(hand: Hand) -> Callable[[], Any]:
    return lambda: hand.on("GET")


def list_all(hand: Hand) -> Callable[[], Any]:
    hand.started("patient")
    return lambda: hand.call("GET", "/workflows", type="patient")


def read_history(hand: Hand) -> Callable[[], Any]:
    hand.started("patient")
    return lambda: hand.on("GET", "/history")


def start(hand: Hand) -> Callable[[], Any]:
    return lambda: hand.start("patient")


def wake(hand: Hand) -> Callable[[], Any]:
    hand.started("patient")
    return lambda: hand.on("POST", "/wake")


def purge(hand: Hand) -> Callable[[], Any]:
    hand.started("patient", start_at=FAR)
    hand.on("POST", "/cancel")
    return lambda: hand.on("DELETE")


def start_far(hand: Hand) -> Callable[[], Any]:
    return lambda: hand.start("patient", start_at=FAR)


def start_far_again(hand: Hand) -> Callable[[], Any]:
    hand.started("patient", start_at=FAR)
    return lambda: hand.start("patient", start_at=FAR)


def cancel_far(hand: Hand) -> Callable[[], Any]:
    hand.started("patient", start_at=FAR)
    return lambda: hand.on("POST", "/cancel")


def replay_twice(hand: Hand) -> Callable[[], Any]:
    """The first replay leaves a log that is worth folding; no worker may do it before the second."""
    hand.started("bulky")
    hand.waits("completed")
    with hand.wire.cut(hand.is_wake):
        hand.on("POST", "/replay", {"entry_id": hand.entry("big")})
    return lambda: hand.on("POST", "/replay", {"entry_id": hand.entry("small")})


# --- the worker -----------------------------------------------------------------------------------------------------


def receive(hand: Hand) -> Callable[[], Any]:
    hand.started("listening")
    hand.waits()
    return lambda: hand.on("POST", "/messages/word", "x")


def wait_again(hand: Hand) -> Callable[[], Any]:
    """It goes to sleep on an inbox that has given tickets and has nothing new."""
    receive(hand)()
    until(lambda: "note-1" in str(hand.on("GET", "/history")), "it has its message")
    hand.waits()
    return lambda: hand.on("POST", "/wake")


def signal(hand: Hand) -> Callable[[], Any]:
    """To one that has never run: only HEAD says that it is there."""
    target = Hand(hand.stack, hand.wire, f"{hand.id}-target")
    target.started("patient", start_at=FAR)
    return lambda: hand.start("signalling", input={"to": target.id})


def signal_by_type(hand: Hand) -> Callable[[], Any]:
    hand.call("POST", "/workflows/patient", {"id": f"{hand.id}-target", "input": {}, "start_at": FAR})
    return lambda: hand.start("signalling", input={"type": "patient"})


def replay(hand: Hand) -> Callable[[], Any]:
    hand.started("bulky")
    hand.waits("completed")
    return lambda: hand.on("POST", "/replay", {})


def sleep(hand: Hand) -> Callable[[], Any]:
    return lambda: hand.start("sleeping", input={"sleep_s": 2})


def wait_far(hand: Hand) -> Callable[[], Any]:
    return lambda: hand.start("patient")


def wait_far_again(hand: Hand) -> Callable[[], Any]:
    hand.started("patient")
    hand.waits()
    return lambda: hand.on("POST", "/messages/word", "more")


def end_far_wait(hand: Hand) -> Callable[[], Any]:
    hand.started("patient")
    hand.waits()
    return lambda: hand.on("POST", "/messages/word", "end")


def publish(hand: Hand) -> Callable[[], Any]:
    hand.started("telling")
    return lambda: hand.on("POST", "/messages/word", "end")


# --- the others -----------------------------------------------------------------------------------------------------


def hear(hand: Hand) -> Callable[[], Any]:
    hand.started("patient", start_at=FAR)
    return lambda: hand.invoke("ResumeFunction", hand.event({"workflow_id": hand.id}))


def hear_by_tags(hand: Hand) -> Callable[[], Any]:
    return lambda: hand.invoke("ResumeFunction", hand.event({"type": "patient", "tags": {"shop": hand.id}}))


def sweep(hand: Hand) -> Callable[[], Any]:
    """Until somebody is overdue."""
    with hand.wire.cut(hand.is_wake):
        hand.started("patient")

    def look() -> bool:
        hand.invoke("SweeperFunction", {})
        return bool(hand.wire.refusals)

    return lambda: until(look, "a sweep is refused something")


EXERCISES: dict[Grant, Callable[[Hand], Callable[[], Any]]] = {
    ("ApiRole", "Store", "dynamodb:BatchGetItem"): list_all,
    ("ApiRole", "Store", "dynamodb:BatchWriteItem"): replay_twice,
    ("ApiRole", "Store", "dynamodb:ConditionCheckItem"): purge,
    ("ApiRole", "Store", "dynamodb:DeleteItem"): purge,
    ("ApiRole", "Store", "dynamodb:GetItem"): look,
    ("ApiRole", "Store", "dynamodb:PutItem"): start,
    ("ApiRole", "Store", "dynamodb:Query"): read_history,
    ("ApiRole", "Store", "dynamodb:UpdateItem"): wake,
    ("ApiRole", "List", "dynamodb:Query"): list_all,
    ("ApiRole", "Wakes", "sqs:SendMessage"): wake,
    ("ApiRole", "Alarms", "scheduler:CreateSchedule"): start_far,
    ("ApiRole", "Alarms", "scheduler:UpdateSchedule"): start_far_again,
    ("ApiRole", "Alarms", "scheduler:DeleteSchedule"): cancel_far,
    ("WorkerRole", "Store", "dynamodb:BatchWriteItem"): replay,
    ("WorkerRole", "Store", "dynamodb:ConditionCheckItem"): wait_again,
    ("WorkerRole", "Store", "dynamodb:DeleteItem"): receive,
    ("WorkerRole", "Store", "dynamodb:GetItem"): signal,
    ("WorkerRole", "Store", "dynamodb:PutItem"): receive,
    ("WorkerRole", "Store", "dynamodb:Query"): wait_far,
    ("WorkerRole", "Store", "dynamodb:UpdateItem"): wait_far,
    ("WorkerRole", "List", "dynamodb:Query"): signal_by_type,
    ("WorkerRole", "Wakes", "sqs:SendMessage"): sleep,
    ("WorkerRole", "Alarms", "scheduler:CreateSchedule"): wait_far,
    ("WorkerRole", "Alarms", "scheduler:UpdateSchedule"): wait_far_again,
    ("WorkerRole", "Alarms", "scheduler:DeleteSchedule"): end_far_wait,
    ("WorkerRole", "Publications", "events:PutEvents"): publish,
    ("ResumeRole", "Store", "dynamodb:GetItem"): hear,
    ("ResumeRole", "Store", "dynamodb:PutItem"): hear,
    ("ResumeRole", "Store", "dynamodb:Query"): hear_by_tags,
    ("ResumeRole", "Store", "dynamodb:UpdateItem"): hear,
    ("ResumeRole", "Wakes", "sqs:SendMessage"): hear,
    ("SweeperRole", "Due", "dynamodb:Query"): sweep,
    ("SweeperRole", "Wakes", "sqs:SendMessage"): sweep,
}

ASKED_BY_LAMBDA: set[Grant] = {
    ("WorkerRole", "Wakes", "sqs:DeleteMessage"),
    ("WorkerRole", "Wakes", "sqs:GetQueueAttributes"),
    ("WorkerRole", "Wakes", "sqs:ReceiveMessage"),
} | {
    (role, "Logs", f"logs:{action}")
    for role in ("ApiRole", "WorkerRole", "ResumeRole", "SweeperRole")
    for action in ("CreateLogStream", "PutLogEvents")
}
"""What Lambda does in a function's name: read its queue, write its log. AWS's own managed policy for functions that are
fed by a queue has the same actions, and the local AWS knows that policy."""

ASKED_BY_AWS: dict[Grant, str] = {
    ("ApiRole", "AlarmsActAsTheSchedulerRole", "iam:PassRole"): "a schedule's Target names a RoleArn",
    ("WorkerRole", "AlarmsActAsTheSchedulerRole", "iam:PassRole"): "a schedule's Target names a RoleArn",
    (
        "ResumeRole",
        "Failures",
        "sqs:SendMessage",
    ): "Lambda sends events that failed three times to OnFailure as the role",
    ("SchedulerRole", "", "sqs:SendMessage"): "EventBridge Scheduler sends a schedule's Input to the queue as the role",
}
"""What services of AWS ask of a role when they act for it, each with when. The local AWS does not ask."""
