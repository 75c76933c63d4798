"""The short way over wires as AWS has them: TLS, names with several addresses, ends that a frozen process missed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import socket
import ssl
import threading
import warnings
import zlib
from typing import TYPE_CHECKING, Any, Self

import pytest
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import ConnectionClosedError, HTTPClientError

from adapters.dynamodb import client as dynamodb
from adapters.dynamodb.errors import Verdict, judge
from adapters.posting import NEXT_ADDRESS_S, Address, Limits, Poster
from adapters.short_way import Service, ShortWay
from engine.clock import SystemClock
from tests.unit.adapters.certificate import certificate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

LIMITS = Limits(connect_timeout_s=60, read_timeout_s=60, connections_max=2)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
Script = list[list[bytes | None]]


class Host:
    """A server in a thread of its own, which goes on while the caller's loop stands still.

    Each of ``scripts`` is what one connection does: one answer a request, None for hanging up without an answer; at its
    end the connection is ended too.
    """

    def __init__(
        self, *scripts: list[bytes | None], tls: ssl.SSLContext | None = None, address: str = "127.0.0.1"
    ) -> None:
        self.scripts: Script = list(scripts)
        self.requests: list[bytes] = []
        self.names: list[str | None] = []
        self.hung_up = threading.Semaphore(0)
        self._is_over = threading.Event()
        self._tls = tls
        if tls is not None:
            tls.sni_callback = lambda _socket, name, _context: self.names.append(name)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, 0), family=family)
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        # Who waits for a connection is not woken by a listener that is closed.
        with contextlib.suppress(OSError):
            socket.create_connection(self._listener.getsockname()[:2], timeout=60).close()
        self._thread.join(60)
        self._listener.close()

    def _serve(self) -> None:
        while self.scripts:
            accepted, _ = self._listener.accept()
            accepted.settimeout(60)
            if self._is_over.is_set():
                accepted.close()
                return
            with contextlib.suppress(OSError), self._dressed(accepted) as connection:
                script = self.scripts.pop(0)
                for answer in script:
                    self._read_request(connection)
                    if answer is not None:
                        connection.sendall(answer)
            self.hung_up.release()

    def _dressed(self, accepted: socket.socket) -> socket.socket:
        return accepted if self._tls is None else self._tls.wrap_socket(accepted, server_side=True)

    def _read_request(self, connection: socket.socket) -> None:
        got = b""
        while b"\r\n\r\n" not in got:
            got += _more(connection)
        length = int(got.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(got.partition(b"\r\n\r\n")[2]) < length:
            got += _more(connection)
        self.requests.append(got)


def _more(connection: socket.socket) -> bytes:
    data = connection.recv(1 << 16)
    if not data:
        raise ConnectionResetError
    return data


@pytest.fixture(params=["plain", "tls"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., tuple[Host, Address]]]:
    """Makes hosts that do as told, over plain TCP and over TLS, and how to reach them."""
    with contextlib.ExitStack() as open_ones:

        def make(*scripts: list[bytes | None]) -> tuple[Host, Address]:
            if request.param == "plain":
                host = open_ones.enter_context(Host(*scripts))
                return host, Address.of(f"http://localhost:{host.port}/")
            file = certificate(tmp_path, "localhost")
            there = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            there.load_cert_chain(file)
            host = open_ones.enter_context(Host(*scripts, tls=there))
            trusting = ssl.create_default_context(cafile=str(file))
            return host, Address.of(f"https://localhost:{host.port}/", trusting)

        yield make


@contextlib.asynccontextmanager
async def posting(address: Address) -> AsyncIterator[Poster]:
    poster = Poster(address, LIMITS, SystemClock())
    try:
        yield poster
    finally:
        await poster.close()


# --- connections --------------------------------------------------------------------------------------------------


async def test_a_connection_that_ended_while_the_process_was_frozen_is_not_used_again(made: Any) -> None:
    host, address = made([OK], [OK])
    async with posting(address) as poster:
        await poster.post({}, b"one")
        # The loop stands still, as in a frozen process: it cannot have seen the end, and makes the next call at once.
        assert host.hung_up.acquire(timeout=60)
        threading.Event().wait(0.05)
        assert (await poster.post({}, b"two")).body == b"{}"
    assert [request[-3:] for request in host.requests] == [b"one", b"two"]


@pytest.mark.parametrize("rounds", range(5))
async def test_a_connection_that_is_being_lost_is_not_used_again_in_any_round_of_the_loop(
    made: Any, rounds: int
) -> None:
    host, address = made([OK, OK], [OK])
    async with posting(address) as poster:
        await poster.post({}, b"one")
        [(_, kept)] = poster._idle
        assert kept._transport is not None
        # As the loop does where a connection is reset: the socket is closed in one round, the protocol told in another.
        kept._transport.abort()
        for _ in range(rounds):
            await asyncio.sleep(0)
        assert kept.has_news()
        assert (await poster.post({}, b"two")).body == b"{}"
    assert [request[-3:] for request in host.requests] == [b"one", b"two"]


async def test_a_host_that_hangs_up_on_a_request_is_not_asked_again_by_the_poster(made: Any) -> None:
    host, address = made([OK, None], [OK])
    async with posting(address) as poster:
        await poster.post({}, b"one")
        # It has the request: whether it may be asked again is the caller's to say.
        with pytest.raises(ConnectionClosedError) as caught:
            await poster.post({}, b"two")
        assert judge(caught.value) is Verdict.LOST
    assert [request[-3:] for request in host.requests] == [b"one", b"two"]


async def test_the_name_of_the_host_is_told_before_anything_is_said(tmp_path: Path) -> None:
    file = certificate(tmp_path, "localhost")
    there = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    there.load_cert_chain(file)
    with Host([OK], tls=there) as host:
        address = Address.of(f"https://localhost:{host.port}/", ssl.create_default_context(cafile=str(file)))
        async with posting(address) as poster:
            await poster.post({}, b"")
    assert host.names == ["localhost"]


async def test_an_answer_of_many_megabytes_comes_whole(made: Any) -> None:
    body = bytes(range(256)) * 32 * 1024
    half = len(body) // 2
    head = b"HTTP/1.1 200 OK\r\n"
    whole = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    parts = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:half], body[half:])) + b"0\r\n\r\n"
    _, address = made([whole, head + b"Transfer-Encoding: chunked\r\n\r\n" + parts])
    async with posting(address) as poster:
        for _ in range(2):
            reply = await poster.post({}, b"")
            assert zlib.crc32(reply.body) == zlib.crc32(body)


async def test_a_request_of_megabytes_arrives_whole(made: Any) -> None:
    host, address = made([OK])
    body = b"x" * (6 << 20)
    async with posting(address) as poster:
        assert (await poster.post({}, body)).status == 200
    assert host.requests[0].endswith(b"\r\n\r\n" + body)


async def test_a_host_that_speaks_ipv6_alone() -> None:
    try:
        host = Host([OK], address="::1")
    except OSError:
        pytest.skip("this machine has no IPv6")
    with host:
        async with posting(Address.of(f"http://[::1]:{host.port}/")) as poster:
            assert (await poster.post({}, b"")).status == 200


class Names(asyncio.SelectorEventLoop):
    """A loop whose resolver knows ``name`` alone: the next of ``answers`` are its addresses, once."""

    name = "service.example"
    answers: list[list[str]]

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        assert host == self.name
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in self.answers.pop(0)]


def posted_by_name(answers: list[list[str]], port: int, times: int) -> list[bytes]:
    """The bodies of some replies of ``service.example``, each over a connection of its own."""
    loop = Names()
    loop.answers = answers

    async def post() -> list[bytes]:
        bodies = []
        for _ in range(times):
            async with posting(Address.of(f"http://service.example:{port}/")) as poster:
                bodies.append((await poster.post({}, b"")).body)
        return bodies

    try:
        return loop.run_until_complete(post())
    finally:
        loop.close()


def test_a_name_is_looked_up_for_each_connection_and_no_address_is_remembered() -> None:
    with Host([OK], [OK]) as host:
        # Where the first look leads nobody listens any more, when it is the second's turn.
        assert posted_by_name([["127.0.0.1"], ["127.0.0.3", "127.0.0.1"]], host.port, 2) == [b"{}", b"{}"]


def test_an_address_that_swallows_everything_costs_a_quarter_of_a_second_not_the_call() -> None:
    with Host([OK]) as host, socket.socket() as full, contextlib.ExitStack() as waiting:
        full.bind(("127.0.0.2", host.port))
        full.listen(0)
        for _ in range(3):
            # From the second on nobody is let in, nor told so.
            crowd = waiting.enter_context(socket.socket())
            crowd.settimeout(0)
            with contextlib.suppress(BlockingIOError):
                crowd.connect(("127.0.0.2", host.port))
        began = SystemClock().now()
        assert posted_by_name([["127.0.0.2", "127.0.0.1"]], host.port, 1) == [b"{}"]
        assert SystemClock().now() - began < (LIMITS.connect_timeout_s + NEXT_ADDRESS_S) * 500


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["127.0.0.1", "127.0.0.3"]])
@pytest.mark.parametrize("pace_s", [0, 0.0005], ids=["each round of the loop", "the other end keeps up"])
def test_called_off_anywhere_on_its_way_a_call_leaves_no_socket_behind(
    made: Any, addresses: list[str], pace_s: float
) -> None:
    """A killed turn, a deadline, a lost race of branches: each may end a call while it is being connected."""
    rounds_max = 30
    host, address = made(*[[None]] * rounds_max)
    loop = Names()
    loop.name, loop.answers = address.host, [addresses] * rounds_max

    async def call_off_after(rounds: int) -> None:
        async with posting(address) as poster:
            call = asyncio.ensure_future(poster.post({}, b"one"))
            for _ in range(rounds):
                await asyncio.sleep(pace_s)
            call.cancel()
            await asyncio.wait([call])
        # What is aborted closes its socket in the loop's next rounds.
        for _ in range(5):
            await asyncio.sleep(0)

    left = []
    # Only what comes of these calls is looked through: what all other tests have made would take seconds.
    gc.freeze()
    for rounds in range(rounds_max):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loop.run_until_complete(call_off_after(rounds))
            gc.collect()
        left += [f"after {rounds} rounds: {warning.message}" for warning in caught]
    gc.unfreeze()
    loop.close()
    assert left == []
    assert bool(host.requests) or not pace_s, "no call got through"


# --- calls --------------------------------------------------------------------------------------------------------


class Renewed:
    """Credentials of a session that is over after each call."""

    def __init__(self) -> None:
        self.given = 0

    async def get_frozen_credentials(self) -> ReadOnlyCredentials:
        self.given += 1
        return ReadOnlyCredentials(f"AKID{self.given}", f"secret{self.given}", f"token{self.given}", None)


@contextlib.asynccontextmanager
async def calling(address: Address) -> AsyncIterator[ShortWay]:
    about = Service(name="dynamodb", region="r", target=dynamodb.TARGET)
    async with posting(address) as poster:
        yield ShortWay(poster, about, Renewed(), SystemClock(), answerer=dynamodb.read_answer)


async def test_each_call_is_made_with_the_keys_of_its_time_and_asks_for_no_packed_answer(made: Any) -> None:
    host, address = made([OK, OK])
    async with calling(address) as way:
        for _ in range(2):
            await way.call("GetItem", {})
    for number, request in enumerate(host.requests, start=1):
        assert b"accept-encoding: identity\r\n" in request
        assert b"x-amz-security-token: token%d\r\n" % number in request
        assert b"Credential=AKID%d/" % number in request


async def test_an_answer_that_is_packed_all_the_same_is_a_lost_one(made: Any) -> None:
    packed = gzip.compress(b'{"Item": {}}')
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    _, address = made([head + packed])
    async with calling(address) as way:
        with pytest.raises(HTTPClientError) as caught:
            await way.call("GetItem", {})
    assert judge(caught.value) is Verdict.LOST
