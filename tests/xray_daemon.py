"""A socket that listens where the daemon of X-Ray would, and a trace header as Lambda writes it."""

from __future__ import annotations

import json
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACE, SEGMENT = "1-692ae0c0-5f84a1d45d3c4b6f1d2e3f40", "53995c3f42cd8ad8"
SAMPLED = f"Root={TRACE};Parent={SEGMENT};Sampled=1"
SOON_S = 120.0


class Daemon:
    """Listens where the daemon of X-Ray would."""

    def __init__(self, listening: socket.socket) -> None:
        self._socket = listening
        self.address = "{}:{}".format(*listening.getsockname())

    @classmethod
    @contextmanager
    def listening(cls) -> Iterator[Daemon]:
        """One on a free port."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
            listening.bind(("127.0.0.1", 0))
            yield cls(listening)

    def told(self) -> dict[str, Any]:
        """The next document."""
        self._socket.settimeout(SOON_S)
        first, _, document = self._socket.recv(65_536).partition(b"\n")
        assert json.loads(first) == {"format": "json", "version": 1}
        found: dict[str, Any] = json.loads(document)
        return found

    def heard_nothing(self) -> bool:
        """Whether no datagram has come; one that was sent on this machine has come by then."""
        self._socket.settimeout(0)
        try:
            self._socket.recv(65_536)
        except BlockingIOError:
            return True
        return False

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()
