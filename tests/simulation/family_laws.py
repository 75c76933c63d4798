"""The laws of who works for whom: 15, children are started once and their ends told of; 16, places and tags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.dynamodb.model.tags import place_key, tag_partition
from engine import keys, values
from engine.entry import StepEntry
from engine.schedules.identity import SCHEDULE_TYPE
from tests.simulation.going_on_laws import SOON_MS
from tests.simulation.laws import Law
from tests.simulation.view import integer, string

if TYPE_CHECKING:
    from engine.entry import Entry
    from tests.simulation.view import News, View
    from tests.simulation.world import World

NOTE = "AWAIT#"
"""How the sort keys begin under which waiters are noted."""

DISPATCH = "dispatch:"
"""How the names of starts begin that have no name of their own."""


START = "start-"
"""How those of a schedule's begin."""


class ChildrenOnce(Law):
    """15: a start that is recorded was made with that record, once; and whoever waits for an end learns of it."""

    number = 15

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._children: dict[tuple[str, str], str] = {}
        self._recorded: set[str] = set()

    def wrote(self, view: View, news: News) -> None:
        """Hold what parents record against who is there."""
        for key, (_, value) in news.puts.items():
            if key.startswith(keys.HISTORY_PREFIX):
                self._check_record(view, news, view.entry(key, value))
        # Whoever starts a workflow from outside commits to no other one.
        is_start = news.head_before is None and news.head is not None
        parents = [
            change.pk
            for change in news.write.changes
            if change.sk == "HEAD" and integer(change.old, "seq") not in (None, integer(change.new, "seq"))
        ]
        if is_start and parents and view.workflow_id not in self._recorded:
            raise self.breach(f"{view.life} was started by {parents}, without a record")
        for child in _awaited_by(view):
            self._check_waiter(view, child, news)
        if view.has_ended:
            for sk in [sk for sk in view.items if sk.startswith(NOTE)]:
                waiter = self.world.views.get(sk.removeprefix(NOTE))
                if waiter is not None and view.workflow_id in _awaited_by(waiter):
                    self._check_waiter(waiter, view.workflow_id, news)

    def _check_waiter(self, waiter: View, child: str, news: News) -> None:
        """Until an end has come a note says who waits for it; after it that one is due, or has yet to be told."""
        awaited = self.world.views.get(child)
        if awaited is None or not awaited.has_ended:
            is_noted = awaited is not None and f"{NOTE}{waiter.workflow_id}" in awaited.items
            if not is_noted and not any(change.pk == child for change in news.write.changes):
                raise self.breach(f"{waiter.life} waits for {child}, where nothing says so")
            return
        due = [integer(item, "due_at") for item in (waiter.head, waiter.inbox, awaited.head)]
        if not any(at_ms is not None and at_ms <= self.world.now_ms + SOON_MS for at_ms in due):
            raise self.breach(f"{waiter.life} waits for {child}, who has ended, and is due at {due}")

    def _check_record(self, view: View, news: News, entry: Entry) -> None:
        path = view.path(entry)
        kind = entry.kind
        name = START if view.type == SCHEDULE_TYPE else DISPATCH
        if not isinstance(kind, StepEntry) or kind.output is None or not path.rsplit("/", 1)[-1].startswith(name):
            return
        child = values.decode(kind.output)
        self._recorded.add(child)
        known = self._children.setdefault((view.life, path), child)
        if known != child:
            if view.life not in self.world.told:
                raise self.breach(f"{path} of {view.life} has started {known}, and {child} now")
            self._children[view.life, path] = child
        comes = any(change.pk == child and change.sk == "HEAD" and change.new for change in news.write.changes)
        if not comes and child not in self.world.views:
            raise self.breach(f"{path} of {view.life} is recorded to have started {child}, who is not there")

    def ended(self) -> None:
        """Nobody sleeps who waits for somebody who has ended."""
        for life, child in self.world.ledger.awaited:
            waiter, awaited = self.world.lives[life], self.world.views.get(child)
            if not waiter.has_ended and (awaited is None or awaited.has_ended):
                raise self.breach(f"{life} is {waiter.state}, and waits for {child}, who has ended")


class PlacesAndTags(Law):
    """16: a unique workflow is the only one of its type and tags; one is found by its tags until it has ended."""

    number = 16

    def wrote(self, view: View, news: News) -> None:
        """Hold the items of places and tags against HEAD, with which they change."""
        head = news.head
        if head is None or "tags" not in head:
            return
        tags = {name: value["S"] for name, value in head["tags"]["M"].items()}
        dynamo = self.world.dynamo
        found = {
            name: dynamo.item(tag_partition(view.type, name, value), view.workflow_id) for name, value in tags.items()
        }
        if any((item is None) != view.has_ended for item in found.values()):
            there = sorted(name for name, item in found.items() if item is not None)
            raise self.breach(f"{view.life} is {view.state}, and is found by {there}")
        if "is_unique" in head and not view.has_ended:
            place = place_key(view.type, tags)
            holder = string(dynamo.item(place["pk"]["S"], place["sk"]["S"]), "workflow_id")
            if holder != view.workflow_id:
                raise self.breach(f"{view.life} is {view.state}, and its place is that of {holder}")


def _awaited_by(view: View) -> list[str]:
    """The workflows whose ends a workflow sleeps for."""
    head, waits = view.head, view.items.get("WAITS")
    if head is None or view.has_ended or "owner" in head or "waits_seq" not in head or waits is None:
        return []
    return list(waits["ids"]["SS"])
