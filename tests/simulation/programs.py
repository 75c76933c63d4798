"""Random workflows as data, by seed: a grammar over every operation of the engine.

What a program comes to depends on nothing but its own data: each wait for messages has a name of its own, one sender
sends all messages of a name, and of the branches of a race only one can ever succeed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

DEPTH_MAX = 2
LONG_SLEEP_S = "100000"
LEAVES = (
    *("step",) * 5,
    *("sleep",) * 2,
    *("next",) * 3,
    "batch",
    "drain",
    "timeout",
    "send",
    "try_step",
    "version",
    "removed",
    "helpers",
    "retake",
    *("activity",) * 2,
    "listen",
    *("signal",) * 2,
    "gather",
    "child",
    *("write",) * 3,
    "look",
)
NESTED = ("loop", "join", "race", "try_block", "map", "inline", "placed")
PLACED_LEAVES = (
    *("step",) * 3,
    "newer",
    "check",
    "gone",
    "try_step",
    *("sleep",) * 2,
    *("next",) * 2,
    "timeout",
    "signal",
    "look",
)
PLACED_NESTED = ("loop", "join", "race")
"""What may stand in a scope whose operations have no names, of which each takes one place."""

OF_NO_PLACE = ("signal", "look")
"""But these, which take none."""

NEWER = 2
"""The version of the operations that came later, as the code would have it."""

IN_PLACE = ("loop", "try_block", "inline", "placed")
"""What adds no name of its own to the path of what is in it."""
WRITES = ("count", "count", "toggle", "slow", "flaky", "flaky", "hopeless", "ephemeral", "same", "big")
"""How activities change the document; some fail first, some always, having changed their copies of it."""

STEPS = ("plain", "plain", "sync", "flaky", "ephemeral", "slow", "big")
SLEEPS_S = (*("0", "0.05", "0.7", "5", "5", "40", "1200", "3000") * 4, LONG_SLEEP_S)
TYPED = "typed"
"""How the names of operations begin that wait for messages of a class."""

CHILDREN = ("plain", "slow", "failing", "named", "abandoned", "family", "unique")
"""What children there are: some take a while, fail, have ids of the author's, are not waited for, have children too, or
have a place for themselves."""

TARGETS = ("w0", "w0", "w1", "w1", "w2", "nobody")
"""Workflows that signals go to: not all of them are there in every world, and none always."""


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
    """A workflow.

    Attributes:
        ops: what it does.
        is_failing: whether it fails at its end, and is rolled back.
        messages: how many messages it may take of each name.
        noise: names of which it takes what happens to be there.
    """

    ops: list[Op]
    is_failing: bool
    messages: dict[str, int]
    noise: list[str]


def generate(seed: str) -> Program:
    """The program of ``seed``."""
    rng = random.Random(seed)
    ops = [Op(kind="checkpoint", name="checkpoint"), *_scope(rng, 0, may_undo=True)]
    messages: dict[str, int] = {}
    noise: list[str] = []
    _count(ops, "", 1, messages, noise)
    return Program(ops=ops, is_failing=rng.random() < 0.2, messages=messages, noise=noise)


def place(path: str, name: str) -> str:
    """The path of ``name`` in the scope at ``path``."""
    return f"{path}/{name}" if path else name


def message_name(path: str) -> str:
    """The name of the messages that the operation at ``path`` waits for; the iterations of its loops share it."""
    return "/".join(part for part in path.split("/") if not part.startswith("~"))


def _scope(rng: random.Random, depth: int, *, may_undo: bool, is_placed: bool = False) -> list[Op]:
    length = rng.randint(2, 5) if depth == 0 else rng.randint(1, 3)
    ops: list[Op] = []
    for index in range(length):
        # Without a name an operation is known by its place, which is how history tells it.
        number = 1 + sum(op.kind not in OF_NO_PLACE for op in ops) if is_placed else 0
        ops.append(_op(rng, depth, index, number, may_undo=may_undo))
    return ops


def _op(rng: random.Random, depth: int, index: int, number: int, *, may_undo: bool) -> Op:
    """An operation; ``number`` is its place where it has no name, else 0."""
    name = f"{{{number}}}" if number else f"o{index}"
    if depth < DEPTH_MAX and rng.random() < (0.5 if depth == 0 else 0.3):
        kind = rng.choice(PLACED_NESTED if number else NESTED)
        return _nested(rng, depth, name, kind, may_undo=may_undo)
    kind = rng.choice(PLACED_LEAVES if number else LEAVES)
    if kind == "listen" or kind in OF_NO_PLACE:
        name = f"{TYPED if kind == 'listen' else 'o'}{index}"
    elif kind == "newer":
        name += f"@{NEWER}"
    variants = {
        "step": STEPS,
        "activity": ("plain", "flaky"),
        "write": WRITES,
        "listen": ("plain", "limit"),
        "signal": TARGETS,
        "child": CHILDREN,
        "try_step": ("critical", "exhausted", "timeout", "ok"),
        "next": ("plain", "completable"),
        "batch": ("plain", "completable"),
        "sleep": SLEEPS_S,
    }
    return Op(
        kind=kind,
        name=name,
        variant=rng.choice(variants.get(kind, ("",))),
        number=rng.randint(1, 3),
        other=rng.randint(0, 1),
        has_rollback=may_undo and rng.random() < 0.4,
    )


def _nested(rng: random.Random, depth: int, name: str, kind: str, *, may_undo: bool) -> Op:
    if kind == "loop":
        below = {"body": _scope(rng, depth + 1, may_undo=False)}
        # At least one operation that acts, so that an iteration is stored before it is forgotten.
        below["body"].insert(0, Op(kind="step", name="first", variant="plain"))
        return Op(kind=kind, name=name, number=rng.randint(1, 6), other=rng.randint(1, 3), below=below)
    if kind == "try_block":
        below = {"body": _scope(rng, depth + 1, may_undo=may_undo)}
        return Op(kind=kind, name=name, variant=rng.choice(("ok", "fails")), below=below)
    if kind in ("inline", "placed"):
        body = _scope(rng, depth + 1, may_undo=may_undo, is_placed=kind == "placed")
        return Op(kind=kind, name=name, below={"body": body})
    if kind == "map":
        body = _scope(rng, depth + 1, may_undo=may_undo)
        return Op(kind=kind, name=name, number=rng.randint(1, 2), below={str(one): body for one in range(2)})
    names = [f"b{index}" for index in range(rng.randint(2, 3))]
    if kind == "join":
        below = {branch: _scope(rng, depth + 1, may_undo=may_undo) for branch in names}
        variant = rng.choice(("ok", "ok", "fails"))
        return Op(kind=kind, name=name, number=rng.choice((0, 0, 1, 2)), variant=variant, below=below)
    below = {branch: _scope(rng, depth + 1, may_undo=False) for branch in names}
    variant = rng.choice(("waits", "fails"))
    return Op(kind=kind, name=name, number=rng.randrange(len(names)), variant=variant, below=below)


def _count(ops: list[Op], path: str, times: int, messages: dict[str, int], noise: list[str]) -> None:
    for op in ops:
        here = place(path, op.name)
        if op.kind in ("next", "retake", "listen"):
            messages[here] = times
        elif op.kind == "batch":
            messages[here] = times * 2
        elif op.kind == "drain":
            noise.append(here)
        for branch, below in op.below.items():
            inner = here if op.kind in IN_PLACE else place(here, branch)
            _count(below, inner, times * (op.number if op.kind == "loop" else 1), messages, noise)
