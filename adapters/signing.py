"""AWS's Signature Version 4 for one kind of request: a POST of JSON to one address, as all our hot calls are. Pure."""

from __future__ import annotations

import functools
import hashlib
import hmac
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

ALGORITHM = "AWS4-HMAC-SHA256"
"""What a signature is made with, as requests say it. Source: AWS's Signature Version 4."""


class Keys(Protocol):
    """Whose requests they are, as botocore's frozen credentials say it."""

    @property
    def access_key(self) -> str:
        """The public part."""

    @property
    def secret_key(self) -> str:
        """What signs."""

    @property
    def token(self) -> str | None:
        """Of a session; None where the keys are lasting ones."""


class Signer:
    """Signs the requests to ``service`` in ``region`` that go to ``path`` of ``host``.

    What is the same for a day, the key that is made from a secret, is made once.
    """

    __slots__ = ("_host", "_key", "_made_for", "_path", "_region", "_service")

    def __init__(self, *, service: str, region: str, host: str, path: str) -> None:
        self._service = service
        self._region = region
        self._host = host
        self._path = path
        self._made_for = ("", "")
        self._key = b""

    def signed(self, keys: Keys, headers: Mapping[str, str], body: bytes, now: int) -> dict[str, str]:
        """``headers`` (names in lower case) with those that prove whose request it is, at ``now`` in milliseconds."""
        at = _date(now // 1000)
        day = at[:8]
        told = {**headers, "host": self._host, "x-amz-date": at}
        if keys.token:
            told["x-amz-security-token"] = keys.token
        names = ";".join(sorted(told))
        lines = "".join(f"{name}:{told[name]}\n" for name in sorted(told))
        digest = hashlib.sha256(body).hexdigest()
        request = f"POST\n{self._path}\n\n{lines}\n{names}\n{digest}"
        scope = f"{day}/{self._region}/{self._service}/aws4_request"
        text = f"{ALGORITHM}\n{at}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        signature = hmac.digest(self._key_of(keys.secret_key, day), text.encode(), "sha256").hex()
        credential = f"{keys.access_key}/{scope}"
        told["authorization"] = f"{ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"
        return told

    def _key_of(self, secret: str, day: str) -> bytes:
        if self._made_for != (secret, day):
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, self._service, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._made_for, self._key = (secret, day), key
        return self._key


@functools.lru_cache(maxsize=1)
def _date(now_s: int) -> str:
    return datetime.fromtimestamp(now_s, UTC).strftime("%Y%m%dT%H%M%SZ")
