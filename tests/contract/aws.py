"""A table of one's own on an emulator, a store on it, and a client that fails when told to."""

from __future__ import annotations

import contextlib
import itertools
import random
from typing import TYPE_CHECKING, Any

from aiobotocore.config import AioConfig
from aiobotocore.credentials import AioCredentials
from aiobotocore.session import get_session
from botocore.exceptions import ClientError

from adapters.dynamodb.client import TARGET, DynamoClient, read_answer
from adapters.dynamodb.model.schema import TABLE_DEFINITION
from adapters.dynamodb.store import Claimed, Store
from adapters.posting import Address, Limits, Poster
from adapters.short_way import Service, ShortWay
from engine.clock import SystemClock
from engine.ids import Ids
from tests.shifted_clock import ShiftedClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from adapters.dynamodb.driver import DynamoDriver

# One session: it keeps the service's model, which takes longer to read than any test.
_SESSION = get_session()
_NUMBERS = itertools.count(1)
_PATIENCE_S = 60
"""Longer than any machine stands still: these calls are made once, and a test fails with them."""

_LIMITS = Limits(connect_timeout_s=_PATIENCE_S, read_timeout_s=_PATIENCE_S, connections_max=50)
_CONFIG = AioConfig(retries={"total_max_attempts": 1}, connect_timeout=_PATIENCE_S, read_timeout=_PATIENCE_S)


class Answer(Exception):  # noqa: N818 - it is what the service answers
    """An answer of the service that is an error: its code, and for a cancelled transaction the reasons."""

    def __init__(self, code: str, reasons: list[str] | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.reasons = reasons


class Faults:
    """A client that passes every call on, except where ``plan`` says otherwise.

    ``plan`` maps an operation's name to what happens to its next calls, one after the other: an exception is raised
    instead of the call (the request is lost), ``("after", exception)`` raises it after the call (the answer is lost),
    ``("held", event)`` holds the answer back until that is set, a coroutine function is awaited before the call, None
    lets the call pass. Where a plan is at its end, ``chance`` is asked.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self.plan: dict[str, list[Any]] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.chance: Callable[[str], Any] = lambda _operation: None

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._client, name)

        async def call(**arguments: Any) -> Any:
            self.calls.append((name, arguments))
            steps = self.plan.get(name, [])
            step = steps.pop(0) if steps else self.chance(name)
            match step:
                case None:
                    return await operation(**arguments)
                case ("after", error):
                    await operation(**arguments)
                    raise self._translated(error, name)
                case ("held", event):
                    answer = await operation(**arguments)
                    await event.wait()
                    return answer
                case BaseException():
                    raise self._translated(step, name)
                case _:
                    await step()
                    return await operation(**arguments)

        call.__name__ = name
        return call

    def _translated(self, error: BaseException, operation: str) -> BaseException:
        if not isinstance(error, Answer):
            return error
        response: dict[str, Any] = {
            "Error": {"Code": error.code, "Message": "injected"},
            "ResponseMetadata": {"HTTPStatusCode": 400},
        }
        if error.reasons is not None:
            response["CancellationReasons"] = [{"Code": reason} for reason in error.reasons]
        translated: BaseException = ClientError(response, operation)
        return translated

    def sent(self, operation: str) -> list[dict[str, Any]]:
        return [arguments for name, arguments in self.calls if name == operation]


class Place:
    """One test's table, and a store on it."""

    def __init__(self, client: Faults, table: str, clock: ShiftedClock) -> None:
        self.client = client
        self.table = table
        self.clock = clock
        self.store = self.another("one")

    def another(self, owner: str) -> Store:
        """Another process on the same table."""
        return Store(
            self.client, self.table, self.clock, Ids(self.clock), owner=owner, random=random.Random(owner).random
        )

    async def started(self, workflow_id: str = "w", **arguments: Any) -> DynamoDriver:
        """A new workflow, claimed."""
        await self.store.start(workflow_id=workflow_id, type="order", input=b"\x01", **arguments)
        return await self.claimed(workflow_id)

    async def claimed(self, workflow_id: str = "w", store: Store | None = None) -> DynamoDriver:
        claim = await (store or self.store).claim(workflow_id)
        assert isinstance(claim, Claimed), claim
        return claim.driver

    async def items(self, workflow_id: str = "w") -> dict[str, dict[str, Any]]:
        """Every stored item of a workflow, by its sort key."""
        found: dict[str, dict[str, Any]] = {}
        start: dict[str, Any] = {}
        while True:
            answer = await self.client.query(
                TableName=self.table,
                KeyConditionExpression="pk = :pk",
                ExpressionAttributeValues={":pk": {"S": workflow_id}},
                ConsistentRead=True,
                **start,
            )
            found |= {item["sk"]["S"]: item for item in answer["Items"]}
            if "LastEvaluatedKey" not in answer:
                return found
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    async def due(self, ahead_ms: int = 0) -> set[str]:
        """The ids of workflows that are due by then."""
        now = self.clock.now() + ahead_ms
        return {entry.workflow_id for entry in await self.store.overdue(now=now, limit_per_shard=100)}


def client_of(service: str, endpoint: str) -> Any:
    """An aiobotocore client of an emulator, as a context."""
    return _SESSION.create_client(
        service,
        endpoint_url=endpoint,
        region_name="eu-west-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106 - of an emulator
        config=_CONFIG,
    )


class Shortened:
    """The calls of a table by the short way, as functions make them; every other by the generic client."""

    def __init__(self, short: DynamoClient, generic: Any) -> None:
        self._short = short
        self._generic = generic

    def __getattr__(self, name: str) -> Any:
        return getattr(self._short if hasattr(self._short, name) else self._generic, name)


@contextlib.asynccontextmanager
async def place_on(endpoint: str, *, by_short_way: bool = False) -> AsyncIterator[Place]:
    """A place on an emulator, reached by the short way, or by the generic client, which checks the form of requests."""
    async with client_of("dynamodb", endpoint) as client, contextlib.AsyncExitStack() as opened:
        table = f"contract-{next(_NUMBERS)}"
        await client.create_table(TableName=table, **TABLE_DEFINITION)
        poster = Poster(Address.of(endpoint), _LIMITS, SystemClock())
        opened.push_async_callback(poster.close)
        service = Service(name="dynamodb", region="eu-west-1", target=TARGET)
        way = ShortWay(poster, service, AioCredentials("test", "test"), SystemClock(), answerer=read_answer)
        called = Shortened(DynamoClient(way), client) if by_short_way else client
        yield Place(Faults(called), table, ShiftedClock())
