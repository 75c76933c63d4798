"""A table of DynamoDB in memory: its calls, conditions, transactions, tokens, pages, limits and lazy indexes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adapters.dynamodb.model.schema import DUE_INDEX, PARTITION_KEY, SORT_KEY, TTL
from tests.simulation import expressions
from tests.simulation.expressions import InvalidExpressionError, Item
from tests.simulation.indexes import INDEXES, Index
from tests.simulation.wire import Request, answer_error

if TYPE_CHECKING:
    from tests.simulation.world import World

TABLE = "table"
ITEM_BYTES_MAX = 400 * 1024
TRANSACTION_ACTIONS_MAX = 100
TRANSACTION_BYTES_MAX = 4 * 1024 * 1024
PAGE_BYTES_MAX = 1024 * 1024
SMALL_BYTES = 16 * 1024
BOOKS = ({"S": "HEAD"}, {"S": "INBOX"})
"""The sort keys of what says how a workflow stands: many attributes, all of them short."""

TOKEN_US = 600 * 1_000_000
"""How long a ClientRequestToken is remembered. Source: the service's documentation, ten minutes."""

TTL_LATE_S_MAX = 2 * 86_400
"""How long after its time an item may still be there. Source: the service's documentation, typically two days."""

TTL_PAST_S_MAX = 5 * 365 * 86_400
"""What expired longer ago is taken for a mistake, and stays. Source: the service's documentation, five years."""

TTL_AHEAD_S_MAX = 30 * 86_400
"""What expires later than a world can last need not be kept in mind."""

OF_PARTITION = "#pk = :pk"
"""How the key condition of a Query over a partition begins."""

OPERATIONS = (
    "get_item",
    "put_item",
    "update_item",
    "query",
    "transact_write_items",
    "batch_get_item",
    "batch_write_item",
)
Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One item before and after a write; None where there is none."""

    pk: str
    sk: str
    old: Item | None
    new: Item | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One indivisible write that was applied, at ``at_us``."""

    at_us: int
    request: Request
    changes: list[Change]


def is_small(item: Item) -> bool:
    """Whether an item is so small that its exact size does not matter."""
    return item.get(SORT_KEY) in BOOKS or all(
        len(value.get("B", b"")) < SMALL_BYTES and value.keys() <= {"S", "N", "B"} for value in item.values()
    )


def size_of(value: Any) -> int:
    """Bytes that an item, or one of its values, counts for."""
    if isinstance(value, dict):
        return sum(len(str(name).encode()) + size_of(part) for name, part in value.items())
    if isinstance(value, list):
        return sum(map(size_of, value))
    return len(value.encode()) if isinstance(value, str) else len(value) if isinstance(value, bytes) else 1


def key_of(item: Item) -> Key:
    """The key of an item."""
    return item[PARTITION_KEY]["S"], item[SORT_KEY]["S"]


class Dynamo:
    """The service, with one table."""

    name = "dynamodb"

    def __init__(self, world: World) -> None:
        self._world = world
        self.items: dict[str, dict[str, Item]] = {}
        self._indexes = {name: Index(world, *parts) for name, parts in INDEXES.items()}
        self._tokens: dict[str, tuple[int, str]] = {}
        # Items of a transaction whose answer is under way: other writes conflict, and a Query may not show them yet.
        self._unsettled: dict[Key, tuple[int, Item | None]] = {}

    def item(self, pk: str, sk: str) -> Item | None:
        """An item as it is stored."""
        return self.items.get(pk, {}).get(sk)

    def has_overdue(self, now_ms: int) -> bool:
        """Whether the index shows anything that is due by ``now_ms``."""
        return any(int(at["N"]) <= now_ms for _, at in self._indexes[DUE_INDEX].shown.values())

    # --- the service ------------------------------------------------------------------------------------------------

    def execute(self, request: Request) -> dict[str, Any]:
        """Do what is asked."""
        arguments = request.arguments
        try:
            match request.operation:
                case "get_item":
                    return self._get(arguments)
                case "query":
                    return self._query(arguments)
                case "put_item" | "update_item":
                    return self._write_one(request)
                case "transact_write_items":
                    return self._transact(request)
                case "batch_get_item":
                    return self._get_several(arguments["RequestItems"][TABLE]["Keys"])
                case "batch_write_item":
                    return self._batch_write(request)
        except InvalidExpressionError as error:
            raise answer_error(f"ValidationException: {error}", request.operation) from error
        raise AssertionError(request.operation)

    def refusal(self, kind: str, request: Request) -> Exception:
        """The service's answer where it is throttled, sees a conflict, or is still at the same token's work."""
        operation = request.operation
        if operation != "transact_write_items":
            if kind == "conflict" and operation in ("put_item", "update_item"):
                return answer_error("TransactionConflictException", operation)
            return answer_error("ProvisionedThroughputExceededException", operation)
        if kind == "in progress":
            return answer_error("TransactionInProgressException", operation)
        count = len(request.arguments["TransactItems"])
        reason = "TransactionConflict" if kind == "conflict" else "ThrottlingError"
        return _cancelled(operation, ["None"] * (count - 1) + [reason])

    # --- reading ----------------------------------------------------------------------------------------------------

    def _get(self, arguments: dict[str, Any]) -> dict[str, Any]:
        assert arguments["ConsistentRead"]
        item = self.item(*key_of(arguments["Key"]))
        return {} if item is None else {"Item": item}

    def _get_several(self, keys: list[Item]) -> dict[str, Any]:
        if len({key_of(key) for key in keys}) < len(keys):
            raise InvalidExpressionError("a key is asked for twice")
        found = [item for key in keys if (item := self.item(*key_of(key))) is not None]
        return {"Responses": {TABLE: found}}

    def _query(self, arguments: dict[str, Any]) -> dict[str, Any]:
        expressions.check_placeholders(arguments)
        index = self._indexes[arguments["IndexName"]] if "IndexName" in arguments else None
        found = self._of_partition(arguments) if index is None else index.rows(arguments)
        condition = arguments["KeyConditionExpression"]
        if index is None:
            # Whatever is found is of that partition.
            condition = condition.removeprefix(OF_PARTITION).removeprefix(" AND ")
        start = arguments.get("ExclusiveStartKey")
        rows = [(key, item) for key, item in found if expressions.holds(condition or None, item, arguments)]
        is_forward = arguments.get("ScanIndexForward", True)
        if start is not None:
            after = start[SORT_KEY]["S"] if index is None else index.order(start)
            rows = [row for row in rows if (row[0] > after if is_forward else row[0] < after)]
        if not is_forward:
            rows.reverse()
        limit = min(arguments.get("Limit", 1 << 30), self._world.weather.page_items)
        page: list[Item] = []
        size = 0
        for _, item in rows[:limit]:
            size += SMALL_BYTES if is_small(item) else size_of(item)
            if page and size > PAGE_BYTES_MAX:
                break
            page.append(item)
        answer: dict[str, Any] = {"Items": page}
        if len(page) < len(rows):
            names = (PARTITION_KEY, SORT_KEY, *(() if index is None else index.names))
            answer["LastEvaluatedKey"] = {name: page[-1][name] for name in names}
        return answer

    def _of_partition(self, arguments: dict[str, Any]) -> list[tuple[Any, Item]]:
        assert arguments["ConsistentRead"]
        pk = arguments["ExpressionAttributeValues"][":pk"]["S"]
        now_us = self._world.timeline.now_us
        rows = dict(self.items.get(pk, {}))
        for key, (until_us, before) in self._unsettled.items():
            if key[0] == pk and until_us > now_us and self._world.plan.chance("torn") < 0.5:
                if before is None:
                    rows.pop(key[1], None)
                else:
                    rows[key[1]] = before
        return sorted(rows.items())

    # --- writing ----------------------------------------------------------------------------------------------------

    def _is_unsettled(self, key: Key) -> bool:
        return key in self._unsettled and self._unsettled[key][0] > self._world.timeline.now_us

    def _write_one(self, request: Request) -> dict[str, Any]:
        arguments, operation = request.arguments, request.operation
        expressions.check_placeholders(arguments)
        key = key_of(arguments["Item"] if operation == "put_item" else arguments["Key"])
        if self._is_unsettled(key):
            raise answer_error("TransactionConflictException", operation)
        old = self.item(*key)
        if not expressions.holds(arguments.get("ConditionExpression"), old, arguments):
            asked = arguments.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
            more: dict[str, Any] = {"Item": old} if asked and old is not None else {}
            raise answer_error("ConditionalCheckFailedException", operation, **more)
        new = arguments["Item"] if operation == "put_item" else expressions.updated(old, arguments["Key"], arguments)
        self._check_size(new, operation)
        self._apply(request, [Change(pk=key[0], sk=key[1], old=old, new=new)])
        returns = arguments.get("ReturnValues", "NONE")
        if returns == "ALL_OLD":
            return {} if old is None else {"Attributes": old}
        if returns == "ALL_NEW":
            return {"Attributes": new}
        if returns == "UPDATED_NEW":
            names = arguments["ExpressionAttributeNames"]
            touched = {name for token, name in names.items() if token in arguments["UpdateExpression"]}
            return {"Attributes": {name: value for name, value in new.items() if name in touched}}
        assert returns == "NONE"
        return {}

    def _transact(self, request: Request) -> dict[str, Any]:
        arguments, operation = request.arguments, request.operation
        now_us = self._world.timeline.now_us
        token, said = arguments["ClientRequestToken"], repr(arguments["TransactItems"])
        if token in self._tokens and now_us - self._tokens[token][0] < TOKEN_US:
            if self._tokens[token][1] != said:
                raise answer_error("IdempotentParameterMismatchException", operation)
            return {}
        changes, reasons = self._judge(arguments["TransactItems"], operation)
        if any(reason["Code"] != "None" for reason in reasons):
            raise _cancelled(operation, reasons)
        self._tokens[token] = (now_us, said)
        self._apply(request, changes)
        until_us = now_us + int(self._world.answering_s * 1e6)
        for change in changes:
            self._unsettled[change.pk, change.sk] = (until_us, change.old)
        return {}

    def _judge(self, actions: list[Any], operation: str) -> tuple[list[Change], list[dict[str, Any]]]:
        changes: list[Change] = []
        reasons: list[dict[str, Any]] = []
        seen: set[Key] = set()
        for action in actions:
            [(kind, body)] = action.items()
            expressions.check_placeholders(body)
            key = key_of(body["Item"] if kind == "Put" else body["Key"])
            if key in seen:
                raise answer_error("ValidationException: two actions on one item", operation)
            seen.add(key)
            old = self.item(*key)
            reasons.append({"Code": "None"})
            if self._is_unsettled(key):
                reasons[-1] = {"Code": "TransactionConflict"}
            elif not expressions.holds(body.get("ConditionExpression"), old, body):
                reasons[-1] = {"Code": "ConditionalCheckFailed"}
            if kind != "ConditionCheck":
                after = _after(kind, old, body)
                self._check_size(after or {}, operation)
                changes.append(Change(pk=key[0], sk=key[1], old=old, new=after))
        size = sum(size_of(change.new) for change in changes if change.new is not None and not is_small(change.new))
        if len(actions) > TRANSACTION_ACTIONS_MAX or size > TRANSACTION_BYTES_MAX:
            raise answer_error("ValidationException: the transaction is too large", operation)
        return changes, reasons

    def _batch_write(self, request: Request) -> dict[str, Any]:
        requests = request.arguments["RequestItems"][TABLE]
        left = []
        for number, one in enumerate(requests):
            put = one.get("PutRequest")
            key = key_of(put["Item"] if put else one["DeleteRequest"]["Key"])
            if self._is_unsettled(key) or (number and self._world.unprocessed()):
                left.append(one)
                continue
            self._apply(request, [Change(pk=key[0], sk=key[1], old=self.item(*key), new=put["Item"] if put else None)])
        return {"UnprocessedItems": {TABLE: left}} if left else {}

    @staticmethod
    def _check_size(item: Item, operation: str) -> None:
        if not is_small(item) and size_of(item) > ITEM_BYTES_MAX:
            raise answer_error("ValidationException: the item is too large", operation)

    def _apply(self, request: Request, changes: list[Change]) -> None:
        for change in changes:
            partition = self.items.setdefault(change.pk, {})
            if change.new is None:
                partition.pop(change.sk, None)
            else:
                partition[change.sk] = change.new
                if TTL in change.new:
                    self._expire_some_time(change)
            for index in self._indexes.values():
                index.take(change, self.item)
        self._world.applied(Write(at_us=self._world.timeline.now_us, request=request, changes=changes))

    def _expire_some_time(self, change: Change) -> None:
        """Delete an item after its time to live: at once, or up to two days later."""
        assert change.new is not None
        expires_at_s = int(change.new[TTL]["N"])
        ahead_s = expires_at_s - self._world.now_ms / 1000
        if -TTL_PAST_S_MAX < ahead_s < TTL_AHEAD_S_MAX:
            late_s = TTL_LATE_S_MAX * self._world.plan.chance("ttl") ** 3
            self._world.timeline.after(max(0.0, ahead_s) + late_s, self._expire, change, expires_at_s)

    def _expire(self, change: Change, expires_at_s: int) -> None:
        item = self.item(change.pk, change.sk)
        if item is None or item.get(TTL) != {"N": str(expires_at_s)}:
            return
        now_us = self._world.timeline.now_us
        request = Request(
            ordinal=-1,
            sandbox=self._world.service,
            sent_us=now_us,
            began_us=now_us,
            service=self.name,
            operation="time to live",
            arguments={},
        )
        self._apply(request, [Change(pk=change.pk, sk=change.sk, old=item, new=None)])


def _after(kind: str, old: Item | None, body: dict[str, Any]) -> Item | None:
    match kind:
        case "Put":
            item: Item = body["Item"]
            return item
        case "Update":
            return expressions.updated(old, body["Key"], body)
    assert kind == "Delete", kind
    return None


def _cancelled(operation: str, reasons: list[Any]) -> Exception:
    listed = [reason if isinstance(reason, dict) else {"Code": reason} for reason in reasons]
    return answer_error("TransactionCanceledException", operation, CancellationReasons=listed)
