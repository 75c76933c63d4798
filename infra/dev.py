"""``torpor dev``: the local stack, deployed again whenever a source changes, with its functions' logs, until Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from engine.clock import SystemClock
from infra.environment import MINISTACK
from infra.fault import DeployError
from infra.local_stack import FUNCTIONS, LocalStack
from infra.ministack import wait
from infra.package import EXAMPLE, ROOMS, Application
from infra.place import ROOT, TEMPLATE
from infra.target import NOTE, DevNote, refuse_second
from infra.trial import try_application

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

ROUND_S = 0.5
"""Seconds between two looks at sources and logs. Design choice."""

PLATFORM_LINES = ("START RequestId", "END RequestId", "REPORT RequestId", "INIT_START")
"""What Lambda itself logs about every invocation."""

Seen = dict[Path, tuple[int, int]]
"""Files with their times of change (nanoseconds) and sizes (bytes)."""

SHOWN_ELSEWHERE = frozenset({"timestamp", "level", "logger", "message", "exception"})


def run(arguments: Namespace) -> None:
    """Run the local stack until Ctrl-C or SIGTERM; raises DeployError where it does not start, or ends by itself."""
    refuse_second(Path.cwd())
    application = Application.of(arguments.app, Path.cwd())
    _report(announcement(application, is_named=arguments.app is not None))
    # Before anything is started: a module that is nowhere is the author's to name.
    watch = Watch(application, _report)
    # A terminated process must take MiniStack with it as an interrupted one does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        MINISTACK.ensure(_report)
        types = _importable(application, watch, is_watching=not arguments.no_watch)
        _serve(arguments, application, watch, types)
    print()
    _report("stopped")


def announcement(application: Application, *, is_named: bool) -> str:
    """What is going to be deployed, in a line; ``is_named`` says whether the author asked for it."""
    if is_named or application.modules != EXAMPLE:
        return f"deploying {application.modules}"
    return f"no app.py here: deploying {EXAMPLE}; give --app NAME for your own"


def _importable(application: Application, watch: Watch, *, is_watching: bool) -> tuple[str, ...]:
    """Wait until the modules can be imported; gives the types of workflows in them.

    Raises:
        DeployError: they cannot, and nobody waits for a change of them.
    """
    while (trial := try_application(application, _report)).complaint is not None:
        if not is_watching:
            raise DeployError(trial.complaint)
        _report(trial.complaint)
        _report("nothing is deployed until it can be imported; waiting for a change")
        while not watch.has_changed():
            wait(ROUND_S)
    return trial.types


def _serve(arguments: Namespace, application: Application, watch: Watch, types: tuple[str, ...]) -> NoReturn:
    clock = SystemClock()
    began = clock.now()
    with (
        LocalStack.start(application=application, parameters=dict(arguments.parameter), report=_report) as stack,
        _note_of(stack).held(Path.cwd()) as note,
    ):
        _report(f"ready after {(clock.now() - began) / 1000:.1f} s{_listed(types)}; Ctrl-C ends it")
        _print_places(stack, note)
        tail = LogTail(stack, clock.now())
        while stack.ministack.is_running:
            if not arguments.no_logs:
                tail.print_news()
            if not arguments.no_watch and watch.has_changed():
                _deploy_again(stack)
            wait(ROUND_S)
        raise DeployError(f"The local AWS has ended by itself. The end of its log:\n{stack.ministack.log()[-2000:]}")


def _report(line: str) -> None:
    print(f"torpor dev: {line}", flush=True)


def _note_of(stack: LocalStack) -> DevNote:
    """By it other commands find the stack while it runs."""
    return DevNote(endpoint=stack.endpoint, host=stack.api_host, pid=os.getpid(), outputs=stack.outputs)


def _print_places(stack: LocalStack, note: Path) -> None:
    places = {
        "AWS endpoint": stack.endpoint,
        "HTTP API": f"{stack.endpoint} with the header Host: {stack.api_host}",
        "table": stack.table_name,
        "wake queue": stack.queue_url,
        "modules": stack.application.modules,
        "note": str(note.relative_to(Path.cwd())) if note.is_relative_to(Path.cwd()) else str(NOTE),
    }
    for name, value in places.items():
        print(f"  {name:<12}  {value}")
    print("  in another terminal: torpor start TYPE, torpor list, torpor --help", flush=True)


def _listed(types: tuple[str, ...]) -> str:
    return f" with the workflows {', '.join(types)}" if types else ", but no module registers a workflow"


def _deploy_again(stack: LocalStack) -> None:
    try:
        trial = try_application(stack.application, _report)
        if trial.complaint is not None:
            # The author is in the middle of something; the next change gets its chance.
            _report(trial.complaint)
        elif stack.deploy():
            _report(f"sources changed: deployed again{_listed(trial.types)}")
        else:
            _report("sources are again what is deployed")
    except DeployError as error:
        _report(f"sources changed, but: {error}")


def _sources(application: Application) -> Seen:
    """Every file that decides what is deployed, with its time of change and size."""
    found: Seen = {}
    requirements = application.folder / "requirements.txt"
    for place in [TEMPLATE, requirements, *(ROOT / room for room in ROOMS), *application.sources()]:
        for path in [place] if place.is_file() else place.rglob("*"):
            if "__pycache__" not in path.parts and path.is_file():
                with contextlib.suppress(OSError):  # an editor is replacing it
                    status = path.stat()
                    found[path] = (status.st_mtime_ns, status.st_size)
    return found


class Watch:
    """Notices changes of an application's files.

    Raises DeployError where there is no such application to begin with.
    """

    def __init__(self, application: Application, report: Callable[[str], None]) -> None:
        self._application = application
        self._report = report
        self._seen = _sources(application)
        self._complaint = ""

    def has_changed(self) -> bool:
        """Whether a file has since the last call; where a module is missing now, ``report`` is told so, once."""
        try:
            now = _sources(self._application)
        except DeployError as error:
            # An editor may be replacing the file, or the author is about to.
            if str(error) != self._complaint:
                self._report(str(error))
            self._complaint = str(error)
            return False
        self._complaint = ""
        is_changed = now != self._seen
        self._seen = now
        return is_changed


class LogTail:
    """Prints what the functions log, each record once, on a line of its own."""

    def __init__(self, stack: LocalStack, since_ms: int) -> None:
        self._stack = stack
        self._since_ms = dict.fromkeys(FUNCTIONS, since_ms)
        self._told: dict[str, set[str]] = {name: set() for name in FUNCTIONS}
        self._complaints: set[str] = set()
        self._offset = len(stack.ministack.log().encode())

    def print_news(self) -> None:
        """Print what has been logged since the last call, and what the local AWS itself complained of."""
        news = self._stack.ministack.log(self._offset)
        self._offset += len(news.encode())
        for line in news.splitlines():
            _, is_error, complaint = line.partition(" ERROR ")
            # Some are repeated every second for as long as their cause lasts.
            if is_error and complaint not in self._complaints:
                self._complaints.add(complaint)
                print(f"local AWS: {complaint}", flush=True)
        for function in FUNCTIONS:
            for event in self._stack.log_events(function, self._since_ms[function]):
                # Not eventId: the local AWS gives none.
                identity = f"{event['timestamp']} {event.get('logStreamName')} {event['message']}"
                if identity not in self._told[function]:
                    self._told[function].add(identity)
                    self._since_ms[function] = max(self._since_ms[function], event["timestamp"])
                    self._print(function, event)

    def _print(self, function: str, event: dict[str, Any]) -> None:
        at = datetime.fromtimestamp(event["timestamp"] / 1000, UTC).strftime("%H:%M:%S")
        for line in event["message"].splitlines():
            if line.strip() and not line.startswith(PLATFORM_LINES):
                print(f"{at} {function:<7} | {readable(line)}", flush=True)


def readable(line: str) -> str:
    """A log record for people: ``LEVEL message name=value``; a line that is none of ours stays as it is."""
    try:
        record = json.loads(line)
    except ValueError:
        return line
    if not isinstance(record, dict) or "message" not in record:
        return line
    fields = "".join(
        f" {name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in record.items()
        if name not in SHOWN_ELSEWHERE
    )
    exception = f"\n{record['exception']}" if record.get("exception") else ""
    return f"{record.get('level', 'INFO')} {record['message']}{fields}{exception}"
