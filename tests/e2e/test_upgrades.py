"""New code under workflows that sleep: what is recorded stays, what comes next is the new build's.

What does not fit, or is not known, says so, loses nothing, and goes on with a build that fits and knows.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from infra.package import Application
from tests.conftest import APPLICATION

if TYPE_CHECKING:
    from pathlib import Path

    from infra.local_stack import LocalStack
    from tests.e2e.conftest import Make

GATED = """
    if await ctx.get_version("checks", 2) >= 2:
        done.append("checked by " + await ctx.step("check", version))
"""

PLACED = {
    "    # Here the next build puts a step in.\n": '    done.append("put in by " + await ctx.v(2).step(version))\n',
    "done.append(await ctx.step(version))  # the next build drops this one": 'await ctx.removed(original_type="step")',
    "    # Here the next build checks the version.\n": '    done.append(f"way {await ctx.check_version(2)}")\n',
}

SECOND = {
    "    # Here the next build has a gate.\n": GATED,
    'done.append(await ctx.step("reserve", version))  # the next build sleeps instead': 'await ctx.sleep("reserve", 1)',
    '@workflow("forgotten")\n': "",
    **PLACED,
}
"""The second build's lines for those of the first."""

THIRD = {"    # Here the next build has a gate.\n": GATED, **PLACED}
"""The third build has the gate, and neither mistake of the second."""


def deploy(stack: LocalStack, folder: Path, build: str, lines: dict[str, str]) -> None:
    deployed = stack.application
    folder.mkdir()
    for module in ("ears.py", "probes.py", "changing.py"):
        source = (APPLICATION.folder / module).read_text()
        for line, replacement in {'VERSION = "first"': f'VERSION = "{build}"', **lines}.items():
            source = source.replace(line, replacement)
        (folder / module).write_text(source)
    stack.application = Application(modules=deployed.modules, folder=folder)
    # It stays deployed: for every other test the builds are the same.
    assert stack.deploy() is True


def test_three_builds_under_sleeping_workflows(local_stack: LocalStack, probe: Make, tmp_path: Path) -> None:
    waiting, old, ungated, placed, forgotten = before = [
        probe(kind, f"{kind}-since-the-first") for kind in ("upgraded", "gated", "ungated", "placed", "forgotten")
    ]
    for workflow in before:
        workflow.started().wait_for("go")

    deploy(local_stack, tmp_path / "second", "second", SECOND)
    new = probe("gated", "gated-since-the-second").started()
    placed_new = probe("placed", "placed-since-the-second").started()
    for workflow in (new, placed_new):
        workflow.wait_for("go")
    for workflow in (*before, new, placed_new):
        assert workflow.send("go").status == 202
    assert waiting.output() == ["first", "second"]
    # Behind a gate each goes its own way; without one it is told where the code left its history.
    assert old.output() == ["first", "second"]
    assert new.output() == ["checked by second", "second", "second"]
    assert placed.output() == ["first", "put in by second", "way 1", "first", "second"]
    assert placed_new.output() == ["second", "put in by second", "way 2", "second", "second"]
    error = ungated.ending()["error"]
    assert error["name"] == "HistoryDivergedError"
    assert "'reserve'" in error["message"]
    # No build that runs knows the type: it is put off, not failed, and nobody can start another.
    _, *put_off = forgotten.told("run ended", 2)
    # More than once where the sweeper has come by, which looks after a message that nobody has read.
    assert {(run["outcome"], run["deaths"]) for run in put_off} == {("postponed", 0)}
    assert all("UnknownTypeError" in run["error"] for run in put_off)
    assert (forgotten.known()["state"], forgotten.known()["is_running"]) == ("sleeping", False)
    refused = local_stack.api.request("POST", "/workflows/forgotten", body=json.dumps({"id": "another"}).encode())
    assert (refused.status, refused.json()["type"]) == (404, "urn:torpor:problem:unknown-type")

    deploy(local_stack, tmp_path / "third", "third", THIRD)
    assert ungated.call("POST", "/recover").status == 202
    assert ungated.output() == ["first", "third"]
    # At the latest the sweeper would look, five minutes after the wake that was put off.
    assert forgotten.call("POST", "/wake").status == 202
    assert forgotten.output() == "third"
