"""DynamoDB's expressions, evaluated: conditions, key conditions and updates, as far as anyone here writes them.

What the service would refuse (an unused placeholder, an unknown one, a word we do not know) is refused here too.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable
from typing import Any

Item = dict[str, dict[str, Any]]
Arguments = dict[str, Any]
Test = Callable[[Item, Arguments], bool]
Value = Callable[[Item, Arguments], "dict[str, Any] | None"]

_TOKEN = re.compile(r"\s*(<>|<=|>=|[#:]?[A-Za-z_][A-Za-z0-9_]*|[(),=<>])")


class InvalidExpressionError(Exception):
    """The service would answer with a ValidationException."""


def _tokens(expression: str) -> list[str]:
    found, at = [], 0
    while at < len(expression.rstrip()):
        match = _TOKEN.match(expression, at)
        if match is None:
            raise InvalidExpressionError(f"cannot read {expression[at:]!r}")
        found.append(match[1])
        at = match.end()
    return found


def _plain(value: dict[str, Any]) -> Any:
    [(kind, raw)] = value.items()
    return int(raw) if kind == "N" else raw


_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _compare(sign: str, left: dict[str, Any] | None, right: dict[str, Any] | None) -> bool:
    if left is None or right is None:
        return sign == "<>" and left is not right
    # The order of texts is that of their code points, which is that of their UTF-8 bytes.
    if "S" in left and "S" in right:
        return _SIGNS[sign](left["S"], right["S"])
    if left.keys() != right.keys():
        return sign == "<>"
    return _SIGNS[sign](_plain(left), _plain(right))


class _Parser:
    def __init__(self, expression: str) -> None:
        self._tokens = _tokens(expression)
        self._at = 0

    def whole(self) -> Test:
        test = self._either()
        if self._at != len(self._tokens):
            raise InvalidExpressionError(f"left over: {self._tokens[self._at :]}")
        return test

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self, wanted: str | None = None) -> str:
        token = self._peek()
        if not token or (wanted is not None and token != wanted):
            raise InvalidExpressionError(f"wanted {wanted}, found {token!r}")
        self._at += 1
        return token

    def _either(self) -> Test:
        tests = [self._both()]
        while self._peek() == "OR":
            self._next()
            tests.append(self._both())
        return tests[0] if len(tests) == 1 else lambda item, given: any(test(item, given) for test in tests)

    def _both(self) -> Test:
        tests = [self._not()]
        while self._peek() == "AND":
            self._next()
            tests.append(self._not())
        return tests[0] if len(tests) == 1 else lambda item, given: all(test(item, given) for test in tests)

    def _not(self) -> Test:
        if self._peek() == "NOT":
            self._next()
            test = self._not()
            return lambda item, given: not test(item, given)
        if self._peek() == "(":
            self._next()
            test = self._either()
            self._next(")")
            return test
        return self._single()

    def _single(self) -> Test:
        if self._peek() in ("attribute_exists", "attribute_not_exists", "begins_with", "contains"):
            return self._function()
        left = self._operand()
        sign = self._next()
        if sign == "IN":
            return self._among(left)
        if sign == "BETWEEN":
            low = self._operand()
            self._next("AND")
            high = self._operand()
            return lambda item, given: (
                _compare(">=", left(item, given), low(item, given))
                and _compare("<=", left(item, given), high(item, given))
            )
        right = self._operand()
        return lambda item, given: _compare(sign, left(item, given), right(item, given))

    def _among(self, left: Value) -> Test:
        self._next("(")
        values = [self._operand()]
        while self._peek() == ",":
            self._next()
            values.append(self._operand())
        self._next(")")
        return lambda item, given: any(_compare("=", left(item, given), value(item, given)) for value in values)

    def _function(self) -> Test:
        name = self._next()
        self._next("(")
        first = self._operand()
        if name.startswith("attribute"):
            self._next(")")
            is_wanted = name == "attribute_exists"
            return lambda item, given: (first(item, given) is not None) == is_wanted
        self._next(",")
        second = self._operand()
        self._next(")")

        def test(item: Item, given: Arguments) -> bool:
            one, other = first(item, given), second(item, given)
            if one is None or other is None:
                return False
            if name == "begins_with":
                return bool(_plain(one).startswith(_plain(other)))
            return bool(_plain(other) in _plain(one))

        return test

    def _operand(self) -> Value:
        token = self._next()
        if token.startswith("#"):
            return lambda item, given: item.get(_name(token, given))
        if token.startswith(":"):
            return lambda _, given: _value(token, given)
        raise InvalidExpressionError(f"{token!r} goes through no placeholder")


def _name(token: str, given: Arguments) -> str:
    try:
        name: str = given["ExpressionAttributeNames"][token]
    except KeyError:
        raise InvalidExpressionError(f"{token} is not named") from None
    return name


def _value(token: str, given: Arguments) -> dict[str, Any]:
    try:
        value: dict[str, Any] = given["ExpressionAttributeValues"][token]
    except KeyError:
        raise InvalidExpressionError(f"{token} has no value") from None
    return value


@functools.cache
def parse(expression: str) -> Test:
    """A condition as a function of an item and the arguments that hold its names and values."""
    return _Parser(expression).whole()


def holds(expression: str | None, item: Item | None, given: Arguments) -> bool:
    """Whether a condition holds for an item (None where there is none)."""
    return expression is None or parse(expression)(item or {}, given)


@functools.cache
def _placeholders(*expressions: str) -> tuple[frozenset[str], frozenset[str]]:
    found = {token for expression in expressions for token in _tokens(expression)}
    names = frozenset(token for token in found if token.startswith("#"))
    return names, frozenset(token for token in found if token.startswith(":"))


def check_placeholders(given: Arguments) -> None:
    """Raise where a name or value is given that no expression uses, as the service does."""
    kinds = ("ConditionExpression", "UpdateExpression", "KeyConditionExpression", "FilterExpression")
    names, values = _placeholders(*(given[kind] for kind in kinds if kind in given))
    if not given.get("ExpressionAttributeNames", {}).keys() <= names:
        raise InvalidExpressionError("a name is given that no expression uses")
    if not given.get("ExpressionAttributeValues", {}).keys() <= values:
        raise InvalidExpressionError("a value is given that no expression uses")


@functools.cache
def _clauses(expression: str) -> tuple[tuple[str, str, str], ...]:
    found: list[tuple[str, str, str]] = []
    verb = ""
    tokens = [token for token in _tokens(expression) if token not in (",", "=", "(", ")")]
    at = 0
    while at < len(tokens):
        if tokens[at] in ("SET", "REMOVE", "ADD"):
            verb = tokens[at]
            at += 1
        elif verb == "REMOVE":
            found.append((verb, tokens[at], ""))
            at += 1
        elif tokens[at + 1] == "if_not_exists":
            if verb != "SET" or tokens[at] != tokens[at + 2]:
                raise InvalidExpressionError(f"cannot read {expression!r}")
            found.append(("DEFAULT", tokens[at], tokens[at + 3]))
            at += 4
        else:
            found.append((verb, tokens[at], tokens[at + 1]))
            at += 2
    return tuple(found)


def updated(item: Item | None, key: Item, given: Arguments) -> Item:
    """The item after an update; the old one is left as it is."""
    after = dict(item) if item is not None else dict(key)
    for verb, name_token, value_token in _clauses(given["UpdateExpression"]):
        name = _name(name_token, given)
        if verb == "REMOVE":
            after.pop(name, None)
            continue
        value = _value(value_token, given)
        if verb == "DEFAULT":
            after.setdefault(name, value)
        elif verb == "SET":
            after[name] = value
        elif "N" in value:
            after[name] = {"N": str(int(after.get(name, {"N": "0"})["N"]) + int(value["N"]))}
        else:
            members = {*after.get(name, {"SS": []})["SS"], *value["SS"]}
            after[name] = {"SS": sorted(members)}
    return after
