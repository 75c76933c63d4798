"""The HTTP API as a Lambda function: Starlette behind Mangum, one table of routes, problems for every refusal."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from mangum import Mangum
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Address

from engine.errors import ControlFlow, OperatorError
from handlers import bodies, bootstrap, logs, openapi, origins, problems, traces
from handlers.calls import Answer, Call
from handlers.envelope import fitting
from handlers.operations import Ports
from handlers.problems import METHOD_NOT_ALLOWED, NO_SUCH_ROUTE, Problem
from handlers.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.types import Message, Receive, Scope, Send

    from handlers.bootstrap import Wiring
    from handlers.routes import Route

logger = logging.getLogger(__name__)

BAD_REQUEST = 400
"""The first status that refuses a call."""

DEADLINE_MS = 30_000
"""Milliseconds a call may take where nobody says (a server that is not Lambda). Source: the HTTP API's own timeout."""


class Endpoint:
    """Everything that can be done at one address.

    Args:
        routes: the operations of the address, by method.
        ports: makes what the operations act on; it is asked at each call.
        wiring: says by when a call must be answered, and is told of it where it is traced.
    """

    def __init__(self, routes: Mapping[str, Route], ports: Callable[[], Awaitable[Ports]], wiring: Wiring) -> None:
        self._routes = routes
        self._path = _as_told(next(iter(routes.values())).path)
        self._ports = ports
        self._clock = wiring.clock
        self._traces = wiring.traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; whatever goes wrong is a problem document."""
        request = Request(scope, receive)
        with self._traces.subsegment(f"{request.method} {self._path}", request_id=origins.request_id_of(scope)):
            try:
                response = await self._respond(request)
            except (Exception, ControlFlow) as error:  # noqa: BLE001 - the edge: every error becomes an answer
                response = refusal(_told(error, scope))
            if response.status_code >= BAD_REQUEST:
                traces.mark("error" if response.status_code < problems.UNEXPECTED.status else "fault")
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        # HEAD is GET whose body nobody sends on.
        method = "GET" if request.method == "HEAD" else request.method
        route = self._routes.get(method)
        if route is None:
            allowed = ", ".join(sorted(self._routes))
            raise Problem(METHOD_NOT_ALLOWED, f"Allowed here: {allowed}.", {"allow": allowed})
        call = await self._call(request)
        traces.annotate(workflow_id=call.path.get("id", ""))
        answer = await route.act(await self._ports(), call)
        return _response(answer, bodies.wanted(call.headers.get("accept")))

    async def _call(self, request: Request) -> Call:
        context = request.scope.get("aws.context")
        remaining_ms = DEADLINE_MS if context is None else context.get_remaining_time_in_millis()
        return Call(
            path=request.path_params,
            query=dict(request.query_params),
            repeated={name: request.query_params.getlist(name) for name in request.query_params},
            # Not request.headers: that reads bytes as Latin-1, and Mangum wrote them as UTF-8.
            headers={name.decode().lower(): value.decode("utf-8", "replace") for name, value in request.headers.raw},
            body=await request.body(),
            deadline_ms=self._clock.now() + remaining_ms,
            request_id=origins.request_id_of(request.scope),
        )


def _response(answer: Answer, media_type: str) -> Response:
    headers = {**bodies.headers(media_type), **answer.headers}
    return Response(bodies.write(answer.value, media_type), answer.status, headers)


def refusal(problem: Problem) -> Response:
    """The answer that is ``problem``."""
    headers = {**bodies.headers(problems.MEDIA_TYPE), **problem.headers}
    return Response(problem.document(), problem.kind.status, headers)


def _told(error: BaseException, scope: Scope) -> Problem:
    problem = problems.from_error(error)
    if problem.kind.status >= problems.UNEXPECTED.status:
        where = {"method": scope["method"], "problem": problem.kind.name, "error": type(error).__name__}
        is_ours = isinstance(error, OperatorError)
        logger.error(
            "call failed", extra=where, exc_info=error if is_ours or problem.kind is problems.UNEXPECTED else None
        )
    return problem


def application(ports: Callable[[], Awaitable[Ports]], wiring: Wiring) -> Starlette:
    """The ASGI application that serves the table of routes."""
    by_path: dict[str, dict[str, Route]] = {}
    for route in ROUTES:
        by_path.setdefault(route.path, {})[route.method] = route
    addresses = [Address(_pattern(path), Endpoint(routes, ports, wiring)) for path, routes in by_path.items()]
    served = Starlette(
        routes=[Address("/openapi.json", _openapi, methods=["GET"]), *addresses],
        exception_handlers={404: _nothing_here, 405: _wrong_method},
    )
    # An id may end in a slash: nothing may be redirected to an address without it.
    served.router.redirect_slashes = False
    return served


def _pattern(path: str) -> str:
    return path.replace("}", ":path}")


def _as_told(path: str) -> str:
    # A trace's names hold no braces.
    return path.replace("{", ":").replace("}", "")


async def _openapi(_request: Request) -> Response:
    return _response(Answer(value=_document()), bodies.JSON)


@functools.cache
def _document() -> dict[str, Any]:
    return openapi.document(ROUTES)


async def _nothing_here(request: Request, _error: Exception) -> Response:
    return refusal(Problem(NO_SUCH_ROUTE, f"Nothing is at {request.url.path}; see /openapi.json."))


async def _wrong_method(_request: Request, _error: Exception) -> Response:
    return refusal(Problem(METHOD_NOT_ALLOWED, "Allowed here: GET.", {"allow": "GET"}))


class ApiFunction:
    """The Lambda function, bound to a process and its adapters."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._served = application(self._ports, wiring)
        wiring.process.make_current()
        # What is not text travels as base64; problems are read by people too.
        self._mangum = Mangum(self._guarded, lifespan="off", text_mime_types=[bodies.JSON, problems.MEDIA_TYPE])

    def __call__(self, event: dict[str, Any], context: Any) -> dict[str, Any]:
        """Answer one event of an HTTP API (payload version 2.0)."""
        self._wiring.process.make_current()
        return fitting(self._mangum(event, context))

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = origins.request_id_of(scope)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start" and request_id:
                message["headers"] = [*message["headers"], (origins.REQUEST_ID.encode(), request_id.encode())]
            await send(message)

        try:
            with logs.about(request_id=request_id):
                await self._served(scope, receive, send_with_id)
        finally:
            await self._wiring.process.settle()

    async def _ports(self) -> Ports:
        wiring = self._wiring
        return Ports(
            store=await wiring.store(),
            queue=await wiring.queue(),
            alarms=await wiring.alarms(),
            clock=wiring.clock,
            ids=wiring.ids,
            application=wiring.application,
        )


@functools.cache
def _function() -> ApiFunction:
    return ApiFunction(bootstrap.wiring())


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Lambda's entry point."""
    return _function()(event, context)
