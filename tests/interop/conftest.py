"""The reference engine as a fixture: installed from its lock, run as one process for the whole session."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
INSTALL_SECONDS_MAX = 300
ANSWER_SECONDS_MAX = 300


class Reference:
    """The process of ``reference.mjs``: one request in, one answer out."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to one request; both are described at the top of ``reference.mjs``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watch = threading.Timer(ANSWER_SECONDS_MAX, self._process.kill)
        watch.start()
        try:
            self._process.stdin.write(f"{json.dumps(request)}\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            watch.cancel()
        assert line, f"the reference engine gave no answer (it ended with {self._process.poll()})"
        answer: dict[str, Any] = json.loads(line)
        return answer


def install(npm: str) -> None:
    """Bring node_modules to what the lock says, where it is not there yet."""
    lock, marker = HERE / "package-lock.json", HERE / "node_modules" / ".package-lock.json"
    if marker.exists() and marker.stat().st_mtime >= lock.stat().st_mtime:
        return
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False)
    assert done.returncode == 0, f"npm ci failed in {HERE}:\n{done.stderr}"


@pytest.fixture(scope="session")
def reference() -> Iterator[Reference]:
    """The reference engine, ready to be asked."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("Node and npm are not installed; the reference engine runs on them")
    install(npm)
    process = subprocess.Popen(
        [node, "reference.mjs"], cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        yield Reference(process)
        process.kill()
