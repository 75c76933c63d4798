"""A workflow's history as the rows of a table that fits a terminal."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from engine.lifecycle import ENDED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COLUMNS = ("location", "kind", "status", "attempts", "began", "took", "result")
"""Of the table; the ids, which ``torpor replay --entry`` asks for, come behind them where they are asked for."""

UNDER_WAY = frozenset({"pending", "running"})

_SECOND = timedelta(seconds=1)
_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)


def rows(entries: Sequence[Mapping[str, Any]], state: str | None = None) -> list[dict[str, Any]]:
    """One row for each entry of ``GET /workflows/{id}/history``, in its order; ``state`` is the workflow's."""
    return [
        {
            "location": entry.get("location"),
            "kind": entry.get("kind"),
            "status": _status(entry, is_over=state in ENDED),
            "attempts": _attempts(entry),
            "began": _began(_instant(entry.get("created_at"))),
            "took": _took(_instant(entry.get("created_at")), _instant(entry.get("completed_at"))),
            "result": _result(entry),
            "id": entry.get("id"),
        }
        for entry in entries
    ]


def _status(entry: Mapping[str, Any], *, is_over: bool) -> Any:
    """How it stands, as whoever has to act on it sees it."""
    if entry.get("rolled_back_at"):
        return "rolled back"
    status = entry.get("status")
    if is_over and status in UNDER_WAY:
        return "unfinished"
    if status == "failed" and entry.get("kind") == "step" and not is_over:
        # One that will not be tried again is exhausted.
        return "retrying"
    # What is tried once has no retries that could run out.
    return "failed" if status == "exhausted" and (entry.get("attempts") or 0) <= 1 else status


def _attempts(entry: Mapping[str, Any]) -> Any:
    """How often it was begun, of how often where that is known."""
    attempts, most = entry.get("attempts") or None, entry.get("attempts_max")
    return f"{attempts} of {most}" if attempts and most else attempts


def _result(entry: Mapping[str, Any]) -> Any:
    """What came of it: why it or its undo failed, else its value, else how its branches stand."""
    for name in ("rollback_error", "error"):
        if entry.get(name):
            return entry[name]
    if entry.get("kind") == "sleep":
        return entry.get("details")
    if entry.get("value") is not None:
        return entry["value"]
    if entry.get("kind") == "message":
        return f"{str(entry.get('details') or 'message').partition(' with the id ')[0]}, no body"
    return _branches(entry.get("branches") or []) or entry.get("details") or None


def _branches(branches: Sequence[Mapping[str, Any]]) -> str:
    """How branches stand: by name, or counted where their names are the numbers of ``ctx.map``."""
    if not all(branch["name"].isdecimal() for branch in branches):
        return ", ".join(f"{branch['name']} {branch['status']}" for branch in branches)
    if not branches:
        return ""
    counts = Counter(branch["status"] for branch in branches)
    done = counts.pop("completed", 0)
    return ", ".join(
        [f"{done} of {len(branches)} branches completed", *(f"{n} {status}" for status, n in counts.items())]
    )


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _began(at: datetime | None) -> str | None:
    return None if at is None else f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d}"


def _took(began: datetime | None, ended: datetime | None) -> str | None:
    if began is None or ended is None:
        return None
    took = ended - began
    if took < _SECOND:
        return f"{took // timedelta(milliseconds=1)} ms"
    if took < _MINUTE:
        return f"{took / _SECOND:.1f} s"
    if took < _DAY:
        return str(took).split(".", maxsplit=1)[0]
    return f"{took / _DAY:.1f} d"
