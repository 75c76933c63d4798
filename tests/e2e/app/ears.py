"""What this process logs, also in a file at once: the local AWS has a function's lines only when an invocation ends.

It drops those of a process that died, and holds those that came late for the next invocation, which may never be. The
file lies in the local AWS's own folder, where its functions have their temporary ones.
"""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path

from handlers.logs import AboutFilter, JsonFormatter


class Ear(logging.Handler):
    """Writes each record as the line that the log gets, before the call that logged it returns."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.addFilter(AboutFilter())
        self._form = JsonFormatter()
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        try:
            with self._path.open("a") as file:
                file.write(self._form.format(record) + "\n")
        except OSError:
            # The local AWS is being taken down, its folder with it.
            self.handleError(record)


def listen() -> None:
    """Begin; once is enough, and more changes nothing."""
    root = logging.getLogger()
    if not any(isinstance(handler, Ear) for handler in root.handlers):
        function = os.environ["AWS_LAMBDA_FUNCTION_NAME"]  # noqa: TID251 - only Lambda's own variables say who this is
        root.addHandler(Ear(Path(tempfile.gettempdir()) / f"{function}-{os.getpid()}.told"))
