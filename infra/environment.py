"""The environments of tools that torpor runs but does not import: the local AWS, and AWS's SAM CLI.

Each is made where it is missing, from its lock, whose hashes say that what is installed is what was resolved.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from infra.fault import DeployError
from infra.place import BUILD, IS_CHECKOUT, LOCKS, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_NEWER_UV = "a newer uv is used where it is on the PATH or in torpor's environment (`pip install --upgrade uv`)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A virtual environment that holds what a lock names.

    Attributes:
        name: the lock's name, without its ending.
        title: what people call it.
        folder: where it is.
        instead: what else its user may do where it cannot be installed, as the end of a sentence.
    """

    name: str
    title: str
    folder: Path
    instead: str = ""

    @classmethod
    def of(cls, name: str, title: str, instead: str = "") -> Environment:
        """In a checkout the one that the Makefile makes too; else one in the user's cache for each lock and Python."""
        if IS_CHECKOUT:
            return cls(name=name, title=title, folder=ROOT / f".venv-{name}", instead=instead)
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        digest = hashlib.sha256((LOCKS / f"{name}.txt").read_bytes()).hexdigest()[:12]
        folder = BUILD / "environments" / f"{name}-{python}-{digest}"
        return cls(name=name, title=title, folder=folder, instead=instead)

    def program(self, name: str) -> Path:
        """The path of a program in it, there or not."""
        return self.folder / "bin" / name

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.program("python")

    @property
    def is_complete(self) -> bool:
        """Whether it was made to its end, and the Python it was made from is still there."""
        return self._marker.exists() and self.python.exists()

    @property
    def _marker(self) -> Path:
        return self.folder / ".installed"

    def ensure(self, report: Callable[[str], None]) -> None:
        """Make it where it is missing, which takes a while; raises DeployError where it cannot be made."""
        if self.is_complete:
            return
        with self._alone():
            if self.is_complete:
                return
            report(f"installing {self.title} into {self.folder}, this once")
            try:
                venv.create(self.folder, clear=True, with_pip=True)
            except (OSError, subprocess.CalledProcessError) as error:
                raise DeployError(f"No virtual environment can be made at {self.folder}: {error}") from error
            self._install()
            self._marker.touch()

    def _install(self) -> None:
        uv = find_uv()
        pip = [str(self.python), "-m", "pip", "install", "--disable-pip-version-check"]
        installer = [str(uv), "pip", "install", "--python", str(self.python)] if uv else pip
        # The lock names everything, and a pip of 2023 takes a dependency with extras for one that has no pin.
        lock = ["--quiet", "--no-deps", "--require-hashes", "-r", str(LOCKS / f"{self.name}.txt")]
        done = subprocess.run([*installer, *lock], check=False, capture_output=True, text=True)
        if done.returncode != 0 and uv:
            # Where uv cannot reach the index as pip is told to, pip may.
            done = subprocess.run([*pip, *lock], check=False, capture_output=True, text=True)
        if done.returncode != 0:
            said = done.stderr.strip() or done.stdout.strip()
            remedy = f"Where it is the installer that fails: {_NEWER_UV}{self.instead}."
            raise DeployError(f"{self.title} cannot be installed: {said}\n{remedy}")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """While one process makes it, others wait."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with self.folder.with_name(f"{self.folder.name}.lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield


MINISTACK = Environment.of("ministack", "the local AWS")
"""Where the local AWS is; its interpreter also runs the functions there."""

SAM = Environment.of("sam", "the AWS SAM CLI", "; a `sam` of your own on the PATH will do as well")


def find_uv() -> Path | None:
    """The installer uv, beside our own interpreter or on the PATH; None where there is none."""
    beside = Path(sys.executable).with_name("uv")
    if beside.exists():
        return beside
    on_path = shutil.which("uv")
    return None if on_path is None else Path(on_path)
