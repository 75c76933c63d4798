"""What options of commands have in common: where workflows are, and how values, pairs and numbers are written."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def command(
    groups: Any, name: str, act: Callable[[argparse.Namespace], None], summary: str, *, is_about_workflows: bool = True
) -> argparse.ArgumentParser:
    """A command of ``groups`` that does ``act``; one about workflows has the options that say where they are."""
    made: argparse.ArgumentParser = groups.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}."
    )
    made.set_defaults(act=act, made_by=made)
    if is_about_workflows:
        target = made.add_argument_group("where")
        target.add_argument("--stack", metavar="NAME", help="a deployed CloudFormation stack")
        target.add_argument("--endpoint", metavar="URL", help="the address of an API")
        target.add_argument("--region", help="the AWS region, if not your default")
        made.add_argument("--json", action="store_true", help="print the whole answer as JSON")
    return made


def value(text: str) -> Any:
    """A value: JSON, ``@FILE`` for the JSON of a file, ``-`` for that of standard input."""
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"{text[1:]} cannot be read: {error}") from error
    try:
        return json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"this is not JSON ({error}); a text needs its quotes: '\"text\"'") from error


def pair(text: str) -> tuple[str, str]:
    """A name and a value as ``NAME=VALUE``."""
    name, equals, told = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"write NAME=VALUE, not {text!r}")
    return name, told


def seconds(text: str) -> float:
    """Seconds, a number from 0 up."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"give seconds, a number from 0 up, not {text!r}")
    return number


def count(text: str) -> int:
    """A whole number from 1 up."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"give a number from 1 up, not {text!r}")
    return int(text)
