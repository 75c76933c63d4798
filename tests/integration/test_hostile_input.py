"""Whatever comes from outside: typed refusals, bounded work, no echo, nothing in logs, no other workflow touched."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import cbor2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.dynamodb.model.limits import ID_BYTES_MAX
from adapters.events import MESSAGE
from adapters.sqs import read_wake, wake_body
from engine import Context, CriticalError, workflow
from engine.errors import TorporError
from handlers import bodies, logs, problems
from handlers.problems import Problem
from handlers.resume import ResumeFunction, UnreadableEventError
from handlers.worker import Batch
from infra.cli import main
from infra.target import DevNote
from tests.integration.driven import Driven, wake
from tests.integration.http import Caller
from tests.integration.lambda_event import LambdaContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from handlers.bootstrap import Wiring
    from tests.integration.conftest import Cloud

SLOW_S = 10.0
"""Seconds that no single body may take, on a machine that does much else."""

FEW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
MANY = settings(max_examples=400, deadline=None, derandomize=True)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["workflow_id", "detail", "detail-type", "id", "name", "body", "alarm_at", "x"]), inner
        )
    ),
    max_leaves=10,
)


@workflow("hostile-waits")
async def waits(ctx: Context, _input: Any) -> Any:
    return (await ctx.queue.next("go")).body


# --- decoders -----------------------------------------------------------------------------------------------------


def read_or_refused(body: bytes, media_type: str) -> Any:
    """The body's value, ``ABSENT`` where it is refused as what it is."""
    with contextlib.suppress(Problem):
        return bodies.read(body, media_type)
    with pytest.raises(Problem) as refused:
        bodies.read(body, media_type)
    assert refused.value.kind is problems.MALFORMED_BODY
    return bodies.ABSENT


@MANY
@given(st.binary(max_size=200), st.sampled_from([bodies.JSON, bodies.CBOR]))
def test_any_bytes_are_a_value_or_a_problem(body: bytes, media_type: str) -> None:
    value = read_or_refused(body, media_type)
    if value is not bodies.ABSENT:
        json.loads(bodies.write(value, bodies.JSON))


@MANY
@given(JSON)
def test_any_json_is_read_as_it_was_meant_or_refused(value: Any) -> None:
    read = read_or_refused(json.dumps(value).encode(), bodies.JSON)
    assert read is bodies.ABSENT or json.dumps(read) == json.dumps(value)


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (b"[" + b"[]," * 40_000 + b"[]]", bodies.JSON),
        (b"[" + b"{}," * 40_000 + b"{}]", bodies.JSON),
        (b"[" * 100_000, bodies.JSON),
        (b"9" * 100_000, bodies.JSON),
        (b'"' + b"\\u0041" * 20_000 + b'"', bodies.JSON),
        (b"\x9a\x00\x01\x86\xa0" + b"\x80" * 100_000, bodies.CBOR),
        (b"\x9a\x00\x01\x86\xa0" + b"\xa0" * 100_000, bodies.CBOR),
        (b"\x81" * 100_000, bodies.CBOR),
        (b"\x9b\x00\x00\x7f" + b"\xff" * 5, bodies.CBOR),
        (b"\x5b\x00\x00\x7f" + b"\xff" * 5, bodies.CBOR),
        (b"\xc2\x5a\x00\x01\x86\xa0" + b"\xff" * 100_000, bodies.CBOR),
        (bytes.fromhex("c4821b00ffffffffffff01"), bodies.CBOR),
    ],
    ids=lambda part: str(part[:12]),
)
def test_no_body_takes_long_or_much_memory(body: bytes, media_type: str) -> None:
    began = time.process_time()
    tracemalloc.start()
    try:
        value = read_or_refused(body, media_type)
        if value is not bodies.ABSENT:
            bodies.write(value, bodies.JSON)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 300 * max(len(body), 10_000)
    assert time.process_time() - began < SLOW_S


@MANY
@given(st.text() | JSON.map(json.dumps))
def test_any_record_of_the_queue_is_a_wake_or_set_aside(body: str) -> None:
    found = read_wake(body)
    assert found is None or read_wake(wake_body(found)) == found
    batch = Batch([{"messageId": "m", "body": body}])
    assert (batch.unreadable == ["m"]) is (found is None)


def test_a_hostile_record_harms_no_other_of_its_batch(driven: Driven) -> None:
    driven.start("worker-step", "healthy")
    hostile = ["", "[" * 100_000, "{}", json.dumps({"workflow_id": "\ud800"}), json.dumps({"workflow_id": "x" * 300})]
    records = [{**wake("x", number), "body": body} for number, body in enumerate(hostile)]
    failed = driven.work([*records, wake("healthy", 99)])
    assert failed == [f"message-{number}" for number in (0, 1, 2, 3, 4)]
    assert driven.state("healthy") == "completed"


@FEW
@given(JSON | st.builds(lambda detail: {"detail-type": MESSAGE, "id": "e", "detail": detail}, JSON))
def test_any_event_is_taken_or_refused_by_name(wiring: Wiring, event: Any) -> None:
    with contextlib.suppress(UnreadableEventError, TorporError):
        ResumeFunction(wiring)(event, LambdaContext())


# --- ids ------------------------------------------------------------------------------------------------------------

IDS = [
    "a",
    "a/b",
    "a#b",
    "a b",
    "A",
    "\u00e4\u20ac\U0001f600",
    "HEAD",
    "LOG#1",
    "a%2Fb",
    "\ufffe",
    "x" * 255,
    "\u20ac" * 85,
]


def at(workflow_id: str, path: str = "") -> str:
    return f"/workflows/{''.join(f'%{byte:02X}' for byte in workflow_id.encode())}{path}"


def test_an_id_of_any_kind_touches_no_other_workflow(driven: Driven, cloud: Cloud) -> None:
    for workflow_id in IDS:
        driven.start("hostile-waits", workflow_id)
    driven.drain()

    def kept() -> dict[str, Any]:
        found: dict[str, Any] = {}
        for item in cloud.items():
            found.setdefault(item["pk"]["S"], []).append(item)
        return found

    for number, workflow_id in enumerate(IDS):
        before = kept()
        assert driven.http.get(at(workflow_id)).value["id"] == workflow_id
        if number % 2:
            assert driven.http.post(at(workflow_id, "/messages/go"), number).status == 202
            driven.drain()
            assert driven.output(at(workflow_id).removeprefix("/workflows/"))["output"] == number
        else:
            assert driven.http.call("POST", at(workflow_id, "/cancel")).status == 200
        after = kept()
        assert {name for name in IDS if before[name] != after[name]} == {workflow_id}


@pytest.mark.parametrize("workflow_id", ["x" * (ID_BYTES_MAX + 1), "\u20ac" * 86, "", "a\x00", "a\x85"])
def test_an_id_beyond_the_rule_is_refused(wiring: Wiring, cloud: Cloud, workflow_id: str) -> None:
    answer = Caller(wiring).post("/workflows/hostile-waits", {"id": workflow_id})
    assert (answer.status, answer.value["type"]) == (400, problems.TYPE_PREFIX + "invalid-id")
    assert cloud.items() == []


# --- answers --------------------------------------------------------------------------------------------------------

SCRIPT = "<script>alert(1)</script>"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"/{SCRIPT}", b""),
        ("GET", f"/workflows/{SCRIPT}", b""),
        ("POST", f"/workflows/{SCRIPT}", b"{}"),
        ("POST", "/workflows/hostile-waits", json.dumps({"id": SCRIPT, "input": SCRIPT}).encode()),
        ("POST", "/workflows/hostile-waits", json.dumps({SCRIPT: 1}).encode()),
        ("POST", "/workflows/hostile-waits", SCRIPT.encode()),
        ("DELETE", f"/workflows/{SCRIPT}", b""),
    ],
)
def test_nothing_is_echoed_that_a_browser_could_run(wiring: Wiring, method: str, path: str, body: bytes) -> None:
    answer = Caller(wiring).call(method, path, body=body, headers={"accept": "text/html"})
    assert answer.headers["content-type"] in {bodies.JSON, problems.MEDIA_TYPE}
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert not set(b"<>&") & set(answer.body)
    json.loads(answer.body)


# --- logs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/workflows/hostile-waits", lambda huge: {huge: 1}),
        ("/workflows/hostile-waits", lambda huge: {"id": huge}),
        ("/workflows/hostile-waits/replay", lambda huge: {"entry_id": huge}),
        ("/schedules", lambda huge: {"name": "a", "every": "1d", "type": huge}),
    ],
)
def test_a_refusal_is_short_however_much_was_sent(driven: Driven, path: str, body: Callable[[str], Any]) -> None:
    driven.start("hostile-waits", "hostile-waits")
    sent = json.dumps(body("é" * 2_000_000), ensure_ascii=False).encode()
    answer = driven.http.post(path, body=sent)
    assert 400 <= answer.status < 500
    assert len(answer.value["detail"]) == problems.DETAIL_CHARACTERS_MAX


def test_a_dead_letter_says_nothing_that_a_terminal_obeys(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    detail = {"workflow_id": "w\x1b[2J", "name": "go\x9b31m", "id": "ключ\n"}
    letter = {"requestPayload": {"detail-type": MESSAGE, "id": "e", "detail": detail}}
    cloud.client("sqs").send_message(QueueUrl=cloud.queue_url, MessageBody=json.dumps(letter))
    outputs = {"BusName": "none", "DeadLetterQueueUrl": cloud.queue_url}
    DevNote(endpoint=cloud.endpoint, host="none.execute-api.localhost", pid=os.getpid(), outputs=outputs).write(
        tmp_path
    )
    monkeypatch.chdir(tmp_path)
    with contextlib.suppress(SystemExit):
        main(["recover", "--from-dlq"])
    told = "".join(capsys.readouterr())
    assert "2J" in told
    assert all(character == "\n" or character.isprintable() for character in told)


MARK = "s3cret-mark"


@workflow("hostile-marked")
async def marked(ctx: Context, given: dict[str, str]) -> dict[str, str]:
    async def fails() -> None:
        raise ValueError(f"{MARK} in a retried error")

    async def fails_for_good() -> None:
        raise CriticalError(f"{MARK} in an error")

    await ctx.step("echo", lambda: given)
    await ctx.try_step("fails", fails, max_retries=1, retry_backoff_base=0.001, catch=("exhausted",))
    message = await ctx.queue.next("go")
    if message.body["fails"]:
        await ctx.step("fails-for-good", fails_for_good)
    return {"output": MARK}


@pytest.fixture
def told() -> Iterator[io.StringIO]:
    """Everything that the handlers write to their log at its most talkative."""
    root, written = logging.getLogger(), io.StringIO()
    handlers, level = list(root.handlers), root.level
    levels = {name: logging.getLogger(name).level for name in ("botocore", "aiobotocore", "aiohttp", "asyncio")}
    logs.set_up("DEBUG", native_json=False)
    for handler in root.handlers:
        if isinstance(handler, logging.StreamHandler) and isinstance(handler.formatter, logs.JsonFormatter):
            handler.setStream(written)
    yield written
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, each in levels.items():
        logging.getLogger(name).setLevel(each)


def test_no_payload_and_no_error_text_is_told_to_the_log(driven: Driven, told: io.StringIO) -> None:
    for workflow_id, is_failing in (("fine", False), ("failing", True)):
        driven.start("hostile-marked", workflow_id, {"input": MARK})
        driven.drain()
        assert (
            driven.http.post(f"/workflows/{workflow_id}/messages/go", {"text": MARK, "fails": is_failing}).status == 202
        )
        driven.drain()
    assert driven.output("fine")["output"] == {"output": MARK}
    assert MARK in driven.output("failing")["error"]["message"]
    # Refusals and events say as little.
    driven.http.post("/workflows/hostile-marked", {MARK: MARK})
    driven.http.post("/workflows/fine/messages/go", MARK)
    event = {"detail-type": MESSAGE, "id": "e", "detail": {"workflow_id": "fine", "name": "go", "body": MARK}}
    ResumeFunction(driven.wiring)(event, LambdaContext())
    assert "run ended" in told.getvalue()
    assert MARK not in told.getvalue()


def test_a_cbor_body_of_nested_tags_is_refused() -> None:
    for tag in (28, 29, 35, 256, 25, 5):
        with pytest.raises(Problem):
            bodies.read(cbor2.dumps(cbor2.CBORTag(tag, "a")), bodies.CBOR)
