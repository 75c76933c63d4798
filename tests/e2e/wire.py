"""The wire between deployed functions and the local AWS, in the hands of a test: it can be cut, held, and listened to.

A proxy on the loopback interface that the functions take for their endpoint. What it does to a call it does to the real
one: the adapters, their clients and the local AWS are those of every other test.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from infra.local_stack import LocalStack

HELD_S_MAX = 300.0
"""Seconds after which a call that nobody lets go is let go; a test that forgets one must not hang."""

CLIENTS_GIVE_UP_S = 120.0

_OPERATIONS = {"POST": "CreateSchedule", "PUT": "UpdateSchedule", "DELETE": "DeleteSchedule"}
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"})
_REFUSAL = re.compile(r"assumed-role/([^/ ]+)/\S* is not authorized to perform: (\S+)")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a function to AWS: ``dynamodb``, ``TransactWriteItems``, and what it says."""

    service: str
    operation: str
    body: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that the caller's policies did not allow: the role's name, and the action that was missing."""

    role: str
    action: str


class Held:
    """A call that is held on the wire: it has not come to AWS yet, or its answer has not come back.

    ``at_once`` is called as soon as it is held: who made it waits for some seconds only, and then tries again.
    """

    def __init__(self, which: Callable[[Call], bool], *, is_done: bool, at_once: Callable[[], None]) -> None:
        self.which = which
        self.is_done = is_done
        self._at_once = at_once
        self._here = threading.Event()
        self._over = threading.Event()

    @property
    def is_here(self) -> bool:
        return self._here.is_set()

    def keep(self) -> None:
        self._at_once()
        self._here.set()
        self._over.wait(HELD_S_MAX)

    def drop(self) -> None:
        """Break its connection: whoever called is dead by now, or will never know."""
        self._over.set()


class Wire:
    """A running proxy; ``laid`` makes one, and has the functions of a stack call AWS through it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._cuts: list[Callable[[Call], bool]] = []
        self._holds: list[Held] = []
        self._lock = threading.Lock()
        self.refusals: list[Refusal] = []
        self._server = _Server(("127.0.0.1", 0), _handler_of(self))

    @classmethod
    @contextlib.contextmanager
    def laid(cls, stack: LocalStack) -> Iterator[Wire]:
        """While this is open, a wire that all functions of the stack use, until they are deployed anew."""
        wire = cls(stack.ministack.port)
        thread = threading.Thread(target=wire._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            wire.use(stack)
            yield wire
        finally:
            for held in wire._holds:
                held.drop()
            wire._server.shutdown()
            wire._server.server_close()
            thread.join()

    def use(self, stack: LocalStack, **settings: int) -> None:
        """Have the functions use it; ``settings`` are further ones of the worker's."""
        functions = stack.client("lambda")
        for output in ("ApiFunction", "WorkerFunction", "ResumeFunction", "SweeperFunction"):
            name = stack.outputs[output]
            given = functions.get_function_configuration(FunctionName=name)["Environment"]["Variables"]
            given["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{self._server.server_port}"
            more = settings if output == "WorkerFunction" else {}
            functions.update_function_configuration(FunctionName=name, Environment={"Variables": given}, **more)

    @contextlib.contextmanager
    def cut(self, which: Callable[[Call], bool]) -> Iterator[None]:
        """Within the block, AWS answers such calls that it is not available, as often as they are tried."""
        self._cuts.append(which)
        try:
            yield
        finally:
            self._cuts.remove(which)

    def hold(self, which: Callable[[Call], bool], *, is_done: bool, at_once: Callable[[], None]) -> Held:
        """Hold the next such call: after AWS has done it (``is_done``), or before it came there."""
        held = Held(which, is_done=is_done, at_once=at_once)
        self._holds.append(held)
        return held

    # --- what the proxy's threads ask ---------------------------------------------------------------------------------

    def is_cut(self, call: Call) -> bool:
        return any(which(call) for which in list(self._cuts))

    def held(self, call: Call) -> Held | None:
        with self._lock:
            found = next((held for held in self._holds if held.which(call)), None)
            if found is not None:
                self._holds.remove(found)
            return found

    def forward(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=CLIENTS_GIVE_UP_S)
        with contextlib.closing(connection):
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            said = answer.read()
        self.refusals += [Refusal(*found) for found in _REFUSAL.findall(said.decode(errors="replace"))]
        kept = {name: value for name, value in answer.getheaders() if name.lower() not in _HOP_BY_HOP}
        return answer.status, kept, said


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Five callers at once is the library's own bound: all others would wait for a second, and then for longer.
    request_queue_size = 128


def _handler_of(wire: Wire) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Without it, headers and body of an answer are two packets, and the second waits for the first's receipt.
        wbufsize = -1
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            call = _call_of(self.command, dict(self.headers.items()), body)
            if wire.is_cut(call):
                said = json.dumps({"__type": "ServiceUnavailable", "message": "cut"}).encode()
                self._answer(503, {"Content-Type": "application/x-amz-json-1.0"}, said)
                return
            held = wire.held(call)
            if held is not None and not held.is_done:
                held.keep()
                self.close_connection = True
                return
            status, headers, said = wire.forward(self.command, self.path, dict(self.headers.items()), body)
            if held is not None:
                held.keep()
                self.close_connection = True
                return
            self._answer(status, headers, said)

        do_PUT = do_DELETE = do_GET = do_POST  # noqa: N815 - the names are the library's

        def _answer(self, status: int, headers: dict[str, str], said: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_arguments: object) -> None:
            """Nothing: what a test wants to know of a call it asks the wire."""

    return Handler


def _call_of(method: str, headers: dict[str, str], body: bytes) -> Call:
    names = {name.lower(): value for name, value in headers.items()}
    # Credential=<key>/<date>/<region>/<service>/aws4_request
    service = names.get("authorization", "").partition("Credential=")[2].split("/")[3:4]
    operation = names.get("x-amz-target", "").partition(".")[2] or _OPERATIONS.get(method, method)
    return Call("".join(service), operation, body.decode(errors="replace"))
