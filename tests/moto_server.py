"""Moto in this process as an AWS of its own, one request after the other."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "127.0.0.1"


class Serial:
    """Moto's application, a request at a time: it has a thread for each, and no lock around what it stores.

    Two updates of one item at once would lose one of them, and two transactions would both find their conditions met.
    """

    def __init__(self) -> None:
        self._application = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        with self._lock:
            return self._application(environ, start_response)


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Its address for every service, while this is open."""
    server = make_server(HOST, 0, Serial(), threaded=True, request_handler=MotoRequestHandler)
    # It listens from here on: whoever calls before the thread is under way is answered all the same.
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
