"""The twelve orders of the demo: what the shop sends for each, what then happens to it, and how it must end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ORDERS = Path(__file__).with_name("orders.jsonl")

FAILURES = frozenset({"PaymentRefusedError", "CriticalError"})
"""The names in ``ends`` that are errors; the others are outcomes of a receipt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedOrder:
    """One line of orders.jsonl.

    Attributes:
        id: the workflow's id.
        input: the order, as JSON.
        message: when ``shipped`` is posted: ``early`` (before it is waited for), ``late``, ``twice`` (late, and again
            with the same Idempotency-Key) or ``none``.
        ends: the outcome of its receipt, or the name of the error it fails with.
    """

    id: str
    input: dict[str, Any]
    message: str
    ends: str

    @property
    def is_slow(self) -> bool:
        """Whether its payment takes long enough for its worker to be killed meanwhile."""
        return self.input.get("payment") == "slow"

    @property
    def attempts(self) -> int:
        """How often its payment must be tried: a slow one loses its worker once, a flaky one fails twice."""
        return {"slow": 2, "flaky": 3}.get(self.input.get("payment", ""), 1)

    @property
    def must_fail(self) -> bool:
        """Whether it must fail."""
        return self.ends in FAILURES

    @property
    def total(self) -> str:
        """What it costs, for people."""
        cents = sum(item["quantity"] * item["price_cents"] for item in self.input["items"])
        return f"{self.input['currency']} {cents / 100:,.2f}"

    def is_as_expected(self, ending: dict[str, Any]) -> bool:
        """Whether an answer of ``GET /workflows/{id}/output`` is how it must end."""
        if self.must_fail:
            return ending.get("state") == "failed" and (ending.get("error") or {}).get("name") == self.ends
        return ending.get("state") == "completed" and (ending.get("output") or {}).get("outcome") == self.ends


def read_orders(path: Path = ORDERS) -> list[ScriptedOrder]:
    """The orders in ``path``, one JSON object a line."""
    return [ScriptedOrder(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
