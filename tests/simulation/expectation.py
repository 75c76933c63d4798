"""What a program must come to, by interpreting its data alone: no engine, no waiting, no faults."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.simulation.foreseen import Foreseen
from tests.simulation.programs import LONG_SLEEP_S, TYPED, Op, Program, message_name, place

FAILURE = "ValueError"


def body_of(name: str, number: int) -> Any:
    """The body of the ``number``-th message of a name, counted from 0."""
    text = f"{name}#{number}"
    return {"text": text} if name.rsplit("/", 1)[-1].startswith(TYPED) else text


class Expectation:
    """How a program ends: its ``output`` (None where it fails), and the steps that are undone if all of it is.

    ``document`` is what its looks see. ``waits_s`` is how long it may sleep at most, in seconds, were it to do one
    thing after another; ``bodies``: the path of what waits for messages -> their bodies.
    """

    def __init__(self, program: Program) -> None:
        self._taken: Counter[str] = Counter()
        self.undone: list[str] = []
        self.waits_s = 0.0
        self.bodies: dict[str, list[Any]] = {}
        self.document = Foreseen(program)
        output = self._scope(program.ops, "")
        self.output = None if program.is_failing else output
        self.is_failing = program.is_failing

    def _scope(self, ops: list[Op], path: str) -> list[Any]:
        return [self._op(op, place(path, op.name)) for op in ops]

    @property
    def is_long(self) -> bool:
        """Whether it sleeps for longer than a day."""
        return self.waits_s > float(LONG_SLEEP_S)

    def _take(self, path: str) -> Any:
        name = message_name(path)
        self._taken[name] += 1
        body = body_of(name, self._taken[name] - 1)
        self.bodies.setdefault(path, []).append(body)
        return body

    def _op(self, op: Op, path: str) -> Any:  # noqa: C901, PLR0911, PLR0912 - one line a kind
        self.waits_s += float(op.variant) if op.kind == "sleep" else 90 if op.kind == "child" else 30
        match op.kind:
            case "step" | "activity":
                if op.has_rollback:
                    self.undone.append(path)
                return "big" if op.variant == "big" else path
            case "try_step":
                return [True, path] if op.variant == "ok" else [False, op.variant]
            case "next" | "retake":
                return self._take(path)
            case "listen":
                return self._take(path)["text"]
            case "batch":
                return [self._take(path), self._take(path)]
            case "child":
                return {"failing": FAILURE, "abandoned": "child", "unique": "unique"}.get(op.variant, ["child", path])
            case "timeout":
                return [] if op.other else "timed out"
            case "send" | "write" | "newer":
                return path
            case "version" | "check":
                return op.number
            case "look":
                return self.document.sights[path].certain
            case "loop":
                return [self._scope(op.below["body"], place(path, f"~{index}")) for index in range(op.number)]
            case "try_block":
                output = self._scope(op.below["body"], path)
                return [True, output] if op.variant == "ok" else [False, "critical"]
            case "inline" | "placed":
                return self._scope(op.below["body"], path)
            case "map":
                return [self._scope(below, place(path, item)) for item, below in op.below.items()]
            case "join":
                return self._join(op, path)
            case "race":
                winner = list(op.below)[op.number]
                return [winner, self._scope(op.below[winner], place(path, winner))]
        return op.kind

    def _join(self, op: Op, path: str) -> Any:
        outputs = {branch: self._scope(below, place(path, branch)) for branch, below in op.below.items()}
        first = min(op.below)
        return {first: ["LookupError", first]} if op.variant == "fails" else outputs
