"""What ties a call to its log lines and to all that comes of it: its request id, and the ray id that it hands on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from adapters.dynamodb.model.origins import check_ray_id, is_request_id
from engine.origin import Origin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.ids import Ids
    from handlers.calls import Call

REQUEST_ID = "x-request-id"
"""The header of every answer that has the call's request id, as the API's log lines and its access log have it."""

RAY_ID = "X-Ray-Id"
"""The header in which a caller may give a ray id."""

_TRACE = "x-amzn-trace-id"
_ROOT = re.compile(r"(?:^|;)\s*Root=([0-9a-f]-[0-9a-f]{8}-[0-9a-f]{24})(?:;|$)")


def request_id_of(scope: Mapping[str, Any]) -> str:
    """The id that the gateway has given a call, else that of the function's invocation; empty where nobody has."""
    event, context = scope.get("aws.event") or {}, scope.get("aws.context")
    request_id = event.get("requestContext", {}).get("requestId") or getattr(context, "aws_request_id", "")
    return request_id if is_request_id(request_id) else ""


def origin_of(call: Call, ids: Ids, given: str | None = None) -> Origin:
    """Where what a call begins comes from.

    Its ray id is the one that was ``given``, else that of the call's header, else that of the trace which the call
    belongs to, or a new one.

    Raises:
        InvalidIdError: the caller's ray id is none.
    """
    asked = call.headers.get(RAY_ID.lower()) if given is None else given
    if asked is not None:
        check_ray_id(asked)
        return Origin(ray_id=asked, request_id=call.request_id)
    traced = _ROOT.search(call.headers.get(_TRACE, ""))
    return Origin(ray_id=ids.new() if traced is None else traced[1], request_id=call.request_id)


def told_origin(origin: Origin) -> dict[str, str | None]:
    """An origin as the members of an answer; None where it is unknown."""
    return {name: value or None for name, value in asdict(origin).items()}
