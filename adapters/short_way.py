"""The short way to an AWS service that speaks JSON: a call is encoded, signed, posted and decoded, and nothing else.

The generic client looks up in models, at every call, what never changes for ours: an endpoint, a shape, a user agent,
some twenty hooks. That costs more processor time than all the rest of the call. Where it goes and as whom is still the
generic client's to say; what is answered and what fails reads as there.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from botocore.exceptions import ClientError, HTTPClientError

from adapters.signing import Signer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from adapters.http_reply import Reply
    from adapters.posting import Poster
    from adapters.signing import Keys
    from engine.driver import Clock

_OK = 200

_AS_IT_IS = {"accept-encoding": "identity"}
"""What the generic client says too: not packed. Whoever says nothing of it takes anything, also from a proxy."""


class Credentials(Protocol):
    """Where keys come from: an aiobotocore session's credentials, which renew themselves."""

    async def get_frozen_credentials(self) -> Keys:
        """The keys of now."""


class Answerer(Protocol):
    """Makes of a body what the caller reads; the generic client's own shapes."""

    def __call__(self, body: bytes, /) -> dict[str, Any]:
        """The answer; raises ``msgspec.MsgspecError`` where the body is none."""


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """Which service it is.

    Attributes:
        name: its name in signatures, such as ``"dynamodb"``.
        region: its region.
        target: what stands before an operation's name in the header ``X-Amz-Target``.
    """

    name: str
    region: str
    target: str


class ShortWay:
    """Calls one service, each once: who calls decides about trying again.

    Args:
        poster: carries the requests to where the service is.
        service: which it is.
        credentials: as whom.
        clock: dates requests.
        answerer: reads the bodies of answers.
        trace: the header that ties a call to the invocation it is made in, or None where there is none.
    """

    __slots__ = ("_answerer", "_clock", "_credentials", "_poster", "_signer", "_target", "_trace")

    def __init__(
        self,
        poster: Poster,
        service: Service,
        credentials: Credentials,
        clock: Clock,
        *,
        answerer: Answerer,
        trace: Callable[[], str | None] = lambda: None,
    ) -> None:
        address = poster.address
        self._poster = poster
        self._credentials = credentials
        self._clock = clock
        self._answerer = answerer
        self._trace = trace
        self._target = service.target
        self._signer = Signer(service=service.name, region=service.region, host=address.netloc, path=address.path)

    async def call(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of one call.

        Raises:
            ClientError: the service refuses; what it says is in ``response``, as from the generic client.
            botocore.exceptions.BotoCoreError: no answer came, or a damaged one; which of them, as ``Poster.post`` says.
        """
        body = msgspec.json.encode(arguments)
        headers = {"content-type": "application/x-amz-json-1.0", "x-amz-target": f"{self._target}.{operation}"}
        keys = await self._credentials.get_frozen_credentials()
        signed = self._signer.signed(keys, headers, body, self._clock.now()) | _AS_IT_IS
        trace = self._trace()
        if trace:
            signed["x-amzn-trace-id"] = trace
        reply = await self._poster.post(signed, body)
        _check(reply)
        if reply.status != _OK:
            raise self._refusal(operation, reply)
        try:
            return self._answerer(reply.body)
        except msgspec.MsgspecError as error:
            raise HTTPClientError(error=f"the answer to {operation} cannot be read: {error}") from error

    def _refusal(self, operation: str, reply: Reply) -> ClientError:
        try:
            told = self._answerer(reply.body)
        except msgspec.MsgspecError:
            # A load balancer's page: what counts is the status.
            told = {}
        code = str(told.pop("__type", "")).rpartition("#")[2].partition(":")[0]
        error = {"Code": code, "Message": told.pop("message", None) or told.pop("Message", "")}
        about = {"HTTPStatusCode": reply.status, "RequestId": reply.headers.get("x-amzn-requestid", "")}
        return ClientError({**told, "Error": error, "ResponseMetadata": about}, operation)


def _check(reply: Reply) -> None:
    checksum = reply.headers.get("x-amz-crc32")
    if checksum is not None and checksum != str(zlib.crc32(reply.body)):
        raise HTTPClientError(error="an answer was damaged on its way")
