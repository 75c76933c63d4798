"""``torpor deploy``: the package, then AWS's own tools: ``sam build`` and ``sam deploy``."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from infra.fault import DeployError
from infra.package import Application, build_folder
from infra.place import ROOT
from infra.target import stack_outputs

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence


def run(arguments: Namespace) -> None:
    """Build the package for AWS and deploy it; raises DeployError where a tool is missing or fails."""
    sam = find_sam()
    print("packaging the functions", flush=True)
    build_folder(Application(modules=arguments.app, folder=Path.cwd()))
    _sam(sam, ["build"])
    if arguments.build_only:
        return
    parameters = {"AppModule": arguments.app, **dict(arguments.parameter)}
    region = ["--region", arguments.region] if arguments.region else []
    overrides = [f"{name}={value}" for name, value in parameters.items()]
    options = ["--stack-name", arguments.stack, "--resolve-s3", "--capabilities", "CAPABILITY_IAM"]
    options += ["--no-fail-on-empty-changeset", *region, "--parameter-overrides", *overrides]
    _sam(sam, ["deploy", *options, *arguments.sam])
    print(f"deployed: {stack_outputs(arguments.stack, arguments.region).get('ApiUrl', arguments.stack)}")


def find_sam() -> Path:
    """The AWS SAM CLI: the one of ``make sam``, else the one on the PATH; raises DeployError where there is none."""
    installed = ROOT / ".venv-sam" / "bin" / "sam"
    on_path = shutil.which("sam")
    if not installed.exists() and on_path is None:
        raise DeployError("The AWS SAM CLI is not installed: run `make sam`.")
    return installed if installed.exists() else Path(on_path or "")


def _sam(sam: Path, arguments: Sequence[str]) -> None:
    environment = {"SAM_CLI_TELEMETRY": "0", **os.environ}  # noqa: TID251 - sam needs the caller's credentials and PATH
    done = subprocess.run([sam, *arguments], cwd=ROOT, env=environment, check=False)
    if done.returncode != 0:
        raise DeployError(f"sam {arguments[0]} failed; its messages are above.")
