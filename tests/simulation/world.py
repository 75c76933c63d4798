"""A world: one virtual time, one table, one queue, Lambda, callers, and checkers that look from outside."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from adapters.dynamodb import lease, purge
from engine.author.registry import Workflow
from engine.ids import Ids
from engine.schedules.workflow import schedule
from tests.simulation.actors import Callers
from tests.simulation.answer_laws import AnswersAreTrue, ListingIsPlausible, Remembered
from tests.simulation.author import Author
from tests.simulation.bus import Bus
from tests.simulation.children import Children, workflows_of
from tests.simulation.document_laws import DocumentFolds
from tests.simulation.dynamo import Dynamo
from tests.simulation.expectation import Expectation
from tests.simulation.family_laws import ChildrenOnce, PlacesAndTags
from tests.simulation.functions import Functions
from tests.simulation.going_on_laws import DueWhenReady, EndsAsItWould, MessagesOnce
from tests.simulation.keeping_laws import KeptForAWhile
from tests.simulation.laws import HEARD, BreachError, CommittedStepsStay, EndedStaysEnded, Law, Listing, OneHolder
from tests.simulation.ledger import Ledger
from tests.simulation.occurrence_laws import OccurrencesOnce
from tests.simulation.outside_laws import PurgedIsGone, SignalsOnce
from tests.simulation.overlap_laws import SchedulesObey
from tests.simulation.programs import generate
from tests.simulation.publishing_laws import PublishedOnce
from tests.simulation.queueing import Schedules, Sqs
from tests.simulation.sandbox import Sandbox
from tests.simulation.stored_laws import AllOrNothing, HistoryGrows
from tests.simulation.timeline import ProcessLoop, Timeline
from tests.simulation.timetables import START_MS, generate_schedule
from tests.simulation.view import ENDED, View
from tests.simulation.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.simulation.dynamo import Change, Write
    from tests.simulation.http import HttpAnswer, HttpCall
    from tests.simulation.plan import Fault, Plan
    from tests.simulation.programs import Program
    from tests.simulation.timetables import Asked
    from tests.simulation.wire import Request, Service

LAWS: tuple[type[Law], ...] = (
    CommittedStepsStay,
    OneHolder,
    MessagesOnce,
    DueWhenReady,
    AllOrNothing,
    HistoryGrows,
    EndedStaysEnded,
    EndsAsItWould,
    PurgedIsGone,
    SignalsOnce,
    ListingIsPlausible,
    AnswersAreTrue,
    Remembered,
    PublishedOnce,
    ChildrenOnce,
    PlacesAndTags,
    KeptForAWhile,
    DocumentFolds,
    OccurrencesOnce,
    SchedulesObey,
)
PATIENCE_S = 2 * 3600.0
"""How long a world may take after the calm, its own waits and a sweep for each of them aside."""

AFTERGLOW_S = 400.0
"""How long a world goes on when all has ended: what is still under way must do no harm."""

STEPS_MAX = 600_000

SCHEDULE_SHARE = 0.25
SCHEDULE_NUMBER = 3
"""Which of the stories the schedule counts as, where there is one."""

_SMALL: tuple[tuple[Any, str, int], ...] = (
    # A transaction holds more than a world makes.
    (purge, "_BATCH_ITEMS", 3),
    # Hundreds of messages would never be left unread.
    (lease, "PASSED_UNREAD_MIN", 1),
)
"""Limits of the product that no world would come to, and what they are here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One workflow of a world: its program, and what that comes to."""

    workflow_id: str
    program: Program
    expected: Expectation


@dataclass(slots=True)
class WorkflowSource:
    """The author's build, as the worker finds it."""

    workflows: dict[str, Workflow[Any]] = field(default_factory=dict)

    def load(self) -> None:
        """Nothing is imported."""

    def get(self, workflow_type: str, /) -> Workflow[Any]:
        """The workflow of a type."""
        return self.workflows[workflow_type]


class World:
    """One run of the simulation; ``laws``: numbers of those that are checked, all where None."""

    def __init__(self, plan: Plan, *, laws: Collection[int] | None = None, is_traced: bool = False) -> None:
        self.plan = plan
        self.weather = plan.weather
        self.timeline = Timeline()
        self.wire = Wire(self)
        self.dynamo = Dynamo(self)
        self.queue = Sqs(self)
        self.schedules = Schedules(self)
        self.bus = Bus(self)
        self.application = WorkflowSource()
        self.functions = Functions(self)
        self.service = Sandbox(self, "dynamodb", role="service", skew_ms=0)
        self.ledger = Ledger(self)
        self.views: dict[str, View] = {}
        self.lives: dict[str, View] = {}
        self.stories: dict[str, Story] = {}
        self.plans: list[Asked] = []
        self.told: set[str] = set()
        self.answering_s = 0.0
        self.trace: list[tuple[int, str]] = []
        self.breach: BreachError | None = None
        self._is_traced = is_traced
        self.laws = [law(self) for law in LAWS if laws is None or law.number in laws]
        self._hearing = {what: [getattr(law, what) for law in self.laws if law.hears(what)] for what in HEARD}
        self.callers = Callers(self)
        self.application.workflows |= workflows_of(Children(self.ledger))
        self.application.workflows[schedule.name] = schedule

    # --- time -------------------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """Milliseconds since the epoch, truly."""
        return self.at_ms(self.timeline.now_us)

    @staticmethod
    def at_ms(at_us: int) -> int:
        """Milliseconds since the epoch of a time of the world."""
        return START_MS + at_us // 1000

    @property
    def latest_ms(self) -> int:
        """What the fastest clock of a process may show."""
        return self.now_ms + 2 * self.weather.skew_ms

    @property
    def is_calm(self) -> bool:
        """Whether nothing goes wrong any more."""
        return self.timeline.now_s >= self.weather.calm_s

    def fault_at(self, ordinal: int) -> Fault | None:
        """What goes wrong with a call."""
        return None if self.is_calm else self.plan.fault_at(ordinal)

    def unprocessed(self) -> bool:
        """Whether an item of a batch is left unprocessed."""
        return not self.is_calm and self.plan.chance("unprocessed") < 0.1

    # --- what happens -----------------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Write a line into the trace."""
        if self._is_traced:
            self.trace.append((self.timeline.now_us, text))

    def bug(self, text: str) -> None:
        """Something that no law names, and that must not happen."""
        self._broke(BreachError(0, text))

    def _broke(self, breach: BreachError) -> None:
        # Kept here and not raised: the product must not be able to catch it.
        if self.breach is None:
            self.breach = breach
            self.note(str(breach))

    def execute(self, request: Request, service: Service, answering_s: float) -> dict[str, Any]:
        """A request has arrived at its service, whose answer will take ``answering_s``."""
        self.answering_s = answering_s
        try:
            answer = service.execute(request)
        except Exception as error:
            self.note(f"{request.sandbox.name} {service.name}.{request.operation}: {error}")
            raise
        if request.service != "dynamodb" or request.operation in ("get_item", "query"):
            self.note(f"{request.sandbox.name} {service.name}.{request.operation}")
        return answer

    def applied(self, write: Write) -> None:
        """A write was applied to the table."""
        if self._is_traced:
            touched = ", ".join(f"{'-' if change.new is None else ''}{change.sk}" for change in write.changes)
            pk = write.changes[0].pk if write.changes else ""
            self.note(
                f"{write.request.sandbox.name} {write.request.operation} #{write.request.ordinal} {pk}: {touched}"
            )
        by_workflow: dict[str, list[Change]] = {}
        for change in write.changes:
            # What begins so belongs to no workflow.
            if not change.pk.startswith("\0"):
                by_workflow.setdefault(change.pk, []).append(change)
        for workflow_id, changes in by_workflow.items():
            view = self._view_for(workflow_id, changes)
            news = view.take(write, changes)
            if (news.head_before is not None and news.is_commit) or view.state in ENDED:
                self.note(f"{workflow_id} is {view.state}, commit {(news.head or {}).get('seq', {}).get('N')}")
            self._tell_laws("wrote", view, news)

    def _view_for(self, workflow_id: str, changes: list[Change]) -> View:
        view = self.views.get(workflow_id)
        begins = any(change.sk == "HEAD" and change.old is None for change in changes)
        if view is None or (view.is_gone and begins):
            view = View(workflow_id, 0 if view is None else view.number + 1)
            self.views[workflow_id] = self.lives[view.life] = view
        return view

    def _tell_laws(self, what: str, *told: Any) -> None:
        try:
            for hear in self._hearing[what]:
                hear(*told)
        except BreachError as breach:
            self._broke(breach)

    def heard(self, detail: dict[str, Any]) -> None:
        """An event has reached the bus."""
        self._tell_laws("heard", detail)

    def ran(self, workflow_id: str, path: str, process: str) -> None:
        """A body, or the workflow's own code, was entered."""
        self.note(f"{process} runs {path or 'the code'} of {workflow_id}")
        view = self.run_by(workflow_id, process)
        self._tell_laws("ran", view, path, process)

    def looked(self, workflow_id: str, path: str, seen: dict[str, Any], process: str) -> None:
        """Workflow code has looked at its document."""
        self._tell_laws("looked", self.run_by(workflow_id, process), path, seen)

    def run_by(self, workflow_id: str, process: str) -> View:
        """The life of a workflow that a process works for: the last one that it claimed."""
        view = self.views[workflow_id]
        for number in range(view.number, -1, -1):
            life = self.lives[f"{workflow_id}.{number}"]
            if any(claim.sandbox == process for claim in life.claims):
                return life
        return view

    def acknowledged(self, life: str, message_id: str) -> None:
        """A sender was told that its message is accepted."""
        self.note(f"{message_id} is acknowledged")
        self._tell_laws("acknowledged", self.lives[life], message_id)

    def answered(self, call: HttpCall, answer: HttpAnswer) -> None:
        """A caller has an answer of the HTTP API."""
        self._tell_laws("answered", call, answer)

    def listed(self, listing: Listing) -> None:
        """A caller has paged through a listing."""
        self.note(f"{len(listing.found)} workflows are listed for {listing.query}")
        self._tell_laws("listed", listing)

    # --- what goes wrong --------------------------------------------------------------------------------------------

    def kill(self, sandbox: Sandbox, why: str) -> None:
        """End a process: it makes no further call, and its tasks are gone without a trace."""
        if sandbox.loop.is_dead:
            return
        self.note(f"{sandbox.name} dies: {why}")
        sandbox.loop.is_dead = True
        if sandbox.on_death is not None:
            self.timeline.after(0.001, sandbox.on_death)

    def freeze(self, sandbox: Sandbox, duration_s: float) -> None:
        """Stop a process for a while."""
        if sandbox.loop.is_dead or sandbox.loop.is_frozen:
            return
        self.note(f"{sandbox.name} is frozen for {duration_s:.3f} s")
        sandbox.loop.is_frozen = True
        sandbox.frozen_until_us = self.timeline.now_us + int(duration_s * 1e6)
        self.timeline.after(duration_s, self._thaw, sandbox)

    def _thaw(self, sandbox: Sandbox) -> None:
        if sandbox.is_busy and not sandbox.loop.is_dead:
            self.note(f"{sandbox.name} thaws")
            sandbox.loop.thaw()

    def _moment(self, fault: Fault) -> None:
        if self.is_calm:
            return
        busy = [one for one in self.functions.sandboxes if one.is_busy and not one.loop.is_dead]
        busy = [one for one in busy if one.role == "worker"] or busy
        if not busy:
            return
        sandbox = busy[int(fault.amount * len(busy))]
        self.note(f"{sandbox.name} meets {fault}")
        match fault.kind:
            case "kill":
                self.kill(sandbox, "killed")
            case "freeze":
                self.freeze(sandbox, fault.amount * 100)
            case "terminate":
                sandbox.process.terminate()

    # --- a run ------------------------------------------------------------------------------------------------------

    def tell(self, workflow_id: str, program: Program) -> Story:
        """Let a workflow with this program be part of the world."""
        story = Story(workflow_id=workflow_id, program=program, expected=Expectation(program))
        self.stories[workflow_id] = story
        author = Author(program, story.expected, self.ledger)
        self.application.workflows[workflow_id] = Workflow(workflow_id, author.run)
        return story

    def populate(self) -> None:
        """Let the seed's own workflows be part of it."""
        for number in range(1 + int(self.plan.chance("workflows") * 2.7)):
            if number not in self.plan.mute:
                self.tell(f"w{number}", generate(f"{self.plan.seed}/{number}"))
        if self.plan.chance("schedule") < SCHEDULE_SHARE and SCHEDULE_NUMBER not in self.plan.mute:
            self.plans.append(generate_schedule(str(self.plan.seed)))

    def run(self) -> BreachError | None:
        """Play it to its end; the first law that was broken, or None."""
        random_bytes = Ids.__init__.__defaults__
        entropy = self.plan.chance
        Ids.__init__.__defaults__ = (lambda count: int(entropy("ids") * 2**52).to_bytes(count, "big"),)
        usual = [getattr(place, name) for place, name, _ in _SMALL]
        for place, name, limit in _SMALL:
            setattr(place, name, limit)
        try:
            self._play()
        finally:
            Ids.__init__.__defaults__ = random_bytes
            for (place, name, _), limit in zip(_SMALL, usual, strict=True):
                setattr(place, name, limit)
            self.ledger.is_closed = True
            for sandbox in self.functions.sandboxes:
                sandbox.loop.dismantle()
            self.callers.loop.dismantle()
        return self.breach

    def _play(self) -> None:
        for fault in self.plan.moments():
            self.timeline.after(fault.at_s, self._moment, fault)
        self.functions.start_sweeping()
        self.callers.begin()
        timeline = self.timeline
        waits_s = sum(story.expected.waits_s for story in self.stories.values())
        waits_s += sum(asked.lifetime_s for asked in self.plans)
        limit_s = min(self.weather.calm_s, 3_600.0) + 4 * waits_s + PATIENCE_S
        end_s = limit_s
        while self.breach is None and timeline.now_s < end_s and timeline.steps < STEPS_MAX:
            if not timeline.step():
                break
            if timeline.steps % 64 == 0 and self._is_over() != (end_s < limit_s):
                # An operator may tell what has ended to go on.
                end_s = limit_s if end_s < limit_s else timeline.now_s + AFTERGLOW_S
        if self.breach is None:
            self._check_end()

    def _is_over(self) -> bool:
        if not self.callers.are_done:
            return False
        return self.stories.keys() <= self.views.keys() and all(view.is_settled for view in self.views.values())

    def _check_end(self) -> None:
        errors = [error for sandbox in self.functions.sandboxes for error in sandbox.loop.errors]
        if errors or self.callers.loop.errors:
            self.bug(f"a task failed unseen: {(errors + self.callers.loop.errors)[0]}")
            return
        if not self.callers.are_done:
            self.bug("a caller never got its answer")
        self._tell_laws("ended")


__all__ = ["LAWS", "ProcessLoop", "Story", "World"]
