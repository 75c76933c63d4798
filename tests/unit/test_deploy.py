"""``torpor deploy`` before it does anything: what it refuses, and what git must not see of it."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from infra.cli import main
from infra.place import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def test_a_module_that_is_not_there_is_told_before_anything_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit_:
        main(["deploy", "--app", "nomod", "--build-only"])
    told = capsys.readouterr()
    assert (exit_.value.code, told.out) == (1, "")
    assert told.err.startswith("torpor: There is no module nomod in ")


@pytest.mark.parametrize("name", [".venv-sam.lock", ".venv-sam/bin/sam", ".aws-sam/build/template.yaml"])
def test_what_a_deploy_leaves_in_a_clone_is_ignored(name: str) -> None:
    done = subprocess.run(["git", "check-ignore", "--no-index", "-q", name], cwd=ROOT, check=False)
    assert done.returncode == 0
