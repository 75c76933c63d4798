"""Values, conditions and changes of one item, how DynamoDB spells them and what it counts for them; pure."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

AttributeValue = dict[str, Any]
"""One typed value as the client wants it: ``{"S": text}``, ``{"N": digits}``, ``{"B": bytes}``, ..."""

Item = dict[str, AttributeValue]

Action = dict[str, dict[str, Any]]
"""One action of a transaction, without its table: ``{"Put": {...}}``, ``{"Update": {...}}``, ..."""

_NAME = re.compile(r"#([a-z_]+)")


def text(value: str) -> AttributeValue:
    """A string attribute."""
    return {"S": value}


def number(value: int) -> AttributeValue:
    """A number attribute."""
    return {"N": str(value)}


def binary(value: bytes) -> AttributeValue:
    """A binary attribute."""
    return {"B": value}


def value_bytes(value: AttributeValue) -> int:
    """The bytes that DynamoDB counts for one attribute value, at most a few above for numbers."""
    match value:
        case {"S": str(characters)}:
            return len(characters.encode())
        case {"B": bytes(data)}:
            return len(data)
        case {"N": str(digits)}:
            return len(digits) + 1
        case {"M": dict(members)}:
            return 3 + sum(1 + len(name.encode()) + value_bytes(member) for name, member in members.items())
        case {"L": list(members)} | {"SS": list(members)}:
            return 3 + sum(1 + value_bytes(text(one) if isinstance(one, str) else one) for one in members)
        case _:
            return 1


def item_bytes(item: Item) -> int:
    """The bytes of an item: UTF-8 attribute names and values."""
    return sum(len(name.encode()) + value_bytes(value) for name, value in item.items())


class Condition(Struct, frozen=True):
    """A condition: an expression in which ``#name`` is an attribute, and the values of its ``:placeholders``."""

    expression: str
    values: dict[str, AttributeValue] = {}


class Change(Struct, frozen=True, kw_only=True):
    """What an update does to one item: attributes set, removed, numbers added to, and sets of texts extended.

    ``defaults`` are set where the item has no such attribute.
    """

    sets: Item = {}
    defaults: Item = {}
    removes: tuple[str, ...] = ()
    adds: dict[str, int] = {}
    unions: dict[str, list[str]] = {}


def _names(expression: str) -> dict[str, str]:
    # Every name goes through a placeholder: many of ours (state, owner, type) are reserved words.
    return {f"#{name}": name for name in _NAME.findall(expression)}


def condition_arguments(condition: Condition | None) -> dict[str, Any]:
    """The arguments that make a put, delete or check conditional."""
    if condition is None:
        return {}
    arguments: dict[str, Any] = {
        "ConditionExpression": condition.expression,
        "ExpressionAttributeNames": _names(condition.expression),
    }
    if condition.values:
        arguments["ExpressionAttributeValues"] = dict(condition.values)
    return arguments


def update_arguments(change: Change, condition: Condition | None) -> dict[str, Any]:
    """The arguments of an update."""
    clauses = []
    sets = [f"#{name} = :set_{name}" for name in sorted(change.sets)]
    sets += [f"#{name} = if_not_exists(#{name}, :set_{name})" for name in sorted(change.defaults)]
    if sets:
        clauses.append("SET " + ", ".join(sets))
    if change.removes:
        clauses.append("REMOVE " + ", ".join(f"#{name}" for name in sorted(change.removes)))
    additions = {name: number(amount) for name, amount in change.adds.items()}
    additions |= {name: {"SS": members} for name, members in change.unions.items()}
    if additions:
        clauses.append("ADD " + ", ".join(f"#{name} :add_{name}" for name in sorted(additions)))
    expression = " ".join(clauses)
    values = {f":set_{name}": value for name, value in (change.sets | change.defaults).items()}
    values |= {f":add_{name}": value for name, value in additions.items()}
    names = _names(expression)
    arguments: dict[str, Any] = {"UpdateExpression": expression}
    if condition is not None:
        arguments["ConditionExpression"] = condition.expression
        values |= condition.values
        names |= _names(condition.expression)
    if names:
        arguments["ExpressionAttributeNames"] = names
    if values:
        arguments["ExpressionAttributeValues"] = values
    return arguments


def put_action(item: Item, condition: Condition | None = None) -> Action:
    """Put an item within a transaction."""
    return {"Put": {"Item": item, **condition_arguments(condition)}}


def update_action(key: Item, change: Change, condition: Condition | None = None) -> Action:
    """Change an item within a transaction."""
    return {"Update": {"Key": key, **update_arguments(change, condition)}}


def delete_action(key: Item, condition: Condition | None = None) -> Action:
    """Delete an item within a transaction; no error where it is not there, unless the condition asks for it."""
    return {"Delete": {"Key": key, **condition_arguments(condition)}}


def check_action(key: Item, condition: Condition) -> Action:
    """Hold a transaction to a condition on an item that it does not write."""
    return {"ConditionCheck": {"Key": key, **condition_arguments(condition)}}


def action_bytes(action: Action) -> int:
    """The bytes that an action says: the item that it puts, or a key and the values of an expression."""
    [said] = action.values()
    item: Item = said["Item"] if "Item" in said else said["Key"] | said.get("ExpressionAttributeValues", {})
    return item_bytes(item)
