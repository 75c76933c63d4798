"""The clients of AWS that a process keeps: the short way to the table and the queue, the generic client to the rest."""

from __future__ import annotations

import asyncio
import functools
import ssl
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.httpsession import get_cert_path
from botocore.utils import get_environ_proxies

from adapters import sqs
from adapters.dynamodb import client as dynamodb
from adapters.posting import Address, Limits, Poster
from adapters.short_way import Service, ShortWay
from adapters.signing import ALGORITHM

if TYPE_CHECKING:
    from collections.abc import Callable

    from adapters.dynamodb.table import Client
    from adapters.short_way import Answerer
    from engine.driver import Clock

CONNECT_TIMEOUT_S = 2.0
READ_TIMEOUT_S = 5.0
"""Seconds until a call to AWS is given up and tried again. Design choice: AWS answers in milliseconds, and a connection
that a frozen process kept may be dead."""

CONNECTIONS_MAX = 50
"""Connections to one service. Design choice: a batch of workflows whose branches all commit at once."""

_LIMITS = Limits(connect_timeout_s=CONNECT_TIMEOUT_S, read_timeout_s=READ_TIMEOUT_S, connections_max=CONNECTIONS_MAX)


class Clients:
    """One process's clients: each is made when first asked for, on the process's loop, and kept.

    Args:
        clock: dates requests.
        trace: what ties a call to the invocation that it is made in, as Lambda says it; None where it says nothing.
    """

    def __init__(self, clock: Clock, *, trace: Callable[[], str | None]) -> None:
        self._clock = clock
        self._trace = trace
        self._open = AsyncExitStack()
        self._generic: dict[str, Any] = {}
        self._short: dict[str, Any] = {}

    async def generic(self, service: str) -> Any:
        """The aiobotocore client of a service."""
        if service not in self._generic:
            made = _session().create_client(service, config=_config(service))
            # Another call may have made one while we waited; then ours is closed with the rest and never used.
            client = await self._open.enter_async_context(made)
            self._generic.setdefault(service, client)
        return self._generic[service]

    async def dynamodb(self) -> Client:
        """The client of a table."""
        if "dynamodb" not in self._short:
            generic = await self.generic("dynamodb")
            way = await self._way(generic, "list_tables", dynamodb.TARGET, dynamodb.read_answer)
            self._short["dynamodb"] = generic if way is None else dynamodb.DynamoClient(way)
        client: Client = self._short["dynamodb"]
        return client

    async def sqs(self) -> sqs.SqsClient:
        """The client of the wake queue."""
        if "sqs" not in self._short:
            generic = await self.generic("sqs")
            way = await self._way(generic, "list_queues", sqs.TARGET, msgspec.json.Decoder(dict).decode)
            self._short["sqs"] = generic if way is None else sqs.ShortSqs(way, generic)
        client: sqs.SqsClient = self._short["sqs"]
        return client

    async def _way(self, generic: Any, operation: str, target: str, answerer: Answerer) -> ShortWay | None:
        """The short way to where ``generic`` goes for ``operation``; None where only that one knows how."""
        credentials = await _session().get_credentials()
        found = None if credentials is None else await destination(generic, operation)
        if found is None or get_environ_proxies(found.url):
            return None
        tls = await asyncio.to_thread(_tls) if found.url.startswith("https:") else None
        poster = Poster(Address.of(found.url, tls), _LIMITS, self._clock)
        self._open.push_async_callback(poster.close)
        about = Service(name=found.service, region=found.region, target=target)
        return ShortWay(poster, about, credentials, self._clock, answerer=answerer, trace=self._trace)

    async def close(self) -> None:
        """Close them all; for tests and tools."""
        await self._open.aclose()


class Destination(msgspec.Struct, frozen=True):
    """Where a service is called, and for which service and region calls to there are signed."""

    url: str
    service: str
    region: str


async def destination(generic: Any, operation: str) -> Destination | None:
    """Where ``generic`` goes for ``operation``, one without arguments; None where it signs in a way that is not ours.

    What a client says of itself (``meta.endpoint_url``) is a guess that its rules may overrule at each call, as they do
    for FIPS in GovCloud, in secret partitions and where a table is called at an account's own address.
    """
    parts = urlsplit(await generic.generate_presigned_url(operation))
    told = parse_qs(parts.query)
    if told.get("X-Amz-Algorithm") != [ALGORITHM]:
        return None
    _, _, region, service, _ = told["X-Amz-Credential"][0].rsplit("/", 4)
    return Destination(f"{parts.scheme}://{parts.netloc}{parts.path}", service, region)


@functools.cache
def _session() -> Any:
    # One a process: it keeps what it has read of the services' models.
    return get_session()


@functools.cache
def _tls() -> ssl.SSLContext:
    """Trusts whom the generic client trusts."""
    made = ssl.create_default_context(cafile=get_cert_path(_session().get_config_variable("ca_bundle") or True))
    # From Python 3.13 on a context refuses what many a company's own authority signs, and the generic client takes.
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return made


def _config(service: str) -> AioConfig:
    # The store and the bus try again themselves, knowing what may be repeated; for a wake two more tries are enough.
    attempts = 1 if service in {"dynamodb", "events"} else 3
    return AioConfig(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        max_pool_connections=CONNECTIONS_MAX,
        retries={"total_max_attempts": attempts, "mode": "standard"},
        # The adapters build every request themselves, in forms that their tests have validated against the service.
        parameter_validation=False,
    )
