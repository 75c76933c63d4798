"""What the documents and docstrings name exists; each checker is also shown a text that it must refuse."""

from __future__ import annotations

import pytest

from tests.tidy.prose import Names, anchor_faults, docstring_name_faults, document_faults
from tests.tidy.sources import PRODUCT, ROOT, Source, project_sources, refuse, sources_of, tracked_files

FOREIGN: dict[str, frozenset[str]] = {}
"""By document: paths and names it mentions that are somebody else's."""

SMALL = Names.of(
    ["engine/run.py", "docs/HACKING.md", "docs/ARCHITECTURE.md"],
    [
        Source.parse("engine/__init__.py", "from engine.run import run_workflow"),
        Source.parse("tests/unit/test_run.py", "async def test_runs(): ..."),
        Source.parse("engine/run.py", "def run_workflow(): ...\nclass Run:\n    state: str\n    def go(self): ..."),
    ],
)


def documents() -> dict[str, str]:
    return {path: (ROOT / path).read_text("utf-8") for path in tracked_files() if path.endswith(".md")}


def test_documents_name_what_exists() -> None:
    names = Names.of(tracked_files(), project_sources())
    faults = [
        fault
        for path, text in documents().items()
        for fault in document_faults(path, text, names, FOREIGN.get(path, frozenset()))
    ]
    refuse(faults)


def test_links_between_documents_find_their_heading() -> None:
    refuse(anchor_faults(documents()))


def test_docstrings_name_what_exists() -> None:
    names = Names.of(tracked_files(), project_sources())
    refuse(docstring_name_faults(sources_of(*PRODUCT), names))


@pytest.mark.parametrize(
    "text",
    [
        "See `engine/ran.py`.",
        "See `docs/`, then `docs/OTHER.md`.",
        "Call `engine.run.walk()`.",
        "Call `engine.start`.",
        "It has `engine.run.Run.stop`.",
        "See `test_run.py::test_stops`.",
        "```python\nfrom engine import run_workflow, start\n```",
        "[here](missing.md)",
        "[there](#no-such-heading)",
    ],
)
def test_a_name_that_does_not_exist_is_found(text: str) -> None:
    [fault] = document_faults("docs/HACKING.md", text, SMALL)
    assert fault.startswith("docs/HACKING.md:")


@pytest.mark.parametrize(
    "text",
    [
        "See `engine/run.py` and `engine/`.",
        "Call `engine.run.run_workflow(id, fn)`, `engine.run_workflow`, `engine.run.Run.go`, `engine.run.Run.state`.",
        "```python\nfrom engine import run_workflow\nimport orders/app.py\n```",
        "# One thing: `here`\n[up](../engine/run.py), [beside](ARCHITECTURE.md), [down](#one-thing-here), [out](https://a.b)",
        "See `test_run.py::test_runs`.",
        "Write `orders/app.py` and `GET /workflows/{id}`.",
    ],
)
def test_what_exists_is_left_alone(text: str) -> None:
    assert not list(document_faults("docs/HACKING.md", text, SMALL))


def test_a_foreign_name_may_be_spoken_of() -> None:
    assert not list(document_faults("docs/HACKING.md", "`engine/theirs.py`", SMALL, frozenset({"engine/theirs.py"})))


def test_a_link_to_a_missing_heading_is_found() -> None:
    [fault] = anchor_faults({"README.md": "[a](docs/A.md#two)", "docs/A.md": "# One"})
    assert "#two" in fault


def test_a_docstring_that_names_nothing_is_found() -> None:
    source = Source.parse("engine/scope.py", '"""Like ``engine.run.gone``."""')
    [fault] = docstring_name_faults([source], SMALL)
    assert "engine.run.gone" in fault
