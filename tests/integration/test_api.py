"""The API function on recorded HTTP API events: what it answers, and that a refused call leaves the table as it was."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import cbor2
import pytest

from adapters.dynamodb.model.limits import ID_BYTES_MAX, MESSAGE_BYTES_MAX
from engine import Context, workflow
from engine.limits import VALUE_DEPTH_MAX
from handlers import bodies, openapi, problems
from handlers.routes import ROUTES
from tests.integration.http import Caller
from tests.integration.lambda_event import recorded

if TYPE_CHECKING:
    from handlers.bootstrap import Wiring
    from handlers.routes import Route
    from tests.integration.conftest import Cloud
    from tests.integration.http import HttpAnswer

FAR = "2030-01-01T00:00:00Z"


@workflow("api-order")
async def order(ctx: Context, _input: Any) -> Any:
    message = await ctx.queue.next("go", completable=True)
    await message.complete({"got": message.body})
    return message.body


@dataclass
class Parcel:
    weight: int


@workflow("api-parcel")
async def parcel(_ctx: Context, sent: Parcel) -> int:
    return sent.weight


@dataclass
class Bill:
    amount: Decimal
    due: datetime


@workflow("api-bill")
async def bill(_ctx: Context, sent: Bill) -> str:
    return f"{sent.amount} by {sent.due:%d.%m.}"


@pytest.fixture
def http(wiring: Wiring) -> Caller:
    return Caller(wiring)


def assert_problem(answer: HttpAnswer, kind: problems.Kind) -> None:
    assert answer.status == kind.status, answer.body
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    document = answer.value
    assert document["type"] == problems.TYPE_PREFIX + kind.name
    assert (document["title"], document["status"]) == (kind.title, kind.status)
    assert document["detail"]


# --- starting -----------------------------------------------------------------------------------------------------


def test_a_start_is_made_once_and_answers_the_same_again(http: Caller, cloud: Cloud) -> None:
    request = {"id": "order-1", "input": {"sku": "a", "n": 2}, "tags": {"customer": "c-1"}}
    first = http.post("/workflows/api-order", request)
    assert (first.status, first.value) == (
        201,
        {
            "id": "order-1",
            "type": "api-order",
            "ray_id": "1-692ae0c0-5f84a1d45d3c4b6f1d2e3f40",
            "request_id": recorded("http_api_v2")["requestContext"]["requestId"],
            "created": True,
        },
    )
    assert first.headers["location"] == "/workflows/order-1"
    stored = cloud.items()
    again = http.post("/workflows/api-order", request)
    assert (again.status, again.value) == (200, {**first.value, "created": False})
    assert cloud.items() == stored
    found = http.get("/workflows/order-1").value
    assert (found["id"], found["type"], found["state"]) == ("order-1", "api-order", "pending")
    assert found["tags"] == {"customer": "c-1"}
    assert {json.loads(record["body"])["workflow_id"] for record in cloud.wakes()} == {"order-1"}


def test_a_start_without_an_id_gets_one_and_with_a_key_only_once(http: Caller) -> None:
    made = [http.post("/workflows/api-order", {"input": 1}).value["id"] for _ in range(2)]
    assert made[0] != made[1]
    keyed = [http.post("/workflows/api-order", {}, headers={"idempotency-key": "key-1"}) for _ in range(2)]
    assert [answer.status for answer in keyed] == [201, 200]
    assert {answer.value["id"] for answer in keyed} == {"key-1"}


def test_a_start_of_cbor_keeps_values_that_json_lacks(http: Caller) -> None:
    body = cbor2.dumps({"id": "cbor", "input": {"at": datetime(2026, 1, 1, tzinfo=UTC), "raw": b"\x00"}})
    headers = {"accept": "application/cbor"}
    answer = http.post("/workflows/api-order", body=body, content_type="application/cbor", headers=headers)
    assert answer.status == 201
    assert answer.headers["content-type"] == "application/cbor"
    assert (answer.value["id"], answer.value["type"], answer.value["created"]) == ("cbor", "api-order", True)


def test_a_start_of_json_is_stored_as_what_the_workflow_declares(http: Caller, cloud: Cloud) -> None:
    request = {"id": "bill", "input": {"amount": "9.90", "due": FAR}}
    assert [http.post("/workflows/api-bill", request).status for _ in range(2)] == [201, 200]
    [commit] = [item["b"]["B"] for item in cloud.items() if item["sk"]["S"].startswith("LOG#")]
    assert cbor2.dumps({"amount": Decimal("9.90"), "due": datetime(2030, 1, 1, tzinfo=UTC)}) in commit


def test_a_text_in_cbor_is_no_decimal(http: Caller, cloud: Cloud) -> None:
    body = cbor2.dumps({"input": {"amount": "9.90", "due": datetime(2030, 1, 1, tzinfo=UTC)}})
    answer = http.post("/workflows/api-bill", body=body, content_type="application/cbor")
    assert_problem(answer, problems.INVALID_BODY)
    assert cloud.items() == []


def test_a_start_of_json_that_does_not_fit_names_the_place(http: Caller, cloud: Cloud) -> None:
    answer = http.post("/workflows/api-bill", {"input": {"amount": "much", "due": FAR}})
    assert_problem(answer, problems.INVALID_BODY)
    assert "$.amount" in answer.value["detail"]
    assert cloud.items() == []


def test_a_start_for_later_sends_no_wake_now(http: Caller, cloud: Cloud) -> None:
    assert http.post("/workflows/api-order", {"id": "later", "start_at": FAR}).status == 201
    assert cloud.wakes() == []
    assert len(cloud.client("scheduler").list_schedules(GroupName=cloud.group)["Schedules"]) == 1
    due_at = int(cloud.head("later")["due_at"]["N"])
    assert due_at == int(datetime(2030, 1, 1, tzinfo=UTC).timestamp() * 1000)


REFUSED_STARTS = [
    ("/workflows/no-such-type", b"{}", problems.UNKNOWN_TYPE),
    ("/workflows/api-order", b"{", problems.MALFORMED_BODY),
    ("/workflows/api-order", b"\xff", problems.MALFORMED_BODY),
    ("/workflows/api-order", b'{"input": NaN}', problems.MALFORMED_BODY),
    ("/workflows/api-order", b"[" * 100_000, problems.MALFORMED_BODY),
    ("/workflows/api-order", b'{"input": "\\ud800"}', problems.INVALID_BODY),
    ("/workflows/api-order", b"[]", problems.INVALID_BODY),
    ("/workflows/api-order", b"null", problems.INVALID_BODY),
    ("/workflows/api-order", b'{"inputs": 1}', problems.INVALID_BODY),
    ("/workflows/api-order", b'{"id": 7}', problems.INVALID_BODY),
    ("/workflows/api-order", b'{"tags": {"a": 1}}', problems.INVALID_BODY),
    ("/workflows/api-order", b'{"tags": []}', problems.INVALID_BODY),
    ("/workflows/api-order", b'{"start_at": "tomorrow"}', problems.INVALID_BODY),
    ("/workflows/api-order", b'{"start_at": "2026-01-01T00:00:00"}', problems.INVALID_BODY),
    ("/workflows/api-order", b'{"start_at": true}', problems.INVALID_BODY),
    # After the last instant that an answer could tell of: of this one and of every list that it is in.
    ("/workflows/api-order", b'{"start_at": "9999-12-31T23:59:59-12:00"}', problems.INVALID_BODY),
    ("/workflows/api-order", b'{"start_at": 253402300800000}', problems.INVALID_BODY),
    ("/workflows/api-order", b'{"id": "a\\u0000b"}', problems.INVALID_ID),
    ("/workflows/api-order", b'{"id": "\\ud800"}', problems.INVALID_ID),
    ("/workflows/api-order", json.dumps({"id": "x" * (ID_BYTES_MAX + 1)}).encode(), problems.INVALID_ID),
    ("/workflows/api-parcel", b'{"input": {"weight": "much"}}', problems.INVALID_BODY),
    ("/workflows/api-parcel", b"{}", problems.INVALID_BODY),
    ("/workflows/api-order", b'{"id": ""}', problems.INVALID_ID),
    ("/workflows/api-order", b'{"id": "a/output"}', problems.INVALID_ID),
    ("/workflows/api-order", b'{"id": "a?b"}', problems.INVALID_ID),
    ("/workflows/api-order", b'{"id": "a/messages/b"}', problems.INVALID_ID),
    ("/workflows/api-order", b'{"id": "a/../b"}', problems.INVALID_ID),
    ("/workflows/api-order", json.dumps({"input": "x" * (4 * 1024 * 1024)}).encode(), problems.BODY_TOO_LARGE),
    ("/workflows/api-order", b" " * (bodies.BODY_BYTES_MAX + 1), problems.BODY_TOO_LARGE),
]


@pytest.mark.parametrize(("path", "body", "kind"), REFUSED_STARTS, ids=lambda value: str(value)[:40])
def test_a_wrong_start_is_refused_and_writes_nothing(
    http: Caller, cloud: Cloud, path: str, body: bytes, kind: problems.Kind
) -> None:
    assert_problem(http.call("POST", path, body=body), kind)
    assert cloud.items() == []
    assert cloud.wakes() == []


def test_deep_input_is_refused_whatever_it_is_wrapped_in(http: Caller, cloud: Cloud) -> None:
    body = b'{"input": ' + b"[" * VALUE_DEPTH_MAX + b"]" * VALUE_DEPTH_MAX + b"}"
    assert_problem(http.call("POST", "/workflows/api-order", body=body), problems.MALFORMED_BODY)
    assert cloud.items() == []


def test_a_conflicting_start_is_refused_and_changes_nothing(http: Caller, cloud: Cloud) -> None:
    http.post("/workflows/api-order", {"id": "order-1", "input": 1})
    before = cloud.items()
    assert_problem(http.post("/workflows/api-order", {"id": "order-1", "input": 2}), problems.START_CONFLICT)
    assert cloud.items() == before


def test_another_media_type_is_refused(http: Caller, cloud: Cloud) -> None:
    answer = http.call("POST", "/workflows/api-order", body=b"<a/>", content_type="text/xml")
    assert_problem(answer, problems.UNSUPPORTED_MEDIA_TYPE)
    assert cloud.items() == []


# --- messages -----------------------------------------------------------------------------------------------------


@pytest.fixture
def started(http: Caller, cloud: Cloud) -> str:
    http.post("/workflows/api-order", {"id": "order-1"})
    cloud.wakes()
    return "order-1"


@pytest.mark.parametrize("value", [None, 0, "", {}, {"a": [1]}])
def test_every_body_is_a_message_even_an_empty_one(http: Caller, cloud: Cloud, started: str, value: Any) -> None:
    answer = http.post(f"/workflows/{started}/messages/go", value)
    assert answer.status == 202
    assert answer.value["duplicate"] is False
    [stored] = [item for item in cloud.items() if item["sk"]["S"].startswith("MSG#")]
    assert stored["id"]["S"] == answer.value["message_id"]
    assert cbor2.loads(stored["body"]["B"]) == value
    assert len(cloud.wakes()) == 1


def test_a_message_with_a_key_counts_once(http: Caller, cloud: Cloud, started: str) -> None:
    path = f"/workflows/{started}/messages/go"
    first = http.post(path, 1, headers={"idempotency-key": "k-ü"})
    again = http.post(path, 1, query={"id": "k-ü"})
    assert [first.value["duplicate"], again.value["duplicate"]] == [False, True]
    assert first.value["message_id"] == again.value["message_id"] == "k-ü"
    assert len([item for item in cloud.items() if item["sk"]["S"].startswith("MSG#")]) == 1


REFUSED_MESSAGES = [
    ("/workflows/nobody/messages/go", {}, b"1", problems.WORKFLOW_NOT_FOUND),
    ("/workflows/order-1/messages/go", {}, b"{", problems.MALFORMED_BODY),
    ("/workflows/order-1/messages/go", {}, b'"\\ud800"', problems.INVALID_BODY),
    ("/workflows/order-1/messages/" + "n" * 2000, {}, b"1", problems.INVALID_ID),
    ("/workflows/order-1/messages/", {}, b"1", problems.INVALID_ID),
    ("/workflows/order-1/messages/go", {"id": "x" * 2000}, b"1", problems.INVALID_ID),
    ("/workflows/order-1/messages/go", {"id": ""}, b"1", problems.INVALID_ID),
    ("/workflows/order-1/messages/go", {"wait": "soon"}, b"1", problems.INVALID_PARAMETER),
    ("/workflows/order-1/messages/go", {"wait": "-1"}, b"1", problems.INVALID_PARAMETER),
    (f"/workflows/{'x' * 300}/messages/go", {}, b"1", problems.INVALID_ID),
    ("/workflows/order-1/messages/go", {}, json.dumps("x" * MESSAGE_BYTES_MAX).encode(), problems.BODY_TOO_LARGE),
]


@pytest.mark.parametrize(("path", "query", "body", "kind"), REFUSED_MESSAGES, ids=lambda value: str(value)[:40])
@pytest.mark.usefixtures("started")
def test_a_wrong_message_is_refused_and_writes_nothing(
    http: Caller, cloud: Cloud, path: str, query: dict[str, str], body: bytes, kind: problems.Kind
) -> None:
    before = cloud.items()
    assert_problem(http.call("POST", path, query=query, body=body), kind)
    assert cloud.items() == before
    assert cloud.wakes() == []


def test_two_different_keys_are_refused(http: Caller, cloud: Cloud, started: str) -> None:
    before = cloud.items()
    answer = http.post(f"/workflows/{started}/messages/go", 1, query={"id": "a"}, headers={"idempotency-key": "b"})
    assert_problem(answer, problems.INVALID_PARAMETER)
    assert cloud.items() == before


def test_a_message_to_an_ended_workflow_is_refused(http: Caller, cloud: Cloud, started: str) -> None:
    assert http.post(f"/workflows/{started}/cancel").status == 200
    before = cloud.items()
    assert_problem(http.post(f"/workflows/{started}/messages/go", 1), problems.WORKFLOW_ENDED)
    assert cloud.items() == before


def test_a_lost_wake_does_not_fail_the_call(http: Caller, cloud: Cloud, started: str) -> None:
    cloud.client("sqs").delete_queue(QueueUrl=cloud.queue_url)
    answer = http.post(f"/workflows/{started}/messages/go", 1)
    assert answer.status == 202
    [inbox] = [item for item in cloud.items() if item["sk"]["S"] == "INBOX"]
    assert "due_at" in inbox


# --- looking ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/workflows/nobody",
        "/workflows/nobody/output",
        "/workflows/nobody/history",
        "/workflows/nobody/messages",
        "/workflows/%FF",
    ],
)
def test_who_is_not_there_is_not_found(http: Caller, path: str) -> None:
    assert_problem(http.get(path), problems.WORKFLOW_NOT_FOUND)


@pytest.mark.parametrize(
    ("workflow_id", "segment"),
    [
        ("a/b", "a/b"),
        ("a/b", "a%2Fb"),
        ("a%2Fb", "a%252Fb"),
        ("100%", "100%25"),
        ("ä #ö", "%C3%A4%20%23%C3%B6"),
        ("a+b", "a+b"),
        ("x/", "x%2F"),
    ],
)
def test_an_id_in_an_address_is_decoded_exactly_once(http: Caller, workflow_id: str, segment: str) -> None:
    started = http.post("/workflows/api-order", {"id": workflow_id})
    assert started.status == 201
    for path in (f"/workflows/{segment}", started.headers["location"]):
        assert http.get(path).value["id"] == workflow_id
    assert http.get(f"/workflows/{segment}/output").value["id"] == workflow_id
    assert http.post(f"/workflows/{segment}/messages/go", 1).status == 202


def test_a_list_is_paged_and_filtered(http: Caller) -> None:
    for number in range(5):
        http.post("/workflows/api-order", {"id": f"order-{number}"})
    http.post("/workflows/order-0/cancel")
    found: list[str] = []
    query = {"type": "api-order", "state": "pending", "limit": "2"}
    while True:
        page = http.get("/workflows", query=query).value
        assert len(page["workflows"]) <= 2
        found += [described["id"] for described in page["workflows"]]
        if page["cursor"] is None:
            break
        query["cursor"] = page["cursor"]
    assert sorted(found) == ["order-1", "order-2", "order-3", "order-4"]


def test_an_inbox_is_paged_and_tells_who_sent_what(http: Caller, cloud: Cloud, started: str) -> None:
    path = f"/workflows/{started}/messages"
    sent = [http.post(f"{path}/note", {"n": n}, headers={"x-ray-id": f"ray-{n}"}).value["message_id"] for n in range(3)]
    before = cloud.items()
    first = http.get(path, query={"limit": "2"}).value
    second = http.get(path, query={"limit": "2", "cursor": first["cursor"]}).value
    found = [*first["messages"], *second["messages"]]
    assert second["cursor"] is None
    assert [message["id"] for message in found] == sent
    assert [(message["name"], message["body"]) for message in found] == [("note", {"n": n}) for n in range(3)]
    assert [message["ray_id"] for message in found] == ["ray-0", "ray-1", "ray-2"]
    assert all(datetime.fromisoformat(message["sent_at"]).tzinfo for message in found)
    assert cloud.items() == before
    assert_problem(http.get(path, query={"cursor": "nonsense"}), problems.INVALID_ID)
    assert http.get(path, headers={"accept": "application/cbor"}).value["messages"][0]["body"] == {"n": 0}


@pytest.mark.parametrize(
    "query",
    [{"state": "odd"}, {"limit": "many"}, {"limit": "nan"}, {"limit": "0"}, {"cursor": "nonsense"}, {"cursor": "e30="}],
    ids=str,
)
def test_wrong_parameters_of_a_list_are_refused(http: Caller, query: dict[str, str]) -> None:
    answer = http.get("/workflows", query=query)
    assert answer.status == 400
    assert answer.headers["content-type"] == "application/problem+json"


def test_an_output_that_is_not_there_yet_is_waited_for(http: Caller, started: str) -> None:
    answer = http.get(f"/workflows/{started}/output")
    assert (answer.status, answer.value) == (202, {"id": started, "state": "pending"})
    before = datetime.now(UTC)  # noqa: TID251 - a test of real waiting
    assert http.get(f"/workflows/{started}/output", query={"wait": "0.3"}).status == 202
    assert datetime.now(UTC) - before >= timedelta(seconds=0.3)  # noqa: TID251 - the same
    # Never past the function's own deadline.
    assert http.get(f"/workflows/{started}/output", query={"wait": "20"}, remaining_ms=1_200).status == 202
    assert datetime.now(UTC) - before < timedelta(seconds=18)  # noqa: TID251 - the same


def test_an_output_comes_as_soon_as_it_is_there(http: Caller, wiring: Wiring, started: str) -> None:
    async def cancel() -> None:
        store = await wiring.store()
        await store.cancel(started)

    tasks: list[Any] = []
    loop = wiring.process.loop
    loop.call_later(0.2, lambda: tasks.append(loop.create_task(cancel())))
    answer = http.get(f"/workflows/{started}/output", query={"wait": "20"})
    assert (answer.status, answer.value) == (200, {"id": started, "state": "cancelled"})
    assert [task.done() for task in tasks] == [True]


# --- what else can go wrong ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/workflows", "GET"),
        ("PUT", "/workflows/order-1", "DELETE, GET, POST"),
        ("POST", "/workflows/order-1/output", "GET"),
        ("GET", "/workflows/order-1/messages/go", "POST"),
        ("POST", "/openapi.json", "GET"),
    ],
)
def test_a_wrong_method_is_told_the_right_ones(
    http: Caller, cloud: Cloud, method: str, path: str, allowed: str
) -> None:
    answer = http.call(method, path)
    assert_problem(answer, problems.METHOD_NOT_ALLOWED)
    assert answer.headers["allow"] == allowed
    assert cloud.items() == []


@pytest.mark.parametrize("path", ["/", "/elsewhere", "/workflow"])
def test_an_address_of_nothing_is_a_problem_too(http: Caller, path: str) -> None:
    assert_problem(http.get(path), problems.NO_SUCH_ROUTE)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_no_id_reads_as_another_one_and_something_to_do_with_it(http: Caller, cloud: Cloud, route: Route) -> None:
    front, is_about_one, operation = route.path.partition("{id}")
    if not is_about_one:
        return
    assert front == "/workflows/"
    answer = http.post("/workflows/api-order", {"id": "a" + operation.replace("{name}", "name")})
    assert_problem(answer, problems.INVALID_ID)
    assert cloud.items() == []


@pytest.mark.parametrize("operation", ["wake", "cancel", "recover", "replay"])
def test_telling_nobody_what_to_do_is_not_found(http: Caller, cloud: Cloud, operation: str) -> None:
    assert_problem(http.call("POST", f"/workflows/nobody/{operation}"), problems.WORKFLOW_NOT_FOUND)
    assert cloud.items() == []


def test_an_unreachable_store_is_503_and_says_when_to_come_back(http: Caller, cloud: Cloud, started: str) -> None:
    cloud.client("dynamodb").delete_table(TableName=cloud.table)
    for answer in (http.get(f"/workflows/{started}"), http.post("/workflows/api-order", {"id": "order-2"})):
        assert_problem(answer, problems.STORE_UNAVAILABLE)
        assert int(answer.headers["retry-after"]) > 0


def test_a_broken_app_is_named(wiring: Wiring, http: Caller, cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, wiring.settings.app)
    answer = http.post("/workflows/no-such-type", {})
    assert_problem(answer, problems.APPLICATION_BROKEN)
    assert "TORPOR_APP" in answer.value["detail"]
    assert cloud.items() == []


def test_the_openapi_document_tells_of_every_route(http: Caller) -> None:
    answer = http.get("/openapi.json")
    assert answer.status == 200
    document = answer.value
    told = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert told == {(route.method, route.path) for route in ROUTES}
    names = set(document["components"]["schemas"])
    referred = {text.split('"')[0] for text in json.dumps(document).split("#/components/schemas/")[1:]}
    assert referred <= names


def test_the_openapi_document_tells_what_becomes_of_a_history_that_cannot_be_read(
    http: Caller, cloud: Cloud, started: str
) -> None:
    for item in cloud.items():
        if (item["pk"]["S"], item["sk"]["S"][:4]) == (started, "LOG#"):
            cloud.client("dynamodb").put_item(TableName=cloud.table, Item={**item, "b": {"B": b"\xff"}})
    failing: dict[tuple[str, str], dict[str, Any]] = {
        ("GET", f"/workflows/{started}"): {"query": {"document": "true"}},
        ("GET", f"/workflows/{started}/output"): {},
        ("GET", f"/workflows/{started}/history"): {},
        ("POST", f"/workflows/{started}/replay"): {},
    }
    for (method, path), more in failing.items():
        assert_problem(http.call(method, path, **more), problems.CORRUPT_HISTORY)
    told = {
        (method.upper(), path)
        for path, methods in openapi.document(ROUTES)["paths"].items()
        for method, operation in methods.items()
        if problems.CORRUPT_HISTORY.name in operation["responses"]["500"]["description"]
    }
    assert {(method, path.replace(started, "{id}")) for method, path in failing} <= {
        (method, path.replace("{id_or_type}", "{id}")) for method, path in told
    }


def test_the_openapi_document_tells_where_a_broken_app_is_answered() -> None:
    told = openapi.document(ROUTES)["paths"]
    for path in ("/workflows/{id_or_type}", "/schedules", "/schedules/{name}/update"):
        assert problems.APPLICATION_BROKEN.name in told[path]["post"]["responses"]["503"]["description"]


def test_every_kind_of_problem_but_a_bug_is_told_of_by_the_openapi_document() -> None:
    kinds = {kind.name for kind in vars(problems).values() if isinstance(kind, problems.Kind)}
    paths = openapi.document(ROUTES)["paths"].values()
    responses = [
        told for methods in paths for operation in methods.values() for told in operation["responses"].values()
    ]
    told_of = {name for told in responses for name in told["description"].split(", ")}
    assert kinds - told_of == {problems.UNEXPECTED.name}
