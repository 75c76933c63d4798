"""Each action that the template allows is needed: taken away from its role, something is refused that a function does.

The policies are changed in place, one action at a time, on the stack of tests/e2e/test_privileges.py, and put back.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from infra.place import TEMPLATE
from tests.e2e.conftest import physical_id
from tests.e2e.exercises import ASKED_BY_AWS, ASKED_BY_LAMBDA, EXERCISES, FAR, Grant, Hand, grants
from tests.e2e.probe import sweep, until
from tests.e2e.wire import Refusal
from tests.tidy.template import read_template

if TYPE_CHECKING:
    from infra.local_stack import LocalStack
    from tests.e2e.conftest import Guarded

QUEUE_POLICY = "arn:aws:iam::aws:policy/service-role/AWSLambdaSQSQueueExecutionRole"


def test_every_grant_has_its_proof() -> None:
    proofs = [EXERCISES.keys(), ASKED_BY_LAMBDA, ASKED_BY_AWS.keys()]
    assert sum(map(len, proofs)) == len(set().union(*proofs))
    assert grants(TEMPLATE.read_text()) == set().union(*proofs)


def test_lambda_asks_for_what_its_own_policy_has(guarded: Guarded) -> None:
    iam = guarded.stack.client("iam")
    version = iam.get_policy(PolicyArn=QUEUE_POLICY)["Policy"]["DefaultVersionId"]
    document = iam.get_policy_version(PolicyArn=QUEUE_POLICY, VersionId=version)["PolicyVersion"]["Document"]
    allowed = {action for statement in document["Statement"] for action in statement["Action"]}
    # The template makes the log group itself.
    assert {action for _, _, action in ASKED_BY_LAMBDA} == allowed - {"logs:CreateLogGroup"}


def test_aws_is_told_to_act_as_the_roles_that_may(guarded: Guarded) -> None:
    stack, group = guarded.stack, guarded.stack.outputs["ScheduleGroupName"]
    Hand(stack, guarded.wire, "in our name").started("patient", start_at=FAR)
    schedules = stack.client("scheduler")
    [name, *_] = [schedule["Name"] for schedule in schedules.list_schedules(GroupName=group)["Schedules"]]
    target = schedules.get_schedule(GroupName=group, Name=name)["Target"]
    assert (target["Arn"], target["RoleArn"]) == (stack.outputs["QueueArn"], stack.outputs["ScheduleRoleArn"])
    # What becomes of events that fail is nothing that the local AWS deploys.
    resume = read_template(TEMPLATE.read_text())["Resources"]["Resume"]["Properties"]["EventInvokeConfig"]
    assert resume["DestinationConfig"]["OnFailure"] == {"Type": "SQS", "Destination": "DeadLetterQueue.Arn"}


class Withheld:
    """A role's policy without one action of one statement, and the policy as it was."""

    def __init__(self, stack: LocalStack, grant: Grant) -> None:
        self._iam = stack.client("iam")
        role, sid, action = grant
        self.role_name = physical_id(stack, role)
        [self._policy_name] = self._iam.list_role_policies(RoleName=self.role_name)["PolicyNames"]
        self._whole: dict[str, Any] = self._iam.get_role_policy(RoleName=self.role_name, PolicyName=self._policy_name)[
            "PolicyDocument"
        ]
        self._less = {**self._whole, "Statement": [_without(each, sid, action) for each in self._whole["Statement"]]}
        assert self._less != self._whole

    def __enter__(self) -> str:
        self._put(self._less)
        return self.role_name

    def __exit__(self, *_error: object) -> None:
        self._put(self._whole)

    def _put(self, document: dict[str, Any]) -> None:
        text = json.dumps(document)
        self._iam.put_role_policy(RoleName=self.role_name, PolicyName=self._policy_name, PolicyDocument=text)


def _without(statement: dict[str, Any], sid: str, action: str) -> dict[str, Any]:
    if statement.get("Sid", "") != sid:
        return statement
    actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
    # A statement has at least one action; this one is nobody's.
    left = [each for each in actions if each != action] or ["sts:GetCallerIdentity"]
    return {**statement, "Action": left}


@pytest.mark.parametrize("grant", sorted(EXERCISES), ids="-".join)
def test_without_it_something_is_refused(guarded: Guarded, grant: Grant) -> None:
    stack, wire = guarded.stack, guarded.wire
    role, sid, action = grant
    act = EXERCISES[grant](Hand(stack, wire, f"{role} {sid} {action}"))
    with Withheld(stack, grant) as role_name:
        wire.refusals.clear()
        act()
        until(lambda: Refusal(role_name, action) in wire.refusals, "it is refused")


def test_worker_and_api_may_purge(guarded: Guarded) -> None:
    """What tests/e2e/test_privileges.py has begun to purge a worker goes on with, a minute after the workflow's end."""
    stack, wire = guarded.stack, guarded.wire
    wire.refusals.clear()
    table = {"TableName": stack.table_name, "KeyConditionExpression": "pk = :id", "ConsistentRead": True}

    def is_gone() -> bool:
        # Should an action have been withheld at that moment, a sweep finds it.
        sweep(stack)
        query = {**table, "ExpressionAttributeValues": {":id": {"S": "given-up"}}}
        return not stack.client("dynamodb").query(**query)["Items"]

    until(is_gone, "it is gone")
    assert wire.refusals == []
