"""What the outside is told of a workflow, from its HEAD alone."""

from __future__ import annotations

import pytest

from adapters.dynamodb.model.items import Head
from adapters.dynamodb.query import describe_head


@pytest.mark.parametrize(
    ("owner", "lease_until", "is_running"),
    [("me", 101, True), ("me", 100, False), ("me", None, False), (None, 101, False), (None, None, False)],
)
def test_it_runs_while_somebody_holds_a_lease_that_has_not_run_out(
    owner: str | None,
    lease_until: int | None,
    is_running: bool,  # noqa: FBT001
) -> None:
    head = Head(workflow_id="w", type="t", owner=owner, lease_until=lease_until, created_at=1, updated_at=1)
    assert describe_head(head, 100).is_running is is_running
