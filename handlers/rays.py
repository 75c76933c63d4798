"""What ties a call to its log lines and to all that comes of it: its request id, and the ray id that it hands on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from adapters.dynamodb.rays import check_ray_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.ids import Ids

REQUEST_ID = "x-request-id"
"""The header of every answer that has the call's request id, as the API's log lines and its access log have it."""

RAY_ID = "X-Ray-Id"
"""The header in which a caller may give a ray id."""

_TRACE = "x-amzn-trace-id"
_ROOT = re.compile(r"(?:^|;)\s*Root=([0-9a-f]-[0-9a-f]{8}-[0-9a-f]{24})(?:;|$)")
_REQUEST_ID = re.compile(r"[!-~]{1,128}")


def request_id_of(scope: Mapping[str, Any]) -> str:
    """The id that the gateway has given a call, else that of the function's invocation; empty where nobody has."""
    event, context = scope.get("aws.event") or {}, scope.get("aws.context")
    request_id = event.get("requestContext", {}).get("requestId") or getattr(context, "aws_request_id", "")
    return request_id if isinstance(request_id, str) and _REQUEST_ID.fullmatch(request_id) else ""


def ray_id_of(headers: Mapping[str, str], ids: Ids, given: str | None = None) -> str:
    """The ray id of a call: what was ``given``, else its header's, else that of the trace it belongs to, or a new one.

    Raises:
        InvalidIdError: the caller's is none.
    """
    asked = headers.get(RAY_ID.lower()) if given is None else given
    if asked is not None:
        check_ray_id(asked)
        return asked
    traced = _ROOT.search(headers.get(_TRACE, ""))
    return ids.new() if traced is None else traced[1]
