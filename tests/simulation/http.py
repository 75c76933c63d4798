"""The HTTP API as callers meet it: the production application called in process, and answers that get lost."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlencode

from engine.values import decode, encode
from handlers.api import ApiFunction
from handlers.bodies import plain
from tests.simulation.wire import ProcessDiedError

if TYPE_CHECKING:
    from handlers.bootstrap import Wiring
    from tests.simulation.sandbox import Sandbox
    from tests.simulation.world import World

API_TIMEOUT_S = 29.0
"""Seconds after which the function of the API is ended. Source: the template."""

LOST_SHARE = 0.03
"""How many answers never reach their callers."""

CBOR_SHARE = 0.2
"""How many callers send and want CBOR; the others JSON."""

ABSENT: Any = object()
"""Stands for a body that is not sent."""


class RefusedError(Exception):
    """The API has refused a call: the workflow has ended, or is not there any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCall:
    """What a caller sends; ``began_us`` is when, ``life`` which life of a workflow it means (empty: none)."""

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    value: Any = ABSENT
    timeout_s: float = API_TIMEOUT_S
    life: str = ""
    began_us: int = 0

    @property
    def verb(self) -> str:
        """What it asks for: the last part of its address where that is an operation's name, else its method."""
        parts = self.path.split("/")
        return "send" if "messages" in parts else parts[3] if len(parts) > 3 else self.method


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """What comes back: a status, and the body as a value."""

    status: int
    value: Any


def address(*parts: str) -> str:
    """The path of these parts under ``/workflows``."""
    return "/".join(("/workflows", *(quote(part, safe="") for part in parts)))


@dataclass(frozen=True, slots=True)
class InvocationContext:
    """What Lambda tells a function of its invocation."""

    wiring: Wiring
    deadline_ms: float

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the process is ended."""
        return round(self.deadline_ms - self.wiring.clock.now())


class HttpFunction:
    """The function of the API in one process: as in production, but for Mangum, which translates Lambda's events.

    What an invocation leaves running is ended by the process, as it is for every other function.
    """

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._function = ApiFunction(wiring)

    async def answer(self, call: HttpCall, media_type: str) -> HttpAnswer:
        """Have the application answer one call in ``media_type``."""
        body = b"" if call.value is ABSENT else _write(call.value, media_type)
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        deadline_ms = self._wiring.clock.now() + call.timeout_s * 1000
        headers = {"accept": media_type, "content-type": media_type, **call.headers}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": call.method,
            "scheme": "https",
            # API Gateway hands it on decoded.
            "path": unquote(call.path),
            "root_path": "",
            "query_string": urlencode(call.query).encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
            "server": ("simulated", 443),
            "client": None,
            "aws.context": InvocationContext(self._wiring, deadline_ms),
        }
        await self._function._served(scope, receive, send)
        text = b"".join(message.get("body", b"") for message in sent)
        told = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        value = plain(decode(text)) if told["content-type"] == "application/cbor" else json.loads(text)
        return HttpAnswer(status=sent[0]["status"], value=value)


def _write(value: Any, media_type: str) -> bytes:
    return encode(value) if media_type == "application/cbor" else json.dumps(value).encode()


class HttpClient:
    """Calls the API from outside, on the loop of the callers."""

    def __init__(self, world: World, loop: Any) -> None:
        self._world = world
        self._loop = loop

    async def once(self, call: HttpCall) -> HttpAnswer:
        """One try; ``ProcessDiedError`` where no answer comes: the call may have had its effect."""
        world = self._world
        call = replace(call, began_us=world.timeline.now_us)
        media_type = "application/cbor" if world.plan.chance("cbor") < CBOR_SHARE else "application/json"

        async def work(sandbox: Sandbox) -> HttpAnswer:
            return await sandbox.api.answer(call, media_type)

        answer: HttpAnswer = await world.functions.call("api", self._loop, work, timeout_s=call.timeout_s)
        if not world.is_calm and world.plan.chance("lost answer") < LOST_SHARE:
            world.note(f"the answer to {call.method} {call.path} is lost: {answer.status}")
            raise ProcessDiedError("the answer was lost")
        world.note(f"{call.method} {call.path} is answered: {answer.status}")
        if answer.status >= 500 and answer.status != 503:
            world.bug(f"{call.method} {call.path} was answered with {answer.status}: {answer.value}")
        world.answered(call, answer)
        return answer
