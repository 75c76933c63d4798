"""The engine alone, in memory: a step fresh and replayed, how both grow with history, loops, joins, and commits."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from bench.figure import Figure, least
from bench.subject import Subject
from infra.place import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

COMMAND = (sys.executable, "-m", "bench.engine_runs")
"""Our engine as a subject."""

SMALL, MIDDLE, LARGE = 100, 1_000, 10_000
"""Steps of a workflow. Source: the sizes that the limits are stated for."""

LOOP_SMALL, LOOP_LARGE = 1_000, 100_000
"""Iterations of a loop. Source: the same."""

GROWTH_MAX = 1.1
"""The most that the time of one step, iteration or branch may grow with the size. Source: the same."""

OF_CPU = "of processor time, so that what else this machine does stays out of it"

REPETITIONS, REPETITIONS_QUICK = 7, 3


def measure(*, is_quick: bool, report: Callable[[str], None]) -> list[Figure]:
    """The figures of the engine alone; raises BenchFailedError where one cannot be taken."""
    repetitions = REPETITIONS_QUICK if is_quick else REPETITIONS
    with Subject(COMMAND, ROOT) as ours:
        # What Python compiles, specialises and allocates at first use belongs to no figure.
        ours.ask(kind="steps", n=MIDDLE)
        return [
            *_steps(ours, repetitions, report),
            *_joins(ours, repetitions, report),
            *_loops(ours, 1 if is_quick else 3, report),
            *_commits(ours),
        ]


def _interleaved(
    ours: Subject, kind: str, sizes: Sequence[int], repetitions: int, report: Callable[[str], None]
) -> dict[int, list[dict[str, Any]]]:
    """Answers by size, asked in turn; every answer covers as many steps, so that noise is as likely in each."""
    answers: dict[int, list[dict[str, Any]]] = {size: [] for size in sizes}
    for repetition in range(repetitions):
        report(f"{kind}: {repetition + 1} of {repetitions}")
        for size in sizes:
            answers[size].append(ours.ask(kind=kind, n=size, times=max(sizes) // size))
    return answers


def _least(answers: Sequence[dict[str, Any]], field: str) -> float:
    return least([answer[field] for answer in answers])


def _steps(ours: Subject, repetitions: int, report: Callable[[str], None]) -> list[Figure]:
    answers = _interleaved(ours, "steps", (SMALL, MIDDLE, LARGE), repetitions, report)
    figures = [
        Figure(name=f"{kind}_step_{size}", value=_least(answers[size], kind), unit="us")
        for kind in ("fresh", "replay")
        for size in answers
    ]
    figures += [
        Figure(
            name=f"{kind}_growth_{LARGE}_by_{MIDDLE}",
            value=_least(answers[LARGE], f"{kind}_cpu") / _least(answers[MIDDLE], f"{kind}_cpu"),
            unit="ratio",
            limit=GROWTH_MAX,
            note=OF_CPU,
        )
        for kind in ("fresh", "replay")
    ]
    news = max(answer["replay_commits"] for size in answers for answer in answers[size])
    return [*figures, Figure(name="commits_of_replay_without_news", value=news, unit="commits", limit=0)]


def _joins(ours: Subject, repetitions: int, report: Callable[[str], None]) -> list[Figure]:
    answers = _interleaved(ours, "join", (SMALL, MIDDLE), repetitions, report)
    small, large = (_least(answers[size], "branch_cpu") for size in (SMALL, MIDDLE))
    return [
        *(
            Figure(name=f"join_branch_{size}", value=_least(answers[size], "branch"), unit="us")
            for size in (SMALL, MIDDLE)
        ),
        Figure(
            name=f"join_growth_{MIDDLE}_by_{SMALL}", value=large / small, unit="ratio", limit=GROWTH_MAX, note=OF_CPU
        ),
    ]


def _loops(ours: Subject, repetitions: int, report: Callable[[str], None]) -> list[Figure]:
    large: list[dict[str, Any]] = []
    small: list[dict[str, Any]] = []
    for repetition in range(repetitions):
        report(f"loop: {repetition + 1} of {repetitions}")
        small += [ours.ask(kind="loop", n=LOOP_SMALL) for _ in range(REPETITIONS)]
        large.append(ours.ask(kind="loop", n=LOOP_LARGE))
    growth = _least(large, "last_tenth_cpu") / _least(large, "first_tenth_cpu")
    keys = max(answer["keys_most"] for answer in large)
    return [
        Figure(name=f"loop_iteration_{LOOP_SMALL}", value=_least(small, "iteration"), unit="us"),
        Figure(name=f"loop_iteration_{LOOP_LARGE}", value=_least(large, "iteration"), unit="us"),
        Figure(
            name=f"loop_growth_last_by_first_tenth_{LOOP_LARGE}",
            value=growth,
            unit="ratio",
            limit=GROWTH_MAX,
            note=OF_CPU,
        ),
        Figure(name=f"loop_keys_{LOOP_LARGE}", value=keys, unit="keys", limit=small[0]["keys_most"]),
    ]


def _commits(ours: Subject) -> list[Figure]:
    answer = ours.ask(kind="commits", n=SMALL)
    return [
        Figure(name=f"commits_of_{SMALL}_steps", value=answer["steps"], unit="commits", limit=SMALL),
        Figure(
            name="commits_of_message_step_sleep",
            value=answer["wake"],
            unit="commits",
            limit=2,
            note="a wake that takes a message, runs one step and sleeps again",
        ),
    ]
