"""What an author's modules import from beside them, read from their text, so that it can be packed with them."""

from __future__ import annotations

import ast
import functools
from typing import TYPE_CHECKING

from infra.fault import DeployError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class NameTakenError(DeployError):
    """A module or package of the author's has the name of one of torpor's; inside a function only one can be there."""

    def __init__(self, place: Path) -> None:
        super().__init__(
            f"{place} has the name of torpor's own package {place.stem}, and inside a function only one of them "
            f"can be imported: rename yours."
        )


def followed(folder: Path, modules: list[Path], taken: frozenset[str]) -> list[Path]:
    """Those modules and packages, and those of ``folder`` that they import, and so on; sorted.

    What is imported by a name that is made up at run time cannot be seen here.

    Raises:
        DeployError: one that is imported has a name that is ``taken`` by a package of torpor.
    """
    found = set(modules)
    ahead = list(modules)
    while ahead:
        for name in _imported(ahead.pop()):
            place = beside(folder, name)
            if place is None:
                continue
            if place.stem in taken:
                raise NameTakenError(place)
            if place not in found:
                found.add(place)
                ahead.append(place)
    return sorted(found)


def beside(folder: Path, name: str) -> Path | None:
    """The package or module of ``folder`` that is, or holds, what is imported as ``name``; None where none does."""
    # As Python looks: a package, a module, and last a folder without __init__.py. That is more often data than a
    # package; one that holds what is imported from it is none.
    top, _, inner = name.partition(".")
    if (folder / top / "__init__.py").exists():
        return folder / top
    if (folder / f"{top}.py").exists():
        return folder / f"{top}.py"
    part = folder / top / inner.split(".")[0]
    is_there = inner and (part.is_dir() or part.with_name(f"{part.name}.py").exists())
    return folder / top if is_there else None


def _imported(module: Path) -> frozenset[str]:
    """The dotted names that a module, or any file of a package, imports, and what is imported from each."""
    files = [module] if module.is_file() else sorted(module.rglob("*.py"))
    return frozenset().union(*map(_names_in, files))


def _names_in(file: Path) -> frozenset[str]:
    try:
        status = file.stat()
        return _parsed(file, status.st_mtime_ns, status.st_size)
    except OSError:  # an editor is replacing it
        return frozenset()


@functools.lru_cache(maxsize=4096)
def _parsed(file: Path, _changed_ns: int, _size: int) -> frozenset[str]:
    """The same for one state of a file: ``torpor dev`` asks twice a second."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        # The author's to see when it is imported, with its line.
        return frozenset()
    return frozenset(_names(tree))


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
