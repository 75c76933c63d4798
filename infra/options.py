"""What options of commands have in common: where workflows are, and how values, pairs and numbers are written."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adapters.dynamodb.model.origins import check_ray_id
from engine.errors import InvalidIdError

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
        place = target.add_mutually_exclusive_group()
        place.add_argument("--stack", metavar="NAME", help="a deployed CloudFormation stack")
        place.add_argument("--endpoint", metavar="URL", help="the address of an API")
        add_region(target)
        made.add_argument("--json", action="store_true", help="print the whole answer as JSON")
    return made


def add_id(made: argparse.ArgumentParser, *, is_needed: bool = True, told: str = "the workflow's id") -> None:
    """Add ``ID``: which workflow is meant."""
    made.add_argument("id", metavar="ID", nargs=None if is_needed else "?", help=told)


def add_tags(made: Any, told: str) -> None:
    """Add ``--tag`` to a command or a group of its options: a list of pairs, None where none is given.

    ``told`` says what a tag is for.
    """
    # Not an empty list by default: an update of a schedule tells no tags from those that are there.
    made.add_argument("--tag", action="append", type=pair, metavar="NAME=VALUE", help=f"{told}; may be repeated")


def add_value(made: argparse.ArgumentParser, name: str, told: str) -> None:
    """Add an option that takes a value; ``told`` says what it is for."""
    made.add_argument(name, type=value, metavar="JSON|@FILE|-", help=told)


def add_ray_id(made: argparse.ArgumentParser) -> None:
    """Add ``--ray-id``: what ties what a command begins to what it comes of."""
    made.add_argument(
        "--ray-id",
        type=ray_id,
        metavar="ID",
        help="your own id, such as an order's, by which the log lines, events and traces of all that comes of this are "
        "found (a new one)",
    )


def add_wait(made: argparse.ArgumentParser, told: str) -> None:
    """Add ``--wait``; ``told`` says for what, and what comes then."""
    made.add_argument("--wait", type=seconds, metavar="SECONDS", help=told)


def add_region(made: Any) -> None:
    """Add ``--region``, to a command or a group of its options."""
    made.add_argument("--region", metavar="NAME", help="the AWS region, if not your default")


def add_page(made: argparse.ArgumentParser, rows: int) -> None:
    """Add ``--limit``, by default ``rows``, and ``--cursor``: what of a list is asked for."""
    made.add_argument("--limit", type=count, metavar="NUMBER", default=rows, help="how many at most (%(default)s)")
    made.add_argument("--cursor", help="go on where an answer ended, by the cursor that --json prints")


def value(text: str) -> Any:
    """A value: JSON, ``@FILE`` for the JSON of a file, ``-`` for that of standard input."""
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"{text[1:] or 'standard input'} cannot be read: {error}") from error
    try:
        return json.loads(text)
    except RecursionError:
        raise argparse.ArgumentTypeError("this nests deeper than any value may") from None
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"this is not JSON ({error}); a text needs its quotes: '\"text\"'") from error


def pair(text: str) -> tuple[str, str]:
    """A name and a value as ``NAME=VALUE``."""
    name, equals, told = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"write NAME=VALUE, not {text!r}")
    return name, told


def ray_id(text: str) -> str:
    """A ray id, as the API takes it."""
    try:
        check_ray_id(text)
    except InvalidIdError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


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
