"""The worlds in which behaviours are tested: both modes, one of them, or on a driver that is not atomic."""

from __future__ import annotations

import pytest

from tests.unit.behaviours.world import Counter, World


@pytest.fixture(params=["yield", "live"])
def world(request: pytest.FixtureRequest) -> World:
    """A world in each mode."""
    return World(request.param)


@pytest.fixture
def yielding() -> World:
    """A world in which every wait ends the run."""
    return World("yield")


@pytest.fixture
def living() -> World:
    """A world in which one run waits in memory."""
    return World("live")


@pytest.fixture(params=["yield", "live"])
def batched(request: pytest.FixtureRequest) -> World:
    """A world whose driver takes batches only, as the reference's does."""
    return World(request.param, atomic=False)


@pytest.fixture
def count() -> Counter:
    """Step bodies that count their runs."""
    return Counter()
