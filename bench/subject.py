"""A subject: an engine in a process of its own that does the work asked for and says how long it took.

Ours and its peers are asked in turn, one request at a time, so that whatever else this machine does hits them alike.
"""

from __future__ import annotations

import json
import subprocess
import threading
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

ANSWER_SECONDS_MAX = 120
"""Seconds after which an answer is no longer waited for. Design choice: the longest work takes some ten."""


class BenchFailedError(Exception):
    """A measurement could not be made; the message says why."""


class Subject:
    """A process that answers one line of JSON with one line of JSON; leaving its context ends it.

    Args:
        command: what to run.
        folder: where to run it.
    """

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command = list(command)
        self._process = subprocess.Popen(
            self._command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to one request.

        Raises:
            BenchFailedError: none came.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watch = threading.Timer(ANSWER_SECONDS_MAX, self._process.kill)
        watch.start()
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError as error:
            raise BenchFailedError(f"{self._command} has ended: {error}") from error
        finally:
            watch.cancel()
        if not line:
            raise BenchFailedError(f"{self._command} gave no answer to {request}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
