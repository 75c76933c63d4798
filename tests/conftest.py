"""What tests of several rooms share: the local AWS, bare and with the template deployed, each started once a session.

- ``ministack`` is the endpoint of a bare MiniStack. Tests share it, so each makes tables and queues of its own names.
- ``local_stack`` is the deployed template (``infra.local_stack.LocalStack``): ``api``, ``client(service)``, ``logs``,
  ``worker_pids()``. Tests share it too, so each uses workflow ids of its own.

A test that asks for either is marked ``ministack`` by itself: ``pytest -m "not ministack"`` leaves them out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from infra.local_stack import LocalStack
from infra.ministack import MiniStack

if TYPE_CHECKING:
    from collections.abc import Iterator

LEASE_SECONDS = "5"
"""Short, so that a test need not wait long for a dead worker's lease to end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"ministack", "local_stack"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.ministack)


@pytest.fixture(scope="session")
def ministack() -> Iterator[str]:
    with MiniStack.start() as started:
        yield started.endpoint


@pytest.fixture(scope="session")
def local_stack() -> Iterator[LocalStack]:
    with LocalStack.start(parameters={"LeaseSeconds": LEASE_SECONDS}) as started:
        yield started
