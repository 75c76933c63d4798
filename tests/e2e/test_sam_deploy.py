"""``torpor deploy`` with AWS's own tools, against the local AWS; where `make sam` has installed them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from infra.aws import LOCAL_ACCESS_KEY, LOCAL_REGION, LOCAL_SECRET_KEY, local_client
from infra.environment import SAM
from infra.ministack import MiniStack
from infra.place import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STACK = "shop"
DEPLOY_SECONDS_MAX = 300

pytestmark = pytest.mark.ministack


@pytest.fixture
def endpoint() -> Iterator[str]:
    """A local AWS of its own: what is deployed would go on sweeping in a shared one."""
    with MiniStack.start() as started:
        yield started.endpoint


@pytest.mark.skipif(not SAM.program("sam").exists(), reason="the AWS SAM CLI is not installed: make sam")
def test_sam_builds_and_deploys_the_template(endpoint: str, tmp_path: Path) -> None:
    (tmp_path / "workflows.py").write_text("")
    environment = {
        **os.environ,  # noqa: TID251 - a child needs a path and a home
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": LOCAL_ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": LOCAL_SECRET_KEY,
        "AWS_DEFAULT_REGION": LOCAL_REGION,
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "infra.cli", "deploy", "--stack", STACK, "--app", "workflows"]
    done = subprocess.run(
        [*command, "--parameter", "LeaseSeconds=20", "--", "--no-progressbar"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEPLOY_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "deployed: https://" in done.stdout
    functions = local_client("lambda", endpoint).list_functions()["Functions"]
    ours = [function for function in functions if function["FunctionName"].startswith(f"{STACK}-")]
    variables = [function["Environment"]["Variables"] for function in ours]
    assert len(ours) == 4
    assert {(each["TORPOR_APP"], each["TORPOR_LEASE_SECONDS"]) for each in variables} == {("workflows", "20")}
    # One package, sent once.
    assert len({function["CodeSha256"] for function in ours}) == 1
