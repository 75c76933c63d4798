"""Random histories of edits of code without names, each run cut off at some commit: nothing recorded ever moves."""

from __future__ import annotations

import functools
import itertools
import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from engine import Context, WorkflowState, keys
from engine.coordinates import parse
from engine.testing import MemoryDriver
from tests.unit.bench import Bench
from tests.unit.test_positional import echo, places

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

VERSIONS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One operation of the program: a step, a join of one branch, or what is left of a step; versions are absolute."""

    label: str
    version: int
    kind: str = "step"
    below: list[Node] = field(default_factory=list)


class Editor:
    """Edits a program again and again, as authors may: it puts in what has a newer version, and marks what is gone."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.program: list[Node] = [self._new(1, 0) for _ in range(self.chance.randint(0, 4))]

    def _new(self, version: int, depth: int) -> Node:
        label = f"n{self.chance.getrandbits(48)}"
        if depth < 2 and self.chance.random() < 0.3:
            below = [self._new(version, depth + 1) for _ in range(self.chance.randint(0, 3))]
            return Node(label=label, version=version, kind="join", below=below)
        return Node(label=label, version=version)

    def edit(self, version: int) -> None:
        """Make the program's ``version`` of what it was."""
        self.program = self._edited(self.program, version, 0)

    def _edited(self, nodes: list[Node], version: int, depth: int) -> list[Node]:
        edited = []
        for node in nodes:
            if node.kind == "join":
                edited.append(replace(node, below=self._edited(node.below, version, depth + 1)))
            elif node.kind == "step" and self.chance.random() < 0.1:
                edited.append(replace(node, kind="removed"))
            else:
                edited.append(node)
        for _ in range(self.chance.choice((0, 0, 1, 1, 2))):
            edited.insert(self.chance.randint(0, len(edited)), self._new(version, depth))
        return edited


def code_of(program: list[Node]) -> Callable[[Context, Any], Awaitable[str]]:
    """The program as a workflow, which waits before it ends."""

    async def perform(ctx: Context, nodes: list[Node], version: int) -> None:
        for node in nodes:
            here = ctx.v(node.version - version + 1)
            match node.kind:
                case "step":
                    await here.step(echo, node.label)
                case "removed":
                    await ctx.removed(original_type="step")
                case _:
                    await here.join({"b": functools.partial(perform, nodes=node.below, version=node.version)})

    async def workflow(ctx: Context, _given: Any) -> str:
        await perform(ctx, program, 1)
        await ctx.queue.next(names="go")
        return "done"

    return workflow


async def cut_off(bench: Bench, workflow: Any, commits: int) -> None:
    """Run until so many commits are made, or it waits; the process that fails is forgotten, what it stored is not."""
    made = itertools.count(1)

    def fail(operation: str, phase: str) -> None:
        if operation == "commit" and phase == "after" and next(made) >= commits:
            raise ConnectionError("cut off")

    bench.driver.on_call = fail
    try:
        assert (await bench.once(workflow)).state is WorkflowState.SLEEPING
    except ConnectionError:
        bench.driver = MemoryDriver.load(bench.driver.dump(), clock=bench.clock)
    bench.driver.on_call = None


def steps_in_order(nodes: list[Node]) -> list[str]:
    """The labels of every step, in the order of the code."""
    found = []
    for node in nodes:
        found += steps_in_order(node.below) if node.kind == "join" else [node.label] * (node.kind == "step")
    return found


def order(place: str) -> list[tuple[int, ...]]:
    """A place as what sorts like the code: the coordinates on its way."""
    return [found[0] for part in place.split("/") if (found := parse(part)) is not None]


@pytest.mark.parametrize("seed", range(120))
async def test_whatever_is_edited_wherever_it_is_cut_off_the_last_code_finishes(seed: int) -> None:
    editor = Editor(seed)
    bench = Bench()
    found: dict[str, str] = {}
    for version in range(1, VERSIONS):
        if version > 1:
            editor.edit(version)
        await cut_off(bench, code_of(editor.program), editor.chance.randint(1, 9))
        now = places(bench)
        assert found.items() <= now.items(), "something recorded has moved"
        found = now
    bench.send("go")
    assert (await bench.through(code_of(editor.program))).output == "done"
    now = places(bench)
    assert found.items() <= now.items()
    stand = [order(now[label]) for label in steps_in_order(editor.program) if label in now]
    assert stand == sorted(stand)
    assert len(set(map(str, stand))) == len(stand)
    # What was put into a join that had ended is never reached; everything else has run.
    missing = set(steps_in_order(editor.program)) - now.keys()
    top = {node.label for node in editor.program if node.kind == "step"}
    assert not missing & top
    assert bench.stored()[keys.STATE_KEY] == b"completed"
