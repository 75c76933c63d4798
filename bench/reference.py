"""The reference engine beside ours: the same work, in memory, each in a process of its own, asked in turn.

Every repetition starts both anew and gives them the same sizes in the same order, smallest first, as a process meets
them in life: what a just-in-time compiler learns on the way counts for it. ``*_warm`` figures ask the same size of one
process until it gets no faster.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from bench import engine_steps
from bench.figure import Figure, Peer, least
from bench.subject import BenchFailedError, Subject
from infra.place import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PACKAGE = ROOT / "tests" / "interop"
"""Where the reference's package is installed: with its lock, as the tests of interoperation have it."""

PEER = "@rivetkit/workflow-engine"

SIZES = (100, 1_000, 3_000, 10_000)
LOOP_SIZES = (100, 1_000, 3_000)
JUDGED = (1_000, 10_000)

RATIO_MAX = 0.5
"""Source: the limit for steps, fresh and replayed, at 1,000 and 10,000 steps."""

WARM_SIZE = 1_000
REPETITIONS, REPETITIONS_QUICK = 5, 2
INSTALL_SECONDS_MAX = 300

Answers = dict[tuple[str, int], list[dict[str, Any]]]


def measure(*, is_quick: bool, report: Callable[[str], None]) -> list[Figure]:
    """The figures beside the reference's.

    Raises:
        BenchFailedError: it cannot be installed or run.
    """
    node = _installed(report)
    commands = {"ours": engine_steps.COMMAND, "theirs": (node, str(ROOT / "bench" / "reference_bench.mjs"))}
    answers: dict[str, Answers] = {name: {} for name in commands}
    repetitions = REPETITIONS_QUICK if is_quick else REPETITIONS
    for repetition in range(repetitions):
        report(f"beside the reference: {repetition + 1} of {repetitions}")
        for name, command in commands.items():
            with Subject(command, ROOT) as subject:
                _ask_each(subject, answers[name])
    figures = [
        _figure(f"{kind}_step_{size}_vs_reference", answers, ("steps", size), kind, RATIO_MAX)
        for size in JUDGED
        for kind in ("fresh", "replay")
    ]
    figures += [
        _figure(f"loop_iteration_{size}_vs_reference", answers, ("loop", size), "iteration", None)
        for size in LOOP_SIZES[1:]
    ]
    return figures + _warm(commands, repetitions)


def _ask_each(subject: Subject, answers: Answers) -> None:
    for kind, sizes in (("steps", SIZES), ("loop", LOOP_SIZES)):
        for size in sizes:
            answers.setdefault((kind, size), []).append(subject.ask(kind=kind, n=size))


def _warm(commands: Mapping[str, Sequence[str]], repetitions: int) -> list[Figure]:
    answers: dict[str, Answers] = {name: {} for name in commands}
    with Subject(commands["ours"], ROOT) as ours, Subject(commands["theirs"], ROOT) as theirs:
        for _ in range(3 * repetitions):
            for name, subject in (("ours", ours), ("theirs", theirs)):
                found = subject.ask(kind="steps", n=WARM_SIZE)
                answers[name].setdefault(("steps", WARM_SIZE), []).append(found)
    return [
        _figure(f"{kind}_step_{WARM_SIZE}_vs_reference_warm", answers, ("steps", WARM_SIZE), kind, None)
        for kind in ("fresh", "replay")
    ]


def _figure(name: str, answers: dict[str, Answers], what: tuple[str, int], field: str, limit: float | None) -> Figure:
    ours, theirs = (least([answer[field] for answer in answers[side][what]]) for side in ("ours", "theirs"))
    return Figure(name=name, value=ours, unit="us", limit=limit, peer=Peer(name=PEER, value=theirs))


def _installed(report: Callable[[str], None]) -> str:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise BenchFailedError("Node and npm are not installed; the reference engine runs on them")
    lock, marker = PACKAGE / "package-lock.json", PACKAGE / "node_modules" / ".package-lock.json"
    if not marker.exists() or marker.stat().st_mtime < lock.stat().st_mtime:
        report("installing the reference engine")
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(
            command, cwd=PACKAGE, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False
        )
        if done.returncode != 0:
            raise BenchFailedError(f"npm ci failed:\n{done.stderr}")
    return node
