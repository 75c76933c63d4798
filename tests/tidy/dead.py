"""Private definitions that nothing refers to."""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.tidy.sources import Source


def dead_faults(sources: Sequence[Source]) -> Iterator[str]:
    """Private functions, classes and constants of a module that nothing in ``sources`` mentions outside themselves."""
    everywhere = {source.path: _mentions(source.nodes) for source in sources}
    total: Counter[str] = sum(everywhere.values(), Counter())
    for source in sources:
        for name, node in _private(source.tree):
            if total[name] - _mentions(tuple(ast.walk(node)))[name] <= 0:
                yield f"{source.path}:{node.lineno}: nothing refers to {name}; remove it"


def _private(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                pass
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                pass
            case _:
                continue
        if re.match(r"_[A-Za-z]", name) and not getattr(node, "decorator_list", None):
            yield name, node


def _mentions(nodes: Sequence[ast.AST]) -> Counter[str]:
    """How often each name is read, as a name, an attribute, an import or a word of an annotation in quotes."""
    found: Counter[str] = Counter()
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name):
                found[name] += 1
            case ast.ImportFrom(names=names):
                found.update(alias.name for alias in names)
            case ast.Constant(value=str() as text) if text.isidentifier():
                found[text] += 1
    return found
