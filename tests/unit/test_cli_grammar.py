"""The grammar of the command line as a whole: every command and option explains itself, and means one thing."""

from __future__ import annotations

import argparse
from collections import defaultdict
from typing import TYPE_CHECKING

from infra.cli import parser

if TYPE_CHECKING:
    from collections.abc import Iterator

OF_TWO_MEANINGS = {"--id"}
"""Of ``start`` it is the workflow's id, of ``send`` another word for ``--key``."""


def commands(made: argparse.ArgumentParser, path: str = "torpor") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield path, made
    for action in made._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from commands(inner, f"{path} {name}")


def test_every_command_says_what_it_does_and_every_option_what_it_is_for() -> None:
    silent = [path for path, made in commands(parser()) if not made.description]
    silent += [
        f"{path} {action.dest}"
        for path, made in commands(parser())
        for action in made._actions
        if not action.help and not isinstance(action, argparse._SubParsersAction)
    ]
    assert silent == []


def test_an_option_is_read_and_shown_alike_wherever_it_is() -> None:
    forms: dict[str, set[tuple[object, ...]]] = defaultdict(set)
    for _, made in commands(parser()):
        for action in made._actions:
            for name in set(action.option_strings) - OF_TWO_MEANINGS:
                forms[name].add((type(action), action.type, action.metavar, action.dest))
    assert {name: told for name, told in forms.items() if len(told) > 1} == {}
