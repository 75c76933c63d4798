"""Files are short, documented and well named; each checker is also shown a source that it must refuse."""

from __future__ import annotations

import pytest

from tests.tidy.shape import (
    body_faults,
    docstring_faults,
    length_faults,
    module_docstring_faults,
    name_faults,
    package_faults,
)
from tests.tidy.sources import PRODUCT, Source, project_sources, refuse, sources_of

WRITTEN = (*PRODUCT, "examples", "bench")


def test_no_file_is_too_long() -> None:
    refuse(length_faults(project_sources()))


def test_no_body_is_too_long() -> None:
    refuse(body_faults(sources_of(*WRITTEN)))


def test_every_module_says_what_it_is() -> None:
    refuse(module_docstring_faults(sources_of(*WRITTEN)))


def test_every_public_name_has_a_docstring() -> None:
    refuse(docstring_faults(sources_of(*WRITTEN)))


def test_no_module_is_a_drawer() -> None:
    refuse(name_faults(project_sources()))


def test_packages_hold_only_names() -> None:
    refuse(package_faults(project_sources()))


@pytest.mark.parametrize(("path", "lines", "count"), [("engine/a.py", 401, 1), ("engine/a.py", 400, 0)])
def test_a_long_file_is_found(path: str, lines: int, count: int) -> None:
    assert len(list(length_faults([Source.parse(path, "x = 1\n" * lines)]))) == count


def test_a_test_file_may_be_longer() -> None:
    sources = [Source.parse("tests/unit/test_a.py", "x = 1\n" * lines) for lines in (600, 601)]
    assert len(list(length_faults(sources))) == 1


@pytest.mark.parametrize(("lines", "count"), [(70, 0), (71, 1)])
def test_a_long_body_is_found(lines: int, count: int) -> None:
    text = 'async def f():\n    """Says.\n\n    Much.\n    """\n' + "    x = 1\n" * lines
    assert len(list(body_faults([Source.parse("engine/a.py", text)]))) == count


@pytest.mark.parametrize("text", ["x = 1", '"""."""', '"""No end"""'])
def test_a_module_that_does_not_introduce_itself_is_found(text: str) -> None:
    [fault] = module_docstring_faults([Source.parse("engine/a.py", text)])
    assert "one sentence" in fault


def test_an_empty_module_is_found_and_an_empty_package_is_fine() -> None:
    sources = [Source.parse("engine/a.py", ""), Source.parse("engine/b/__init__.py", "")]
    [fault] = module_docstring_faults(sources)
    assert "engine/a.py" in fault


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("def f(): ...", "f"),
        ("class C:\n    x = 1", "C"),
        ('class C:\n    """Is."""\n    async def m(self): ...', "C.m"),
        (
            'class C:\n    """Is.\n\n    Attributes:\n        other: is.\n    """\n    @property\n    def m(self): ...',
            "C.m",
        ),
    ],
)
def test_a_public_name_without_docstring_is_found(text: str, label: str) -> None:
    [fault] = docstring_faults([Source.parse("engine/a.py", text)])
    assert f" {label} has no docstring" in fault


@pytest.mark.parametrize(
    "text",
    [
        "def _f(): ...",
        "class _C:\n    def m(self): ...",
        'class C:\n    """Is."""\n    def __init__(self): ...',
        'class C:\n    """Is.\n\n    Attributes:\n        m: is.\n    """\n    @property\n    def m(self): ...',
        'class C(Protocol):\n    """Is."""\n    def m(self): ...',
        "from typing import overload\n@overload\ndef f(): ...",
    ],
)
def test_what_needs_no_docstring_is_left_alone(text: str) -> None:
    assert not list(docstring_faults([Source.parse("engine/a.py", text)]))


@pytest.mark.parametrize("path", ["engine/utils.py", "adapters/common/x.py", "tests/unit/_helpers.py", "infra/misc.py"])
def test_a_drawer_is_found(path: str) -> None:
    [fault] = name_faults([Source.parse(path, "")])
    assert "drawer" in fault


@pytest.mark.parametrize("text", ["x = 1", "def f(): ...", "if True:\n    import a", 'import a\n"""Late."""'])
def test_code_in_a_package_is_found(text: str) -> None:
    [fault] = package_faults([Source.parse("engine/__init__.py", text)])
    assert "__init__" in fault


def test_names_in_a_package_are_fine() -> None:
    text = '"""Is."""\nfrom engine.run import run\n__all__ = ["run"]'
    assert not list(package_faults([Source.parse("engine/__init__.py", text)]))
