"""The laws of more than one life: 9, purged is gone, and nothing else is; 10, signals arrive once."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from engine import keys, values
from engine.entry import StepEntry
from tests.simulation.laws import Law
from tests.simulation.view import ENDED, message_of, outlived

if TYPE_CHECKING:
    from engine.entry import Entry
    from tests.simulation.dynamo import Change
    from tests.simulation.expressions import Item
    from tests.simulation.view import News, View
    from tests.simulation.world import World

LATE_US = 15_000_000
"""A request that was under way for longer than this is one of a process that is stalled, or of none any more."""


class PurgedIsGone(Law):
    """9: what is purged has ended, is deleted page by page by one at a time, HEAD last, and then nothing is left."""

    number = 9

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._excused: set[tuple[str, str]] = set()

    def wrote(self, view: View, news: News) -> None:
        """Look at the mark, at what is deleted behind it, and at what is written afterwards."""
        is_marked = [item is not None and "purging_at" in item for item in (news.head_before, news.head)]
        if is_marked == [False, True]:
            self._check_mark(view, news)
        if not view.is_purged:
            return
        for change in news.changes:
            if change.new is not None and change.sk != "HEAD":
                self._check_put(view, news, change)
        request = news.write.request
        # Whoever was folding its log at its end deletes what is folded, held to nothing.
        is_held = request.sandbox is not self.world.service and request.operation != "batch_write_item"
        is_deletion = is_held and all(change.new is None for change in news.changes)
        if is_deletion and is_marked[0]:
            claim = view.claims[-1]
            if claim.sandbox != request.sandbox.name or request.sent_us < claim.at_us:
                raise self.breach(f"{request.sandbox.name} deletes of {view.life}, which {claim.sandbox} purges")
        if view.is_gone and is_marked[0]:
            left = sorted(sk for sk in view.items if (view.life, sk) not in self._excused)
            if left:
                raise self.breach(f"{view.life} is gone, but for {left}")

    def _check_mark(self, view: View, news: News) -> None:
        state = (news.head_before or {})["state"]["S"]
        if state not in ENDED:
            raise self.breach(f"{view.life} is {state}, and is purged")
        is_over = outlived(news.head_before, self.world.latest_ms) == "all"
        if view.life not in self.world.ledger.purged and not is_over:
            raise self.breach(f"nobody asked for {view.life} to be purged")

    def _check_put(self, view: View, news: News, change: Change) -> None:
        # Who began before its end may have had a ticket then, and was stalled since; what folds a log may be left over.
        request = news.write.request
        is_late = news.write.at_us - request.sent_us > LATE_US
        if is_late or request.began_us <= (view.ended_us or 0) or change.sk.startswith("SNAP#"):
            self._excused.add((view.life, change.sk))
        elif view.is_gone:
            raise self.breach(f"{request.sandbox.name} writes {change.sk} of {view.life}, which is gone")

    def ended(self) -> None:
        """Whatever cut it short, somebody has gone on with it."""
        for view in self.world.lives.values():
            if view.is_purged and not view.is_gone:
                raise self.breach(f"{view.life} was to be purged, and {sorted(view.items)} is left")


class SignalsOnce(Law):
    """10: a signal that is recorded as delivered arrived with that record, once; no other appears."""

    number = 10

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._arrived: set[tuple[str, str]] = set()
        self._taken: set[tuple[str, str]] = set()
        self._times: Counter[tuple[str, str]] = Counter()
        self._live_us: dict[str, int] = {}

    def wrote(self, view: View, news: News) -> None:
        """Hold what senders record against what arrives in the same write."""
        if view.has_ended:
            self._live_us.pop(view.workflow_id, None)
        elif view.head is not None:
            self._live_us.setdefault(view.workflow_id, news.write.at_us)
        for key, (old, new) in news.puts.items():
            if key.startswith(keys.HISTORY_PREFIX):
                self._recorded(view, news, view.entry(key, new), None if old is None else view.entry(key, old))
        for change in news.changes:
            if change.sk.startswith("MSG#") and change.old is None and change.new is not None:
                self._came(view, news, change.new)

    def _recorded(self, view: View, news: News, entry: Entry, before: Entry | None) -> None:
        message_id = message_of(entry)
        if message_id is not None:
            self._taken.add((view.life, message_id))
        target = target_of(view, entry)
        if (
            target is None
            or not isinstance(entry.kind, StepEntry)
            or (before is not None and before.kind == entry.kind)
        ):
            return
        if entry.kind.output is None and entry.kind.error is None:
            return
        delivered = entry.kind.output is not None and values.decode(entry.kind.output)
        with_it = [
            change.pk
            for change in news.write.changes
            if change.sk.startswith("MSG#") and change.new is not None and change.new["id"]["S"] == entry.id
        ]
        said = f"{view.path(entry)} of {view.life} is recorded as {'delivered' if delivered else 'refused'}"
        if with_it != ([target] if delivered else []):
            raise self.breach(f"{said}, with messages to {with_it}")
        live_us = self._live_us.get(target)
        # Who is looked for by type may not be found at once.
        lag_us = int(self.world.weather.index_lag_s * 1e6) + LATE_US
        if not delivered and live_us is not None and live_us < news.write.request.began_us - lag_us:
            raise self.breach(f"{said}, and {target} has taken messages since {live_us / 1e6:.3f} s")

    def _came(self, view: View, news: News, message: Item) -> None:
        mark = (view.life, message["id"]["S"])
        if not message["name"]["S"].startswith(SIGNAL) or (mark in self._arrived and mark in self._taken):
            return
        sender, path = values.decode(message["body"]["B"])
        if mark in self._arrived:
            raise self.breach(f"the signal {path} of {sender} arrived twice in {view.life}")
        self._arrived.add(mark)
        if message["name"]["S"] != signal_name(view.workflow_id):
            raise self.breach(f"{message['name']['S']} arrived in {view.life}")
        if not any(change.pk == sender and change.sk == "HEAD" for change in news.write.changes):
            raise self.breach(f"the signal {path} of {sender} arrived in {view.life} without its record")
        life = self.world.views[sender].life
        self._times[life, path] += 1
        if self._times[life, path] > 1 and life not in self.world.told:
            raise self.breach(f"the signal {path} of {life} was sent {self._times[life, path]} times")

    def ended(self) -> None:
        """Every one that arrived was taken, or is there."""
        for life, message_id in self._arrived - self._taken:
            view = self.world.lives[life]
            is_there = any(item["id"]["S"] == message_id for item in view.messages().values())
            if not is_there and not view.is_purged:
                raise self.breach(f"the signal {message_id} is lost in {life}")


SIGNAL = "to "
"""How the names of signals begin, in the programs of this world."""


def signal_name(workflow_id: str) -> str:
    """The name of the signals to a workflow."""
    return f"{SIGNAL}{workflow_id}"


def target_of(view: View, entry: Entry) -> str | None:
    """The workflow that an entry is a signal to, or None where it is none."""
    match = re.match(rf"signal:{SIGNAL}(\w+)", view.path(entry).rsplit("/", 1)[-1])
    return None if match is None else match[1]
