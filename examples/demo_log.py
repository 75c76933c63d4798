"""What the worker's log tells of each order: its wakes, and what its runs cost."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """What became of one order's wakes.

    Attributes:
        wakes: times that it was claimed and loaded, also where the process then died.
        write_units: what its runs wrote, as DynamoDB bills it; a run that died could not tell.
    """

    wakes: int = 0
    write_units: float = 0.0


def read_runs(events: Iterable[str]) -> dict[str, Runs]:
    """The runs of every workflow in the worker's log, by workflow id."""
    found: dict[str, Runs] = {}
    for record in _records(events):
        if record.get("message") == "run ended":
            runs = found.get(record["workflow_id"], Runs())
            found[record["workflow_id"]] = Runs(
                wakes=max(runs.wakes, record["wakes"]), write_units=runs.write_units + record["write_units"]
            )
    return found


def _records(events: Iterable[str]) -> Iterator[dict[str, Any]]:
    for event in events:
        for line in event.splitlines():
            # Lambda's own lines are no JSON.
            if line.startswith("{"):
                yield json.loads(line)
