"""The short way to a service says and reads what the generic client does: its signature, its answers, its refusals."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import zlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import botocore.auth
import botocore.session
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotocoreCredentials
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError, ReadTimeoutError
from botocore.parsers import create_parser
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.dynamodb import client as dynamodb
from adapters.dynamodb.errors import Verdict, judge
from adapters.posting import Address, Limits, Poster
from adapters.short_way import Service, ShortWay
from adapters.signing import Signer
from adapters.sqs import ShortSqs
from engine.clock import SystemClock
from engine.memory.clock import VirtualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LIMITS = Limits(connect_timeout_s=60, read_timeout_s=60, connections_max=2)
DYNAMODB = Service(name="dynamodb", region="r", target=dynamodb.TARGET)
NOW = 1_800_000_000_000
HEADERS = {"content-type": "application/x-amz-json-1.0", "x-amz-target": "DynamoDB_20120810.PutItem"}


class Keys:
    """Credentials that never change."""

    def __init__(self, token: str | None = None) -> None:
        self.keys = ReadOnlyCredentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG", token, None)

    async def get_frozen_credentials(self) -> ReadOnlyCredentials:
        return self.keys


# --- signing ------------------------------------------------------------------------------------------------------


def botocore_authorization(monkeypatch: pytest.MonkeyPatch, url: str, body: bytes, token: str | None) -> str:
    class Then(datetime):
        @classmethod
        def utcnow(cls) -> Then:
            return cls.fromtimestamp(NOW // 1000, UTC)

        @classmethod
        def now(cls, tz: Any = None) -> Then:
            return cls.fromtimestamp(NOW // 1000, tz or UTC)

    for name in ("datetime", "get_current_datetime"):
        if hasattr(botocore.auth, name):
            fixed: Any = Then if name == "datetime" else Then.now
            monkeypatch.setattr(botocore.auth, name, fixed)
    request = AWSRequest(method="POST", url=url, data=body, headers=dict(HEADERS))
    keys = BotocoreCredentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG", token)
    botocore.auth.SigV4Auth(keys, "dynamodb", "eu-west-1").add_auth(request)
    return str(request.headers["Authorization"])


@pytest.mark.parametrize("token", [None, "a/session+token=="])
@pytest.mark.parametrize(
    ("host", "path"),
    [("dynamodb.eu-west-1.amazonaws.com", "/"), ("127.0.0.1:4566", "/"), ("localhost:4566", "/aws/table")],
)
@pytest.mark.parametrize("body", [b"{}", '{"Item":{"pk":{"S":"é"}}}'.encode()])
def test_it_signs_as_the_generic_client_does(
    monkeypatch: pytest.MonkeyPatch, token: str | None, host: str, path: str, body: bytes
) -> None:
    signer = Signer(service="dynamodb", region="eu-west-1", host=host, path=path)
    keys = ReadOnlyCredentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG", token, None)
    expected = botocore_authorization(monkeypatch, f"https://{host}{path}", body, token)
    # The second time the key of the day is there already.
    for _ in range(2):
        assert signer.signed(keys, HEADERS, body, NOW)["authorization"] == expected


def test_the_key_follows_the_day_and_the_secret() -> None:
    signer = Signer(service="dynamodb", region="eu-west-1", host="h", path="/")
    first, second = ReadOnlyCredentials("a", "one", None, None), ReadOnlyCredentials("a", "two", None, None)
    told = [
        signer.signed(keys, HEADERS, b"{}", now)["authorization"]
        for keys, now in ((first, NOW), (second, NOW), (first, NOW + 86_400_000), (first, NOW))
    ]
    assert told[0] == told[3]
    assert len(set(told)) == 3


# --- reading ------------------------------------------------------------------------------------------------------

MODEL = botocore.session.get_session().get_service_model("dynamodb")
PARSER = create_parser("json")

scalars: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.builds(lambda text: {"S": text}, st.text(max_size=8)),
    st.builds(lambda n: {"N": str(n)}, st.integers()),
    st.builds(lambda data: {"B": data}, st.binary(max_size=8)),
    st.builds(lambda texts: {"SS": texts}, st.lists(st.text(max_size=4), min_size=1, max_size=3)),
    st.builds(lambda datas: {"BS": datas}, st.lists(st.binary(max_size=4), min_size=1, max_size=3)),
    st.sampled_from([{"BOOL": True}, {"NULL": True}]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.builds(lambda parts: {"L": parts}, st.lists(inner, max_size=3)),
        st.builds(lambda parts: {"M": parts}, st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    ),
    max_leaves=6,
)
items = st.dictionaries(st.text(min_size=1, max_size=4), values, max_size=4)


def as_generic(operation: str, body: bytes, status: int = 200) -> dict[str, Any]:
    """What the generic client makes of an answer, without what it says of headers."""
    shape = MODEL.operation_model(operation).output_shape
    told = PARSER.parse({"status_code": status, "headers": {}, "body": body}, shape)
    told.pop("ResponseMetadata")
    return dict(told)


def in_json(value: Any) -> bytes:
    return json.dumps(value, default=lambda data: base64.b64encode(data).decode()).encode()


@given(found=st.lists(items, max_size=3), last=items)
def test_a_page_of_items_reads_as_from_the_generic_client(found: list[Any], last: dict[str, Any]) -> None:
    body = in_json(
        {
            "Items": found,
            "Count": len(found),
            "ScannedCount": len(found),
            "LastEvaluatedKey": last,
            "ConsumedCapacity": {"TableName": "t", "CapacityUnits": 1.5},
        }
    )
    expected = as_generic("Query", body)
    assert dynamodb.read_answer(body) == {
        name: value for name, value in expected.items() if name not in {"Count", "ScannedCount"}
    }
    assert expected["Items"] == found


@given(item=items)
def test_what_a_batch_left_undone_can_be_asked_again(item: dict[str, Any]) -> None:
    undone = {"t": [{"PutRequest": {"Item": item}}, {"DeleteRequest": {"Key": item}}]}
    body = in_json({"UnprocessedItems": undone})
    assert dynamodb.read_answer(body) == as_generic("BatchWriteItem", body) == {"UnprocessedItems": undone}
    left = in_json({"Responses": {"t": [item]}, "UnprocessedKeys": {"t": {"Keys": [item]}}})
    assert dynamodb.read_answer(left) == as_generic("BatchGetItem", left)


# --- over a wire --------------------------------------------------------------------------------------------------


class Peer:
    """A service that answers each request with the next of ``answers``; an answer that is None is silence."""

    def __init__(self, *answers: tuple[int, bytes, dict[str, str]] | None) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.tasks: set[asyncio.Task[None]] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        with contextlib.suppress(asyncio.CancelledError), contextlib.closing(writer):
            await self.serve(reader, writer)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while self.answers:
                lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
                self.requests.append((headers, await reader.readexactly(int(headers["content-length"]))))
                answer = self.answers.pop(0)
                if answer is None:
                    return
                status, body, more = answer
                told = "".join(f"{name}: {value}\r\n" for name, value in more.items())
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{told}\r\n".encode() + body)
                await writer.drain()


@contextlib.asynccontextmanager
async def way_to(service: Peer, limits: Limits = LIMITS, **more: Any) -> AsyncIterator[ShortWay]:
    server = await asyncio.start_server(service.accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    poster = Poster(Address.of(f"http://127.0.0.1:{port}"), limits, SystemClock())
    async with server:
        try:
            yield ShortWay(poster, DYNAMODB, Keys("token"), SystemClock(), answerer=dynamodb.read_answer, **more)
        finally:
            await poster.close()
            for task in service.tasks:
                task.cancel()
            await asyncio.gather(*service.tasks)


async def refused(*answers: tuple[int, bytes, dict[str, str]] | None) -> Exception:
    async with way_to(Peer(*answers)) as way:
        with pytest.raises((ClientError, BotoCoreError)) as caught:
            await dynamodb.DynamoClient(way).update_item(TableName="t")
    error: Exception = caught.value
    return error


async def test_a_call_says_what_it_is_and_for_which_invocation() -> None:
    service = Peer((200, b'{"Attributes": {"n": {"N": "1"}, "b": {"B": "AAE="}}}', {}))
    async with way_to(service, trace=lambda: "Root=1-2") as way:
        answer = await dynamodb.DynamoClient(way).update_item(TableName="t", Key={"pk": {"B": b"\0\1"}})
    assert answer == {"Attributes": {"n": {"N": "1"}, "b": {"B": b"\0\1"}}}
    [(headers, body)] = service.requests
    assert headers["x-amz-target"] == "DynamoDB_20120810.UpdateItem"
    assert headers["content-type"] == "application/x-amz-json-1.0"
    assert headers["x-amz-security-token"] == "token"
    assert headers["x-amzn-trace-id"] == "Root=1-2"
    assert json.loads(body) == {"TableName": "t", "Key": {"pk": {"B": "AAE="}}}


async def test_connections_are_kept() -> None:
    answer: tuple[int, bytes, dict[str, str]] = (200, b"{}", {})
    service = Peer(answer, answer, answer)
    opened = 0

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        await Peer.serve(service, reader, writer)

    service.serve = count  # type: ignore[method-assign]
    async with way_to(service) as way:
        for _ in range(3):
            await way.call("GetItem", {})
    assert (len(service.requests), opened) == (3, 1)


CANCELLED = {
    "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
    "Message": "cancelled",
    "CancellationReasons": [{"Code": "None"}, {"Code": "ConditionalCheckFailed", "Item": {"b": {"B": "AAE="}}}],
}
CONDITION = {
    "__type": "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException",
    "message": "failed",
    "Item": {"pk": {"S": "w"}, "b": {"B": "AAE="}},
}
THROTTLED = {"__type": "com.amazon.coral.availability#ThrottlingException", "message": "slow down"}
INVALID = {"__type": "com.amazon.coral.validate#ValidationException", "message": "no"}


@pytest.mark.parametrize("told", [CANCELLED, CONDITION, THROTTLED, INVALID])
async def test_a_refusal_reads_as_from_the_generic_client(told: dict[str, Any]) -> None:
    body = json.dumps(told).encode()
    error = await refused((400, body, {"x-amzn-RequestId": "4KBNV"}))
    assert isinstance(error, ClientError)
    answered = {"status_code": 400, "headers": {}, "body": body}
    expected = PARSER.parse(answered, None)
    for shape in MODEL.error_shapes:
        if shape.name == expected["Error"]["Code"]:
            expected |= PARSER.parse(answered, shape)
    assert error.response["Error"] == {name: expected["Error"][name] for name in ("Code", "Message")}
    for name in ("Item", "CancellationReasons"):
        assert error.response.get(name) == expected.get(name)
    assert error.response["ResponseMetadata"] == {"HTTPStatusCode": 400, "RequestId": "4KBNV"}


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ((503, b"<html>busy</html>", {}), Verdict.LOST),
        ((500, b'{"__type": "com.amazonaws.dynamodb#InternalServerError"}', {}), Verdict.LOST),
        ((429, b"", {}), Verdict.RETRY),
        ((413, b"too large", {}), Verdict.FINAL),
        ((301, b"", {"location": "http://127.0.0.1:9/"}), Verdict.FINAL),
        ((200, b"<html>a proxy's page</html>", {}), Verdict.LOST),
        ((200, b'{"Item": "odd"}', {}), Verdict.LOST),
        ((200, b"{}", {"x-amz-crc32": "1"}), Verdict.LOST),
        ((400, b'{"__type": "x#ConditionalCheckFailedException"}', {}), Verdict.CONDITION),
        (None, Verdict.LOST),
    ],
)
async def test_what_a_failure_means(answer: tuple[int, bytes, dict[str, str]] | None, verdict: Verdict) -> None:
    assert judge(await refused(answer)) is verdict


async def test_an_answer_that_is_whole_passes_its_checksum() -> None:
    body = b'{"Item": {}}'
    async with way_to(Peer((200, body, {"x-amz-crc32": str(zlib.crc32(body))}))) as way:
        assert await way.call("GetItem", {}) == {"Item": {}}


async def test_silence_is_a_lost_answer_and_a_closed_door_is_none() -> None:
    async def never(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(600)

    service = Peer()
    service.serve = never  # type: ignore[method-assign, assignment]
    async with way_to(service, replace(LIMITS, read_timeout_s=0.3)) as way:
        with pytest.raises(ReadTimeoutError) as caught:
            await way.call("GetItem", {})
    assert judge(caught.value) is Verdict.LOST
    poster = Poster(Address.of("http://127.0.0.1:1"), LIMITS, SystemClock())
    way = ShortWay(poster, DYNAMODB, Keys(), SystemClock(), answerer=dynamodb.read_answer)
    with pytest.raises(EndpointConnectionError) as closed:
        await way.call("GetItem", {})
    assert judge(closed.value) is Verdict.RETRY


async def test_what_cannot_be_said_in_utf_8_is_given_up() -> None:
    async with way_to(Peer()) as way:
        with pytest.raises(UnicodeEncodeError) as caught:
            await way.call("GetItem", {"Key": {"pk": {"S": "\ud800"}}})
    assert judge(caught.value) is Verdict.FINAL


# --- the queue ----------------------------------------------------------------------------------------------------


class Generic:
    """The generic client of SQS as far as a wake needs it."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    async def send_message(self, **arguments: Any) -> dict[str, Any]:
        self.sent.append(arguments)
        return {"MessageId": "generic"}


@pytest.mark.parametrize("answer", [(200, b"{}", {}), (503, b"", {}), (400, b'{"__type": "x#Throttling"}', {}), None])
async def test_a_wake_that_the_short_way_loses_goes_the_long_one(
    answer: tuple[int, bytes, dict[str, str]] | None,
) -> None:
    generic = Generic()
    async with way_to(Peer(answer)) as way:
        await ShortSqs(way, generic).send_message(QueueUrl="q", MessageBody="m")
    is_lost = answer is None or answer[0] != 200
    assert generic.sent == ([{"QueueUrl": "q", "MessageBody": "m"}] if is_lost else [])


def test_dates_are_the_clock_s() -> None:
    signer = Signer(service="sqs", region="r", host="h", path="/")
    signed = signer.signed(Keys().keys, HEADERS, b"", VirtualClock(NOW + 999).now())
    assert signed["x-amz-date"] == datetime.fromtimestamp(NOW // 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
