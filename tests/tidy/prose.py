"""Names in prose: every path, module, name and link that the documents and docstrings mention must exist."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from tests.tidy.sources import PRODUCT, ROOMS, Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_FENCE = re.compile(r"^ {0,3}(```|~~~).*?^ {0,3}\1[^\n]*$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(`{1,2})(?!`)(.+?)(?<!`)\1(?!`)")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)[^)]*\)")
_PATH = re.compile(r"(?:[\w.-]+/)+[\w.-]*")
_DOTTED = re.compile(rf"(?:{'|'.join(ROOMS)})(?:\.[A-Za-z_]\w*)+")
_TEST = re.compile(r"test_\w+\.py::\w+")
_IMPORT = re.compile(rf"^\s*from ((?:{'|'.join(ROOMS)})[.\w]*) import ([^\n#(]+)", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6} +(.+?)\s*#*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What exists: files and folders by path, and the names that each module and each class defines."""

    paths: frozenset[str]
    members: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, paths: Sequence[str], sources: Sequence[Source]) -> Names:
        """The names of a project from its tracked files and its parsed sources."""
        folders = {parent.as_posix() for path in paths for parent in PurePosixPath(path).parents}
        members: dict[str, frozenset[str]] = {}
        for source in sources:
            _collect(source.module, source.tree, members)
        for name in list(members):
            owner, _, last = name.rpartition(".")
            while owner:
                members[owner] = members.get(owner, frozenset()) | {last}
                owner, _, last = owner.rpartition(".")
        return cls(paths=frozenset(paths) | folders, members=members)

    def has(self, dotted: str) -> bool:
        """Whether a dotted name exists; what an imported name holds is not followed."""
        owner = dotted.split(".", maxsplit=1)[0]
        for part in dotted.split(".")[1:]:
            if owner not in self.members:
                return True
            if part not in self.members[owner]:
                return False
            owner = f"{owner}.{part}"
        return True

    def has_test(self, name: str) -> bool:
        """Whether ``test_file.py::test_name`` exists in some folder of the tests."""
        file, _, test = name.partition("::")
        modules = [module for module in self.members if module.endswith("." + file.removesuffix(".py"))]
        return any(test in self.members[module] for module in modules)


def _collect(owner: str, tree: ast.Module | ast.ClassDef, members: dict[str, frozenset[str]]) -> None:
    found: set[str] = set()
    for node in ast.walk(tree) if isinstance(tree, ast.ClassDef) else tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.ClassDef(name=name) if node is not tree:
                found.add(name)
                _collect(f"{owner}.{name}", node, members)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found.update((alias.asname or alias.name).split(".")[0] for alias in names)
            case ast.Assign(targets=targets):
                found.update(target.id for target in targets if isinstance(target, ast.Name))
                found.update(target.attr for target in targets if isinstance(target, ast.Attribute))
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.AnnAssign(target=ast.Attribute(attr=name)):
                found.add(name)
    members[owner] = members.get(owner, frozenset()) | found


def document_faults(path: str, text: str, names: Names, foreign: frozenset[str] = frozenset()) -> Iterator[str]:
    """Paths, dotted names and links of one Markdown document that lead nowhere.

    ``foreign`` are paths and names that the document speaks of as somebody else's.
    """
    prose = _FENCE.sub(lambda fence: re.sub(r"[^\n]", " ", fence.group()), text)
    for span in _SPAN.finditer(prose):
        for word in span.group(2).split():
            if word not in foreign and (remedy := _unknown(word.rstrip(".,;:"), path, names)) is not None:
                yield f"{path}:{_line(text, span.start())}: {remedy}"
    for found in _IMPORT.finditer(text):
        for name in re.split(r",\s*", found.group(2).strip()):
            dotted = f"{found.group(1)}.{name.split(' ')[0]}"
            if not names.has(dotted):
                yield f"{path}:{_line(text, found.start())}: {dotted} does not exist; correct the example"
    for link in _LINK.finditer(_SPAN.sub(lambda span: " " * len(span.group()), prose)):
        yield from _link_faults(path, link.group(1), text, _line(text, link.start()), names)


def _unknown(word: str, path: str, names: Names) -> str | None:
    word = re.sub(r"\(.*\)?$", "", word)
    if _TEST.fullmatch(word):
        return None if names.has_test(word) else f"there is no {word}; name the test as it is called today"
    if _PATH.fullmatch(word) and word.split("/")[0] in {*ROOMS, "docs", ".ci"}:
        spot = word.rstrip("/").split("::")[0]
        if spot not in names.paths and _joined(path, spot) not in names.paths:
            return f"{word} does not exist; correct the path or remove the sentence"
    if _DOTTED.fullmatch(word) and not re.search(r"\.(py|md|yaml|toml|bare|json|sh)$", word) and not names.has(word):
        return f"{word} does not exist; name the module and what is in it as they are called today"
    return None


def _joined(path: str, target: str) -> str:
    parts: list[str] = []
    for part in (*PurePosixPath(path).parent.parts, *PurePosixPath(target).parts):
        if part == "..":
            if not parts:
                return target
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts) or "."


def _link_faults(path: str, target: str, text: str, line: int, names: Names) -> Iterator[str]:
    if re.match(r"[a-z]+:", target):
        return
    spot, _, anchor = target.partition("#")
    if spot and _joined(path, spot) not in names.paths:
        yield f"{path}:{line}: the link to {target} leads nowhere; correct it"
    if anchor and not spot and anchor not in heading_anchors(text):
        yield f"{path}:{line}: no heading here has the anchor #{anchor}; correct the link"


def heading_anchors(text: str) -> frozenset[str]:
    """The anchors that GitHub gives to the headings of a document."""
    plain = _FENCE.sub("", text)
    return frozenset(
        re.sub(r"[^\w\- ]", "", heading.group(1).lower()).replace(" ", "-") for heading in _HEADING.finditer(plain)
    )


def anchor_faults(documents: Mapping[str, str]) -> Iterator[str]:
    """Links between documents whose heading is not there."""
    for path, text in documents.items():
        for link in _LINK.finditer(_FENCE.sub("", text)):
            spot, _, anchor = link.group(1).partition("#")
            other = documents.get(_joined(path, spot)) if spot and anchor else None
            if other is not None and anchor not in heading_anchors(other):
                yield f"{path}: {spot} has no heading with the anchor #{anchor}; correct the link"


def docstring_name_faults(sources: Sequence[Source], names: Names) -> Iterator[str]:
    """Dotted names of ours in double backticks, in docstrings and comments, that do not exist."""
    for source in sources:
        for span in re.finditer(r"``?([A-Za-z_.]+)``?", source.text):
            word = span.group(1)
            if word.split(".")[0] in PRODUCT and _DOTTED.fullmatch(word) and not names.has(word):
                yield f"{source.path}:{_line(source.text, span.start())}: {word} does not exist; call it by its name"


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
