"""The deployed template as the end-to-end tests use it: two workflows that take their time run beside all others.

``probe`` makes probes on the stack that most tests share. ``frail`` makes them on another one, where processes may
die, hang and be cut off from AWS without a test of the first stack noticing: ``wire`` is what its functions call AWS
through.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from infra.local_stack import STACK, LocalStack
from infra.package import Application
from tests.conftest import APPLICATION
from tests.e2e.probe import Probe
from tests.e2e.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MISREAD = ("ApiRole", "WorkerRole")
"""Roles that may make schedules in our group. The local AWS takes each schedule to be of the group ``default`` whatever
the call says, so there they are allowed that one too: the actions are judged, the group is not."""

Make = Callable[[str, str], Probe]
"""What the fixture ``probe`` is: makes the probe of a workflow from its type and its id."""

INVOCATION_S = 9
"""Seconds that an invocation of the frail stack's worker may last: less than the template allows, so that tests can
wait for its end."""

FRAIL = {"LeaseSeconds": "8", "Timeout": "30", "EvictMarginSeconds": "3", "StopMarginSeconds": "2"}


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


@pytest.fixture(scope="session")
def frail_stack() -> Iterator[LocalStack]:
    application = Application(modules="probes,frail", folder=APPLICATION.folder)
    with LocalStack.start(application=application, parameters=FRAIL) as started:
        yield started


@pytest.fixture(scope="session")
def wire(frail_stack: LocalStack) -> Iterator[Wire]:
    with Wire.laid(frail_stack) as laid:
        laid.use(frail_stack, Timeout=INVOCATION_S)
        yield laid


@pytest.fixture(scope="session")
def frail(frail_stack: LocalStack, wire: Wire, tmp_path_factory: pytest.TempPathFactory) -> Make:
    assert wire
    folder = tmp_path_factory.mktemp("frail")
    return lambda workflow_type, workflow_id: Probe(frail_stack, workflow_type, workflow_id, folder)


@dataclass(frozen=True, slots=True)
class Guarded:
    """A stack whose functions may do what their policies say and nothing else, and the wire that hears of refusals."""

    stack: LocalStack
    wire: Wire


@pytest.fixture(scope="session")
def guarded() -> Iterator[Guarded]:
    application = Application(modules=f"{APPLICATION.modules},errands", folder=APPLICATION.folder)
    parameters = {"LeaseSeconds": "5", "Tracing": "Active"}
    with LocalStack.start(application=application, is_iam_enforced=True, parameters=parameters) as started:
        for role in MISREAD:
            let_schedule(started, role)
        with Wire.laid(started) as laid:
            yield Guarded(started, laid)


def let_schedule(stack: LocalStack, role: str) -> None:
    """Allow a role the schedules of the group ``default`` beside those of ours."""
    iam = stack.client("iam")
    name = physical_id(stack, role)
    [policy] = iam.list_role_policies(RoleName=name)["PolicyNames"]
    document = iam.get_role_policy(RoleName=name, PolicyName=policy)["PolicyDocument"]
    [alarms] = [statement for statement in document["Statement"] if statement.get("Sid") == "Alarms"]
    ours = alarms["Resource"]
    assert ours.endswith(f":schedule/{stack.outputs['ScheduleGroupName']}/*")
    alarms["Resource"] = [ours, ours.replace(stack.outputs["ScheduleGroupName"], "default")]
    iam.put_role_policy(RoleName=name, PolicyName=policy, PolicyDocument=json.dumps(document))


def physical_id(stack: LocalStack, logical_id: str) -> str:
    """What a resource of the template is called."""
    described = stack.client("cloudformation").describe_stack_resource(StackName=STACK, LogicalResourceId=logical_id)
    return str(described["StackResourceDetail"]["PhysicalResourceId"])
