"""The laws of what is stored: 5, a commit is all or nothing, and 6, history only grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cbor2

from engine import bare, keys
from engine.entry import LoopEntry, RaceEntry, SleepEntry, StepEntry
from tests.simulation.laws import Law
from tests.simulation.view import integer, outlived

if TYPE_CHECKING:
    from tests.simulation.dynamo import Change
    from tests.simulation.view import News, View


PARTED = (keys.HISTORY_PREFIX, keys.DOCUMENT_PREFIX)
"""What may be removed, and is looked at by itself."""


class AllOrNothing(Law):
    """5: a commit is all or nothing: HEAD, LOG, messages and replies move in one write, and say the same."""

    number = 5

    def wrote(self, view: View, news: News) -> None:
        """Look at what one write touched, and at what is stored after it."""
        for change in news.changes:
            self._check_change(view, news, change)
        if news.head is None:
            return
        if news.is_commit and news.head_before is not None:
            self._check_states(view)
        if integer(news.head, "snapshot_seq") != integer(news.head_before, "snapshot_seq"):
            self._check_snapshot(view)

    def _check_change(self, view: View, news: News, change: Change) -> None:
        if view.is_purged and change.new is None:
            return
        what = f"{change.sk} of {view.workflow_id}"
        folded = integer(view.head, "snapshot_seq") or 0
        if change.sk.startswith("LOG#"):
            seq = int(change.sk.split("#")[1])
            if change.new is not None and not (news.is_commit and integer(news.head, "seq") == seq):
                raise self.breach(f"{what} was written, but not with HEAD")
            if change.new is None and seq > folded:
                raise self.breach(f"{what} was deleted, and no snapshot holds it")
        if change.sk.startswith("SNAP#") and change.new is None and int(change.sk.split("#")[1]) >= folded:
            raise self.breach(f"{what} was deleted, and HEAD stands on it")
        if change.sk.startswith("MSG#") and change.new is None and not news.is_commit:
            raise self.breach(f"{what} was taken out, but not with a commit")
        if change.sk.startswith("DEDUP#") and "reply" in (change.new or {}) and not news.is_commit:
            raise self.breach(f"the reply {what} was written, but not with a commit")

    def _check_states(self, view: View) -> None:
        stored = view.pairs.get(keys.STATE_KEY, b"pending").decode()
        if stored != view.state:
            raise self.breach(f"HEAD says that {view.workflow_id} is {view.state}, its history says {stored}")
        is_closed = "closed" in (view.inbox or {})
        if is_closed != view.has_ended:
            raise self.breach(
                f"{view.workflow_id} is {view.state}, and its inbox is {'closed' if is_closed else 'open'}"
            )
        if (keys.OUTPUT_KEY in view.pairs) != (view.state == "completed"):
            raise self.breach(f"{view.workflow_id} is {view.state}, and its output does not fit that")

    def _check_snapshot(self, view: View) -> None:
        seq, parts = integer(view.head, "snapshot_seq") or 0, integer(view.head, "snapshot_parts") or 0
        found = [item["b"]["B"] for sk, item in sorted(view.items.items()) if sk.startswith(f"SNAP#{seq:012d}#")]
        _, flat, *_ = cbor2.loads(b"".join(found[:parts]))
        pairs = dict(zip(flat[::2], flat[1::2], strict=True))
        if seq != integer(view.head, "seq") or pairs != view.pairs:
            raise self.breach(f"the snapshot {seq} of {view.workflow_id} is not what its log amounts to")


class HistoryGrows(Law):
    """6: history only grows, but for finished iterations of loops, losers of races, and what a replay asked for."""

    number = 6

    def wrote(self, view: View, news: News) -> None:
        """Look at what was removed and what was written over."""
        if news.write.request.sandbox.role == "api" and view.life in self.world.told:
            return
        if view.has_ended and outlived(news.head_before, self.world.latest_ms) == "history":
            return
        if news.removed:
            self._check_removed(view, news)
        for key, (old, new) in news.puts.items():
            if old is not None and old != new:
                self._check_overwritten(view, key, old, new)

    def _check_removed(self, view: View, news: News) -> None:
        gone_ids = set()
        for key, value in news.removed.items():
            if key.startswith(keys.DOCUMENT_PREFIX):
                if keys.documented_key(key) not in news.removed:
                    raise self.breach(f"a document of {view.workflow_id} was removed without its entry")
            elif key.startswith(keys.HISTORY_PREFIX):
                entry = view.entry(key, value)
                gone_ids.add(entry.id)
                if not view.why_gone(entry):
                    raise self.breach(f"{view.path(entry)} of {view.workflow_id} was removed from history")
        for key in news.removed:
            if key.startswith(keys.METADATA_PREFIX):
                if keys.parse_metadata_key(key) not in gone_ids:
                    raise self.breach(f"metadata of {view.workflow_id} was removed without its entry")
            elif key not in (keys.ERROR_KEY, keys.OUTPUT_KEY) and not key.startswith(PARTED):
                raise self.breach(f"the key {key.hex()} of {view.workflow_id} was removed")

    def _check_overwritten(self, view: View, key: bytes, old: bytes, new: bytes) -> None:
        if key.startswith(keys.NAMES_PREFIX) or key == keys.INPUT_KEY:
            raise self.breach(f"{old!r} of {view.workflow_id} became {new!r}")
        if not key.startswith(keys.HISTORY_PREFIX):
            return
        before, after = bare.decode_entry(old), bare.decode_entry(new)
        what = f"{view.path(after)} of {view.workflow_id}"
        if before.id != after.id or type(before.kind) is not type(after.kind):
            raise self.breach(f"{what} became another entry")
        match before.kind, after.kind:
            case StepEntry(output=one), StepEntry(output=other) if one is not None and one != other:
                raise self.breach(f"{what} has another output")
            case SleepEntry(deadline=one), SleepEntry(deadline=other) if one != other:
                raise self.breach(f"{what} has another deadline")
            case LoopEntry(iteration=one), LoopEntry(iteration=other) if other < one:
                raise self.breach(f"{what} went back to iteration {other}")
            case RaceEntry(winner=one), RaceEntry(winner=other) if one is not None and one != other:
                raise self.breach(f"{what} has another winner")
