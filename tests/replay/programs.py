"""Random workflows as data: what a seed generates, nested three deep, and how many messages each of its waits takes.

What a program does depends on nothing but its own data: messages have a name per operation, and of the branches of a
race only one can ever succeed. So every schedule, crash and eviction must lead to the same output and the same history.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

DEPTH_MAX = 3
STEPS = ("async", "sync", "flaky", "ephemeral", "slow", "activity")
LEAVES = (
    "step",
    "step",
    "step",
    "sleep",
    "next",
    "batch",
    "send",
    "try_step",
    "version",
    "removed",
    "timeout",
    "helpers",
)
NESTED = ("loop", "join", "race", "try_block", "map", "inline")


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation: its kind, a name that is unique in its scope, a variant, numbers, and the scopes below it."""

    kind: str
    name: str
    variant: str = ""
    number: int = 0
    other: int = 0
    has_rollback: bool = False
    below: dict[str, list[Op]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A workflow: its operations, whether it fails at the end, and the messages that it will wait for, by name.

    Where ``is_unnamed``, its operations are performed without their names.
    """

    seed: int
    ops: list[Op]
    is_failing: bool
    messages: dict[str, int]
    is_unnamed: bool = False


def generate(seed: int) -> Program:
    """The program of ``seed``."""
    rng = random.Random(seed)
    ops = [Op(kind="checkpoint", name="checkpoint"), *_scope(rng, 0, is_racing=False)]
    is_failing, is_unnamed = rng.random() < 0.25, rng.random() < 0.3
    if is_unnamed:
        ops = _unnamed(ops)
    messages: dict[str, int] = {}
    _count_messages(ops, "", 1, messages)
    return Program(seed=seed, ops=ops, is_failing=is_failing, messages=messages, is_unnamed=is_unnamed)


def _scope(rng: random.Random, depth: int, *, is_racing: bool) -> list[Op]:
    length = rng.randint(1, 4 if depth == 0 else 3)
    return [_op(rng, depth, f"o{index}", is_racing=is_racing) for index in range(length)]


def _op(rng: random.Random, depth: int, name: str, *, is_racing: bool) -> Op:
    if depth < DEPTH_MAX and rng.random() < (0.55 if depth == 0 else 0.35):
        return _nested(rng, depth, name, rng.choice(NESTED), is_racing=is_racing)
    kind = rng.choice(LEAVES)
    variant = ""
    if kind == "step":
        variant = rng.choice(STEPS)
    elif kind == "try_step":
        variant = rng.choice(("critical", "exhausted", "ok"))
    elif kind in ("next", "batch"):
        variant = rng.choice(("plain", "completable"))
    elif kind == "sleep":
        variant = rng.choice(("0", "0.05", "5", "3600"))
    number = rng.randint(1, 3)
    return Op(
        kind=kind, name=name, variant=variant, number=number, other=rng.randint(0, 1), has_rollback=rng.random() < 0.4
    )


def _nested(rng: random.Random, depth: int, name: str, kind: str, *, is_racing: bool) -> Op:
    if kind == "loop":
        body = {"body": _scope(rng, depth + 1, is_racing=is_racing)}
        return Op(kind=kind, name=name, number=rng.randint(1, 5), other=rng.randint(1, 3), below=body)
    if kind in ("map", "inline"):
        ops = _scope(rng, depth + 1, is_racing=is_racing)
        body = {"body": _without_messages(ops) if kind == "map" else ops}
        return Op(kind=kind, name=name, number=rng.randint(0, 3), other=rng.randint(1, 3), below=body)
    if kind == "try_block":
        body = {"body": _scope(rng, depth + 1, is_racing=is_racing)}
        return Op(kind=kind, name=name, variant=rng.choice(("ok", "fails")), below=body)
    names = [f"b{index}" for index in range(rng.randint(2, 3))]
    if kind == "join":
        below = {branch: _scope(rng, depth + 1, is_racing=is_racing) for branch in names}
        return Op(
            kind=kind,
            name=name,
            number=rng.choice((0, 0, 1, 2)),
            variant=rng.choice(("ok", "ok", "fails")),
            below=below,
        )
    below = {branch: _scope(rng, depth + 1, is_racing=True) for branch in names}
    return Op(
        kind=kind, name=name, number=rng.randrange(len(names)), variant=rng.choice(("waits", "fails")), below=below
    )


def _without_messages(ops: list[Op]) -> list[Op]:
    """``ops`` with other waits: the items of a map run at once, and which of them took a message would be chance."""
    return [
        replace(
            op,
            kind="timeout" if op.kind in ("next", "batch") else op.kind,
            below={branch: _without_messages(below) for branch, below in op.below.items()},
        )
        for op in ops
    ]


def _unnamed(ops: list[Op]) -> list[Op]:
    """``ops`` with a join of one branch for what always has a name."""
    changed = []
    for op in ops:
        below = {branch: _unnamed(inner) for branch, inner in op.below.items()}
        if op.kind in ("map", "inline", "try_block"):
            changed.append(Op(kind="join", name=op.name, variant="ok", below=below))
        else:
            changed.append(replace(op, below=below))
    return changed


def message_name(path: str) -> str:
    """The name of the messages that the operation at ``path`` waits for; the iterations of its loops share it."""
    return "/".join(part for part in path.split("/") if not part.startswith("~"))


def _count_messages(ops: list[Op], path: str, times: int, messages: dict[str, int]) -> None:
    for op in ops:
        here = f"{path}/{op.name}"
        if op.kind == "next":
            messages[here] = times
        elif op.kind == "batch":
            messages[here] = times * 2
        for branch, below in op.below.items():
            inner = f"{here}/{branch}"
            _count_messages(below, inner, times * (op.number if op.kind == "loop" else 1), messages)
