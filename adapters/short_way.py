"""The short way to an AWS service that speaks JSON: a call is encoded, signed, posted and decoded, and nothing else.

The generic client looks up in models, at every call, what never changes for ours: an endpoint, a shape, a user agent,
some twenty hooks. That costs more processor time than all the rest of the call. Where it goes and as whom is still the
generic client's to say; what is answered and what fails reads as there.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import aiohttp
import msgspec
from aiohttp import ClientSession
from botocore.exceptions import ClientError
from yarl import URL

from adapters.signing import Signer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from adapters.signing import Keys
    from engine.driver import Clock

KEEP_ALIVE_S = 12.0
"""Seconds that an idle connection is kept. Source: the same as aiobotocore; the services keep them longer."""

_OK = 200


class Credentials(Protocol):
    """Where keys come from: an aiobotocore session's credentials, which renew themselves."""

    async def get_frozen_credentials(self) -> Keys:
        """The keys of now."""


class Answerer(Protocol):
    """Makes of a body what the caller reads; the generic client's own shapes."""

    def __call__(self, body: bytes, /) -> dict[str, Any]:
        """The answer; raises ``msgspec.MsgspecError`` where the body is none."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a service is.

    Attributes:
        endpoint: its URL.
        region: its region.
        service: its name in signatures, such as ``"dynamodb"``.
        target: what stands before an operation's name in the header ``X-Amz-Target``.
    """

    endpoint: str
    region: str
    service: str
    target: str


class ShortWay:
    """Calls one service, each once: who calls decides about trying again.

    Args:
        http: what carries the requests; it is not closed here.
        address: where the service is.
        credentials: as whom.
        clock: dates requests.
        answerer: reads the bodies of answers.
        trace: the header that ties a call to the invocation it is made in, or None where there is none.
    """

    __slots__ = ("_answerer", "_clock", "_credentials", "_http", "_signer", "_target", "_trace", "_url")

    def __init__(
        self,
        http: ClientSession,
        address: Address,
        credentials: Credentials,
        clock: Clock,
        *,
        answerer: Answerer,
        trace: Callable[[], str | None] = lambda: None,
    ) -> None:
        url = urlsplit(address.endpoint)
        path = url.path or "/"
        self._http = http
        self._credentials = credentials
        self._clock = clock
        self._answerer = answerer
        self._trace = trace
        self._target = address.target
        self._url = URL(f"{url.scheme}://{url.netloc}{path}", encoded=True)
        self._signer = Signer(service=address.service, region=address.region, host=url.netloc, path=path)

    async def call(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of one call.

        Raises:
            ClientError: the service refuses; what it says is in ``response``, as from the generic client.
            aiohttp.ClientError, TimeoutError, OSError: no answer came, or a damaged one.
        """
        body = msgspec.json.encode(arguments)
        headers = {"content-type": "application/x-amz-json-1.0", "x-amz-target": f"{self._target}.{operation}"}
        keys = await self._credentials.get_frozen_credentials()
        signed = self._signer.signed(keys, headers, body, self._clock.now())
        trace = self._trace()
        if trace:
            signed["x-amzn-trace-id"] = trace
        async with self._http.post(self._url, data=body, headers=signed, allow_redirects=False) as response:
            told = await response.read()
        _check(told, response.headers.get("x-amz-crc32"))
        if response.status != _OK:
            raise self._refusal(operation, response.status, told)
        try:
            return self._answerer(told)
        except msgspec.MsgspecError as error:
            raise aiohttp.ClientPayloadError(f"the answer to {operation} cannot be read: {error}") from error

    def _refusal(self, operation: str, status: int, body: bytes) -> ClientError:
        try:
            told = self._answerer(body)
        except msgspec.MsgspecError:
            # A load balancer's page: what counts is the status.
            told = {}
        code = str(told.pop("__type", "")).rpartition("#")[2].partition(":")[0]
        error = {"Code": code, "Message": told.pop("message", None) or told.pop("Message", "")}
        return ClientError({**told, "Error": error, "ResponseMetadata": {"HTTPStatusCode": status}}, operation)


def _check(body: bytes, checksum: str | None) -> None:
    if checksum is not None and checksum != str(zlib.crc32(body)):
        raise aiohttp.ClientPayloadError("an answer was damaged on its way")


def open_http(*, connect_timeout_s: float, read_timeout_s: float, connections_max: int, tls: Any) -> ClientSession:
    """What carries the requests of a process to each service, at most ``connections_max`` at once to each.

    ``tls`` is the context for HTTPS; whoever calls closes the answer.
    """
    return ClientSession(
        connector=aiohttp.TCPConnector(
            limit=0, limit_per_host=connections_max, keepalive_timeout=KEEP_ALIVE_S, ssl=tls
        ),
        timeout=aiohttp.ClientTimeout(sock_connect=connect_timeout_s, sock_read=read_timeout_s),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"user-agent": "torpor", "accept-encoding": "identity"},
        auto_decompress=False,
    )
