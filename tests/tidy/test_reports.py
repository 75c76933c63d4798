"""Every public report that the tests' README lists has a test named after it, and every such test is listed."""

from __future__ import annotations

import re

from tests.tidy.sources import ROOT

CASES = 35
HAZARDS = 19


def test_each_case_has_tests_of_its_name_and_each_such_test_is_listed() -> None:
    text = (ROOT / "tests" / "README.md").read_text()
    rows = dict(re.findall(r"^\| (B\d\d) \| .*? \| (.*) \|$", text, re.MULTILINE))
    assert len(rows) == CASES
    for case, tests in rows.items():
        assert f"::test_{case.lower()}_" in tests, case
    named = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_b\d\d_\w+)", path.read_text())
    }
    assert not [name for name in named if f"::{name}`" not in rows[name[5:8].upper()]]


def test_each_hazard_has_a_test() -> None:
    text = (ROOT / "tests" / "README.md").read_text()
    rows = re.findall(r"^\| (\d+) \| .*? \| (.*::.*) \|$", text, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, HAZARDS + 1))
