"""A schedule on the deployed template: its occurrences come to the second, it pauses, goes on, and is gone."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from infra.api_client import segment
from infra.ministack import wait
from tests.e2e.probe import until

if TYPE_CHECKING:
    from infra.local_stack import LocalStack

LATE_MAX = timedelta(seconds=5)
"""How late a run may begin: alarms are whole seconds, and other tests use the same worker and processors."""


class Scheduled:
    """The schedule ``ticking`` of the stack."""

    def __init__(self, stack: LocalStack) -> None:
        self.api = stack.api

    def ask(self, method: str, path: str = "", body: Any = None) -> Any:
        sent = None if body is None else json.dumps(body).encode()
        reply = self.api.request(method, f"/schedules/ticking{path}", body=sent)
        assert reply.is_success, reply.body
        return reply.json()

    def create(self) -> None:
        # On a busy machine a run may take longer than the time to the next one, which would be left out.
        when = {"every": "2s", "overlap": "allow"}
        asked = {"name": "ticking", **when, "type": "sleeping", "input": {"sleep_s": 0.1}, "tags": {"of": "e2e"}}
        for status in (201, 200):
            assert self.api.request("POST", "/schedules", body=json.dumps(asked).encode()).status == status

    @property
    def runs(self) -> list[str]:
        """The ids of the runs so far, oldest first."""
        found = self.ask("GET")["recent"]
        return [each["run_id"] for each in reversed(found) if each["outcome"] == "started"]

    def workflow(self, workflow_id: str, path: str = "") -> Any:
        return self.api.request("GET", f"/workflows/{segment(workflow_id)}{path}").json()


def test_a_schedule_from_its_creation_to_its_end(local_stack: LocalStack) -> None:
    scheduled = Scheduled(local_stack)
    scheduled.create()
    runs = until(lambda: scheduled.runs if len(scheduled.runs) >= 3 else None, 30, "three occurrences")
    times = [datetime.fromisoformat(each.removeprefix("ticking/")) for each in runs]
    assert {after - before for before, after in pairwise(times)} == {timedelta(seconds=2)}
    for run, due_at in zip(runs, times, strict=True):
        known = until(lambda run=run: _completed(scheduled.workflow(run)), 20, f"{run} completes")  # type: ignore[misc]
        assert known["tags"] == {"schedule": "ticking", "scheduled_at": run.removeprefix("ticking/"), "of": "e2e"}
        assert timedelta() <= datetime.fromisoformat(known["created_at"]) - due_at < LATE_MAX
    scheduled.ask("POST", "/pause", {"note": "enough"})
    until(lambda: scheduled.ask("GET")["state"] == "paused", 10, "it is paused")
    paused = scheduled.runs
    wait(5)
    assert scheduled.runs == paused
    scheduled.ask("POST", "/resume")
    until(lambda: len(scheduled.runs) > len(paused), 15, "it goes on")
    assert scheduled.ask("GET")["counts"]["missed"] == 0
    assert not scheduled.ask("DELETE")["is_gone"]
    assert local_stack.api.request("GET", "/schedules/ticking").status == 404
    listed = local_stack.api.request("GET", "/schedules").json()["schedules"]
    assert listed == []


def _completed(known: dict[str, Any]) -> dict[str, Any] | None:
    return known if known["state"] == "completed" else None
