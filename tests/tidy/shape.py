"""The size and the manners of a file: lines, bodies, docstrings, names of modules, what an ``__init__`` may hold."""

from __future__ import annotations

import ast
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.tidy.sources import Source

FILE_LINES_MAX = 400
TEST_FILE_LINES_MAX = 600
BODY_LINES_MAX = 70
DRAWERS = frozenset({"util", "utils", "common", "helper", "helpers", "misc"})

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def length_faults(sources: Sequence[Source]) -> Iterator[str]:
    """Files that have grown too long to be one thing."""
    for source in sources:
        lines = len(source.text.splitlines())
        limit = TEST_FILE_LINES_MAX if source.room == "tests" else FILE_LINES_MAX
        if lines > limit:
            yield f"{source.path}: {lines} lines, {limit} at most; split it by what its parts are about"


def body_faults(sources: Sequence[Source]) -> Iterator[str]:
    """Function bodies that no longer fit on a screen; the docstring does not count."""
    for source in sources:
        for node in source.nodes:
            if isinstance(node, _Function) and (lines := _body_lines(node)) > BODY_LINES_MAX:
                yield (
                    f"{source.path}:{node.lineno}: {node.name} has a body of {lines} lines, {BODY_LINES_MAX} at most; "
                    f"keep the branching here and move the leaves into functions of their own"
                )


def _body_lines(node: _Function) -> int:
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def module_docstring_faults(sources: Sequence[Source]) -> Iterator[str]:
    """Modules that do not open with a sentence; an empty ``__init__`` says nothing and need not."""
    for source in sources:
        if not source.text.strip():
            if not source.is_package:
                yield f"{source.path}: the file is empty; remove it"
            continue
        opening = (ast.get_docstring(source.tree) or "").split("\n\n")[0].replace("\n", " ")
        if not re.match(r"\S.*?\w.*?[.:](\s|$)", opening):
            yield f"{source.path}:1: open the module with one sentence, in a docstring, that says what it is"


def docstring_faults(sources: Sequence[Source]) -> Iterator[str]:
    """Public functions, classes and methods without a docstring."""
    for source in sources:
        for node, owner in _public(source.tree, None):
            if ast.get_docstring(node) is None and not _is_excused(node, owner):
                label = f"{owner.name}.{node.name}" if owner else node.name
                yield (
                    f"{source.path}:{node.lineno}: {label} has no docstring; say what it promises, "
                    f"its units and what it raises, or make it private"
                )


def _public(
    tree: ast.Module | ast.ClassDef, owner: ast.ClassDef | None
) -> Iterator[tuple[_Documented, ast.ClassDef | None]]:
    for node in tree.body:
        if isinstance(node, _Documented) and not node.name.startswith("_"):
            yield node, owner
            if isinstance(node, ast.ClassDef):
                yield from _public(node, node)


def _is_excused(node: _Documented, owner: ast.ClassDef | None) -> bool:
    decorators = {ast.unparse(decorator).split(".")[-1] for decorator in node.decorator_list}
    if decorators & {"overload", "override", "setter"}:
        return True
    if owner and ast.get_docstring(owner) and _is_port(owner) and ast.unparse(node.body[-1]) == "...":
        return True
    listed = (ast.get_docstring(owner) or "").partition("Attributes:")[2] if owner else ""
    return "property" in decorators and re.search(rf"^\s*{node.name}: ", listed, re.MULTILINE) is not None


def _is_port(owner: ast.ClassDef) -> bool:
    """Whether the class is a Protocol, whose docstring may speak for its members."""
    return any(ast.unparse(base).split(".")[-1] == "Protocol" for base in owner.bases)


def name_faults(sources: Sequence[Source]) -> Iterator[str]:
    """Modules and folders named as drawers, into which everything goes."""
    for source in sources:
        for part in PurePosixPath(source.path).with_suffix("").parts:
            if part.strip("_") in DRAWERS:
                yield f"{source.path}: {part!r} names a drawer; name the idea that the module holds, or inline it"


def package_faults(sources: Sequence[Source]) -> Iterator[str]:
    """Packages whose ``__init__`` does more than to name what is in them."""
    for source in sources:
        if not source.is_package:
            continue
        for index, node in enumerate(source.tree.body):
            if not _is_naming(node, is_first=index == 0):
                yield (
                    f"{source.path}:{node.lineno}: an __init__ holds only a docstring, imports and __all__; "
                    f"move this into a module"
                )


def _is_naming(node: ast.stmt, *, is_first: bool) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Constant(value=str())):
            return is_first
        case ast.Assign(targets=[ast.Name(id="__all__")]) | ast.AnnAssign(target=ast.Name(id="__all__")):
            return True
    return False
