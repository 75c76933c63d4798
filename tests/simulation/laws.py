"""What every checker is, and the laws of running and holding: 1, 2 and 7 of the design."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine import bare, keys
from engine.entry import EntryStatus, StepEntry
from tests.simulation.view import integer, outlived

if TYPE_CHECKING:
    from tests.simulation.http import HttpAnswer, HttpCall
    from tests.simulation.view import News, View
    from tests.simulation.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All pages of one listing: what was asked for, what was found, and when the first page was asked for."""

    query: dict[str, str]
    found: list[dict[str, Any]]
    began_us: int


class BreachError(Exception):
    """A law was broken; ``law`` is its number, 0 where it is a bug that no law names."""

    def __init__(self, law: int, text: str) -> None:
        super().__init__(f"law {law}: {text}")
        self.law = law


HEARD = ("wrote", "ran", "looked", "acknowledged", "answered", "listed", "heard", "ended")
"""What laws may be told."""


class Law:
    """A checker of one law. It hears of everything and raises ``BreachError``."""

    number = 0

    def __init__(self, world: World) -> None:
        self.world = world

    def is_at_stake(self) -> bool:
        """Whether anything in the world, which has been peopled, can break this law."""
        return True

    def hears(self, what: str) -> bool:
        """Whether this law minds what it is told by the method ``what``."""
        return getattr(type(self), what) is not getattr(Law, what)

    def breach(self, text: str) -> BreachError:
        """The error that says that this law was broken."""
        return BreachError(self.number, text)

    def wrote(self, view: View, news: News) -> None:
        """A write was applied to a workflow; ``view`` shows it already."""

    def ran(self, view: View, path: str, process: str) -> None:
        """A process entered a step's body, or the workflow's own code where ``path`` is empty."""

    def looked(self, view: View, path: str, seen: dict[str, Any]) -> None:
        """Workflow code has looked at its document, at this place."""

    def acknowledged(self, view: View, message_id: str) -> None:
        """A sender was told that its message is accepted."""

    def answered(self, call: HttpCall, answer: HttpAnswer) -> None:
        """A caller has an answer of the HTTP API."""

    def listed(self, listing: Listing) -> None:
        """A caller has all pages of a listing."""

    def heard(self, detail: dict[str, Any]) -> None:
        """An event of this detail has reached the bus."""

    def ended(self) -> None:
        """The world is over."""


class CommittedStepsStay(Law):
    """1: a step whose result was committed is never run again."""

    number = 1

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._committed: dict[str, dict[str, str]] = {}

    def wrote(self, view: View, news: News) -> None:
        """Note what is completed, by path; what history forgets is another law's business."""
        known = self._committed.setdefault(view.life, {})
        for key in news.removed:
            if key.startswith(keys.METADATA_PREFIX):
                known.pop(keys.parse_metadata_key(key), None)
        done = set()
        for key, (_, value) in news.puts.items():
            if key.startswith(keys.METADATA_PREFIX):
                entry_id = keys.parse_metadata_key(key)
                if bare.decode_metadata(value).status in (EntryStatus.COMPLETED, EntryStatus.EXHAUSTED):
                    done.add(entry_id)
                else:
                    # An operator has given an exhausted step new attempts.
                    known.pop(entry_id, None)
        if not done:
            return
        for entry in view.entries().values():
            if entry.id in done and isinstance(entry.kind, StepEntry):
                known[entry.id] = view.path(entry)

    def ran(self, view: View, path: str, process: str) -> None:
        """A body that a fenced process enters cannot be helped: what it does is never committed."""
        is_holder = bool(view.claims) and view.claims[-1].sandbox == process
        if path and is_holder and path in self._committed.get(view.life, {}).values():
            raise self.breach(f"{process} runs {path} of {view.workflow_id} again")


class OneHolder(Law):
    """2: two holders never both commit."""

    number = 2

    def wrote(self, view: View, news: News) -> None:
        """Epochs and commits count up by one, and only the latest claimant commits, by requests of after its claim."""
        if news.head_before is None or news.head is None:
            return
        before, after = news.head_before, news.head
        epochs = (integer(before, "epoch") or 0), (integer(after, "epoch") or 0)
        seqs = (integer(before, "seq") or 0), (integer(after, "seq") or 0)
        where = f"{view.workflow_id}: epoch {epochs[0]} -> {epochs[1]}, commit {seqs[0]} -> {seqs[1]}"
        if epochs[1] - epochs[0] not in (0, 1) or seqs[1] - seqs[0] not in (0, 1):
            raise self.breach(f"a jump in {where}")
        if before.get("owner") != after.get("owner") and "owner" in after and epochs[0] == epochs[1]:
            raise self.breach(f"the lease changed hands without a new epoch in {where}")
        if news.is_commit:
            self._check_commit(view, news, where)

    def _check_commit(self, view: View, news: News, where: str) -> None:
        request = news.write.request
        claim = view.claims[-1] if view.claims else None
        if claim is None or claim.sandbox != request.sandbox.name:
            holder = None if claim is None else claim.sandbox
            raise self.breach(f"{request.sandbox.name} commits, but {holder} holds {where}")
        if request.sent_us < claim.at_us:
            raise self.breach(f"{request.sandbox.name} commits by a request from before its claim of {where}")


class EndedStaysEnded(Law):
    """7: an ended workflow never runs again unless told to."""

    number = 7

    def wrote(self, view: View, news: News) -> None:
        """Only the API, for an operator, writes to what has ended."""
        before = news.head_before
        if before is None or view.is_gone or before["state"]["S"] not in ("completed", "failed", "cancelled"):
            return
        request = news.write.request
        who = f"{request.sandbox.name} ({request.operation})"
        if request.sandbox.role == "api" and view.life in self.world.told:
            return
        if outlived(before, self.world.latest_ms) == "history":
            # To forget its history, it is held and written like any other.
            return
        if integer(before, "epoch") != integer(news.head, "epoch") and "owner" in (news.head or {}):
            raise self.breach(f"{who} claims {view.workflow_id}, which is {before['state']['S']}")
        if news.is_commit or before["state"] != (news.head or {}).get("state"):
            raise self.breach(f"{who} commits to {view.workflow_id}, which is {before['state']['S']}")

    def ran(self, view: View, path: str, process: str) -> None:
        """A process that claimed it before it ended may not know yet; no other enters its code."""
        if view.ended_us is None:
            return
        claims = [claim.at_us for claim in view.claims if claim.sandbox == process]
        if not claims or max(claims) >= view.ended_us:
            raise self.breach(f"{process} runs {path or 'the code'} of {view.workflow_id}, which is {view.state}")
