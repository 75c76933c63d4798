"""Imports an author's modules and says what came of it, in a process of its own that has nothing but this file.

``python -P importing.py CODE DEPENDENCIES MODULES`` imports them as a function will: from its package's folder and its
dependencies. The last line on standard output is a JSON object: ``types``, the workflows that are registered then, and
``complaint``, a line about the first module that cannot be imported, or null.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import traceback
from pathlib import Path

OURS = frozenset({"engine", "adapters", "handlers"})
"""What of the package's folder is not the author's."""


def complaint_about(name: str, code: Path) -> str | None:
    """``FILE, line N: ERROR: MESSAGE`` where the module called ``name`` cannot be imported; else None.

    Args:
        name: its dotted name.
        code: the folder whose files are the author's; they are named as they are called below it.
    """
    try:
        importlib.import_module(name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, it is what a function would see
        return f"{_place(error, name, code)}: {_words(error)}"
    return None


def _place(error: BaseException, name: str, code: Path) -> str:
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        frames.append((error.filename or "", error.lineno))
    for file, line in reversed(frames):
        path = Path(file)
        if path.is_relative_to(code) and path.relative_to(code).parts[0] not in OURS:
            return f"{path.relative_to(code)}, line {line}"
    return name


def _words(error: BaseException) -> str:
    # A syntax error's own text repeats its place.
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return " ".join(f"{type(error).__name__}: {message}".split()).removesuffix(":")


def main(code: str, dependencies: str, modules: str) -> None:
    """Import ``modules``, comma-separated, and print what came of it."""
    root = Path(code)
    names = [name.strip() for name in modules.split(",") if name.strip()]
    sys.path[:0] = [code, dependencies]
    # What the author's modules print is not ours to read.
    with contextlib.redirect_stdout(sys.stderr):
        complaint = next(filter(None, (complaint_about(name, root) for name in names)), None)
        registry = importlib.import_module("engine.author.registry").REGISTRY
    # On a line of its own, whatever was written past Python before.
    print("\n" + json.dumps({"types": registry.names(), "complaint": complaint}), flush=True)
    # Threads that a module has started would keep this process.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
