"""Who may import whom: the order of the rooms and, inside the engine, of the modules."""

from __future__ import annotations

import sys
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from tests.tidy.sources import PRODUCT, Source, imports_of, module_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAY_IMPORT = {
    "engine": {"engine"},
    "adapters": {"adapters", "engine"},
    "handlers": {"handlers", "adapters", "engine"},
    "infra": {"infra", "adapters", "engine"},
    "examples": {"examples", "engine", "infra"},
}
"""For each room the rooms it may import. Examples are workflows, which know the engine, and a demo that deploys."""

ENGINE_ORDER = (
    ("errors", "limits", "location", "origin"),
    (
        "entry",
        "retry",
        "durations",
        "signature",
        "declared",
        "storable",
        "shapes",
        "values",
        "message_record",
        "error_info",
    ),
    ("schema", "bare_types", "bare", "keys", "coordinates", "lifecycle", "commit"),
    ("driver",),
    ("clock", "ids"),
    (
        "history.changes",
        "history.kept",
        "history.documents",
        "history.loaded",
        "history.storage",
        "history.mismatch",
        "history.positions",
        "history.instants",
        "history.revival",
        "history.hooks",
        "history.writing",
        "history.flushing",
    ),
    ("abandoning", "abort", "waits", "used_names", "turn", "scope", "reading", "calling"),
    ("ops.attempt", "ops.branch", "ops.rollback", "ops.failures", "ops.sending"),
    (
        "ops.step",
        "ops.sleep",
        "ops.queue",
        "ops.loop",
        "ops.join",
        "ops.race",
        "ops.version",
        "ops.recovery",
        "ops.inline",
        "ops.signal",
        "ops.dispatch",
        "ops.output",
        "ops.publication",
    ),
    (
        "author.scope_log",
        "author.catalogue",
        "author.registry",
        "author.step_options",
        "author.activities",
        "author.message_types",
        "author.operating",
    ),
    (
        "author.knowing",
        "author.stepping",
        "author.waiting",
        "author.changing",
        "author.listening",
        "author.reaching",
        "author.signalling",
        "author.dispatching",
        "author.publishing",
        "author.queue_context",
        "author.context",
    ),
    ("result", "live", "passage", "run", "handle", "inspect"),
    ("schedules",),
    ("memory.clock", "memory.jumping", "memory.sorted_pairs", "memory.inbox", "memory.driver", "memory.world"),
    ("testing",),
)
"""The engine's modules from the bottom up. A module may import those of earlier lines and, on its own line, those to
its left; the exceptions are below."""

ROOMS_OF_THE_ENGINE = frozenset({"ops", "history", "author", "memory"})
"""Packages of the engine whose modules have their own places in the order; any other package has one place for all."""

ONLY_DRIVER = frozenset({"clock", "ids"})
"""Ports beside the driver: of the engine they may import only ``driver``."""

DATA_MODEL = "adapters.dynamodb.model"
"""What is written to the table and read from it, as values."""

MODEL_KNOWS = (f"{DATA_MODEL}.", "engine.", "adapters.alarms.schedule_ms")
"""What it may import beside the standard library: itself, the engine's records, and when an alarm is a schedule."""

ENGINE_MAY_DEPEND_ON = frozenset({"cbor2", "cronsim", "msgspec", "pydantic"})
"""What the engine may import from outside the standard library; pydantic only where a user's value is a model, cronsim
only where there are schedules."""


def line_of(line: Sequence[str]) -> str:
    """One line of the order as the page about the architecture has it: a package's modules behind its name."""
    rooms = {module.rpartition(".")[0] for module in line}
    if len(rooms) > 1 or "" in rooms:
        return "  ".join(line)
    return f"{rooms.pop()}/  " + "  ".join(module.rpartition(".")[2] for module in line)


def room_faults(sources: Sequence[Source]) -> Iterator[str]:
    """Imports from one room into another that the direction of dependencies forbids."""
    for source in sources:
        allowed = MAY_IMPORT.get(source.room)
        if allowed is None:
            continue
        for found in imports_of(source):
            room = found.target.split(".")[0]
            if room in {*PRODUCT, "tests", "examples", "bench"} - allowed:
                yield (
                    f"{source.path}:{found.line}: {source.room} imports {found.target}; dependencies point one way "
                    f"(infra, handlers -> adapters -> engine): move what you need down, or pass it in"
                )


def engine_order_faults(sources: Sequence[Source]) -> Iterator[str]:
    """Imports inside the engine against its order, and modules that the order does not name."""
    ranks = {module: (row, column) for row, line in enumerate(ENGINE_ORDER) for column, module in enumerate(line)}
    modules = frozenset(source.module for source in sources)
    for source in sources:
        name = source.module.removeprefix("engine.")
        if source.room != "engine" or (source.is_package and name in {"engine", *ROOMS_OF_THE_ENGINE}):
            continue
        own = _ranked(name, ranks)
        if own is None:
            yield (
                f"{source.path}: the module has no place in the order; add {name!r} to ENGINE_ORDER in "
                f"tests/tidy/layers.py, on the line above everything that imports it"
            )
            continue
        for found in imports_of(source):
            target = module_of(found.target, modules)
            if target is None or not f"{target}.".startswith("engine."):
                continue
            fault = _forbidden(own, target, ranks)
            if fault is not None:
                yield f"{source.path}:{found.line}: {source.module} imports {target}; {fault}"


def _ranked(name: str, ranks: dict[str, tuple[int, int]]) -> str | None:
    """The name under which a module stands in the order: its own, or that of the package it lies in."""
    return module_of(name, frozenset(ranks))


def _forbidden(own: str, target: str, ranks: dict[str, tuple[int, int]]) -> str | None:
    if target.removeprefix("engine.") in {"engine", *ROOMS_OF_THE_ENGINE}:
        return "import from the module that defines the name: a package's __init__ is for those outside"
    other = _ranked(target.removeprefix("engine."), ranks)
    if other is None or other == own:
        return None
    if own in ONLY_DRIVER:
        return None if other == "driver" else "clock and ids may import the driver's ports only"
    (own_row, own_column), (row, column) = ranks[own], ranks[other]
    if own.startswith("ops.") and row == own_row and row == ranks["ops.step"][0]:
        return "no operation imports another: move what both need to ops/branch, scope or below"
    if (row, column) > (own_row, own_column):
        return "which stands above it in ENGINE_ORDER (tests/tidy/layers.py): pass it in, or move it down"
    return None


def dependency_faults(sources: Sequence[Source]) -> Iterator[str]:
    """Imports by which the engine would depend on the outside."""
    allowed = sys.stdlib_module_names | ENGINE_MAY_DEPEND_ON | {*PRODUCT, "tests", "examples", "bench"}
    for source in sources:
        if source.room != "engine":
            continue
        for found in imports_of(source):
            if found.target.split(".")[0] not in allowed:
                yield (
                    f"{source.path}:{found.line}: the engine imports {found.target}; it is pure: "
                    f"put this behind a port in engine/driver.py and implement it in adapters/"
                )


def purity_faults(sources: Sequence[Source]) -> Iterator[str]:
    """Imports by which the table's data model would do I/O, or wait."""
    allowed = sys.stdlib_module_names - {"asyncio", "select", "socket", "threading", "time"} | {"msgspec", "cbor2"}
    for source in sources:
        if not source.module.startswith(f"{DATA_MODEL}."):
            continue
        for found in imports_of(source):
            if found.target.split(".")[0] not in allowed and not found.target.startswith(MODEL_KNOWS):
                yield (
                    f"{source.path}:{found.line}: the data model imports {found.target}; it decides and does no I/O: "
                    f"let a module of adapters/dynamodb call it"
                )


def cycle_faults(sources: Sequence[Source]) -> Iterator[str]:
    """The first ring of modules that import each other, counting every import wherever it stands."""
    modules = frozenset(source.module for source in sources)
    graph: TopologicalSorter[str] = TopologicalSorter()
    for source in sources:
        targets = {module_of(found.target, modules) for found in imports_of(source)}
        graph.add(source.module, *(target for target in targets if target is not None and target != source.module))
    try:
        graph.prepare()
    except CycleError as error:
        ring = " -> ".join(reversed(error.args[1]))
        yield f"modules import each other in a ring: {ring}; move what they share into a module below them"
