"""A caller of the API function: requests as an HTTP API hands them to Lambda, answers as it would send them on."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlencode

import cbor2

from handlers.api import ApiFunction
from tests.integration.lambda_event import LambdaContext, recorded

if TYPE_CHECKING:
    from handlers.bootstrap import Wiring


@dataclass
class HttpAnswer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        if self.headers["content-type"] == "application/cbor":
            return cbor2.loads(self.body)
        return json.loads(self.body)


class Caller:
    """Calls the function ``wiring`` belongs to."""

    def __init__(self, wiring: Wiring) -> None:
        self._function = ApiFunction(wiring)

    def get(self, path: str, **more: Any) -> HttpAnswer:
        return self.call("GET", path, **more)

    def post(self, path: str, value: Any = None, **more: Any) -> HttpAnswer:
        body = more.pop("body", None)
        return self.call("POST", path, body=json.dumps(value).encode() if body is None else body, **more)

    def call(
        self,
        method: str,
        path: str,
        *,
        body: bytes = b"",
        query: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        content_type: str = "application/json",
        remaining_ms: int = 30_000,
        request_id: str | None = None,
    ) -> HttpAnswer:
        """``path`` is percent-encoded, as a client sends it; ``request_id`` is the gateway's."""
        event = self._event(method, path, query or {}, {"content-type": content_type, **(headers or {})})
        if request_id is not None:
            event["requestContext"]["requestId"] = request_id
        if body:
            is_text = content_type.partition(";")[0] == "application/json" and _is_utf8(body)
            event["body"] = body.decode() if is_text else base64.b64encode(body).decode()
            event["isBase64Encoded"] = not is_text
        answer = self._function(event, LambdaContext(remaining_ms))
        content = answer["body"]
        return HttpAnswer(
            answer["statusCode"],
            answer["headers"],
            base64.b64decode(content) if answer["isBase64Encoded"] else content.encode(),
        )

    @staticmethod
    def _event(method: str, path: str, query: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
        event = recorded("http_api_v2")
        # An HTTP API decodes every escape of a path but that of the percent sign; a path then ends at a "?".
        raw_path = unquote(path.replace("%25", "%2525")).partition("?")[0]
        event["rawPath"] = event["requestContext"]["http"]["path"] = raw_path
        event["requestContext"]["http"]["method"] = method
        event["rawQueryString"] = urlencode(query, doseq=True)
        event["headers"] |= headers
        return event


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
