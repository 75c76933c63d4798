"""The results: figures by part, as a table for people and as JSON in bench/results.json."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.figure import Figure

FILE = Path(__file__).with_name("results.json")


class Results:
    """What the last run of each part has found."""

    def __init__(self, parts: dict[str, Any]) -> None:
        self._parts = parts

    @classmethod
    def load(cls) -> Results:
        """The results on disk; none where the file is missing."""
        return cls(json.loads(FILE.read_text())["parts"] if FILE.exists() else {})

    def replace(self, part: str, figures: Sequence[Figure], *, is_quick: bool) -> None:
        """Take the figures of a part in place of those it had."""
        now = dt.datetime.fromtimestamp(SystemClock().now() // 1000, dt.UTC)
        self._parts[part] = {
            "measured_at": now.isoformat(),
            "quick": is_quick,
            "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
            "figures": [_plain(figure) for figure in figures],
        }

    def save(self) -> None:
        """Write them to disk."""
        FILE.write_text(json.dumps({"parts": self._parts}, indent=2) + "\n")

    def table(self, part: str) -> list[str]:
        """The lines of a part's table: name, value, unit, peer's value, ratio, limit, mark."""
        return [f"\n{part}", *(_line(figure) for figure in self._parts[part]["figures"])]

    def markdown(self) -> list[str]:
        """The lines of every part's table for docs/BENCHMARKS.md."""
        lines: list[str] = []
        for part, found in self._parts.items():
            lines += ["", f"`{part}`: {found['machine']}{', quick' if found['quick'] else ''}", ""]
            lines += ["| figure | value | peer | ratio | limit | |", "| --- | --- | --- | --- | --- | --- |"]
            lines += [_row(figure) for figure in found["figures"]]
        return lines


def _row(figure: dict[str, Any]) -> str:
    mark = {True: "ok", False: "BEYOND", None: ""}[figure["within_limit"]]
    beside = ["", ""] if figure["peer"] is None else [f"{figure['peer_value']:.1f}", f"{figure['ratio']:.2f}"]
    limit = "" if figure["limit"] is None else f"{figure['limit']:g}"
    cells = [figure["name"], f"{figure['value']:.2f} {figure['unit']}", *beside, limit, mark]
    return f"| {' | '.join(cells)} |"


def _plain(figure: Figure) -> dict[str, Any]:
    peer, ratio = figure.peer, figure.ratio
    return {
        "name": figure.name,
        "value": round(figure.value, 3),
        "unit": figure.unit,
        "limit": figure.limit,
        "limit_of": None if figure.limit is None else "value" if peer is None else "ratio",
        "peer": None if peer is None else peer.name,
        "peer_value": None if peer is None else round(peer.value, 3),
        "ratio": None if ratio is None else round(ratio, 3),
        "within_limit": figure.is_within_limit,
        "note": figure.note,
    }


def _line(figure: dict[str, Any]) -> str:
    mark = {True: "ok", False: "BEYOND", None: ""}[figure["within_limit"]]
    beside = "" if figure["peer"] is None else f"{figure['peer_value']:>10.1f} {figure['ratio']:>7.3f}"
    limit = "" if figure["limit"] is None else f"<= {figure['limit']:g}"
    return f"  {figure['name']:<46}{figure['value']:>10.2f} {figure['unit']:<8}{beside:<19}{limit:>8}  {mark}"
