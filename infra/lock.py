"""The locks: resolves the dependencies of each environment into a file of versions and hashes under infra/locks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from infra.place import LOCKS, ROOT

RUNTIME_PYTHON = "3.11"
"""The oldest Python the locks must serve. Source: requires-python in pyproject.toml."""

ENVIRONMENTS: dict[str, tuple[str, ...]] = {
    "dev": ("pyproject.toml", "--all-extras", "--group", "dev"),
    "runtime": ("pyproject.toml",),
    "ministack": ("infra/locks/ministack.in",),
    "sam": ("infra/locks/sam.in",),
    "uv": ("infra/locks/uv.in",),
    "audit": ("infra/locks/audit.in",),
}
"""What each lock is resolved from. The function's package holds ``runtime`` and nothing else."""


def compile_lock(name: str, *, is_upgrade: bool = True) -> None:
    """Write ``infra/locks/<name>.txt``; raises CalledProcessError where nothing satisfies the requirements."""
    options = ["--universal", "--python-version", RUNTIME_PYTHON, "--generate-hashes", "--no-header", "--no-annotate"]
    options += ["--no-emit-index-url", "--no-emit-find-links", "--quiet"]
    if is_upgrade:
        options.append("--upgrade")
    uv = Path(sys.executable).with_name("uv")
    target = LOCKS / f"{name}.txt"
    subprocess.run([uv, "pip", "compile", *ENVIRONMENTS[name], *options, "-o", target], cwd=ROOT, check=True)


def main() -> None:
    """Resolve every lock anew."""
    for name in ENVIRONMENTS:
        compile_lock(name)
        print(f"infra/locks/{name}.txt")


if __name__ == "__main__":
    main()
