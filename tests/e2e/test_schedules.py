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

LATE_MAX = timedelta(seconds=30)
"""How late a run may begin: alarms are whole seconds, and other tests use the same worker and processors."""


class Scheduled:
    """A schedule of the stack."""

    def __init__(self, stack: LocalStack, name: str) -> None:
        self.api = stack.api
        self.name = name

    def ask(self, method: str, path: str = "", body: Any = None) -> Any:
        sent = None if body is None else json.dumps(body).encode()
        reply = self.api.request(method, f"/schedules/{self.name}{path}", body=sent)
        assert reply.is_success, reply.body
        return reply.json()

    def create(self, *, overlap: str, sleep_s: float) -> None:
        runs = {"type": "sleeping", "input": {"sleep_s": sleep_s}, "tags": {"of": "e2e"}}
        asked = {"name": self.name, "every": "2s", "overlap": overlap, **runs}
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
    scheduled = Scheduled(local_stack, "ticking")
    # On a busy machine a run may take longer than the time to the next one, which would be left out.
    scheduled.create(overlap="allow", sleep_s=0.1)
    runs = until(lambda: scheduled.runs if len(scheduled.runs) >= 3 else None, "three occurrences")
    times = [datetime.fromisoformat(each.removeprefix("ticking/")) for each in runs]
    assert {after - before for before, after in pairwise(times)} == {timedelta(seconds=2)}
    for run, due_at in zip(runs, times, strict=True):
        known = until(lambda run=run: _completed(scheduled.workflow(run)), f"{run} completes")  # type: ignore[misc]
        assert known["tags"] == {"schedule": "ticking", "scheduled_at": run.removeprefix("ticking/"), "of": "e2e"}
        assert timedelta() <= datetime.fromisoformat(known["created_at"]) - due_at < LATE_MAX
    scheduled.ask("POST", "/pause", {"note": "enough"})
    until(lambda: scheduled.ask("GET")["state"] == "paused", "it is paused")
    paused = scheduled.runs
    wait(5)
    assert scheduled.runs == paused
    scheduled.ask("POST", "/resume")
    # Only the latest are told of: there may be as many as before.
    until(lambda: scheduled.runs[-1] > paused[-1], "it goes on")
    assert scheduled.ask("GET")["counts"]["missed"] == 0
    assert not scheduled.ask("DELETE")["is_gone"]
    assert local_stack.api.request("GET", "/schedules/ticking").status == 404
    listed = local_stack.api.request("GET", "/schedules").json()["schedules"]
    assert "ticking" not in {each["name"] for each in listed}


def test_runs_that_must_not_overlap_wait_for_each_other(local_stack: LocalStack) -> None:
    scheduled = Scheduled(local_stack, "queueing")
    scheduled.create(overlap="queue", sleep_s=3)
    runs = until(lambda: scheduled.runs if len(scheduled.runs) >= 3 else None, "three occurrences")
    scheduled.ask("DELETE")
    first, second, third = (scheduled.workflow(run) for run in runs[:3])
    assert datetime.fromisoformat(first["ended_at"]) <= datetime.fromisoformat(second["created_at"])
    assert datetime.fromisoformat(second["ended_at"]) <= datetime.fromisoformat(third["created_at"])


def _completed(known: dict[str, Any]) -> dict[str, Any] | None:
    return known if known["state"] == "completed" else None
