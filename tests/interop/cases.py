"""The cases of the interop suite: which workflow, with what input, sent what messages when, ending how."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

START_MS = 1767322800000
"""When every case starts: 2 January 2026, 03:00 UTC."""


class Sent(Struct, frozen=True, kw_only=True):
    """A message on its way: ``at`` is when it arrives, milliseconds since the epoch."""

    id: str
    name: str
    body: Any
    at: int


class Case(Struct, frozen=True, kw_only=True):
    """One workflow's whole life: ``result`` is what it returns, ``threw`` the name and message of its failure."""

    workflow: str
    given: dict[str, Any]
    sent: list[Sent] = []
    result: Any = None
    threw: dict[str, str] | None = None


def _sent(number: int, name: str, body: Any, after_ms: int) -> Sent:
    return Sent(id=f"message-{number}", name=name, body=body, at=START_MS + after_ms)


CASES = [
    Case(
        workflow="steps",
        given={"n": 7},
        result={
            "first": 8,
            "nothing": None,
            "halves": [0.5, -1.25, "köln", {"deep": [True, None]}],
            "last": 16,
            "started": True,
        },
    ),
    Case(
        workflow="values",
        given={"float": 1.5},
        result={
            "when": START_MS,
            "bytes": [0, 1, 254, 255],
            "set": [3],
            "large": 2**32 - 1,
            "float": 1.5,
        },
    ),
    Case(workflow="loop", given={"rounds": 11}, result=165),
    Case(workflow="nested", given={"n": 7}, result=[[7, 8, 9], [17, 18, 19]]),
    Case(workflow="sleep", given={"until": START_MS + 60_000}, result="ba"),
    Case(workflow="retries", given={"healthy_at": START_MS + 500}, result="up!"),
    Case(
        workflow="join",
        given={"n": 7},
        result={"joined": {"quick": 7, "slow": 2, "nested": {"a": "a", "b": "b"}}, "end": "end"},
    ),
    Case(workflow="join_failing", given={"n": 7}, result={"ok": False, "source": "join", "name": "both"}),
    Case(
        workflow="race",
        given={"n": 7},
        result={
            "first": {"winner": "work", "value": 7},
            "second": {"winner": "short", "value": "short"},
            "end": "end",
        },
    ),
    Case(
        workflow="queue",
        given={},
        sent=[_sent(1, "a", {"x": 1}, 0), _sent(2, "b", 2, 0), _sent(3, "c", None, 5), _sent(4, "z", "z", 100)],
        result={"one": {"x": 1}, "kept": {"x": 1}, "many": [["message-2", "b", 2]], "none": [], "any": "c"},
    ),
    Case(workflow="completable", given={}, sent=[_sent(1, "ask", 3, 0), _sent(2, "ask", 4, 1000)], result=[6, 8]),
    Case(workflow="rollback", given={"n": 7}, threw={"name": "CriticalError", "message": "no stock"}),
    Case(
        workflow="try_step",
        given={"n": 7},
        result={"bad": [False, "exhausted", "bad", 2, "down"], "good": [True, 7]},
    ),
    Case(
        workflow="try_block",
        given={"n": 7},
        result={"failure": [False, "step", "fails", "exhausted", "down"], "fine": [True, 7]},
    ),
    Case(workflow="version", given={"n": 7}, result={"version": 3, "made": 21}),
    Case(workflow="removed", given={"n": 7}, result=7),
]
