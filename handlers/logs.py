"""Log records as one line of JSON each; what is told are names, counts and times, never a payload or a secret."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""The attributes that every record has; what is beyond them came through ``extra`` and is told."""

_LAMBDA_RUNTIME = "awslambdaric"
"""The module of the handler that Lambda's Python runtime puts on the root logger."""


_NOTHING: Mapping[str, str] = MappingProxyType({})
_ABOUT: ContextVar[Mapping[str, str]] = ContextVar("torpor_about", default=_NOTHING)


@contextlib.contextmanager
def about(**fields: str) -> Iterator[None]:
    """Have every record made in here, and in tasks and threads begun in here, tell ``fields``; empty ones are not."""
    token = _ABOUT.set({**_ABOUT.get(), **{name: value for name, value in fields.items() if value}})
    try:
        yield
    finally:
        _ABOUT.reset(token)


class AboutFilter(logging.Filter):
    """Lets every record pass, with the fields of ``about`` that it has not got yet."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add them."""
        for name, value in _ABOUT.get().items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True


class JsonFormatter(logging.Formatter):
    """One JSON object a record: its own fields, those of ``extra`` beside them, the exception."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of JSON; what JSON has no form for is told as its text."""
        fields: dict[str, object] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields.update((name, value) for name, value in vars(record).items() if name not in _PLAIN)
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def set_up(level: str, *, native_json: bool) -> None:
    """Make records appear on standard output.

    Args:
        level: the least level told of the root logger, such as ``"INFO"``; an unknown one means ``INFO``.
        native_json: Lambda's runtime writes JSON itself; its handler is then left alone.
    """
    root = logging.getLogger()
    root.setLevel(level if level in logging.getLevelNamesMapping() else "INFO")
    # The clients' own debugging prints whole requests, bodies and headers with them.
    for chatty in ("botocore", "aiobotocore", "aiohttp", "asyncio", "mangum"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    if native_json and root.handlers:
        for handler in root.handlers:
            _tell_about(handler)
        return
    for handler in list(root.handlers):
        if type(handler).__module__.startswith(_LAMBDA_RUNTIME) or isinstance(handler.formatter, JsonFormatter):
            root.removeHandler(handler)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter())
    _tell_about(handler)
    root.addHandler(handler)


def _tell_about(handler: logging.Handler) -> None:
    if not any(isinstance(known, AboutFilter) for known in handler.filters):
        handler.addFilter(AboutFilter())
