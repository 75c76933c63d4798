"""The project's own files as data: what git tracks, and each Python file parsed once for every checker."""

from __future__ import annotations

import ast
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("engine", "adapters", "handlers", "infra")
ROOMS = (*PRODUCT, "examples", "bench", "tests")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One Python file: its path from the root of the repository, its text, its tree, and all nodes of that tree."""

    path: str
    text: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]

    @classmethod
    def parse(cls, path: str, text: str) -> Source:
        """A source from its text; raises ``SyntaxError`` where it is no Python."""
        tree = ast.parse(text, path)
        return cls(path=path, text=text, tree=tree, nodes=tuple(ast.walk(tree)))

    @property
    def room(self) -> str:
        """The top-level folder."""
        return PurePosixPath(self.path).parts[0]

    @property
    def is_package(self) -> bool:
        """Whether it is an ``__init__.py``."""
        return PurePosixPath(self.path).name == "__init__.py"

    @property
    def module(self) -> str:
        """The dotted name under which it is imported; a package's is that of its folder."""
        parts = PurePosixPath(self.path).with_suffix("").parts
        return ".".join(parts[:-1] if self.is_package else parts)


@cache
def tracked_files() -> tuple[str, ...]:
    """Every file that git tracks and that exists, relative to the root, sorted."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return tuple(sorted(path for path in listing.split("\0") if path and (ROOT / path).is_file()))


@cache
def project_sources() -> tuple[Source, ...]:
    """Every tracked Python file of the rooms, parsed."""
    return tuple(
        Source.parse(path, (ROOT / path).read_text("utf-8"))
        for path in tracked_files()
        if path.endswith(".py") and PurePosixPath(path).parts[0] in ROOMS
    )


def sources_of(*rooms: str) -> tuple[Source, ...]:
    """The project's sources in these rooms."""
    return tuple(source for source in project_sources() if source.room in rooms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One import statement's target: the dotted name asked for, and the line where it stands."""

    target: str
    line: int


def imports_of(source: Source) -> Iterator[Import]:
    """Every import of a source, wherever it stands: at the top, under ``TYPE_CHECKING``, inside a function.

    ``from a import b`` yields ``a.b``; whoever asks decides whether ``b`` is a module or a name.
    """
    for node in source.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(target=alias.name, line=node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(source, node)
            for alias in node.names:
                yield Import(target=f"{base}.{alias.name}", line=node.lineno)


def _absolute(source: Source, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    parts = source.module.split(".")
    up = node.level - 1 if source.is_package else node.level
    kept = parts[: len(parts) - up]
    return ".".join([*kept, node.module] if node.module else kept)


def module_of(target: str, modules: frozenset[str]) -> str | None:
    """The longest prefix of a dotted name that is one of ``modules``, or None."""
    parts = target.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if name in modules:
            return name
    return None


def refuse(faults: Iterable[str]) -> None:
    """Fail with every fault on a line of its own, where there are any."""
    text = "\n".join(faults)
    assert not text, f"\n{text}"
