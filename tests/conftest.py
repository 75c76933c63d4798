"""What tests of several rooms share: the local AWS, bare and with the template deployed, each started once a session.

- ``ministack`` is the endpoint of a bare MiniStack. Tests share it, so each makes tables and queues of its own names.
- ``local_stack`` is the deployed template (``infra.local_stack.LocalStack``): ``api``, ``client(service)``, ``logs``,
  ``worker_pids()``. Tests share it too, so each uses workflow ids of its own.

A test that asks for either is marked ``ministack`` by itself: ``pytest -m "not ministack"`` leaves them out.

Hypothesis tries the same examples in every run, and none has a deadline, since a shared machine may pause in any of
them; ``pytest --hypothesis-profile=exploring`` tries others each time.
"""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from infra.local_stack import LocalStack
from infra.ministack import MiniStack
from infra.package import Application
from infra.place import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

PARAMETERS = {"LeaseSeconds": "8", "Timeout": "30", "EvictMarginSeconds": "15", "StopMarginSeconds": "12"}
"""Short, so that no test waits long for a dead worker's lease to end, or for an invocation's time to run out; and long
enough that no living worker is late where the machine stands still for some seconds."""

APPLICATION = Application(modules="examples.orders,probes,changing", folder=ROOT / "tests" / "e2e" / "app")


settings.register_profile("exploring", deadline=None)
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")


def pytest_configure() -> None:
    # A line for each call of moto's, a hundred thousand of them, would be kept with the reports of their tests.
    logging.getLogger("werkzeug").setLevel(logging.WARNING)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"ministack", "local_stack", "frail_stack", "guarded"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.ministack)


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_for_others() -> Iterator[None]:
    """What a module leaves open, a socket or a task, is told at its own end and fails no test of another module.

    What outlives it is not looked through again: there is so much of it that each look would take half a second.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def ministack() -> Iterator[str]:
    with MiniStack.start() as started:
        yield started.endpoint


@pytest.fixture(scope="session")
def local_stack() -> Iterator[LocalStack]:
    with LocalStack.start(application=APPLICATION, parameters=PARAMETERS) as started:
        yield started
