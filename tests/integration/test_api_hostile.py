"""The API under requests made from its own document, valid and not: no 5xx, and no answer it does not tell of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import cbor2
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from engine import Context, workflow
from handlers import openapi
from handlers.routes import ROUTES
from tests.integration.http import Caller

if TYPE_CHECKING:
    from schemathesis import Case

    from handlers.bootstrap import Wiring

SCHEMA = schemathesis.openapi.from_dict(openapi.document(ROUTES))
KNOWN = "hostile"
"""An id, a type and a schedule that exist, so that not every generated request stops at 404."""

CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@schemathesis.serializer("application/cbor")
def as_cbor(_context: Any, value: Any) -> bytes:
    return cbor2.dumps(value)


@schemathesis.deserializer("application/cbor")
def from_cbor(_context: Any, response: Response) -> Any:
    return cbor2.loads(response.content)


@workflow(KNOWN)
async def hostile(ctx: Context, _input: Any) -> Any:
    return await ctx.queue.next("go")


@pytest.fixture
def http(wiring: Wiring) -> Caller:
    caller = Caller(wiring)
    assert caller.post(f"/workflows/{KNOWN}", {"id": KNOWN}).status == 201
    assert caller.post("/schedules", {"name": KNOWN, "every": "1d", "type": KNOWN}).status == 201
    return caller


def answered(http: Caller, case: Case[Any]) -> Response:
    """What the function answers to a generated request, as an HTTP client would see it."""
    sent: Any = requests.Request(**case.as_transport_kwargs(base_url="http://127.0.0.1")).prepare()
    target = urlsplit(str(sent.url))
    answer = http.call(
        str(sent.method),
        target.path,
        body=sent.body.encode() if isinstance(sent.body, str) else sent.body or b"",
        query=dict(parse_qsl(target.query, keep_blank_values=True)),
        headers={name.lower(): str(value) for name, value in sent.headers.items()},
        content_type=sent.headers.get("content-type", ""),
        remaining_ms=2_000,
    )
    headers = {name: [value] for name, value in answer.headers.items()}
    return Response(answer.status, headers, answer.body, sent, elapsed=0.1, verify=False, encoding="utf-8")


@SCHEMA.parametrize()
@settings(max_examples=15, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
def test_no_generated_request_gets_an_undocumented_answer(http: Caller, case: Case[Any]) -> None:
    case.validate_response(answered(http, case), checks=CHECKS)
    for name in ("name",) if case.path.startswith("/schedules/") else ("id", "id_or_type"):
        if name in case.path_parameters:
            case.path_parameters[name] = KNOWN
            if case.method != "DELETE":
                case.validate_response(answered(http, case), checks=CHECKS)
