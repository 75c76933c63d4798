"""What an author's modules import that a function will not have: read from their text before it is missed on AWS."""

from __future__ import annotations

import ast
import sys
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from infra.package import ROOMS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from infra.package import Application

RUNTIME = frozenset({"boto3", "botocore", "dateutil", "jmespath", "s3transfer", "six", "urllib3"})
"""What Lambda's Python brings along. Source: Lambda's documentation, the SDK that a runtime includes."""

_BEFORE_3_12 = frozenset({"asynchat", "asyncore", "distutils", "imp", "smtpd"})
_BEFORE_3_13 = frozenset(
    {"aifc", "audioop", "cgi", "cgitb", "chunk", "crypt", "imghdr", "lib2to3", "mailcap", "msilib", "nis", "nntplib"}
    | {"ossaudiodev", "pipes", "sndhdr", "spwd", "sunau", "telnetlib", "uu", "xdrlib"}
)

STANDARD = sys.stdlib_module_names - _BEFORE_3_12 - _BEFORE_3_13
"""The standard library of the functions' Python: an older one here has modules that are gone there. Source: "What's
New" of Python 3.12 and 3.13."""


class _Import(NamedTuple):
    """What an import names, dotted, and whether the module cannot do without it."""

    name: str
    is_needed: bool


def unpacked(application: Application, *packed: Path) -> list[str]:
    """A line for each module that is imported at the top of an author's module and is in none of these folders.

    Nor in the standard library, nor in Lambda's runtime. What may be missing does not count: imports inside ``try``,
    another condition or a function. Raises DeployError where a module of the application is nowhere.
    """
    held = {path.name.partition(".")[0] for folder in packed for path in folder.iterdir()}
    known = STANDARD | RUNTIME | held
    found: dict[str, str] = {}
    for shown, imports in _files(application):
        for name, is_needed in imports:
            top = name.partition(".")[0]
            if is_needed and top not in known:
                found.setdefault(top, shown)
    return [
        f"{shown} imports {top}, which nothing in the package has: add its distribution to requirements.txt"
        for top, shown in found.items()
    ]


def _files(application: Application) -> Iterator[tuple[str, list[_Import]]]:
    """The files that are run where the modules are imported, each once, as its author calls it, with its imports."""
    places = {place.name.partition(".")[0]: place for place in application.sources()}
    ahead = deque(name.strip() for name in application.modules.split(","))
    seen: set[Path] = set()
    while ahead:
        parts = ahead.popleft().split(".")
        if parts[0] in ROOMS or parts[0] not in places:
            continue
        place = places[parts[0]]
        for file, package in _run(place, parts):
            if file not in seen:
                seen.add(file)
                imports = _imports(file, package)
                yield str(file.relative_to(place.parent)), imports
                ahead += [name for name, _ in imports]


def _run(place: Path, parts: list[str]) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """What importing the dotted name runs: files, each with the package that its relative imports begin at."""
    if place.is_file():
        yield place, ()
        return
    for depth in range(1, len(parts) + 1):
        package = tuple(parts[:depth])
        folder = place.joinpath(*package[1:])
        if (folder / "__init__.py").is_file():
            yield folder / "__init__.py", package
        elif not folder.is_dir():
            if (module := folder.with_name(f"{folder.name}.py")).is_file():
                yield module, package[:-1]
            return


def _imports(file: Path, package: tuple[str, ...]) -> list[_Import]:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        # The author's to see when it is imported, with its line.
        return []
    needed = set(map(id, tree.body))
    return [
        _Import(name, id(node) in needed)
        for node in _always(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in _names(node, package)
    ]


def _always(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes but those inside ``try`` and below ``if TYPE_CHECKING``."""
    ahead = deque([tree])
    # Not by recursion: how deep an author's expression nests is not for us to bound.
    while ahead:
        node = ahead.popleft()
        if isinstance(node, ast.Try | ast.TryStar):
            continue
        yield node
        is_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        ahead += node.orelse if isinstance(node, ast.If) and is_for_types else ast.iter_child_nodes(node)


def _names(node: ast.Import | ast.ImportFrom, package: tuple[str, ...]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif node.level == 0:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif base := package[: len(package) - node.level + 1]:
        within = [*base, *([node.module] if node.module else [])]
        yield from (".".join([*within, alias.name]) for alias in node.names)
