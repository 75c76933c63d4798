"""Posting to one address over HTTP/1.1: connections are kept, and bounded in number and in their silence.

No general client: no redirects, no cookies, no streams, nothing but a POST whose reply is read whole. That is all that
a call to the table or the queue is, and at some hundred microseconds of processor time less, six times a message.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aiohappyeyeballs import start_connection
from botocore.exceptions import (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ReadTimeoutError,
)
from msgspec import Struct

from adapters.http_reply import ReplyReader, UnreadableReplyError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adapters.http_reply import Reply
    from engine.driver import Clock, Timer

KEEP_ALIVE_MS = 12_000
"""Milliseconds that an idle connection is kept. Source: the same as aiobotocore; the services keep them longer. By the
machine's clock: a process may be frozen for longer than that between two calls."""


NEXT_ADDRESS_S = 0.25
"""Seconds that a host's address is waited for alone; then the next one is tried too. Source: RFC 8305, section 8."""

HTTP_PORT, HTTPS_PORT = 80, 443


class Limits(Struct, frozen=True, kw_only=True):
    """How long a connection may take to be made, and to be silent while a reply is due (seconds); and how many."""

    connect_timeout_s: float
    read_timeout_s: float
    connections_max: int


class Address(Struct, frozen=True, kw_only=True):
    """Where to post to; ``netloc`` is it as the header ``host`` says it, ``tls`` is None for plain HTTP."""

    host: str
    port: int
    netloc: str
    path: str
    tls: ssl.SSLContext | None = None

    @classmethod
    def of(cls, url: str, tls: ssl.SSLContext | None = None) -> Address:
        """The address that ``url`` says; ``tls`` is for one of ``https``."""
        parts = urlsplit(url)
        is_plain = parts.scheme == "http"
        return cls(
            host=parts.hostname or "",
            port=parts.port or (HTTP_PORT if is_plain else HTTPS_PORT),
            netloc=parts.netloc,
            path=parts.path or "/",
            tls=None if is_plain else tls or ssl.create_default_context(),
        )


class Poster:
    """Posts to ``address``; what goes wrong is raised as the generic client raises it.

    Attributes:
        address: where.
    """

    __slots__ = ("_clock", "_idle", "_is_closed", "_limits", "_room", "address")

    def __init__(self, address: Address, limits: Limits, clock: Clock) -> None:
        self.address = address
        self._limits = limits
        self._clock = clock
        # The one used last is at the end, and is used next: what is idle for long is at the beginning.
        self._idle: list[tuple[int, _Connection]] = []
        self._room = asyncio.Semaphore(limits.connections_max)
        self._is_closed = False

    async def post(self, headers: Mapping[str, str], body: bytes) -> Reply:
        """The reply to one request.

        Raises:
            EndpointConnectionError, ConnectTimeoutError: nothing was sent.
            ReadTimeoutError, ConnectionClosedError, HTTPClientError: no reply came, or none that can be read.
        """
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"POST {self.address.path} HTTP/1.1\r\n{lines}content-length: {len(body)}\r\n\r\n"
        async with self._room:
            connection = self._kept() or await self._connected()
            try:
                reply = await connection.exchange(head.encode("latin-1") + body)
            except BaseException:
                connection.close()
                raise
            if reply.is_last or self._is_closed:
                connection.close()
            else:
                self._idle.append((self._clock.now(), connection))
            return reply

    def _kept(self) -> _Connection | None:
        kept_since = self._clock.now() - KEEP_ALIVE_MS
        while self._idle:
            idle_since, connection = self._idle.pop()
            if connection.is_open and idle_since > kept_since and not connection.has_news():
                return connection
            connection.close()
        return None

    async def _connected(self) -> _Connection:
        address = self.address
        try:
            async with asyncio.timeout(self._limits.connect_timeout_s):
                return await self._connect()
        except TimeoutError as error:
            raise ConnectTimeoutError(endpoint_url=address.netloc, error=error) from error
        except OSError as error:
            raise EndpointConnectionError(endpoint_url=address.netloc, error=error) from error

    async def _connect(self) -> _Connection:
        address, loop = self.address, asyncio.get_running_loop()
        found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        # Not the loop's own race of addresses: called off just when one has won, it drops an open socket.
        connected = await start_connection(found, happy_eyeballs_delay=NEXT_ADDRESS_S)
        connection = _Connection(address.netloc, self._limits.read_timeout_s, self._clock)
        name = address.host if address.tls else None
        try:
            await loop.create_connection(lambda: connection, sock=connected, ssl=address.tls, server_hostname=name)
        except BaseException:
            # Too late, or called off: where TLS was just agreed on, the loop would take its leave for up to 30 s.
            connection.close()
            raise
        return connection

    async def close(self) -> None:
        """Close the connections that are idle, and those in use when they have their reply."""
        self._is_closed = True
        while self._idle:
            self._idle.pop()[1].close()
        # Transports close in the loop's next rounds.
        await asyncio.sleep(0)


class _Connection(asyncio.Protocol):
    """One connection, with one request under way at most."""

    __slots__ = ("_clock", "_has_heard", "_reader", "_reply", "_silence_s", "_timer", "_transport", "_where", "is_open")

    def __init__(self, where: str, silence_s: float, clock: Clock) -> None:
        self._where = where
        self._silence_s = silence_s
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._reader = ReplyReader()
        self._reply: asyncio.Future[Reply] | None = None
        self._timer: Timer | None = None
        self._has_heard = False
        self.is_open = False

    async def exchange(self, request: bytes) -> Reply:
        """The reply to ``request``."""
        assert self._transport is not None
        self._reader = ReplyReader()
        self._reply = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        self._has_heard = False
        self._timer = self._clock.call_later(self._silence_s, self._watch)
        try:
            return await self._reply
        finally:
            self._timer.cancel()
            self._reply = None

    def has_news(self) -> bool:
        """Whether something has come that the loop has not looked at yet: while nothing is asked, that is an end.

        The loop of a process that was frozen only looks after its first step, and that is when a call is made.
        """
        assert self._transport is not None
        its_socket = self._transport.get_extra_info("socket")
        if self._transport.is_closing() or its_socket is None or its_socket.fileno() < 0:
            # Lost already, of which the loop tells in one of its next rounds.
            return True
        waiting = select.poll()
        waiting.register(its_socket.fileno(), select.POLLIN)
        return bool(waiting.poll(0))

    def close(self) -> None:
        """End it at once."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def _watch(self) -> None:
        if self._has_heard:
            self._has_heard = False
            self._timer = self._clock.call_later(self._silence_s, self._watch)
        else:
            self._fail(ReadTimeoutError(endpoint_url=self._where))

    def _fail(self, error: Exception) -> None:
        self.is_open = False
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(error)

    # --- what the loop calls ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        self._has_heard = True
        if self._reply is None or self._reply.done():
            # Nothing was asked: what comes now would be taken for the next reply.
            self.close()
            return
        try:
            reply = self._reader.feed(data)
        except UnreadableReplyError as error:
            self._fail(HTTPClientError(error=error))
            return
        if reply is not None:
            self._reply.set_result(reply)

    def eof_received(self) -> None:
        self.is_open = False
        if self._reply is None or self._reply.done():
            return
        try:
            self._reply.set_result(self._reader.end())
        except UnreadableReplyError as error:
            self._fail(ConnectionClosedError(endpoint_url=self._where, error=error))

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(ConnectionClosedError(endpoint_url=self._where, error=error))
