"""Time, chance, ids and the environment come through ports: the calls that would go around them."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.tidy.sources import Source

BANNED = {
    r"datetime\.datetime\.(now|utcnow|today)|datetime\.date\.today": "time comes through engine.driver.Clock",
    r"time\.\w+": "time comes through engine.driver.Clock",
    r"random\.(?!Random$)\w+|secrets\.\w+|os\.urandom": "chance comes through a port (engine.ids.Ids, ctx.random)",
    r"uuid\.uuid[14]": "ids come through engine.ids.Ids",
    r"os\.(environ|environb|getenv|putenv)": "only handlers/bootstrap.py reads the environment",
}
"""What must not be named, as patterns over full dotted names, and where it comes from instead."""

ROOMS = {
    "engine/clock.py": r"time\.\w+",
    "engine/ids.py": r"os\.urandom",
    "adapters/clock.py": r"time\.\w+",
    "handlers/bootstrap.py": r"os\.environ|os\.getenv",
}
"""The one place of each."""

REASONED = ("infra/",)
"""Tools that run on a developer's machine: there a line may say why with ``# noqa: TID251 - <reason>``."""


def ambient_faults(sources: Sequence[Source], barred_by_ruff: frozenset[str]) -> Iterator[str]:
    """Uses of the machine's clock, chance, ids or environment outside their rooms.

    In infra only what ruff bars (``barred_by_ruff``, full dotted names) needs a reason.
    """
    for source in sources:
        lines = source.text.splitlines()
        for name, line in sorted(_names_used(source), key=lambda found: found[1]):
            remedy = next((remedy for pattern, remedy in BANNED.items() if re.fullmatch(pattern, name)), None)
            if remedy is None or re.fullmatch(ROOMS.get(source.path, r"(?!)"), name):
                continue
            if source.path.startswith(REASONED) and (
                name not in barred_by_ruff or re.search(r"noqa: TID251 - \w+", lines[line - 1])
            ):
                continue
            yield f"{source.path}:{line}: {name} is used; {remedy}"


def _names_used(source: Source) -> set[tuple[str, int]]:
    """Full dotted names of what a source uses, with lines, through whatever alias they were imported."""
    aliases: dict[str, str] = {}
    for node in source.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.split(".")[0]
                aliases[alias.asname or name] = name
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    found = set()
    for node in source.nodes:
        if isinstance(node, ast.Attribute | ast.Name):
            dotted = _dotted(node, aliases)
            if dotted is not None:
                found.add((dotted, node.lineno))
    return found


def _dotted(node: ast.expr, aliases: dict[str, str]) -> str | None:
    match node:
        case ast.Name(id=name):
            return aliases.get(name)
        case ast.Attribute(value=value, attr=attribute):
            base = _dotted(value, aliases)
            return None if base is None else f"{base}.{attribute}"
    return None
