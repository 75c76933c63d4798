"""``torpor deploy`` before it does anything: what it refuses, and what git must not see of it."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from adapters.scheduler import NAME_LENGTH_MAX
from infra.cli import main
from infra.deploy import STACK_CHARACTERS_MAX
from infra.place import ROOT
from tests.unit.test_template import of_type

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


def test_a_name_that_is_too_long_for_what_the_template_makes_is_told_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["deploy", "--app", "nomod", "--stack", "s" * 58])
    assert "at most 57 characters, not 58" in capsys.readouterr().err
    group = next(iter(of_type("AWS::Scheduler::ScheduleGroup").values()))["Name"]
    assert len(group.replace("${AWS::StackName}", "s" * STACK_CHARACTERS_MAX)) == NAME_LENGTH_MAX


@pytest.mark.parametrize("name", ["UPPER_under", "1shop", "-shop", "shop.orders", "übung", "shop\n", ""])
def test_a_name_that_cloudformation_refuses_is_refused_before_anything_is_done(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit_:
        main(["deploy", "--app", "nomod", "--build-only", f"--stack={name}"])
    told = capsys.readouterr()
    assert (exit_.value.code, told.out) == (2, "")
    assert "is no name of a stack: it has letters, digits and hyphens, and begins with a letter" in told.err


@pytest.mark.parametrize("name", [".venv-sam.lock", ".venv-sam/bin/sam", ".aws-sam/build/template.yaml"])
def test_what_a_deploy_leaves_in_a_clone_is_ignored(name: str) -> None:
    done = subprocess.run(["git", "check-ignore", "--no-index", "-q", name], cwd=ROOT, check=False)
    assert done.returncode == 0
