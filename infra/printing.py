"""Printing what the HTTP interface answered: as JSON, as a table, as one line."""

from __future__ import annotations

import json
import sys
from typing import Any

CELL_MAX = 60
"""Characters of a value in a table; ``--json`` shows it whole. Design choice."""


def print_json(value: Any) -> None:
    """Print a value as JSON over several lines."""
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False)
    print()


def print_table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    """Print rows as a table of ``columns``."""
    cells = [[name.upper().replace("_", " ") for name in columns]]
    cells += [[_cell(row.get(name)) for name in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def _cell(value: Any) -> str:
    text = short(value).replace("\n", " ")
    return text if len(text) <= CELL_MAX else f"{text[: CELL_MAX - 1]}…"


def short(value: Any) -> str:
    """A value on one line: texts as they are, nothing as a dash, all else as JSON."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
