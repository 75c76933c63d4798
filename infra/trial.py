"""Whether the author's modules can be imported: tried before they are deployed, so that the author hears of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infra import importing
from infra.aws import LOCAL_ACCESS_KEY, LOCAL_REGION, LOCAL_SECRET_KEY
from infra.environment import MINISTACK
from infra.package import laid_out
from infra.place import TEMPLATE
from infra.unpacked import unpacked

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from infra.package import Application

TIMEOUT_S = 60.0
"""Seconds that the imports may take; Lambda itself gives a cold start ten. Design choice: this machine may be busy."""

LEFT_OUT = ("AWS_", "PYTHON")
"""Beginnings of the names of what a function does not get from the caller's environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What came of importing the modules.

    Attributes:
        types: the workflows they register, sorted.
        complaint: a line about the first that cannot be imported, such as ``app.py, line 18: SyntaxError: ...``; else
            None.
    """

    types: tuple[str, ...] = ()
    complaint: str | None = None


def try_application(application: Application, report: Callable[[str], None]) -> Trial:
    """Import what would be deployed, as the local stack's functions will; raises DeployError where it cannot be packed.

    ``report`` is told of what takes long, and warned of what will be missing on AWS.
    """
    with laid_out(application, MINISTACK.python, report) as (code, dependencies):
        for line in unpacked(application, code, dependencies):
            report(f"warning: {line}")
        return try_imports(MINISTACK.python, code, dependencies, application.modules)


def try_imports(interpreter: Path, code: Path, dependencies: Path, modules: str) -> Trial:
    """The same of the folders of a package, under ``interpreter``, in a process of its own."""
    command: list[str | Path] = [interpreter, "-I", "-B", importing.__file__, code, dependencies, modules]
    try:
        done = subprocess.run(
            command,
            cwd=code,
            env=_environment(),
            timeout=TIMEOUT_S,
            check=False,
            capture_output=True,
            # Beside ours it is whatever the modules, and what they start, write: that may be any bytes.
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        return Trial(complaint=f"{modules}: still importing after {TIMEOUT_S:g} seconds")
    try:
        told = json.loads(done.stdout.splitlines()[-1])
        return Trial(types=tuple(told["types"]), complaint=told["complaint"])
    except (LookupError, ValueError, TypeError):
        last = (done.stderr.strip().splitlines() or [""])[-1]
        return Trial(complaint=f"{modules}: importing ended Python with code {done.returncode}. {last}".rstrip())


def _environment() -> dict[str, str]:
    """Ours, without what no function gets: importing must not reach the caller's own AWS account."""
    ours = os.environ  # noqa: TID251 - a tool hands its own environment on to the process it starts
    kept = {name: value for name, value in ours.items() if not name.startswith(LEFT_OUT)}
    names = re.findall(r"(?m)^\s+(TORPOR_\w+):", TEMPLATE.read_text())
    return {
        **kept,
        **dict.fromkeys(names, "import"),
        "AWS_REGION": LOCAL_REGION,
        "AWS_DEFAULT_REGION": LOCAL_REGION,
        "AWS_ACCESS_KEY_ID": LOCAL_ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": LOCAL_SECRET_KEY,
    }
