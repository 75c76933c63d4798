"""The wheel in an environment of its own, away from the repository: everything that a user's first day needs."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from infra.environment import find_uv
from infra.place import LOCKS, ROOT
from tests.e2e.probe import until

APP = """
from engine import Context, workflow
from words import greeting


@workflow("hello")
async def hello(ctx: Context, name: str) -> str:
    line = await ctx.step("greet", greeting, name)
    await ctx.sleep("pause", 1)
    return line
"""
WORDS = """
async def greeting(name: str) -> str:
    return f"Hello, {name}"
"""

MISSED = "imports yaml, which nothing in the package has: add its distribution to requirements.txt"

READY_SECONDS_MAX = 600
"""Two environments are installed on the way; with a warm cache it takes some ten seconds."""

pytestmark = [pytest.mark.ministack, pytest.mark.wheel]


class Installed:
    """A fresh environment with the wheel in it, and a project's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        self.python = folder / "environment" / "bin" / "python"
        uv = find_uv()
        path = os.environ["PATH"] if uv is None else f"{uv.parent}{os.pathsep}{os.environ['PATH']}"  # noqa: TID251 - the child's tools
        unwanted = {"PYTHONPATH", "VIRTUAL_ENV"}
        inherited = {name: value for name, value in os.environ.items() if name not in unwanted}  # noqa: TID251 - a child needs a home, and pip its settings
        self.environment = {**inherited, "PATH": path, "XDG_CACHE_HOME": str(folder / "cache")}
        # uv keeps what it has downloaded under that folder too, and would fetch everything again.
        self.environment["UV_CACHE_DIR"] = os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache" / "uv")  # noqa: TID251

    def install(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        uv = find_uv()
        pip = [str(self.python), "-m", "pip", "install"]
        installer = pip if uv is None else [str(uv), "pip", "install", "--python", str(self.python)]
        return self.run(*installer, "--quiet", *arguments)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.project,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=READY_SECONDS_MAX,
        )

    def torpor(self, *arguments: str) -> str:
        done = self.run(str(self.python.with_name("torpor")), *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Installed:
    made = Installed(tmp_path)
    venv.create(tmp_path / "environment", with_pip=find_uv() is None)
    got = made.install("--require-hashes", "-r", str(LOCKS / "runtime.txt"))
    if got.returncode != 0:
        pytest.skip(f"packages cannot be had here: {got.stderr[-300:]}")
    done = made.install("--no-deps", str(wheel))
    assert done.returncode == 0, done.stderr
    return made


def test_a_user_needs_nothing_but_the_wheel(installed: Installed) -> None:
    assert installed.torpor("--version").startswith("torpor 0.")
    assert "torpor dev" in installed.torpor("--help")
    # Everything that the wheel says it depends on is what the lock has installed.
    check = (
        "from importlib.metadata import requires, version; [version(r.split('>')[0]) for r in requires('torpor')[:5]]"
    )
    assert installed.run(str(installed.python), "-c", check).returncode == 0
    (installed.project / "app.py").write_text(APP)
    # The local AWS has PyYAML in its own environment, and a function on AWS has not.
    (installed.project / "words.py").write_text(f"import yaml\n{WORDS}")
    said = installed.folder / "dev.txt"
    with said.open("w") as output:
        dev = subprocess.Popen(
            [installed.python.with_name("torpor"), "dev", "--no-logs"],
            cwd=installed.project,
            env=installed.environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        until(lambda: "ready after" in said.read_text() or dev.poll() is not None, "torpor dev runs", READY_SECONDS_MAX)
        assert dev.poll() is None, said.read_text()
        assert "app" in said.read_text()
        assert f"torpor dev: warning: words.py {MISSED}" in said.read_text()
        started = installed.torpor("start", "hello", "--id", "ada", "--input", '"Ada"', "--ray-id", "tour:1")
        assert re.fullmatch(r"ada  started  \(ray tour:1, request [!-~]+\)\n", started)
        assert installed.torpor("get", "ada", "--output", "--wait", "120") == '"Hello, Ada"\n'
        assert "completed" in installed.torpor("list", "--type", "hello")
    finally:
        dev.send_signal(signal.SIGINT)
        ended = dev.wait(timeout=120)
    assert ended == 0, said.read_text()
    # Those that were killed are gone a moment later.
    until(lambda: not processes_of(installed.folder), "nothing runs any more")
    # In the project's folder stays nothing but what the author put there, and a folder for notes.
    assert {path.name for path in installed.project.iterdir()} == {"app.py", "words.py", ".torpor"}


def test_a_deployment_is_staged_in_the_project(installed: Installed) -> None:
    (installed.project / "app.py").write_text(APP)
    (installed.project / "words.py").write_text(f"import yaml\n{WORDS}")
    tools = installed.folder / "tools"
    tools.mkdir()
    sam = tools / "sam"
    # A stand-in that only says what it was asked, and where: what SAM does with it is test_sam_deploy.py's.
    sam.write_text('#!/bin/sh\necho "sam $1 in $(pwd) with $(ls)"\n')
    sam.chmod(0o755)
    installed.environment["PATH"] = f"{tools}{os.pathsep}{installed.environment['PATH']}"
    done = installed.run(str(installed.python.with_name("torpor")), "deploy", "--stack", "shop", "--build-only")
    told = done.stdout
    assert (done.returncode, done.stderr) == (0, f"torpor: warning: words.py {MISSED}\n")
    place = installed.project / ".torpor" / "deploy"
    assert f"sam build in {place} with template.yaml" in told
    packed = {path.name for path in (place / ".torpor" / "function").iterdir()}
    assert {"app.py", "words.py", "engine", "adapters", "handlers", "aiobotocore"} <= packed
    assert "infra" not in packed
    assert shutil.which("sam", path=installed.environment["PATH"]) == str(sam)


def processes_of(folder: Path) -> list[str]:
    """Commands of living processes that name the folder."""
    table = subprocess.run(["ps", "-A", "-o", "command="], check=True, capture_output=True, text=True).stdout
    return [line for line in table.splitlines() if str(folder) in line]
