"""What no tracked file may say: paths of one machine, hosts of registries, marks of unfinished work."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# One letter of each stands in brackets, so that this file keeps its own rule.
_FOLDERS = r"[w]ork|[r]oot|[t]mp|[U]sers/\w+|[h]ome/\w+"
_HOSTS = r"registry[.]npmjs[.]org|[p]ypi[.]org|pythonhosted[.]org|npmjs[.]com"
_MARKS = "[T]ODO|[F]IXME|[X]XX|[N]otImplementedError"

FORBIDDEN = {
    rf"(?<![\w.}}~-])/(?:{_FOLDERS})(?![\w-])": "a path of one machine; use a relative one, or the caller's folder",
    rf"(?:{_HOSTS})": "the host of a registry; whoever installs decides where from",
    rf"\b(?:{_MARKS})\b": "a mark of unfinished work; finish it, or say in the docs what is missing and why",
}

DOCUMENTED: dict[str, str] = {}
"""By path: a pattern of what this file may say all the same."""


def word_faults(path: str, text: str) -> Iterator[str]:
    """Places of one file that say what no file may say."""
    allowed = DOCUMENTED.get(path, r"(?!)")
    for pattern, remedy in FORBIDDEN.items():
        for found in re.finditer(pattern, text):
            if not re.fullmatch(allowed, found.group()):
                yield f"{path}:{text.count(chr(10), 0, found.start()) + 1}: {found.group()!r} is {remedy}"
