"""The law of what is told to whoever listens: 14, published is recorded, and the other way round, once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from adapters.dynamodb.model.publications import PARTITION_PREFIX
from engine import keys
from engine.entry import StepEntry
from tests.simulation.laws import Law

if TYPE_CHECKING:
    from tests.simulation.view import News, View
    from tests.simulation.world import World

PUBLISH = "publish:"
"""How the names of publications begin."""


class PublishedOnce(Law):
    """14: what is recorded as published is in the tail with its record, once; on the bus no more than that, once."""

    number = 14

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._told: dict[str, str] = {}
        self._heard: set[str] = set()
        self._times: Counter[tuple[str, str]] = Counter()

    def wrote(self, view: View, news: News) -> None:
        """Hold what a workflow records against what its write puts into the tail."""
        told, recorded = self._put(view, news), _recorded(view, news)
        if recorded.keys() != told.keys():
            raise self.breach(f"{view.life} records {sorted(recorded.values())}, and publishes {sorted(told)}")
        for entry_id, path in recorded.items():
            self._told[entry_id] = told[entry_id]
            self._times[view.life, path] += 1
            if self._times[view.life, path] > 1 and view.life not in self.world.told:
                raise self.breach(f"{path} of {view.life} is published {self._times[view.life, path]} times")

    def _put(self, view: View, news: News) -> dict[str, str]:
        """The topics of what a write puts into the tail for a workflow, by id."""
        told = {}
        for change in news.write.changes:
            if not change.pk.startswith(PARTITION_PREFIX) or change.new is None:
                continue
            if change.old is not None:
                raise self.breach(f"{change.sk} is put into the tail again")
            if change.new["workflow"]["S"] == view.workflow_id:
                told[change.sk.split("#", 1)[1]] = str(change.new["topic"]["S"])
        return told

    def heard(self, detail: dict[str, Any]) -> None:
        """The bus has an event."""
        event_id = detail["id"]
        if self._told.get(event_id) != detail["topic"]:
            raise self.breach(f"the bus hears of {detail}, which nothing records")
        if event_id in self._heard:
            raise self.breach(f"the bus hears of {detail} again")
        self._heard.add(event_id)


def _recorded(view: View, news: News) -> dict[str, str]:
    """The paths of the publications that a write records, by the ids of their entries."""
    found = {}
    for key, (old, new) in news.puts.items():
        if key.startswith(keys.HISTORY_PREFIX) and old is None:
            entry = view.entry(key, new)
            path = view.path(entry)
            if isinstance(entry.kind, StepEntry) and path.rsplit("/", 1)[-1].startswith(PUBLISH):
                found[entry.id] = path
    return found
