"""Printing what the HTTP interface answered: as JSON, as a table, as one line."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

CELL_MAX = 60
"""Characters of a value in a table; ``--json`` shows it whole. Design choice."""

_ESCAPED_BY_JSON, _OTHERS = range(0x20), range(0x7F, 0xA0)
_ON_ONE_LINE = {code: f"\\x{code:02x}" for code in (*_ESCAPED_BY_JSON, *_OTHERS)}
_ON_ONE_LINE |= dict.fromkeys(map(ord, "\t\n\r"), " ")
_IN_JSON = {code: f"\\u{code:04x}" for code in _OTHERS}
"""What a terminal would obey is shown instead: whoever sends a message must not write on an operator's screen."""


def print_line(line: str) -> None:
    """Print a line at once, and go on where nobody reads any more (`| head`): then nothing is printed from there on."""
    _print(line, "\n")


def flush() -> None:
    """Have what was printed arrive, unless nobody reads any more."""
    _print("", "")


def _print(text: str, end: str) -> None:
    try:
        print(text, end=end, flush=True)
    except OSError as error:
        # What is left in Python's own buffer goes there too, or Python would try again at its end and complain itself.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise


def print_json(value: Any) -> None:
    """Print a value as JSON over several lines."""
    print(as_json(value, indent=2))


def as_json(value: Any, indent: int | None = None) -> str:
    """A value as JSON; on one line where nothing else is said."""
    return json.dumps(value, indent=indent, ensure_ascii=False).translate(_IN_JSON)


def print_table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    """Print rows as a table of ``columns``."""
    cells = [[name.upper().replace("_", " ") for name in columns]]
    cells += [[_cell(row.get(name)) for name in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def _cell(value: Any) -> str:
    text = short(value)
    return text if len(text) <= CELL_MAX else f"{text[: CELL_MAX - 1]}…"


def lines_of(text: str) -> str:
    """A text of several lines as it is, without control characters."""
    return "\n".join(map(short, text.splitlines()))


def short(value: Any) -> str:
    """A value on one line: texts as they are, nothing as a dash, all else as JSON; no control characters."""
    if value is None:
        return "-"
    return (value if isinstance(value, str) else as_json(value)).translate(_ON_ONE_LINE)
