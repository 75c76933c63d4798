"""The deployed template as the end-to-end tests use it: two workflows that take their time run beside all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.e2e.probe import Probe

if TYPE_CHECKING:
    from pathlib import Path

    from infra.local_stack import LocalStack

Make = Callable[[str, str], Probe]
"""What the fixture ``probe`` is: makes the probe of a workflow from its type and its id."""


@pytest.fixture(scope="session")
def slow_ones(local_stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Probe]:
    """Started before any other test, looked at by the last ones."""
    folder = tmp_path_factory.mktemp("slow")
    overlong = Probe(local_stack, "lingering", "overlong", folder).started(linger_s=120)
    # Alone in its invocation, so that nobody else waits for it.
    overlong.mark_of("during")
    many_sleeps = Probe(local_stack, "sleeping", "many-sleeps", folder).started(sleeps=40, sleep_s=1)
    return {"overlong": overlong, "many sleeps": many_sleeps}


@pytest.fixture
def probe(local_stack: LocalStack, slow_ones: dict[str, Probe], tmp_path: Path) -> Make:
    assert slow_ones
    return lambda workflow_type, workflow_id: Probe(local_stack, workflow_type, workflow_id, tmp_path)
