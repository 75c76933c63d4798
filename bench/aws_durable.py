"""AWS's durable SDK for Python beside ours: the same steps, in memory, each in a process of its own, asked in turn."""

from __future__ import annotations

import subprocess
import venv
from typing import TYPE_CHECKING, Any

from bench import engine_steps
from bench.figure import Figure, Peer, least
from bench.subject import BenchFailedError, Subject
from infra.place import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PEER = "aws-durable-execution-sdk-python"
ENVIRONMENT = ROOT / ".venv-aws-durable"
LOCK = ROOT / "bench" / "aws_durable.txt"

SIZE = 1_000
FRESH_RATIO_MAX, REPLAY_RATIO_MAX = 0.1, 0.3
"""Source: the limits for a step, fresh and replayed, against AWS's own SDK."""

REPETITIONS, REPETITIONS_QUICK = 5, 3


def measure(*, is_quick: bool, report: Callable[[str], None]) -> list[Figure]:
    """The figures beside AWS's SDK.

    Raises:
        BenchFailedError: it cannot be installed or run.
    """
    interpreter = _installed(report)
    command = (str(interpreter), str(ROOT / "bench" / "aws_durable_runs.py"))
    ours_answers: list[dict[str, Any]] = []
    their_answers: list[dict[str, Any]] = []
    repetitions = REPETITIONS_QUICK if is_quick else REPETITIONS
    with Subject(engine_steps.COMMAND, ROOT) as ours, Subject(command, ROOT) as theirs:
        for repetition in range(repetitions):
            report(f"beside AWS's durable SDK: {repetition + 1} of {repetitions}")
            ours_answers.append(ours.ask(kind="steps", n=SIZE))
            their_answers.append(theirs.ask(kind="steps", n=SIZE))
    return [
        Figure(
            name=f"{kind}_step_{SIZE}_vs_aws_durable",
            value=least([answer[kind] for answer in ours_answers]),
            unit="us",
            limit=limit,
            peer=Peer(name=PEER, value=least([answer[kind] for answer in their_answers])),
        )
        for kind, limit in (("fresh", FRESH_RATIO_MAX), ("replay", REPLAY_RATIO_MAX))
    ]


def _installed(report: Callable[[str], None]) -> Path:
    """The interpreter of the SDK's own environment, made where it is missing or older than its list."""
    interpreter, marker = ENVIRONMENT / "bin" / "python", ENVIRONMENT / ".installed"
    if marker.exists() and marker.stat().st_mtime >= LOCK.stat().st_mtime:
        return interpreter
    report("installing AWS's durable SDK")
    venv.create(ENVIRONMENT, clear=True, with_pip=True)
    pip = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command = [*pip, "--require-hashes", "-r", str(LOCK)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchFailedError(f"The environment of AWS's durable SDK cannot be made:\n{done.stderr}")
    marker.touch()
    return interpreter
