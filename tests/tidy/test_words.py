"""Tracked files speak of no single machine, no registry and no unfinished work."""

from __future__ import annotations

import pytest

from tests.tidy.sources import ROOT, refuse, tracked_files
from tests.tidy.words import word_faults


def test_no_tracked_file_says_what_none_may_say() -> None:
    faults: list[str] = []
    for path in tracked_files():
        try:
            text = (ROOT / path).read_text("utf-8")
        except UnicodeDecodeError:
            continue
        faults += word_faults(path, text)
    refuse(faults)


@pytest.mark.parametrize(
    "text",
    [
        "cd /w-ork/main",
        'path = "/t-mp/x"',
        "in /r-oot",
        "/U-sers/me/x",
        "https://p-ypi.org/simple",
        "r-egistry.npmjs.org",
        "# T-ODO: later",
        "raise N-otImplementedError",
    ],
)
def test_a_forbidden_word_is_found(text: str) -> None:
    # The hyphen keeps this file to its own rule.
    [fault] = word_faults("docs/x.md", text.replace("-", ""))
    assert fault.startswith("docs/x.md:1:")


@pytest.mark.parametrize("text", ["POST /workflows/{id}", "handlers/worker.py", "net/work/root", "TODOS", "a/tmpfile"])
def test_other_words_are_left_alone(text: str) -> None:
    assert not list(word_faults("docs/x.md", text))
