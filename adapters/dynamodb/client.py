"""DynamoDB by the short way: the calls that a table makes, and what their answers look like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

if TYPE_CHECKING:
    from adapters.short_way import ShortWay

TARGET = "DynamoDB_20120810"
"""What stands before an operation's name. Source: the service's model, ``targetPrefix``."""


class _Value(TypedDict, total=False):
    """One typed value; in JSON bytes are base64, which the decoder undoes where a field says so."""

    S: str
    N: str
    B: bytes
    BOOL: bool
    NULL: bool
    SS: list[str]
    NS: list[str]
    BS: list[bytes]
    M: dict[str, _Value]
    L: list[_Value]


_Item = dict[str, _Value]


class _Put(TypedDict, total=False):
    Item: _Item


class _Delete(TypedDict, total=False):
    Key: _Item


class _Write(TypedDict, total=False):
    PutRequest: _Put
    DeleteRequest: _Delete


class _Keys(TypedDict, total=False):
    Keys: list[_Item]


class _Reason(TypedDict, total=False):
    Code: str
    Message: str
    Item: _Item


_Answer = TypedDict(
    "_Answer",
    {
        "Item": _Item,
        "Items": list[_Item],
        "Attributes": _Item,
        "LastEvaluatedKey": _Item,
        "Responses": dict[str, list[_Item]],
        "UnprocessedKeys": dict[str, _Keys],
        "UnprocessedItems": dict[str, list[_Write]],
        "ConsumedCapacity": Any,
        "CancellationReasons": list[_Reason],
        "__type": str,
        "message": str | None,
        "Message": str | None,
    },
    total=False,
)
"""Everything that the answers, and the refusals, of the calls below can say and a table reads."""

_decoder = msgspec.json.Decoder(_Answer)


def read_answer(body: bytes) -> dict[str, Any]:
    """An answer or a refusal as the generic client shapes it; raises ``msgspec.MsgspecError`` where it is none."""
    return dict(_decoder.decode(body))


class DynamoClient:
    """The ``Client`` of a table, by the short way; each call is the service's of that name, with its arguments."""

    __slots__ = ("_way",)

    def __init__(self, way: ShortWay) -> None:
        self._way = way

    async def get_item(self, **arguments: Any) -> dict[str, Any]:
        """See ``Client``."""
        return await self._way.call("GetItem", arguments)

    async def put_item(self, **arguments: Any) -> dict[str, Any]:
        """See ``Client``."""
        return await self._way.call("PutItem", arguments)

    async def update_item(self, **arguments: Any) -> dict[str, Any]:
        """See ``Client``."""
        return await self._way.call("UpdateItem", arguments)

    async def query(self, **arguments: Any) -> dict[str, Any]:
        """See ``Client``."""
        return await self._way.call("Query", arguments)

    async def transact_write_items(self, **arguments: Any) -> dict[str, Any]:
        """See ``Client``."""
        return await self._way.call("TransactWriteItems", arguments)

    async def batch_get_item(self, **arguments: Any) -> dict[str, Any]:
        """See ``Client``."""
        return await self._way.call("BatchGetItem", arguments)

    async def batch_write_item(self, **arguments: Any) -> dict[str, Any]:
        """See ``Client``."""
        return await self._way.call("BatchWriteItem", arguments)
