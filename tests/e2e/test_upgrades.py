"""New code under workflows that sleep: what is recorded stays, what comes next is the new build's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.package import Application

if TYPE_CHECKING:
    from pathlib import Path

    from infra.local_stack import LocalStack
    from tests.e2e.conftest import Make


def test_a_sleeping_workflow_goes_on_in_the_new_build(local_stack: LocalStack, probe: Make, tmp_path: Path) -> None:
    deployed = local_stack.application
    waiting = probe("upgraded", "waiting-for-new-code").started()
    waiting.wait_for("go")
    source = (deployed.folder / "probes.py").read_text()
    (tmp_path / "probes.py").write_text(source.replace('VERSION = "first"', 'VERSION = "second"'))
    local_stack.application = Application(modules=deployed.modules, folder=tmp_path)
    # It stays deployed: for every other test the builds are the same.
    assert local_stack.deploy() is True
    waiting.send("go")
    assert waiting.output() == ["first", "second"]
