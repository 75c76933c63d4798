"""A client of torpor's HTTP interface whose requests are signed, as the deployed API asks."""

from __future__ import annotations

import contextlib
import http.client
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest

from infra.fault import CalledWronglyError, DeployError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from botocore.credentials import Credentials

SERVICE = "execute-api"
"""What requests to an HTTP API are signed for."""

TIMEOUT_S = 40.0
"""Seconds without an answer after which a request is given up: the HTTP API itself gives up after 30."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer of the API: its status, its headers with lower-case names, its bytes."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_success(self) -> bool:
        """Whether the status is one of 200 to 299."""
        return http.client.OK <= self.status < http.client.MULTIPLE_CHOICES

    def json(self) -> Any:
        """The body as JSON; None where it is empty; raises ValueError where it is not JSON."""
        return json.loads(self.body) if self.body else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiClient:
    """Signs and sends requests; it holds no connection, so threads may share it.

    Attributes:
        url: where the API listens: scheme, host and port; a path in it goes before every path asked for.
        region: what requests are signed for.
        credentials: whose requests they are: botocore's ``Credentials``.
        host: the Host header, where it differs from the host in ``url`` (the local AWS tells APIs apart by it).
    """

    url: str
    region: str
    credentials: Credentials
    host: str | None = None

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | Sequence[str]] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send one request.

        Args:
            method: the HTTP method.
            path: begins with ``/``; its segments are percent-encoded already (``segment``).
            query: parameters of the query; one with several values is repeated.
            body: the bytes to send, if any.
            headers: further headers; a body without a content type is taken for JSON.

        Raises:
            DeployError: no answer came.
            CalledWronglyError: a parameter is no text that could be sent.
        """
        target = urlsplit(self.url)
        full_path = target.path.rstrip("/") + path + (f"?{_query(query)}" if query else "")
        signed = self._signed(method, f"{target.scheme}://{target.netloc}{full_path}", body, headers or {})
        secure = target.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(target.hostname or "", target.port, timeout=TIMEOUT_S)
        with contextlib.closing(connection):
            try:
                connection.request(method, full_path, body, signed)
                answer = connection.getresponse()
                received = {name.lower(): value for name, value in answer.getheaders()}
                return Reply(status=answer.status, headers=received, body=answer.read())
            # A host that cannot be one is found when it is looked up, as an error of encodings.
            except (OSError, http.client.HTTPException, UnicodeError) as error:
                raise DeployError(f"No answer from {self.url}: {error or type(error).__name__}") from error

    def _signed(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> dict[str, str]:
        complete = {"Host": self.host or urlsplit(url).netloc, **headers}
        if body is not None and "content-type" not in {name.lower() for name in headers}:
            complete["Content-Type"] = "application/json"
        request = AWSRequest(method=method, url=url, data=body, headers=complete)
        SigV4Auth(self.credentials, SERVICE, self.region).add_auth(request)
        return dict(request.headers.items())


def segment(text: str) -> str:
    """An id, type or name as one segment of a path.

    Raises:
        CalledWronglyError: none can say it: API Gateway takes a question mark, however it is written, for the end of a
            path, and would call something else; or it is no text.
    """
    if "?" in text:
        raise CalledWronglyError(f"{text!r} holds a question mark, which no address of an HTTP API can say.")
    return _quoted(text)


def _query(query: Mapping[str, str | Sequence[str]]) -> str:
    pairs = [(name, one) for name, told in query.items() for one in ([told] if isinstance(told, str) else told)]
    # A space is %20: whoever checks the signature reads a "+" as one and signs that.
    return "&".join(f"{_quoted(name)}={_quoted(one)}" for name, one in pairs)


def _quoted(text: str) -> str:
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        # Half a character: an argument that is no UTF-8, or what was escaped in somebody's JSON.
        raise CalledWronglyError(f"{text!r} is no valid Unicode text.") from None
