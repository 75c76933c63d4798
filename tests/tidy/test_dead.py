"""Nothing private lies around unused; the checker is shown definitions that it must refuse and some it must not."""

from __future__ import annotations

import pytest

from tests.tidy.dead import dead_faults
from tests.tidy.sources import Source, project_sources, refuse


def test_every_private_definition_is_used() -> None:
    refuse(dead_faults(project_sources()))


@pytest.mark.parametrize("text", ["def _f(n):\n    return _f(n - 1)", "class _C:\n    x = 1", "_LIMIT = 3"])
def test_a_dead_definition_is_found(text: str) -> None:
    [fault] = dead_faults([Source.parse("engine/a.py", text)])
    assert "nothing refers to" in fault


@pytest.mark.parametrize("use", ["x = _f()", "import engine.a\nx = engine.a._f", "from engine.a import _f"])
def test_a_definition_that_is_used_is_left_alone(use: str) -> None:
    defined = Source.parse("engine/a.py", "def _f(): ...")
    assert not list(dead_faults([defined, Source.parse("tests/b.py", use)]))
