"""The documents tell the truth: their Python runs, their commands parse, their tables say what the code says.

A block runs in the namespace of its page, one after the other, at a prompt that can await (as ``python -m asyncio``).
``<!-- fragment -->`` on the line before a block says that it is only compiled. Names and links in prose are the
business of ``tests.tidy.prose``.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shlex
import sys
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import engine
from adapters.dynamodb.model import limits as dynamodb_limits
from engine import errors
from engine import limits as engine_limits
from engine.author.activities import ACTIVITIES, OPERATIONS
from engine.author.context import Context
from engine.author.message_types import MESSAGES
from engine.author.queue_context import Queue
from engine.author.registry import REGISTRY
from engine.handle import run_workflow
from engine.schedules import cron, identity, timing
from engine.schedules import limits as schedule_limits
from engine.testing import MemoryDriver, VirtualClock, drive
from handlers import calls, problems, schedules
from handlers.routes import ROUTES
from infra import cli
from tests.tidy.layers import ENGINE_ORDER, line_of
from tests.tidy.sources import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGES = ("README.md", "CHANGELOG.md", *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")))
FRAGMENT = "<!-- fragment -->"
COMMANDS = ("console", "sh")
OTHERS = frozenset({"cd", "curl", "mkdir", "aws", "export", "."})
"""First words of commands that are not ours to check."""

LIMITS = (engine_limits, dynamodb_limits, calls, schedule_limits, identity, timing, cron, schedules)
"""Modules whose limits docs/guide/limits.md tells."""

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPANNED_COMMAND = re.compile(r"`((?:torpor|make|\.venv/bin/\w+|python) [^`]+)`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block: its language, its text, the line it begins on, and whether it is marked as a fragment."""

    language: str
    text: str
    line: int
    is_fragment: bool

    @classmethod
    def all_of(cls, page: str) -> list[Block]:
        text = (ROOT / page).read_text("utf-8")
        return [
            cls(
                language=found.group(1),
                text=found.group(2),
                line=text.count("\n", 0, found.start()) + 1,
                is_fragment=text[: found.start()].rstrip().endswith(FRAGMENT),
            )
            for found in _BLOCK.finditer(text)
        ]

    def code(self, page: str) -> types.CodeType:
        padding = "\n" * self.line
        code: types.CodeType = compile(padding + self.text, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        return code


def read(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """A page's module: importable under its name, as types are looked up; what it registers is forgotten after it."""
    catalogues = (ACTIVITIES, OPERATIONS, MESSAGES)
    registers: list[dict[str, Any]] = [REGISTRY._workflows, *(catalogue._found for catalogue in catalogues)]
    kept = [dict(register) for register in registers]
    for register in registers:
        register.clear()
    module = types.ModuleType("page_" + re.sub(r"\W", "_", request.node.name))
    sys.modules[module.__name__] = module
    yield module.__dict__
    del sys.modules[module.__name__]
    for register, found in zip(registers, kept, strict=True):
        register.clear()
        register.update(found)


# --- blocks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
async def test_python_blocks_run(page: str, namespace: dict[str, Any]) -> None:
    for block in Block.all_of(page):
        if block.language == "python":
            code = block.code(page)
            if not block.is_fragment:
                answer = types.FunctionType(code, namespace)()
                if answer is not None:
                    await answer


async def test_the_first_workflow_runs(namespace: dict[str, Any]) -> None:
    for block in Block.all_of("README.md"):
        if block.language == "python":
            types.FunctionType(block.code("README.md"), namespace)()
    clock = VirtualClock()
    driver = MemoryDriver(clock=clock)
    handle = run_workflow("ada", namespace["signup"], "ada@example.com", driver, clock=clock)
    await handle.message("clicked")
    await handle.result
    assert (await drive("ada", namespace["signup"], None, driver, clock)).output == "ada@example.com is active"
    late = await drive("bob", namespace["signup"], "bob@example.com", MemoryDriver(clock=clock), clock)
    assert late.output == "expired"


@pytest.mark.parametrize("page", PAGES)
def test_blocks_say_what_they_are(page: str) -> None:
    languages = {block.language for block in Block.all_of(page)}
    assert languages <= {"python", "text", "json", "toml", "yaml", *COMMANDS}


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist(page: str) -> None:
    for block in Block.all_of(page):
        for command in commands_of(block):
            check_command(command)
    for command in _SPANNED_COMMAND.findall(_BLOCK.sub("", read(page))):
        check_command(command)


def commands_of(block: Block) -> list[str]:
    if block.language not in COMMANDS:
        return []
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language == "console":
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    return [line for line in lines if line.strip() and not line.startswith("#")]


def check_command(command: str) -> None:
    words = shlex.split(command, comments=True)
    match words[0].removeprefix(".venv/bin/"):
        case "make":
            verbs = [word for word in words[1:] if "=" not in word]
            assert verbs, command
            assert set(verbs) <= set(makefile_verbs()), command
        case "torpor":
            cli.parser().parse_args(words[1:])
        case "python" | "pytest":
            check_python(words)
        case other:
            assert other in OTHERS, f"{command!r}: neither ours nor named in OTHERS"


def check_python(words: list[str]) -> None:
    if "-m" in words:
        assert importlib.util.find_spec(words[words.index("-m") + 1]) is not None, words
    for word in words[1:]:
        if word.startswith("tests/"):
            assert (ROOT / word.split("::")[0]).exists(), word


def makefile_verbs() -> list[str]:
    return re.findall(r"^([a-z]+):.*## ", read("Makefile"), re.MULTILINE)


@pytest.mark.parametrize("command", ["make dinner", "torpor start", "torpor dance", "python -m nothing.there", "npm x"])
def test_a_command_that_does_not_exist_is_found(command: str) -> None:
    with pytest.raises((AssertionError, SystemExit, ModuleNotFoundError)):
        check_command(command)


# --- what must be there -------------------------------------------------------------------------------------------


def test_every_operation_has_an_example_that_runs() -> None:
    code = "\n".join(
        block.text
        for page in PAGES
        if page.startswith("docs/guide/")
        for block in Block.all_of(page)
        if block.language == "python" and not block.is_fragment
    )
    operations = [f"ctx.{name}" for name in public(Context)] + [f"ctx.queue.{name}" for name in public(Queue)]
    missing = [name for name in operations if name not in code]
    assert not missing


def public(owner: type) -> list[str]:
    return [name for part in owner.__mro__[:-1] for name in vars(part) if not name.startswith("_")]


def test_every_name_of_the_engine_is_told_of() -> None:
    text = "\n".join(read(page) for page in PAGES if page.startswith("docs/"))
    missing = [name for name in engine.__all__ if not re.search(rf"\b{name}\b", text)]
    assert not missing


def test_the_readme_lists_every_verb() -> None:
    listed = re.findall(r"^\| `make ([a-z]+)", read("README.md"), re.MULTILINE)
    assert sorted(listed) == sorted(makefile_verbs())


def test_the_error_tree_is_the_one_of_the_code() -> None:
    assert errors.__doc__ is not None
    tree = errors.__doc__.partition("::\n")[2]
    drawn = [line.strip() for line in tree.splitlines() if line.strip()]
    [shown] = [block.text for block in Block.all_of("docs/guide/errors.md") if block.language == "text"]
    assert [line.strip() for line in shown.splitlines() if line.strip()] == drawn, f"the page must show:\n{tree}"


def test_the_order_of_the_engine_is_the_one_that_is_held() -> None:
    blocks = [block.text for block in Block.all_of("docs/ARCHITECTURE.md") if "errors  limits  location" in block.text]
    wanted = "\n".join(line_of(line) for line in ENGINE_ORDER)
    assert blocks[0].strip() == wanted, f"the page must show:\n{wanted}"


@pytest.mark.parametrize("module", LIMITS, ids=lambda module: module.__name__)
def test_the_limits_are_those_of_the_code(module: types.ModuleType) -> None:
    page = read("docs/guide/limits.md")
    rows = re.findall(rf"^\| (.+) \| (.+) \| `{re.escape(module.__name__)}\.(\w+)` \|$", page, re.MULTILINE)
    assert rows
    for what, told, name in rows:
        value = getattr(module, name)
        assert told.split(" ")[0].replace(",", "") == f"{value:.12g}", f"{what}: {name} is {value}"


def test_the_addresses_are_those_that_are_served() -> None:
    page = read("docs/guide/operating.md")
    told = re.findall(r"^\| `([A-Z]+) (/\S*)`", page, re.MULTILINE)
    served = [
        (route.method, route.path.replace("id_or_type", "type" if route.method == "POST" else "id")) for route in ROUTES
    ]
    assert sorted(told) == sorted(served)


def test_every_command_and_every_problem_is_told_of() -> None:
    page = read("docs/guide/operating.md")
    [subparsers] = [action for action in cli.parser()._actions if action.dest == "command"]
    assert subparsers.choices is not None
    commands = [f"`torpor {name}" for name in subparsers.choices]
    kinds = [f"`{kind.name}`" for kind in vars(problems).values() if isinstance(kind, problems.Kind)]
    assert [name for name in [*commands, *kinds] if name not in page] == []


def test_the_parameters_are_those_of_the_template() -> None:
    told = re.findall(r'^\| `(\w+)` \| ([\w."]+) \|', read("docs/guide/operating.md"), re.MULTILINE)
    parameters = read("template.yaml").partition("\nParameters:\n")[2].partition("\nMappings:\n")[0]
    assert told == re.findall(r"^  (\w+):\n    Type: .*\n    Default: (.*)$", parameters, re.MULTILINE)


def test_the_units_are_those_that_were_measured() -> None:
    page = read("docs/guide/operating.md")
    figures = json.loads(read("bench/results.json"))["parts"]["units"]["figures"]
    measured = {figure["name"]: figure["value"] for figure in figures}
    told = {
        "write_units_per_step": "a durable step",
        "write_units_start": "start",
        "write_units_claim": "claim, at each wake",
        "write_units_yield": "going to sleep",
        "write_units_message": "a message, without an id of its own",
        "units_per_workflow": "an order of the example: 3 wakes, 3 steps, a sleep, a message",
    }
    for name, what in told.items():
        assert f"| {what} | {measured[name]:g} |" in page, name
        assert f"| ${measured[name] * 0.625 + 1e-9:.2f} |" in page, name


def test_a_block_that_fails_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n\n```python\nassert 1 == 2\n```\n", "utf-8")
    [block] = Block.all_of(str(page))
    with pytest.raises(AssertionError):
        types.FunctionType(block.code("page.md"), {})()
