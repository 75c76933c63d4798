"""What we are built from: every file of every lock is held by its hash, and what an audit finds is read rightly."""

from __future__ import annotations

import re
from typing import Any

import pytest

from infra.audit import AUDITED, vulnerable
from infra.lock import ENVIRONMENTS
from infra.place import LOCKS, ROOT
from tests.tidy.template import read_template, statements_of

PIN = re.compile(r"^[A-Za-z0-9._-]+==[^\s;]+( ;[^\\]*)? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")

WILDCARDS = {
    # Scheduler has no ARN of a schedule before it is made: all of the stack's own group, and nothing beyond.
    "arn:${AWS::Partition}:scheduler:${AWS::Region}:${AWS::AccountId}:schedule/${ScheduleGroup}/*",
}

UNNAMED = {"xray:PutTelemetryRecords", "xray:PutTraceSegments"}
"""Actions that AWS knows no resource of, so that they are allowed on ``*`` or not at all."""
"""The only resources of policies that may hold a wildcard: AWS knows no narrower name."""

RESOURCES: dict[str, Any] = read_template((ROOT / "template.yaml").read_text())["Resources"]


@pytest.mark.parametrize("lock", sorted(ENVIRONMENTS))
def test_every_requirement_of_a_lock_has_its_hashes(lock: str) -> None:
    lines = [line for line in (LOCKS / f"{lock}.txt").read_text().splitlines() if not line.startswith("#")]
    assert lines
    for above, line in zip(lines, [*lines[1:], ""], strict=True):
        assert PIN.match(above) or HASH.match(above), f"{lock}: {above}"
        if PIN.match(above):
            assert HASH.match(line), f"{lock}: {above} has no hash"


def test_every_environment_is_audited() -> None:
    # uv only installs, from the same hashes, and is not imported by anything.
    assert set(AUDITED) == set(ENVIRONMENTS) - {"uv"}


def test_a_vulnerable_package_is_told_and_an_unknown_one_is_not() -> None:
    told: list[dict[str, Any]] = [
        {"name": "a", "version": "1", "vulns": []},
        {"name": "b", "skip_reason": "not found"},
        {"name": "c", "version": "2", "vulns": [{"id": "CVE-1"}, {"id": "CVE-2"}]},
    ]
    assert vulnerable(told) == ["c 2: CVE-1, CVE-2"]


def test_every_exception_to_the_rules_is_argued_beside_it() -> None:
    lines = (ROOT / ".checkov.yaml").read_text().splitlines()
    start = lines.index("skip-check:")
    exceptions = [number for number, line in enumerate(lines) if number > start and line.lstrip().startswith("- ")]
    assert exceptions
    assert all(lines[number - 1].lstrip().startswith("#") for number in exceptions)


# --- the template's policies --------------------------------------------------------------------------------------


def statements() -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{name}.{statement.get('Sid', policy['PolicyName'])}", statement)
        for name, resource in RESOURCES.items()
        if resource["Type"] == "AWS::IAM::Role"
        for policy in resource["Properties"]["Policies"]
        for statement in statements_of(policy)
    ]


@pytest.mark.parametrize(("where", "statement"), statements(), ids=lambda part: part if isinstance(part, str) else "")
def test_a_policy_holds_no_wildcard_but_where_aws_requires_it(where: str, statement: dict[str, Any]) -> None:
    for key in ("Action", "Resource"):
        found = statement[key] if isinstance(statement[key], list) else [statement[key]]
        assert found
        for each in found:
            if (key, each) == ("Resource", "*"):
                assert set(statement["Action"]) <= UNNAMED, where
                continue
            assert "*" not in str(each) or each in WILDCARDS, f"{where}: {each}"
    assert not {"NotAction", "NotResource"} & statement.keys()
    assert statement["Effect"] == "Allow"


def test_nobody_from_outside_may_assume_a_role_or_call_a_function() -> None:
    for name, resource in RESOURCES.items():
        if resource["Type"] == "AWS::IAM::Role":
            for statement in resource["Properties"]["AssumeRolePolicyDocument"]["Statement"]:
                assert statement["Principal"].keys() == {"Service"}, name
            given = ["HasWorkerPolicies", "WorkerPolicyArns", "AWS::NoValue"] if name == "WorkerRole" else None
            assert resource["Properties"].get("ManagedPolicyArns") == given, name
        if resource["Type"] == "AWS::Lambda::Permission":
            assert "SourceArn" in resource["Properties"], name
        assert resource["Type"] not in {"AWS::SQS::QueuePolicy", "AWS::Lambda::Url"}, name
        assert "FunctionUrlConfig" not in resource.get("Properties", {}), name
