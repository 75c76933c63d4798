"""The law of documents: 18, a document is what the recorded activities made of it, everywhere and at every commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine import keys, values
from engine.entry import Entry, LoopEntry, RaceEntry, StepEntry
from engine.history import documents
from engine.location import LoopIteration
from tests.simulation.foreseen import LOST
from tests.simulation.laws import Law
from tests.simulation.programs import message_name
from tests.simulation.view import outlived

if TYPE_CHECKING:
    from tests.simulation.http import HttpAnswer, HttpCall
    from tests.simulation.ledger import Draft
    from tests.simulation.view import News, View
    from tests.simulation.world import World

SETTLING_SHARE = 2.2
"""An answer is under way for up to so many times the weather's latency."""

Content = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    """A version as the ledger has it: ``number`` says when it was made."""

    number: int
    path: str
    content: Content


class DocumentFolds(Law):
    """18: the document is what the recorded results of activities amount to, no more and no less of it."""

    number = 18

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._versions: dict[str, dict[bytes, _Version]] = {}
        self._since: dict[str, list[tuple[int, Content]]] = {}

    def wrote(self, view: View, news: News) -> None:
        """Follow each version to where it is kept, and hold what is stored against that."""
        if view.is_purged:
            return
        known = self._versions.setdefault(view.life, {})
        before = _newest(known)
        moved = self._let_go(view, news, known)
        # A race that is decided while an earlier commit is under way is so for activities that begin before the next.
        remaining = _newest(known)
        made = self._made(view, news)
        for key, version, draft in made:
            self._check_base(view, draft, [before, remaining, *(each.content for _, each, _ in made)])
            known[key] = version
        touched = [key for key in (*news.puts, *news.removed) if key.startswith(keys.DOCUMENT_PREFIX)]
        if touched or moved or made:
            self._compare(view, known)
            now = _newest(known)
            self._since.setdefault(view.life, [(0, {})]).append((news.write.at_us, now))

    def _made(self, view: View, news: News) -> list[tuple[bytes, _Version, Draft]]:
        """What the results say that are recorded now, in the order in which they were made."""
        found = []
        for key, (old, new) in news.puts.items():
            if not key.startswith(keys.HISTORY_PREFIX):
                continue
            draft = self._draft_of(view.entry(key, new))
            if draft is None or (old is not None and self._draft_of(view.entry(key, old)) == draft):
                continue
            if view.path(view.entry(key, new)) != draft.path:
                raise self.breach(f"{view.path(view.entry(key, new))} of {view.life} has the result of {draft.path}")
            if draft.before != draft.after:
                found.append((key, _Version(number=draft.number, path=draft.path, content=draft.after), draft))
        return sorted(found, key=lambda each: each[1].number)

    def _draft_of(self, entry: Entry) -> Draft | None:
        if not isinstance(entry.kind, StepEntry) or entry.kind.output is None or b"draft" not in entry.kind.output:
            return None
        output = values.decode(entry.kind.output)
        return self.world.ledger.drafts[output["draft"]] if isinstance(output, dict) else None

    def _check_base(self, view: View, draft: Draft, bases: list[Content]) -> None:
        """An activity gets the newest document there is, which may be one whose branch loses in the same moment."""
        if draft.before in bases:
            return
        beside = [each for each in self.world.ledger.drafts[: draft.number] if each.process == draft.process]
        if not any(each.after == draft.before and self._is_lost(view, each.path) for each in beside):
            raise self.breach(f"{draft.path} of {view.life} was given {draft.before}, and the newest is {bases[0]}")

    def _is_lost(self, view: View, path: str) -> bool:
        story = self.world.stories.get(view.workflow_id)
        return story is not None and message_name(path) in story.expected.document.lost

    def _let_go(self, view: View, news: News, known: dict[bytes, _Version]) -> bool:
        """Move what stood beside entries that are gone; whether anything did."""
        gone = [key for key in news.removed if key in known]
        is_outlived = view.has_ended and outlived(news.head_before, self.world.latest_ms) == "history"
        is_told = news.write.request.sandbox.role == "api"
        if is_told and not view.entries():
            # Everything is to be done again.
            gone += [documents.OF_ALL] if documents.OF_ALL in known else []
        for key in gone:
            version = known.pop(key)
            if is_outlived:
                target: bytes | None = documents.OF_ALL
            elif is_told:
                target = None
            else:
                entry = view.entry(key, news.removed[key])
                target = _loop_of(view, entry, is_lost=self._is_lost(view, version.path))
            if target is not None and (target not in known or version.number > known[target].number):
                known[target] = version
        return bool(gone)

    def _compare(self, view: View, known: dict[bytes, _Version]) -> None:
        stored = {
            keys.documented_key(key): documents.decode(value)
            for key, value in view.pairs.items()
            if key.startswith(keys.DOCUMENT_PREFIX)
        }
        contents = {key: values.decode(document.data) for key, document in stored.items()}
        expected = {key: version.content for key, version in known.items()}
        if contents != expected:
            raise self.breach(f"the documents of {view.life} are {_short(contents)}, and should be {_short(expected)}")
        newest = max(stored.values(), key=lambda document: document.version, default=documents.EMPTY)
        if values.decode(newest.data) != _newest(known):
            raise self.breach(f"the newest document of {view.life} is not the last one that was made")

    def looked(self, view: View, path: str, seen: Content) -> None:
        """Code sees what was written before it, and what branches beside it wrote only through what it wrote itself."""
        sight = self.world.stories[view.workflow_id].expected.document.sights[path]
        lacking = {key: value for key, value in sight.certain.items() if seen.get(key) != value}
        strange = [key for key in seen if key not in sight.certain and key not in sight.possible]
        strange = [key for key in strange if not key.startswith(LOST)]
        if lacking or strange:
            raise self.breach(f"at {path} {view.life} sees {_short(seen)}: {strange} too much, not {_short(lacking)}")

    def answered(self, call: HttpCall, answer: HttpAnswer) -> None:
        """What is told of it was so at some moment of the call."""
        if call.query.get("document") != "true" or answer.status != 200:
            return
        settling_us = int(self.world.weather.latency_s * SETTLING_SHARE * 1e6)
        since_us = call.began_us - settling_us
        told = self._since.get(call.life, [(0, {})])
        current = [content for at_us, content in told if at_us >= since_us]
        current.append([content for at_us, content in told if at_us < since_us or at_us == 0][-1])
        if answer.value["document"] not in current:
            raise self.breach(f"the document of {call.life} is said to be {_short(answer.value['document'])}")


def _newest(known: dict[bytes, _Version]) -> Content:
    version = max(known.values(), key=lambda each: each.number, default=None)
    return {} if version is None else version.content


def _loop_of(view: View, entry: Entry, *, is_lost: bool) -> bytes | None:
    """The key of the loop that has forgotten an entry's iteration, and is there still.

    Of a branch that loses, only a loop in it counts: what it has written is not kept by what the race lies in.
    """
    target = None
    is_raced = False
    for depth, segment in enumerate(entry.location):
        key = keys.entry_key(entry.location[:depth])
        match view.entries().get(key) if depth else None, segment:
            case Entry(kind=RaceEntry()), _:
                is_raced = True
            case Entry(kind=LoopEntry(iteration=current)), LoopIteration(iteration=iteration) if iteration < current:
                if is_raced or not is_lost:
                    target = key
    return target


def _short(found: Any) -> str:
    return repr(found)[:300]
