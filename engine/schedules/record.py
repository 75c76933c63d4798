"""A schedule as it is stored: what it was asked for, and how far it is."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from engine.errors import CorruptHistoryError, InvalidScheduleError
from engine.schedules import limits
from engine.schedules.timing import INTERVAL_MAX_S, At, Cron, Every
from engine.values import decode, encode


class Overlap(StrEnum):
    """What becomes of an occurrence while a run of the one before is under way."""

    SKIP = "skip"
    """It is left out."""

    QUEUE = "queue"
    """It begins when that has ended."""

    ALLOW = "allow"
    """It begins at once, beside it."""


class Spec(Struct, frozen=True, kw_only=True):
    """What a schedule is asked for.

    Attributes:
        timing: when it occurs.
        type: the workflow type of its runs.
        input: their input, CBOR.
        overlap: what becomes of an occurrence while the run before is under way.
        catch_up_s: by how many seconds an occurrence may be late and is still made up for.
        tags: tags of the runs, beside those that say which occurrence they are.
    """

    timing: Cron | Every | At
    type: str
    input: bytes = encode(None)
    overlap: Overlap = Overlap.SKIP
    catch_up_s: int = limits.CATCH_UP_S
    tags: dict[str, str] = {}

    def check(self) -> None:
        """Raise ``InvalidScheduleError`` where it cannot be."""
        self.timing.check()
        if len(self.input) > limits.INPUT_BYTES_MAX:
            raise InvalidScheduleError(
                f"the input of a schedule's runs has {len(self.input)} bytes; {limits.INPUT_BYTES_MAX} is the most: "
                "keep it in a store of your own, and give its key"
            )
        try:
            decode(self.input)
        except CorruptHistoryError as error:
            raise InvalidScheduleError(f"the input of a schedule's runs is no CBOR: {error}") from error
        if not 0 <= self.catch_up_s <= INTERVAL_MAX_S:
            raise InvalidScheduleError(f"catch_up is {self.catch_up_s} s; give 0 to {INTERVAL_MAX_S}")

    def anchored(self, anchor_ms: int) -> Spec:
        """This one with an interval that has no anchor aligned to ``anchor_ms``, in whole seconds."""
        if not isinstance(self.timing, Every) or self.timing.anchor_ms is not None:
            return self
        return replace(self, timing=replace(self.timing, anchor_ms=anchor_ms // 1000 * 1000))

    def is_same(self, other: Spec) -> bool:
        """Whether both ask for the same; an interval without an anchor is the same as one that got one."""
        anchors = [one.timing.anchor_ms for one in (self, other) if isinstance(one.timing, Every)]
        anchor_ms = next((anchor for anchor in anchors if anchor is not None), 0)
        return self.anchored(anchor_ms) == other.anchored(anchor_ms)


class Fate(StrEnum):
    """What became of an occurrence."""

    STARTED = "started"
    SKIPPED = "skipped"
    MISSED = "missed"
    FAILED = "failed"


class Occurrence(Struct, frozen=True, kw_only=True):
    """One occurrence and what became of it.

    Attributes:
        at_ms: which it is, or when it was asked for (milliseconds since the epoch).
        decided_ms: when that was decided.
        fate: what became of it.
        run_id: its run, where it was started.
        reason: why it was not.
    """

    at_ms: int
    decided_ms: int
    fate: Fate
    run_id: str | None = None
    reason: str | None = None


class Backfill(Struct, frozen=True, kw_only=True):
    """Occurrences to be made up for: those after ``after_ms``, up to and with ``until_ms``; ``overlap`` is theirs.

    They are those of ``timing``, the schedule's when it was asked for: an update may make far more of them. None, of a
    build before this one, stands for the schedule's of now.
    """

    after_ms: int
    until_ms: int
    overlap: Overlap
    timing: Cron | Every | At | None = None


class Counts(Struct, frozen=True, kw_only=True):
    """How many occurrences had which fate; all that were missed at one time count up to a bound."""

    started: int = 0
    skipped: int = 0
    missed: int = 0
    failed: int = 0


class Ahead(Struct, frozen=True, kw_only=True):
    """What a schedule does next, as its latest turn saw it.

    It is kept, and not worked out again: in a replay a build with other rules for its zone would see something else.

    Attributes:
        is_over: nothing is left to come of it.
        has_more: there is more to decide at once.
        next_ms: the next occurrence, None where there is none, or it is paused (milliseconds since the epoch).
    """

    is_over: bool = False
    has_more: bool = False
    next_ms: int | None = None


class Schedule(Struct, frozen=True, kw_only=True):
    """How far a schedule is.

    Attributes:
        spec: what it is asked for now.
        after_ms: all occurrences up to this instant are decided (milliseconds since the epoch).
        decided_ms: when that was last looked at.
        triggered_ms: which run was last started by hand.
        is_paused: it occurs not.
        note: why it is paused, where somebody said so.
        waiting: occurrences that begin when what runs has ended, oldest first.
        backfills: what is to be made up for, oldest first.
        running: runs that have not ended as far as is known, where it matters, oldest first.
        recent: the latest occurrences, oldest first.
        counts: how many there were.
        problem: what was wrong the last time that something was.
        ahead: what it does next; None where a build before this one has left it.
    """

    spec: Spec
    after_ms: int
    decided_ms: int = 0
    triggered_ms: int = 0
    is_paused: bool = False
    note: str | None = None
    waiting: list[int] = []
    backfills: list[Backfill] = []
    running: list[str] = []
    recent: list[Occurrence] = []
    counts: Counts = Counts()
    problem: str | None = None
    ahead: Ahead | None = None

    @classmethod
    def begun(cls, spec: Spec, at_ms: int) -> Schedule:
        """A schedule that begins at ``at_ms`` (milliseconds since the epoch)."""
        timing = spec.timing
        # A single time is meant even where it has passed while the schedule was on its way here.
        after_ms = min(at_ms, timing.at_ms - 1) if isinstance(timing, At) else at_ms
        return cls(spec=spec.anchored(at_ms), after_ms=after_ms)

    def next_at(self) -> int | None:
        """The next occurrence, None where there is none, or it is paused (milliseconds since the epoch)."""
        return None if self.is_paused else self.spec.timing.next_after(self.after_ms)

    def checked(self) -> Schedule:
        """This one, but paused where a build does not know its time zone or expression any more: it must not die.

        Backfills that it could not do are dropped.
        """
        problem = _problem_of(self.spec.timing)
        known = self if problem is None else replace(self, is_paused=True, problem=problem)
        backfills = [each for each in self.backfills if _problem_of(each.timing or self.spec.timing) is None]
        return known if backfills == self.backfills else replace(known, backfills=backfills)

    def with_fate(self, occurrence: Occurrence, count: int = 1) -> Schedule:
        """This one, remembering ``occurrence``, which stands for ``count``."""
        name = occurrence.fate.value
        counts = replace(self.counts, **{name: getattr(self.counts, name) + count})
        return replace(self, recent=[*self.recent, occurrence][-limits.RECENT_KEPT :], counts=counts)


def _problem_of(timing: Cron | Every | At) -> str | None:
    try:
        timing.check()
    except InvalidScheduleError as error:
        return str(error)[: limits.NOTE_CHARACTERS_MAX]
    return None
