"""Events as AWS delivered them, and the context that Lambda hands to a handler beside them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EVENTS = Path(__file__).parent / "events"


def recorded(name: str) -> dict[str, Any]:
    """An event as AWS delivered it."""
    event: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text())
    return event


@dataclass
class LambdaContext:
    """What Lambda hands to a handler beside the event."""

    remaining_ms: int = 300_000
    aws_request_id: str = "8f5d2c1e-1f0a-4a53-9a0c-d5f8b1a1c0de"

    def get_remaining_time_in_millis(self) -> int:
        return self.remaining_ms
