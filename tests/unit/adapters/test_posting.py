"""Posting over HTTP/1.1: replies in pieces, connections kept and given up, and what each failure is raised as."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ReadTimeoutError,
)
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.dynamodb.errors import Verdict, judge
from adapters.http_reply import HEAD_BYTES_MAX, Reply, ReplyReader, UnreadableReplyError
from adapters.posting import KEEP_ALIVE_MS, Address, Limits, Poster
from engine.clock import SystemClock
from tests.shifted_clock import ShiftedClock
from tests.unit.adapters.certificate import certificate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

# --- one reply ----------------------------------------------------------------------------------------------------


def in_chunks(parts: Sequence[bytes], trailer: bytes) -> bytes:
    chunks = b"".join(b"%x;note=1\r\n%s\r\n" % (len(part), part) for part in parts)
    return chunks + b"0\r\n" + trailer + b"\r\n"


@given(
    body=st.lists(st.binary(min_size=1, max_size=40), max_size=4),
    framing=st.sampled_from(["length", "chunks", "trailer", "end"]),
    before=st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n"]),
    status=st.sampled_from([200, 400, 503]),
    cuts=st.lists(st.integers(min_value=1, max_value=400), max_size=12),
)
def test_a_reply_is_the_same_however_it_is_cut(
    body: list[bytes], framing: str, before: bytes, status: int, cuts: list[int]
) -> None:
    whole = b"".join(body)
    head = b"HTTP/1.1 %d Some Reason\r\nX-Amz-Crc32: 7 \r\n" % status
    sent = {
        "length": head + b"content-length: %d\r\n\r\n" % len(whole) + whole,
        "chunks": head + b"Transfer-Encoding: chunked\r\n\r\n" + in_chunks(body, b""),
        "trailer": head + b"Transfer-Encoding: chunked\r\n\r\n" + in_chunks(body, b"X-Late: 1\r\n"),
        "end": head + b"\r\n" + whole,
    }[framing]
    sent = before + sent
    reader = ReplyReader()
    edges = sorted({0, len(sent), *(cut for cut in cuts if cut < len(sent))})
    replies = [reader.feed(sent[start:end]) for start, end in itertools.pairwise(edges)]
    assert all(reply is None for reply in replies[:-1])
    reply = reader.end() if framing == "end" else replies[-1]
    assert reply is not None
    assert (reply.status, reply.body, reply.headers["x-amz-crc32"]) == (status, whole, "7")
    assert reply.is_last is (framing == "end")


def read(sent: bytes) -> Reply | None:
    return ReplyReader().feed(sent)


@pytest.mark.parametrize(
    "sent",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 ok\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nname : 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"x" * HEAD_BYTES_MAX,
    ],
)
def test_what_is_no_reply_is_told_from_one_that_is_not_whole_yet(sent: bytes) -> None:
    with pytest.raises(UnreadableReplyError):
        read(sent)


@pytest.mark.parametrize(
    "sent", [b"", b"HTTP/1.1 2", OK[:-1], b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab"]
)
def test_a_reply_that_the_connection_cuts_short_is_none(sent: bytes) -> None:
    reader = ReplyReader()
    assert reader.feed(sent) is None
    with pytest.raises(UnreadableReplyError):
        reader.end()


@pytest.mark.parametrize(
    ("sent", "followed"),
    [
        (OK, "perhaps"),
        (OK + b"more", "never"),
        (OK.replace(b"Content-Length", b"Connection: Close\r\nContent-Length"), "never"),
        (OK.replace(b"HTTP/1.1", b"HTTP/1.0"), "never"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "perhaps"),
    ],
)
def test_whether_another_reply_may_follow(sent: bytes, followed: str) -> None:
    reply = read(sent)
    assert reply is not None
    assert reply.is_last is (followed == "never")


# --- connections --------------------------------------------------------------------------------------------------


SILENCE_S = 60


class Host:
    """Answers every request with the next of ``answers``: bytes, seconds of silence, or None for a closed door.

    Silence in whole numbers is the poster's clock's alone: it is over at once. No request is answered before so many
    have been under way at once as ``crowd`` says.
    """

    def __init__(self, *answers: list[bytes | float | None], crowd: int = 1) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.asked = asyncio.Event()
        self.connections = 0
        self.busy = 0
        self.busiest = 0
        self.crowd = crowd
        self.is_crowded = asyncio.Event()
        self.clock = ShiftedClock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        with (
            contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError),
            contextlib.closing(writer),
        ):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                self.asked.set()
                self.busy += 1
                self.busiest = max(self.busiest, self.busy)
                if self.busiest >= self.crowd:
                    self.is_crowded.set()
                try:
                    answer = self.answers.pop(0)
                    await self.is_crowded.wait()
                    for part in answer:
                        if part is None:
                            return
                        if isinstance(part, int):
                            await settled()
                            self.clock.shift(part * 1000)
                        elif isinstance(part, float):
                            await asyncio.sleep(part)
                        else:
                            writer.write(part)
                            await writer.drain()
                finally:
                    self.busy -= 1

    @contextlib.asynccontextmanager
    async def posted_to(self, *, tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None) -> AsyncIterator[Poster]:
        server = await asyncio.start_server(self.accept, "127.0.0.1", 0, ssl=None if tls is None else tls[0])
        port = server.sockets[0].getsockname()[1]
        limits = Limits(connect_timeout_s=60, read_timeout_s=SILENCE_S, connections_max=2)
        url = f"http://127.0.0.1:{port}/there" if tls is None else f"https://localhost:{port}/there"
        poster = Poster(Address.of(url, None if tls is None else tls[1]), limits, self.clock)
        async with server:
            try:
                yield poster
            finally:
                await poster.close()
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks)


async def settled() -> None:
    """Returns when both ends have done what they can: in rounds of the loop, however long the machine takes for one."""
    for _ in range(20):
        await asyncio.sleep(0.002)


async def test_a_request_says_what_it_must_and_connections_are_used_again() -> None:
    host = Host([OK], [OK])
    async with host.posted_to() as poster:
        for _ in range(2):
            reply = await poster.post({"host": "there", "x-one": "1"}, b"body")
            assert (reply.status, reply.body) == (200, b"{}")
    assert host.requests == [b"POST /there HTTP/1.1\r\nhost: there\r\nx-one: 1\r\ncontent-length: 4\r\n\r\nbody"] * 2
    assert host.connections == 1


async def test_no_more_connections_than_allowed_and_each_reply_goes_to_who_asked() -> None:
    answers: list[list[bytes | float | None]] = [
        [b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" + b"%d" % number] for number in range(6)
    ]
    host = Host(*answers, crowd=2)
    async with host.posted_to() as poster:
        replies = await asyncio.gather(*(poster.post({}, b"%d" % number) for number in range(6)))
    answered = {request[-1:]: b"%d" % number for number, request in enumerate(host.requests)}
    assert [reply.body for reply in replies] == [answered[b"%d" % number] for number in range(6)]
    assert (host.connections, host.busiest) == (2, 2)


@pytest.mark.parametrize(
    "answer",
    [
        OK.replace(b"Content", b"Connection: close\r\nContent"),
        OK + b"unasked",
        b"HTTP/1.1 200 OK\r\n\r\n{}",
    ],
)
async def test_a_connection_that_has_had_its_last_reply_is_not_used_again(answer: bytes) -> None:
    host = Host([answer, None], [OK])
    async with host.posted_to() as poster:
        for _ in range(2):
            assert (await poster.post({}, b"")).body == b"{}"
    assert host.connections == 2


async def test_a_connection_that_was_idle_for_long_or_was_closed_is_not_used_again() -> None:
    host = Host([OK], [OK, None], [OK])
    async with host.posted_to() as poster:
        await poster.post({}, b"")
        host.clock.shift_ms = KEEP_ALIVE_MS
        await poster.post({}, b"")
        await settled()
        await poster.post({}, b"")
    assert host.connections == 3


async def test_a_connection_on_which_something_comes_unasked_is_not_used_again() -> None:
    host = Host([OK, 0.005, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong"], [OK])
    async with host.posted_to() as poster:
        await poster.post({}, b"")
        await settled()
        assert (await poster.post({}, b"")).body == b"{}"
    assert host.connections == 2


@pytest.mark.parametrize(
    ("answer", "raised"),
    [
        ([None], ConnectionClosedError),
        ([OK[:-1], None], ConnectionClosedError),
        ([SILENCE_S], ReadTimeoutError),
        ([OK[:-1], SILENCE_S, SILENCE_S], ReadTimeoutError),
        ([b"no reply\r\n\r\n"], HTTPClientError),
    ],
)
async def test_a_reply_that_does_not_come_may_have_been_lost(
    answer: list[bytes | float | None], raised: type[Exception]
) -> None:
    host = Host(answer, [OK])
    async with host.posted_to() as poster:
        with pytest.raises(raised) as caught:
            await poster.post({}, b"")
        assert judge(caught.value) is Verdict.LOST
        assert (await poster.post({}, b"")).status == 200
    assert host.connections == 2


async def test_a_slow_reply_is_waited_for_as_long_as_something_comes() -> None:
    pieces = [OK[first : first + 5] for first in range(0, len(OK), 5)]
    parts: list[bytes | float | None] = [part for piece in pieces for part in (piece, SILENCE_S - 1)]
    async with Host(parts).posted_to() as poster:
        assert (await poster.post({}, b"")).body == b"{}"


async def test_whoever_gives_up_leaves_no_reply_to_the_next() -> None:
    late = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate"
    host = Host([0.005, late], [OK])
    async with host.posted_to() as poster:
        given_up = asyncio.ensure_future(poster.post({}, b""))
        await host.asked.wait()
        given_up.cancel()
        await settled()
        assert (await poster.post({}, b"")).body == b"{}"
    assert host.connections == 2


async def test_where_nobody_listens_nothing_was_sent() -> None:
    limits = Limits(connect_timeout_s=60, read_timeout_s=60, connections_max=1)
    poster = Poster(Address.of("http://127.0.0.1:1/"), limits, SystemClock())
    with pytest.raises(EndpointConnectionError) as refused:
        await poster.post({}, b"")
    assert judge(refused.value) is Verdict.RETRY
    # The system accepts and nobody answers the handshake.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = Address.of(f"https://127.0.0.1:{silent.getsockname()[1]}/", ssl.create_default_context())
        poster = Poster(address, replace(limits, connect_timeout_s=0.1), SystemClock())
        with pytest.raises(ConnectTimeoutError) as timed_out:
            await poster.post({}, b"")
    assert judge(timed_out.value) is Verdict.RETRY


async def test_over_tls_who_answers_has_to_be_trusted_and_to_have_the_name(tmp_path: Path) -> None:
    file = certificate(tmp_path, "localhost")
    there = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    there.load_cert_chain(file)
    trusting = ssl.create_default_context(cafile=str(file))
    host = Host([OK], [OK])
    async with host.posted_to(tls=(there, trusting)) as poster:
        for _ in range(2):
            assert (await poster.post({}, b"x")).body == b"{}"
    assert host.connections == 1
    async with Host([OK]).posted_to(tls=(there, ssl.create_default_context())) as poster:
        with pytest.raises(EndpointConnectionError):
            await poster.post({}, b"x")
    other = certificate(tmp_path, "elsewhere.example")
    there.load_cert_chain(other)
    async with Host([OK]).posted_to(tls=(there, ssl.create_default_context(cafile=str(other)))) as poster:
        with pytest.raises(EndpointConnectionError):
            await poster.post({}, b"x")


@pytest.mark.parametrize(
    ("url", "host", "port", "netloc", "path"),
    [
        ("https://dynamodb.eu-west-1.amazonaws.com", "dynamodb.eu-west-1.amazonaws.com", 443, None, "/"),
        ("http://127.0.0.1:4566/aws/", "127.0.0.1", 4566, "127.0.0.1:4566", "/aws/"),
        ("http://[::1]:8000", "::1", 8000, "[::1]:8000", "/"),
        ("http://localhost", "localhost", 80, "localhost", "/"),
    ],
)
def test_addresses(url: str, host: str, port: int, netloc: str | None, path: str) -> None:
    address = Address.of(url)
    assert (address.host, address.port, address.netloc, address.path) == (host, port, netloc or host, path)
    assert (address.tls is not None) is url.startswith("https")
