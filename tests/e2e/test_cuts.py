"""Deaths at the worst moments, AWS services that are away, wakes by the hundred: nothing is lost, nothing is doubled.

Each test cuts or holds only the calls that it means, and kills only processes of its own stack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from adapters.sqs import Wake, wake_body
from tests.e2e.conftest import FRAIL
from tests.e2e.probe import sweep, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from infra.local_stack import LocalStack
    from tests.e2e.conftest import Make
    from tests.e2e.probe import Probe
    from tests.e2e.wire import Call, Held, Wire

SLEEP_S = 2
"""Seconds that take an alarm; one second is at the edge of what is waited for in memory."""

FENCED = "#epoch = :epoch AND #seq = :seq"
"""What a commit says and a start does not."""


def of(probe: Probe, operation: str, also: str = "") -> Callable[[Call], bool]:
    """The calls of one kind that are about one workflow."""
    named = f'"{probe.id}'
    return lambda call: call.operation == operation and (named in call.body.replace("\\", "")) and also in call.body


def drop(held: Held, probe: Probe) -> None:
    """Let the wire break once who made the call has been killed."""
    until(lambda: held.is_here, f"the call of {probe.id} is on the wire, and its process killed")
    held.drop()


@pytest.fixture(scope="module")
def dead(frail: Make, wire: Wire, frail_stack: LocalStack) -> dict[str, Probe]:
    """One after another dies at its moment; then all are found together, after a lease and some patience."""
    moments = {
        "before its commit was stored": ("TransactWriteItems", FENCED, False),
        "after its commit was stored": ("TransactWriteItems", FENCED, True),
        "after its yield": ("SendMessage", "alarm_at", False),
    }
    found: dict[str, Probe] = {}
    for moment, (operation, also, is_done) in moments.items():
        dying = found[moment] = frail("resting", f"dies {moment}")
        held = wire.hold(of(dying, operation, also), is_done=is_done, at_once=dying.kill_worker)
        dying.started(sleep_s=SLEEP_S)
        drop(held, dying)
    asleep = found["after its yield"].known()
    assert (asleep["state"], asleep["is_running"], asleep["deaths"]) == ("sleeping", False, 0)
    until(lambda: sweep(frail_stack) and all(map(has_ended, found.values())), "all end")
    return found


@pytest.mark.parametrize(
    ("moment", "counts"),
    [
        ("before its commit was stored", {"before": 2, "after": 1}),
        ("after its commit was stored", {"before": 1, "after": 1}),
        ("after its yield", {"before": 1, "after": 1}),
    ],
)
def test_a_worker_dies(dead: dict[str, Probe], moment: str, counts: dict[str, int]) -> None:
    # What was not stored is done again, and what was is not.
    assert dead[moment].output() is None
    assert dead[moment].counts() == counts


def has_ended(probe: Probe) -> bool:
    return probe.known()["ended_at"] is not None


def test_sqs_takes_no_message_for_a_while(frail: Make, frail_stack: LocalStack, wire: Wire) -> None:
    told = frail("listening", "told without SQS").started()
    told.wait_for("word")
    alarmed = frail("resting", "alarmed without SQS")
    with wire.cut(of(alarmed, "SendMessage", "alarm_at")):
        alarmed.started(sleep_s=SLEEP_S)
        # No sweep before the queue is away: one would wake it too.
        alarmed.told("alarm not armed")
        with wire.cut(lambda call: call.service == "sqs"):
            # Nobody outside notices: what is stored is acknowledged.
            started = frail("resting", "started without SQS").started(sleep_s=SLEEP_S)
            assert told.send("word", "end", key="once").status == 202
            assert told.send("word", "end", key="once").json()["duplicate"]
            # Long enough that all are overdue, and that a sweep has tried and failed.
            swept = until(lambda: overdue(frail_stack, 3), "all are overdue")
            assert swept["woken"] == 0
            assert (alarmed.counts(), started.counts(), told.counts()) == ({"before": 1}, {}, {})
    everybody = [alarmed, started, told]
    until(lambda: sweep(frail_stack) and all(map(has_ended, everybody)), "all end")
    assert {probe.known()["state"] for probe in everybody} == {"completed"}
    assert {probe.known()["deaths"] for probe in everybody} == {0}
    assert alarmed.counts() == started.counts() == {"before": 1, "after": 1}
    assert (told.output(), told.counts()) == (["end"], {"note-1": 1})


def overdue(stack: LocalStack, count: int) -> dict[str, int] | None:
    told = sweep(stack)
    return told if told["overdue"] >= count else None


def test_scheduler_is_away(frail: Make, frail_stack: LocalStack, wire: Wire) -> None:
    schedules, group = frail_stack.client("scheduler"), frail_stack.outputs["ScheduleGroupName"]

    def count() -> int:
        return len(schedules.list_schedules(GroupName=group)["Schedules"])

    far, given_up = frail("sleeping", "far-without-scheduler"), frail("sleeping", "given-up-without-scheduler")
    with wire.cut(lambda call: call.service == "scheduler"):
        for probe in (far, given_up):
            probe.started(sleep_s=7200)
            probe.told("alarm not armed")
        told = far.known()
        assert (told["state"], told["is_running"], told["deaths"]) == ("sleeping", False, 0)
        assert given_up.call("POST", "/cancel").json()["state"] == "cancelled"
        assert count() == 0
    # It is in the index of what is due all the same, and whoever finds it there arms it.
    key = {"pk": {"S": far.id}, "sk": {"S": "HEAD"}}
    due_at = int(next(item for item in far.items() if item["sk"]["S"] == "HEAD")["due_at"]["N"])
    assert due_at == int(far.told("run ended")[0]["next_wake"])
    frail_stack.client("dynamodb").update_item(
        TableName=frail_stack.table_name,
        Key=key,
        UpdateExpression="SET due_at = :past",
        ExpressionAttributeValues={":past": {"N": "1"}},
    )
    until(lambda: sweep(frail_stack) and count() == 1, "it is armed")
    assert far.known()["wake_at"] == told["wake_at"]
    assert far.call("POST", "/cancel").status == 200
    until(lambda: count() == 0, "its schedule is cleared")


def flood(stack: LocalStack, probes: Iterable[Probe], copies: int) -> None:
    """So many wakes of each, all mixed."""
    bodies = [wake_body(Wake(workflow_id=probe.id)) for _ in range(copies) for probe in probes]
    for first in range(0, len(bodies), 10):
        batch = [{"Id": str(n), "MessageBody": body} for n, body in enumerate(bodies[first : first + 10])]
        stack.client("sqs").send_message_batch(QueueUrl=stack.queue_url, Entries=batch)


def test_a_queue_full_of_duplicates(frail: Make, frail_stack: LocalStack, wire: Wire) -> None:
    # Here no invocation may be over before a step is that lasts for seconds, and some more where the machine stands.
    wire.use(frail_stack, Timeout=int(FRAIL["Timeout"]))
    busy = [frail("lingering", f"flooded-{number}").started(linger_s=2) for number in range(3)]
    waiting = frail("listening", "flooded-and-waiting").started()
    waiting.wait_for("word")
    everybody = [*busy, waiting]
    flood(frail_stack, everybody, copies=75)
    assert waiting.send("word", "end").status == 202
    flood(frail_stack, everybody, copies=25)
    assert [probe.output() for probe in busy] == [1, 1, 1]
    assert waiting.output() == ["end"]
    until(lambda: queued(frail_stack) == 0, "the queue is empty")
    assert [probe.counts() for probe in busy] == [{"before": 1, "during": 1, "after": 1}] * 3
    assert waiting.counts() == {"note-1": 1}
    runs = [1, 1, 1, 2]
    assert [len(probe.told("run ended", least)) for probe, least in zip(everybody, runs, strict=True)] == runs


def queued(stack: LocalStack) -> int:
    """Wakes that nobody has taken; those that killed workers had in hand are not among them."""
    name = "ApproximateNumberOfMessages"
    found: dict[str, Any] = stack.client("sqs").get_queue_attributes(QueueUrl=stack.queue_url, AttributeNames=[name])
    return int(found["Attributes"][name])
