"""What the demo shows: a table that stays in place on a terminal, plain lines anywhere else."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from engine.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence

_UP_AND_CLEAR = "\x1b[{lines}F\x1b[0J"
_COLOURS = {"running": "\x1b[36m", "completed": "\x1b[32m", "failed": "\x1b[31m", "sleeping": "\x1b[33m"}
_DIM, _BOLD, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"

HEADINGS = ("ORDER", "CUSTOMER", "TOTAL", "STATE", "WHAT IT DOES")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One order as it is now; ``doing`` is in words."""

    order_id: str
    customer: str
    total: str
    state: str
    doing: str


class View:
    """Notes, one below the other, and below them the table of all orders as it is now.

    Args:
        out: where to write.
        is_live: redraw the table in place; else each change of an order is a line of its own.
    """

    def __init__(self, out: TextIO, *, is_live: bool) -> None:
        self._out = out
        self._is_live = is_live
        self._clock = SystemClock()
        self._began_at = self._clock.now()
        self._rows: list[Row] = []
        self._drawn = 0

    @property
    def elapsed_s(self) -> float:
        """Seconds since the demo began."""
        return (self._clock.now() - self._began_at) / 1000

    def note(self, text: str) -> None:
        """Say what has happened."""
        self.line(self._stamped(text))

    def line(self, text: str) -> None:
        """Write a line."""
        self._erase()
        self._print(text)
        self._draw()

    def heading(self, text: str) -> None:
        """Begin another part of the demo."""
        self._erase()
        self._print("")
        self._print(self._styled(_BOLD, text))
        self._draw()

    def show(self, rows: Sequence[Row]) -> None:
        """Show the orders as they are now."""
        before = {row.order_id: row for row in self._rows}
        self._rows = list(rows)
        if self._is_live:
            self._erase()
            self._draw()
            return
        for row in rows:
            if row != before.get(row.order_id):
                self._print(self._stamped(f"{row.order_id}  {row.state:<9}  {row.doing}"))

    def finish(self) -> None:
        """Leave the table as it is and write below it from now on."""
        self._drawn = 0
        self._rows = []

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str]], numbers: frozenset[str]) -> None:
        """Print a table; columns in ``numbers`` are set to the right."""
        widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
        for line in (headings, *rows):
            cells = [
                f"{cell:>{width}}" if heading in numbers else f"{cell:<{width}}"
                for cell, width, heading in zip(line, widths, headings, strict=True)
            ]
            text = "  ".join(cells).rstrip()
            self._print(self._styled(_DIM, text) if line is headings else text)

    def verdict(self, text: str, *, is_good: bool) -> None:
        """Print the last line."""
        self._print("")
        self._print(self._styled(_COLOURS["completed" if is_good else "failed"], text))

    def _stamped(self, text: str) -> str:
        return f"{self._styled(_DIM, f'{self.elapsed_s:6.1f} s')}  {text}"

    def _styled(self, style: str, text: str) -> str:
        return f"{style}{text}{_PLAIN}" if self._is_live else text

    def _print(self, text: str) -> None:
        self._out.write(f"{text}\n")
        self._out.flush()

    def _erase(self) -> None:
        if self._drawn:
            self._out.write(_UP_AND_CLEAR.format(lines=self._drawn))
            self._drawn = 0

    def _draw(self) -> None:
        if not self._is_live or not self._rows:
            return
        size = shutil.get_terminal_size()
        lines = [("", ""), (_DIM, _cells(HEADINGS)), *((_COLOURS.get(row.state, ""), _text(row)) for row in self._rows)]
        # A table taller than the terminal could not be erased again.
        lines = lines[: max(1, size.lines - 1)]
        for style, text in lines:
            self._print(self._styled(style, text[: size.columns - 1]))
        self._drawn = len(lines)


def _text(row: Row) -> str:
    return _cells((row.order_id, row.customer, row.total, row.state, row.doing))


def _cells(cells: Sequence[str]) -> str:
    order_id, customer, total, state, doing = cells
    return f"  {order_id:<10} {customer:<15} {total:>12}  {state:<9} {doing}"
