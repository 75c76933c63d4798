"""One table: single calls with bounded retries, and a meter of what they cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct, field

from adapters.dynamodb.errors import (
    AnswerLostError,
    ConditionFailedError,
    TransactionRefusedError,
    Verdict,
    failed_conditions,
    judge,
    judge_reasons,
    unavailable,
)
from adapters.dynamodb.model.expressions import (
    Action,
    Change,
    Condition,
    Item,
    condition_arguments,
    update_arguments,
)
from adapters.dynamodb.model.items import token
from adapters.dynamodb.model.limits import (
    ATTEMPTS_MAX,
    BATCH_GET_KEYS_MAX,
    BATCH_WRITE_ITEMS_MAX,
    RETRY_BASE_S,
    RETRY_MAX_S,
)
from adapters.dynamodb.together import batches
from engine.clock import sleep
from engine.driver import Clock
from engine.errors import StoreUnavailableError
from engine.ids import Ids

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence


T = TypeVar("T")


class Client(Protocol):
    """The calls of an aiobotocore DynamoDB client that a table makes; arguments and answers are the service's own."""

    async def get_item(self, **arguments: Any) -> dict[str, Any]:
        """The service's call of that name."""

    async def put_item(self, **arguments: Any) -> dict[str, Any]:
        """The service's call of that name."""

    async def update_item(self, **arguments: Any) -> dict[str, Any]:
        """The service's call of that name."""

    async def query(self, **arguments: Any) -> dict[str, Any]:
        """The service's call of that name."""

    async def transact_write_items(self, **arguments: Any) -> dict[str, Any]:
        """The service's call of that name."""

    async def batch_get_item(self, **arguments: Any) -> dict[str, Any]:
        """The service's call of that name."""

    async def batch_write_item(self, **arguments: Any) -> dict[str, Any]:
        """The service's call of that name."""


class Meter:
    """What calls have cost so far, as the service reported it.

    Attributes:
        write_units: write capacity units.
        read_units: read capacity units.
        calls: answered calls.
        refusals: calls whose condition did not hold.
        repeats: tries that were made again: after a conflict, a throttle, a lost answer.
    """

    __slots__ = ("calls", "read_units", "refusals", "repeats", "write_units")

    def __init__(self) -> None:
        self.write_units = 0.0
        self.read_units = 0.0
        self.calls = 0
        self.refusals = 0
        self.repeats = 0

    def add(self, answer: dict[str, Any], *, is_write: bool) -> None:
        """Count one answer."""
        self.calls += 1
        consumed = answer.get("ConsumedCapacity") or []
        for entry in [consumed] if isinstance(consumed, dict) else consumed:
            units = float(entry.get("CapacityUnits", 0.0))
            # A replay of a transaction's token is billed as a read.
            if is_write and not ("ReadCapacityUnits" in entry and "WriteCapacityUnits" not in entry):
                self.write_units += units
            else:
                self.read_units += units


class Table:
    """The table ``name``, through one client.

    Every call is tried at most ``ATTEMPTS_MAX`` times, with jittered delays in between; what then still fails is a
    ``StoreUnavailableError`` (an ``AnswerLostError`` where a try may have been applied). Retries that may repeat an
    applied write are safe for writes that say the same again; others pass ``repeats=False``.
    """

    __slots__ = ("_client", "_clock", "_random", "meter", "name")

    def __init__(
        self, client: Client, name: str, clock: Clock, *, random: Callable[[], float], meter: Meter | None = None
    ) -> None:
        self._client = client
        self._clock = clock
        self._random = random
        self.name = name
        self.meter = meter or Meter()

    def metered(self) -> Table:
        """The same table with a meter of its own."""
        return Table(self._client, self.name, self._clock, random=self._random)

    async def get(self, key: Item) -> Item | None:
        """One item, strongly consistent, or None."""
        answer = await self._call(self._client.get_item, {"Key": key, "ConsistentRead": True}, is_write=False)
        item: Item | None = answer.get("Item")
        return item

    async def put(self, item: Item, condition: Condition | None = None, *, repeats: bool = True) -> None:
        """Put one item; ``ConditionFailedError`` where the condition does not hold."""
        arguments = {"Item": item, **condition_arguments(condition)}
        await self._call(self._client.put_item, arguments, is_write=True, repeats=repeats)

    async def update(
        self, key: Item, change: Change, condition: Condition | None = None, *, returns: str = "NONE"
    ) -> Item:
        """Change one item and return the attributes asked for; ``ConditionFailedError`` carries the item as it is."""
        arguments = {
            "Key": key,
            "ReturnValues": returns,
            **update_arguments(change, condition),
        }
        if condition is not None:
            arguments["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        answer = await self._call(self._client.update_item, arguments, is_write=True)
        attributes: Item = answer.get("Attributes", {})
        return attributes

    async def query(
        self, arguments: dict[str, Any], *, limit: int | None = None, page: int | None = None
    ) -> AsyncGenerator[Item, None]:
        """Every item that a Query finds, page after page, at most ``limit`` of them, and ``page`` of them at a time."""
        start: dict[str, Any] = {}
        left = limit
        while left is None or left > 0:
            most = min((bound for bound in (left, page) if bound is not None), default=None)
            page_limit = {} if most is None else {"Limit": most}
            answer = await self._call(self._client.query, arguments | start | page_limit, is_write=False)
            for item in answer.get("Items", []):
                yield item
            if left is not None:
                left -= len(answer.get("Items", []))
            if not answer.get("LastEvaluatedKey"):
                return
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    async def transact(self, actions: Sequence[Action], identity: str) -> None:
        """Write all ``actions`` or none; ``identity`` is this transaction's own, ever and in all of the table.

        Raises:
            TransactionRefusedError: a condition did not hold.
            AnswerLostError, StoreUnavailableError: as for every call.
        """
        items = [{kind: {"TableName": self.name, **body} for kind, body in action.items()} for action in actions]
        arguments = {"TransactItems": items, "ClientRequestToken": token(self.name, identity)}
        await self._call(self._client.transact_write_items, arguments, is_write=True, is_single_table=False)

    async def batch_get(self, keys: Sequence[Item]) -> list[Item]:
        """The items of ``keys`` that exist, in no order, eventually consistent."""
        found: list[Item] = []
        for some in batches(keys, BATCH_GET_KEYS_MAX):

            async def get_some(pending: list[Item]) -> list[Item]:
                arguments = {"RequestItems": {self.name: {"Keys": pending}}}
                answer = await self._call(self._client.batch_get_item, arguments, is_write=False, is_single_table=False)
                found.extend(answer.get("Responses", {}).get(self.name, []))
                left: list[Item] = answer.get("UnprocessedKeys", {}).get(self.name, {}).get("Keys", [])
                return left

            await self._until_done(list(some), get_some)
        return found

    async def batch_write(self, puts: Sequence[Item], deletes: Sequence[Item]) -> None:
        """Put and delete items, each by itself: not a transaction."""
        requests = [{"PutRequest": {"Item": item}} for item in puts]
        requests += [{"DeleteRequest": {"Key": key}} for key in deletes]
        # 25 items of a log can be 10 MB, and one request takes 16: no further split by size is needed.
        for some in batches(requests, BATCH_WRITE_ITEMS_MAX):
            await self._until_done(list(some), self._write_some)

    async def _write_some(self, pending: list[dict[str, Item]]) -> list[dict[str, Item]]:
        arguments = {"RequestItems": {self.name: pending}}
        answer = await self._call(self._client.batch_write_item, arguments, is_write=True, is_single_table=False)
        left: list[dict[str, Item]] = answer.get("UnprocessedItems", {}).get(self.name, [])
        return left

    async def _until_done(self, pending: list[T], work: Callable[[list[T]], Awaitable[list[T]]]) -> None:
        """Have ``work`` do all of a batch; it says what it has left. Given up when it has often done nothing at all.

        A partition takes a megabyte a second, and a batch may be several: going on slowly is no failure.
        """
        attempt = misses = 0
        while pending:
            left = await work(pending)
            misses = misses + 1 if len(left) == len(pending) else 0
            if misses == ATTEMPTS_MAX:
                raise StoreUnavailableError(f"DynamoDB kept leaving {len(left)} of a batch unprocessed")
            if left:
                await self.pause(attempt)
                attempt += 1
            pending = left

    async def _call(
        self,
        operation: Callable[..., Awaitable[dict[str, Any]]],
        arguments: dict[str, Any],
        *,
        is_write: bool,
        repeats: bool = True,
        is_single_table: bool = True,
    ) -> dict[str, Any]:
        arguments = {**arguments, "ReturnConsumedCapacity": "TOTAL"}
        if is_single_table:
            arguments["TableName"] = self.name
        is_ambiguous = False
        last: Exception | None = None
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                self.meter.repeats += 1
                await self.pause(attempt - 1)
            try:
                answer = await operation(**arguments)
            except Exception as error:
                try:
                    verdict = _verdict(error, is_ambiguous=is_ambiguous)
                except (ConditionFailedError, TransactionRefusedError):
                    self.meter.refusals += 1
                    raise
                last = error
                if verdict is Verdict.FINAL:
                    raise _given_up(error, operation.__name__, is_ambiguous=is_ambiguous) from error
                if verdict is Verdict.LOST and is_write:
                    is_ambiguous = True
                    if not repeats:
                        break
            else:
                self.meter.add(answer, is_write=is_write)
                return answer
        assert last is not None
        raise _given_up(last, operation.__name__, is_ambiguous=is_ambiguous) from last

    async def pause(self, attempt: int) -> None:
        """Wait for a random while, which may be longer the more tries have failed before this one."""
        delay_s = min(RETRY_MAX_S, RETRY_BASE_S * 2**attempt) * self._random()
        await sleep(self._clock, delay_s)


class Connection(Struct, frozen=True):
    """What every room of the store needs: the table, the time, new ids, and which types the table is known to know."""

    table: Table
    clock: Clock
    ids: Ids
    known_types: set[str] = field(default_factory=set)

    def metered(self) -> Connection:
        """The same, with a meter of its own."""
        return Connection(self.table.metered(), self.clock, self.ids, self.known_types)


def _verdict(error: Exception, *, is_ambiguous: bool) -> Verdict:
    """The verdict on one try; failed conditions are raised as what they are."""
    verdict = judge(error)
    response: dict[str, Any] = getattr(error, "response", {})
    if verdict is Verdict.CONDITION:
        raise ConditionFailedError(response.get("Item"), is_ambiguous=is_ambiguous) from error
    if verdict is Verdict.CANCELLED:
        reasons = response.get("CancellationReasons", [])
        verdict = judge_reasons(reasons)
        if verdict is Verdict.CONDITION:
            raise TransactionRefusedError(failed_conditions(reasons), is_ambiguous=is_ambiguous) from error
    return verdict


def _given_up(error: Exception, operation: str, *, is_ambiguous: bool) -> StoreUnavailableError:
    if is_ambiguous:
        return AnswerLostError(f"DynamoDB {operation}: no answer, it may have been applied ({error})")
    return unavailable(error, operation)
