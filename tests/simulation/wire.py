"""What lies between a process and AWS: latency, errors, answers that get lost, requests that arrive late, deaths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from botocore.exceptions import ClientError, ReadTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.plan import Fault
    from tests.simulation.sandbox import Sandbox
    from tests.simulation.world import World

READ_TIMEOUT_S = 5.0
"""Seconds after which a client gives an answer up, as in ``handlers.bootstrap``."""

OUTAGE_S_MAX = 25.0
FREEZE_S_MAX = 150.0
LATE_S_MAX = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call as AWS sees it: who sent it when (microseconds), in an invocation that began when, what it asks for."""

    ordinal: int
    sandbox: Sandbox
    sent_us: int
    began_us: int
    service: str
    operation: str
    arguments: dict[str, Any]

    @property
    def is_transaction(self) -> bool:
        """Whether it has a token that AWS may still be at work on."""
        return "ClientRequestToken" in self.arguments


class Service(Protocol):
    """A simulated service of AWS."""

    name: str

    def execute(self, request: Request) -> dict[str, Any]:
        """Do what is asked, at once; raises what the service answers."""

    def refusal(self, kind: str, request: Request) -> Exception:
        """The answer of a service that is ``throttled``, sees a ``conflict``, or finds the request ``in progress``."""


class ProcessDiedError(Exception):
    """The process that handled a call died, or its answer was lost: the caller has none."""


def answer_error(code: str, operation: str, *, status: int = 400, **more: Any) -> Exception:
    """An error as the client raises it."""
    response = {"Error": {"Code": code, "Message": code}, "ResponseMetadata": {"HTTPStatusCode": status}, **more}
    error: Exception = ClientError(response, operation)
    return error


class Wire:
    """Carries the calls of every process, and counts them; at ``quiet_us`` none is under way that was given up."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.calls = 0
        self.quiet_us = 0
        self._outage_until_us = 0

    async def call(self, sandbox: Sandbox, service: Service, operation: str, arguments: dict[str, Any]) -> Any:
        """One call from a process; what can go wrong with it is in the plan."""
        world = self._world
        ordinal, began_us = self.calls, sandbox.began_us
        self.calls += 1
        fault = world.fault_at(ordinal)
        kind = "" if fault is None else fault.kind
        amount = 0.0 if fault is None else fault.amount
        if fault is not None:
            world.note(f"{sandbox.name} meets {fault} in {service.name}.{operation}")
        if kind == "kill before":
            world.kill(sandbox, "killed before a call")
        if kind == "freeze before":
            world.freeze(sandbox, amount**3 * FREEZE_S_MAX)
        future = sandbox.loop.create_future()
        if kind in ("kill before", "freeze before"):
            # Sent only when (and if) this process goes on.
            pause = sandbox.loop.create_future()
            sandbox.loop.call_soon(pause.set_result, None)
            await pause
        request = Request(
            ordinal=ordinal,
            sandbox=sandbox,
            sent_us=world.timeline.now_us,
            began_us=began_us,
            service=service.name,
            operation=operation,
            arguments=arguments,
        )
        self._send(request, service, future, fault)
        return await future

    def _send(self, request: Request, service: Service, future: Any, fault: Fault | None) -> None:
        world = self._world
        timeline = world.timeline
        there_s = self._latency_s()
        kind = "" if fault is None else fault.kind
        if kind == "outage" and fault is not None:
            self._outage_until_us = timeline.now_us + int(fault.amount * OUTAGE_S_MAX * 1e6)
        if timeline.now_us < self._outage_until_us:
            timeline.after(
                there_s, self._fail, future, answer_error("InternalServerError", request.operation, status=500)
            )
            return
        match kind:
            case "throttled" | "conflict" | "in progress" if kind != "in progress" or not request.is_transaction:
                timeline.after(there_s, self._fail, future, service.refusal(kind, request))
            case "lost before":
                timeline.after(there_s, self._fail, future, ConnectionResetError("the connection was reset"))
            case "internal":
                error = answer_error("InternalServerError", request.operation, status=500)
                applies = fault is not None and fault.amount < 0.5
                timeline.after(there_s, self._arrive, request, service, future, error if applies else None, applies)
                if not applies:
                    timeline.after(there_s, self._fail, future, error)
            case "lost after":
                error = ConnectionResetError("the answer was lost")
                timeline.after(there_s, self._arrive, request, service, future, error, True)  # noqa: FBT003
            case "late" | "in progress":
                assert fault is not None
                late_s = fault.amount * (LATE_S_MAX if kind == "late" else 1.0)
                self.quiet_us = max(self.quiet_us, timeline.now_us + int((there_s + late_s) * 1e6))
                timeline.after(there_s + late_s, self._arrive, request, service, None, None, True)  # noqa: FBT003
                if kind == "late":
                    error = ReadTimeoutError(endpoint_url="simulated")
                    timeline.after(READ_TIMEOUT_S, self._fail, future, error)
                else:
                    timeline.after(there_s, self._fail, future, service.refusal(kind, request))
            case _:
                slow_s = fault.amount * 4 if kind == "slow" and fault is not None else 0.0
                timeline.after(there_s + slow_s, self._arrive, request, service, future, None, True, kind, fault)  # noqa: FBT003

    def _latency_s(self) -> float:
        return self._world.weather.latency_s * (0.2 + 2 * self._world.plan.chance("latency") ** 3)

    def _arrive(
        self,
        request: Request,
        service: Service,
        future: Any,
        error: Exception | None,
        applies: bool,  # noqa: FBT001
        kind: str = "",
        fault: Fault | None = None,
    ) -> None:
        if not applies:
            return
        world = self._world
        back_s = self._latency_s()
        try:
            answer = world.execute(request, service, back_s)
        except ClientError as refused:
            error = error or refused
            answer = {}
        if kind == "kill after":
            world.kill(request.sandbox, "killed after a call")
        if kind == "freeze after" and fault is not None:
            world.freeze(request.sandbox, fault.amount**3 * FREEZE_S_MAX)
        if future is None:
            return
        if error is not None:
            world.timeline.after(back_s, self._fail, future, error)
        else:
            world.timeline.after(back_s, self._succeed, future, answer)

    @staticmethod
    def _fail(future: Any, error: Exception) -> None:
        if not future.done():
            future.set_exception(error)
            # A process that has died meanwhile leaves it unread.
            future.exception()

    @staticmethod
    def _succeed(future: Any, answer: dict[str, Any]) -> None:
        if not future.done():
            future.set_result(answer)


def method(wire: Wire, sandbox: Sandbox, service: Service, operation: str) -> Callable[..., Any]:
    """A client's method for one operation of a service."""

    async def call(**arguments: Any) -> Any:
        return await wire.call(sandbox, service, operation, arguments)

    call.__name__ = operation
    return call
