"""Global secondary indexes of keys alone: what they show follows the table by and by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adapters.dynamodb.model.schema import (
    DUE_AT,
    DUE_INDEX,
    DUE_SHARD,
    LIST_AT,
    LIST_INDEX,
    LIST_TYPE,
    PARTITION_KEY,
    SORT_KEY,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.dynamo import Change, Key
    from tests.simulation.expressions import Item
    from tests.simulation.world import World

INDEXES = {DUE_INDEX: (DUE_SHARD, DUE_AT), LIST_INDEX: (LIST_TYPE, LIST_AT)}
"""Each index, with the attributes that are its keys."""


class Index:
    """One index; ``shown``: the key of an item -> the index keys that it is shown under."""

    def __init__(self, world: World, partition: str, sort: str) -> None:
        self._world = world
        self.names = (partition, sort)
        self.shown: dict[Key, tuple[dict[str, Any], dict[str, Any]]] = {}

    def take(self, change: Change, stored: Callable[[str, str], Item | None]) -> None:
        """Show a change after a while."""
        if self._place_of(change.old) != self._place_of(change.new):
            lag_s = self._world.weather.index_lag_s * self._world.plan.chance("index")
            self._world.timeline.after(lag_s, self._show, (change.pk, change.sk), stored)

    def _place_of(self, item: Item | None) -> tuple[dict[str, Any], dict[str, Any]] | None:
        partition, sort = self.names
        return (item[partition], item[sort]) if item is not None and partition in item and sort in item else None

    def _show(self, key: Key, stored: Callable[[str, str], Item | None]) -> None:
        # Later changes are shown with their own delay or with this one: never an older state after a newer one.
        place = self._place_of(stored(*key))
        if place is None:
            self.shown.pop(key, None)
        else:
            self.shown[key] = place

    def order(self, item: Item) -> Any:
        """Where an item stands in its partition."""
        [(kind, value)] = item[self.names[1]].items()
        return (int(value) if kind == "N" else value), item[PARTITION_KEY]["S"], item[SORT_KEY]["S"]

    def rows(self, arguments: dict[str, Any]) -> list[tuple[Any, Item]]:
        """Every item that it shows, in order."""
        assert "ConsistentRead" not in arguments
        partition, sort = self.names
        items = [
            {PARTITION_KEY: {"S": pk}, SORT_KEY: {"S": sk}, partition: place, sort: at}
            for (pk, sk), (place, at) in self.shown.items()
        ]
        return sorted(((self.order(item), item) for item in items), key=lambda row: row[0])
