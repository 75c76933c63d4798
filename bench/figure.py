"""A figure: one measured number, the limit it is held to, and what a peer needed for the same work in the same run."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Peer(Struct, frozen=True, kw_only=True):
    """What somebody else needed for the same work, in the unit of the figure it belongs to."""

    name: str
    value: float


class Figure(Struct, frozen=True, kw_only=True):
    """One figure.

    Attributes:
        name: what was measured; unique in a run.
        value: ours, in ``unit``.
        unit: ``us``, ``ms``, ``units`` (DynamoDB capacity), ``commits``, ``keys`` or ``ratio``.
        limit: the most that is good: of the ratio where there is a peer, else of the value; None where none is set.
        peer: the peer's value, where there is one.
        note: what one must know to read the number.
    """

    name: str
    value: float
    unit: str
    limit: float | None = None
    peer: Peer | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours by the peer's; None without a peer."""
        return None if self.peer is None else self.value / self.peer.value

    @property
    def is_within_limit(self) -> bool | None:
        """Whether the limit holds; None where there is none."""
        if self.limit is None:
            return None
        # Judged as it is shown: a limit of 4.0 units is not broken by the last bit of a float.
        return round(self.value if self.ratio is None else self.ratio, 3) <= self.limit


def least(samples: Sequence[float]) -> float:
    """The least disturbed of repeated measurements: on a shared machine everything else only ever adds time."""
    return min(samples)


def percentile(samples: Iterable[float], percent: float) -> float:
    """The sample that ``percent`` of all are at or below (the nearest rank)."""
    ordered = sorted(samples)
    return ordered[max(0, -(-len(ordered) * percent // 100).__int__() - 1)]


def median(samples: Sequence[float]) -> float:
    """The middle of repeated measurements."""
    return statistics.median(samples)
