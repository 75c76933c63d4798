"""``torpor deploy``: the package, then AWS's own tools: ``sam build`` and ``sam deploy``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from infra.environment import SAM
from infra.fault import CalledWronglyError, DeployError
from infra.package import Application, build_folder
from infra.place import TEMPLATE, deployment, function
from infra.target import stack_outputs
from infra.unpacked import unpacked

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence


STACK_CHARACTERS_MAX = 57
"""Characters of a stack's name. Source: EventBridge Scheduler, whose groups have names of 64, less the template's
"-alarms"."""

_STACK_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
"""Source: CloudFormation, StackName of CreateStack."""


def run(arguments: Namespace) -> None:
    """Build the package for AWS and deploy it; raises DeployError where a tool is missing or fails."""
    folder = Path.cwd()
    _check_name(arguments.stack)
    application = Application.of(arguments.app, folder)
    # Who has named no module hears of it before anything is installed.
    application.sources()
    sam = find_sam()
    _report("packaging the functions")
    packed = build_folder(application, function(folder), _report)
    for line in unpacked(application, packed):
        print(f"torpor: warning: {line}", file=sys.stderr, flush=True)
    place = _with_template(deployment(folder))
    _sam(sam, place, ["build"])
    if arguments.build_only:
        print(f"built: {place / '.aws-sam' / 'build'}")
        return
    parameters = {"AppModule": application.modules, **dict(arguments.parameter)}
    region = ["--region", arguments.region] if arguments.region else []
    overrides = [f"{name}={value}" for name, value in parameters.items()]
    options = ["--stack-name", arguments.stack, "--resolve-s3", "--capabilities", "CAPABILITY_IAM"]
    options += ["--no-fail-on-empty-changeset", *region, "--parameter-overrides", *overrides]
    _sam(sam, place, ["deploy", *options, *arguments.sam])
    print(f"deployed: {stack_outputs(arguments.stack, arguments.region).get('ApiUrl', arguments.stack)}")


def _check_name(stack: str) -> None:
    if not _STACK_NAME.fullmatch(stack):
        raise CalledWronglyError(
            f"{stack!r} is no name of a stack: it has letters, digits and hyphens, and begins with a letter."
        )
    if len(stack) > STACK_CHARACTERS_MAX:
        raise CalledWronglyError(f"A stack's name has at most {STACK_CHARACTERS_MAX} characters, not {len(stack)}.")


def find_sam() -> Path:
    """The AWS SAM CLI: the one in its own environment, else the one on the PATH, else one installed now.

    Raises:
        DeployError: it cannot be installed.
    """
    on_path = shutil.which("sam")
    if on_path is not None and not SAM.is_complete:
        return Path(on_path)
    SAM.ensure(_report)
    return SAM.program("sam")


def _report(line: str) -> None:
    print(line, flush=True)


def _with_template(place: Path) -> Path:
    """The same folder, which holds template.yaml: an installed torpor brings it along."""
    wanted = place / TEMPLATE.name
    if wanted != TEMPLATE:
        shutil.copyfile(TEMPLATE, wanted)
    return place


def _sam(sam: Path, place: Path, arguments: Sequence[str]) -> None:
    environment = {"SAM_CLI_TELEMETRY": "0", **os.environ}  # noqa: TID251 - sam needs the caller's credentials and PATH
    done = subprocess.run([sam, *arguments], cwd=place, env=environment, check=False)
    if done.returncode != 0:
        raise DeployError(f"sam {arguments[0]} failed; its messages are above.")
