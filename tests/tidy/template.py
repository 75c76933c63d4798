"""The deployment template against the code: table, environment, handlers and what keeps the queue's loop alive."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

import yaml  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.tidy.prose import Names
    from tests.tidy.sources import Source

_TABLE = "AWS::DynamoDB::Table"
_FUNCTION = "AWS::Serverless::Function"


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML with CloudFormation's short tags, each read as what stands behind it."""


def _behind(loader: _Loader, _tag: str, node: Any) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return loader.construct_scalar(node)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node)
    return loader.construct_mapping(node)


_Loader.add_multi_constructor("!", _behind)


def read_template(text: str) -> dict[str, Any]:
    """A template as plain data; ``!Ref X`` and the other short tags read as what stands behind them."""
    template: dict[str, Any] = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    return template


def statements_of(policy: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The statements of a policy, those that stand there on a condition included."""
    found = policy["PolicyDocument"]["Statement"]
    return [each[1] if isinstance(each, list) else each for each in found]


def _resources(template: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {
        name: resource["Properties"] for name, resource in template["Resources"].items() if resource["Type"] == kind
    }


def table_faults(template: Mapping[str, Any], definition: Mapping[str, Any], ttl: Mapping[str, Any]) -> Iterator[str]:
    """Differences between the template's table and the one that the adapter defines."""
    [table] = _resources(template, _TABLE).values()
    for key, ours in {**definition, "TimeToLiveSpecification": ttl}.items():
        theirs = table.get(key)
        if _sorted(theirs) != _sorted(ours):
            yield (
                f"template.yaml: the table's {key} is {theirs}, but adapters/dynamodb/model/schema.py says {ours}; "
                f"make them equal"
            )


def _sorted(value: Any) -> Any:
    """The same value with its sets (which JSON writes as lists) in one order; a KeySchema is no set."""
    if isinstance(value, list) and value and not any("KeyType" in item for item in value if isinstance(item, dict)):
        return sorted((_sorted(item) for item in value), key=str)
    if isinstance(value, dict):
        return {key: _sorted(item) for key, item in sorted(value.items())}
    return value


def environment_faults(template: Mapping[str, Any], bootstrap: Source) -> Iterator[str]:
    """Variables that the template sets and bootstrap does not read, or the other way about."""
    given = set(template["Globals"]["Function"]["Environment"]["Variables"])
    for function in _resources(template, _FUNCTION).values():
        given |= set(function.get("Environment", {}).get("Variables", {}))
    read = {
        node.value
        for node in bootstrap.nodes
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"TORPOR_[A-Z_]+|LOG_LEVEL", node.value)
    }
    for name in sorted(given - read):
        yield f"template.yaml: sets {name}, which {bootstrap.path} does not read; remove it or read it"
    for name in sorted(read - given):
        yield f"{bootstrap.path}: reads {name}, which template.yaml does not set; set it or do not read it"


def handler_faults(template: Mapping[str, Any], names: Names) -> Iterator[str]:
    """Functions whose handler is not in the code."""
    for name, function in _resources(template, _FUNCTION).items():
        if not names.has(function["Handler"]):
            yield f"template.yaml: {name} calls {function['Handler']}, which does not exist; name one that does"


def loop_faults(template: Mapping[str, Any]) -> Iterator[str]:
    """Functions fed by a queue that Lambda's recursion detection would stop, since they feed it too."""
    for name, function in _resources(template, _FUNCTION).items():
        fed = any(event["Type"] == "SQS" for event in function.get("Events", {}).values())
        if fed and function.get("RecursiveLoop") != "Allow":
            yield f"template.yaml: {name} feeds its own queue; set RecursiveLoop: Allow, or it stops after some 16 hops"
