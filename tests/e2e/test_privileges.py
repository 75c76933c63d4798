"""The template's policies, enforced: each function may do all that its work takes, and nothing beyond."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from infra.local_stack import FUNCTIONS
from infra.ministack import wait
from tests.xray_daemon import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infra.local_stack import LocalStack
    from tests.e2e.conftest import Guarded

ORDER = {
    "customer": "Ada",
    "currency": "EUR",
    "items": [{"name": "lamp", "quantity": 1, "price_cents": 4900}],
    "payment": "prompt",
}

IDS = ("ray_id", "request_id")
ENDED_WITHIN_S = 120.0
POLL_S = 0.5


@pytest.fixture(scope="module")
def stack(guarded: Guarded) -> LocalStack:
    return guarded.stack


def call(stack: LocalStack, method: str, path: str, body: Any = None, **headers: str) -> Any:
    sent = None if body is None else json.dumps(body).encode()
    reply = stack.api.request(method, path, body=sent, headers=headers)
    assert reply.is_success, (method, path, reply.status, reply.body)
    return reply.json()


def ending(stack: LocalStack, workflow_id: str) -> Any:
    for _ in range(int(ENDED_WITHIN_S / POLL_S)):
        told = call(stack, "GET", f"/workflows/{workflow_id}/output")
        if told["state"] in {"completed", "failed", "cancelled"}:
            return told
        wait(POLL_S)
    raise AssertionError(f"{workflow_id} has not ended: {told}")


def test_orders_run_to_their_ends_under_the_templates_policies(stack: LocalStack) -> None:
    for workflow_id in ("by-http", "by-event", "refused", "given-up"):
        payment = "refused" if workflow_id == "refused" else "prompt"
        call(stack, "POST", "/workflows/order", {"id": workflow_id, "input": {**ORDER, "payment": payment}})
    parcel = {"parcel": "parcel-1"}
    call(stack, "POST", "/workflows/by-http/messages/shipped", parcel, **{"Idempotency-Key": "once"})
    detail = json.dumps({"workflow_id": "by-event", "name": "shipped", "body": parcel})
    event = {"Source": "torpor", "DetailType": "torpor.message", "Detail": detail}
    assert stack.client("events").put_events(Entries=[event])["FailedEntryCount"] == 0
    call(stack, "POST", "/workflows/given-up/cancel")
    assert ending(stack, "given-up")["state"] == "cancelled"
    assert ending(stack, "by-http")["output"]["parcel"] == "parcel-1"
    assert ending(stack, "by-event")["output"]["parcel"] == "parcel-1"
    assert ending(stack, "refused")["state"] == "failed"
    assert len(call(stack, "GET", "/workflows?type=order")["workflows"]) == 4
    assert call(stack, "GET", "/workflows/by-http/history")["entries"]
    assert call(stack, "GET", "/workflows/by-http/messages")["cursor"] is None
    call(stack, "POST", "/workflows/refused/recover")
    assert ending(stack, "refused")["state"] == "failed"
    # The rest goes a minute later: the last test of tests/e2e/test_privileges_each.py looks.
    assert not call(stack, "DELETE", "/workflows/given-up")["is_gone"]
    call(stack, "POST", "/workflows/by-http/replay", {})
    call(stack, "POST", "/workflows/by-http/wake")


def test_a_worker_may_publish_and_the_bus_may_send(stack: LocalStack) -> None:
    bus = stack.outputs["BusName"]
    call(stack, "POST", "/workflows/telling", {"id": "telling", "input": {}, "tags": {"shop": "one"}})
    detail = json.dumps({"type": "telling", "tags": {"shop": "one"}, "name": "word", "body": "end"})
    event = {"EventBusName": bus, "Source": "shop", "DetailType": "torpor.message", "Detail": detail}
    assert stack.client("events").put_events(Entries=[event])["FailedEntryCount"] == 0
    assert ending(stack, "telling")["output"] == 1
    assert [one["body"] for one in call(stack, "GET", "/messages/word")["messages"]] == [{"word": "end"}]
    assert not [line for line in stack.logs("worker") if "publications lost" in line]


def test_a_family_runs_to_its_end(stack: LocalStack) -> None:
    for workflow_id in ("mother", "father"):
        call(stack, "POST", "/workflows/parent", {"id": workflow_id, "input": {}})
    for _ in range(int(ENDED_WITHIN_S / POLL_S)):
        found = call(stack, "GET", "/workflows?type=child&tag=of=one")["workflows"]
        shared = call(stack, "GET", "/workflows?type=child&tag=of=all")["workflows"]
        if (len(found), len(shared)) == (2, 1):
            break
        wait(POLL_S)
    for _ in range(2):
        # The second goes to the other: the first has ended by then, or takes no more than one.
        sent = call(stack, "POST", "/signals/word", {"type": "child", "tags": {"of": "one"}, "body": "x"})
        assert ending(stack, sent["workflow_id"])["output"] == "x"
    call(stack, "POST", "/signals/word", {"type": "child", "tags": {"of": "all"}, "body": "y"})
    assert [ending(stack, workflow_id)["output"] for workflow_id in ("mother", "father")] == [["x", "y"]] * 2


def test_the_sweeper_may_sweep(stack: LocalStack) -> None:
    answer = stack.client("lambda").invoke(FunctionName=stack.outputs["SweeperFunction"], Payload=b"{}")
    assert "FunctionError" not in answer, answer["Payload"].read()


def test_nothing_was_refused(guarded: Guarded) -> None:
    assert guarded.wire.refusals == []
    for function in FUNCTIONS:
        lines = guarded.stack.logs(function)
        assert not [line for line in lines if "AccessDenied" in line or "not authorized" in line], function


def test_nobody_else_is_let_in(stack: LocalStack) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", stack.ministack.port, timeout=120)
    connection.request("GET", "/workflows", headers={"Host": stack.api_host})
    assert connection.getresponse().status == http.client.FORBIDDEN
    connection.close()


def test_a_call_and_the_turn_that_it_leads_to_are_traced(stack: LocalStack) -> None:
    headers = {"X-Ray-Id": "checkout:17"}
    with Daemon.listening() as daemon, daemon_of(stack, daemon.address):
        started = call(stack, "POST", "/workflows/order", {"id": "traced", "input": ORDER}, **headers)
        # Others may have their turns meanwhile.
        ours = (document for _ in range(100) if is_about(document := daemon.told(), "traced"))
        # Each process tells when it is done, and the worker's may be the first to be.
        turn, begun = sorted(itertools.islice(ours, 2), key=lambda document: document["name"] != "turn")
    assert (begun["name"], turn["name"]) == ("POST /workflows/:id_or_type", "turn")
    about = {"workflow_id": "traced", "workflow_type": "order", **{name: started[name] for name in IDS}}
    assert about["ray_id"] == "checkout:17"
    assert begun["annotations"] == about
    assert turn["annotations"] == {**about, "outcome": "waiting"}
    call(stack, "POST", "/workflows/traced/cancel")


def is_about(document: dict[str, Any], workflow_id: str) -> bool:
    return bool(document["annotations"].get("workflow_id") == workflow_id)


@contextlib.contextmanager
def daemon_of(stack: LocalStack, address: str) -> Iterator[None]:
    """Have the functions find the daemon of X-Ray at ``address``, as Lambda itself would tell them."""
    functions = stack.client("lambda")
    names = [stack.outputs[output] for output in ("ApiFunction", "WorkerFunction")]
    before = {name: functions.get_function_configuration(FunctionName=name)["Environment"] for name in names}
    for name, environment in before.items():
        variables = {**environment["Variables"], "AWS_XRAY_DAEMON_ADDRESS": address}
        functions.update_function_configuration(FunctionName=name, Environment={"Variables": variables})
    try:
        yield
    finally:
        for name, environment in before.items():
            functions.update_function_configuration(FunctionName=name, Environment=environment)
