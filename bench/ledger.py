"""A DynamoDB client that keeps accounts: what each call has cost, by what it was made for, as the service bills it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

READ_UNIT_BYTES = 4096
"""Bytes that one strongly consistent read unit reads. Source: DynamoDB's pricing."""

_READS = frozenset({"get_item", "query"})
_WRITES = frozenset({"put_item", "update_item", "delete_item", "transact_write_items", "batch_write_item"})


class Charge(Struct, frozen=True, kw_only=True):
    """One answered call: what it was made for, its operation, its write units and, of a read, its bytes."""

    purpose: str
    operation: str
    write_units: float
    read_bytes: int


class Ledger:
    """Passes calls on to ``client`` and keeps a charge for each.

    Attributes:
        purpose: what calls are made for from now on.
        charges: every call so far.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self.purpose = ""
        self.charges: list[Charge] = []

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        call = getattr(self._client, operation)

        async def charged(**arguments: Any) -> Any:
            answer = await call(**arguments)
            is_write = operation in _WRITES
            self.charges.append(
                Charge(
                    purpose=self.purpose,
                    operation=operation,
                    write_units=_capacity(answer) if is_write else 0.0,
                    read_bytes=sum(map(item_bytes, answer.get("Items") or [answer.get("Item", {})])),
                )
            )
            return answer

        charged.__name__ = operation
        return charged

    def write_units(self, purpose: str) -> float:
        """Write units of all calls made for ``purpose``."""
        return sum(charge.write_units for charge in self.charges if charge.purpose == purpose)

    def commits(self, purpose: str) -> list[float]:
        """Write units of each transaction made for ``purpose``."""
        return [
            charge.write_units
            for charge in self.charges
            if charge.purpose == purpose and charge.operation == "transact_write_items"
        ]

    def read_units(self, purpose: str) -> int:
        """Read units of all reads made for ``purpose``, strongly consistent, from the bytes of their answers.

        Computed, since the local AWS reports the same for every query.
        """
        read = (
            charge.read_bytes for charge in self.charges if charge.purpose == purpose and charge.operation in _READS
        )
        return sum(max(1, math.ceil(count / READ_UNIT_BYTES)) for count in read)


def _capacity(answer: dict[str, Any]) -> float:
    consumed = answer.get("ConsumedCapacity") or []
    return sum(float(entry["CapacityUnits"]) for entry in ([consumed] if isinstance(consumed, dict) else consumed))


def item_bytes(item: dict[str, dict[str, Any]]) -> int:
    """The size of a stored item as it is billed: names and values (DynamoDB's rules, nested values included)."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _value_bytes(value: dict[str, Any]) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "N":
            # Two digits a byte, and one for the sign and the exponent.
            return math.ceil(len(content.lstrip("-")) / 2) + 1
        case "B":
            return len(content)
        case "M":
            return 3 + item_bytes(content) + len(content)
        case "L":
            return 3 + sum(map(_value_bytes, content)) + len(content)
    return _set_bytes(kind, content)


def _set_bytes(kind: str, content: Iterable[Any]) -> int:
    if kind in ("SS", "NS", "BS"):
        return sum(_value_bytes({kind[0]: member}) for member in content)
    return 1
