"""Environments of tools that are made from their locks: with the pip that a Python brings along, and without uv."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import zipfile
from typing import TYPE_CHECKING

import pytest

from infra.environment import SAM, Environment
from infra.fault import DeployError

if TYPE_CHECKING:
    from pathlib import Path


def make_wheel(folder: Path, name: str, *needs: str, version: str = "1.0") -> str:
    """Make a wheel with one module; gives the line of a lock that names it."""
    about = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": "",
        f"{about}/METADATA": "\n".join(
            ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", "Provides-Extra: more"]
            + [f"Requires-Dist: {need}" for need in needs]
        ),
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digests = {path: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()) for path, text in files.items()}
    record = [f"{path},sha256={digest.decode().rstrip('=')}," for path, digest in digests.items()]
    files[f"{about}/RECORD"] = "\n".join([*record, f"{about}/RECORD,,", ""])
    made = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(made.read_bytes()).hexdigest()}\n"


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of locks, and of all that pip finds; there is no uv."""
    monkeypatch.setattr("infra.environment.LOCKS", tmp_path)
    monkeypatch.setattr("infra.environment.find_uv", lambda: None)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    return tmp_path


def test_a_dependency_with_extras_is_held_by_the_lock_for_any_pip(locks: Path) -> None:
    lock = make_wheel(locks, "outer", "inner[more]>=0.5") + make_wheel(locks, "inner")
    # Since the lock was made there is a newer one, of which it holds no hash.
    make_wheel(locks, "inner", version="2.0")
    (locks / "tool.txt").write_text(lock)
    made = Environment(name="tool", title="a tool", folder=locks / "made")
    told: list[str] = []
    made.ensure(told.append)
    made.ensure(told.append)
    assert told == [f"installing a tool into {locks / 'made'}, this once"]
    subprocess.run([made.python, "-c", "import inner, outer"], check=True)


def test_what_cannot_be_installed_says_what_to_do(locks: Path) -> None:
    (locks / "sam.txt").write_text(f"nowhere==1.0 --hash=sha256:{'0' * 64}\n")
    made = Environment(name="sam", title="a tool", folder=locks / "made", instead=SAM.instead)
    with pytest.raises(DeployError) as raised:
        made.ensure(lambda _line: None)
    said = str(raised.value)
    assert said.startswith("a tool cannot be installed: ERROR: ")
    assert "`pip install --upgrade uv`" in said
    assert said.endswith("; a `sam` of your own on the PATH will do as well.")
    assert not made.is_complete
