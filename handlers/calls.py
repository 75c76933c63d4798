"""A call over HTTP as plain data: what came, what is answered, and how parameters are read."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from engine.clock import sleep
from handlers import bodies
from handlers.problems import INVALID_BODY, INVALID_PARAMETER, Problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from engine.driver import Clock

T = TypeVar("T")

WAIT_MAX_S = 25.0
"""Longest wait of one call, in seconds. Source: an HTTP API gives up after 30 s, and a cold start comes off that."""

ANSWER_MARGIN_MS = 1_000
"""Milliseconds before the deadline by which a waiting call is answered. Design choice."""

POLL_FIRST_S = 0.05
POLL_MAX_S = 1.0
"""Delays between two looks of a waiting call: they double from the first to the most. Design choice: a look costs one
read unit, and a workflow that answers at once should be seen at once."""

LIMIT_MAX = 100
"""Most workflows of one page, or messages. Design choice."""

INSTANT_MS_MAX = 253_402_300_799_999
"""The last millisecond that a date can say. Source: Python's ``datetime`` ends with the year 9999."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What came in.

    Attributes:
        path: the parts of the path, decoded once.
        query: the query's parameters, decoded once; of a repeated one the last.
        repeated: all values of each parameter of the query, in their order.
        headers: by lower-case name.
        body: the bytes that were sent.
        deadline_ms: when the function will be stopped, in milliseconds since the epoch.
        request_id: the id that the gateway has given it; empty where nobody has.
    """

    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    deadline_ms: int
    repeated: Mapping[str, Sequence[str]] = field(default_factory=dict)
    request_id: str = ""

    def value(self) -> Any:
        """The body's value, or ``bodies.ABSENT``; raises ``Problem``."""
        return bodies.read(self.body, self.headers.get("content-type"))

    def wait_s(self) -> float:
        """Seconds that the caller is willing to wait, ``WAIT_MAX_S`` at most; raises ``Problem``."""
        return self.number("wait", 0.0, WAIT_MAX_S)

    def limit(self, most: int = LIMIT_MAX) -> int:
        """How many of something the caller wants, ``most`` at most and where it does not say; raises ``Problem``."""
        limit = int(self.number("limit", most, most))
        if limit < 1:
            raise Problem(INVALID_PARAMETER, f'"limit" must be a number, 1 or more, not "{self.query["limit"]}".')
        return limit

    def flag(self, name: str) -> bool:
        """Whether the query says ``name=true``; raises ``Problem`` where it says neither that nor ``false``."""
        text = self.query.get(name, "false")
        if text not in {"true", "false"}:
            raise Problem(INVALID_PARAMETER, f'"{name}" must be true or false, not "{text}".')
        return text == "true"

    def tags(self) -> dict[str, str]:
        """The tags that the query asks for, each as ``tag=name=value``; raises ``Problem`` where one is none."""
        pairs = [text.partition("=") for text in self.repeated.get("tag", ())]
        if any(not name or not sign for name, sign, _ in pairs):
            raise Problem(INVALID_PARAMETER, 'Write a tag as "tag=name=value".')
        return {name: value for name, _, value in pairs}

    def number(self, name: str, default: float, most: float) -> float:
        """The query's number ``name``, at most ``most``; raises ``Problem`` where it is none or negative."""
        text = self.query.get(name)
        if text is None:
            return default
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not number >= 0:
            raise Problem(INVALID_PARAMETER, f'"{name}" must be a number, 0 or more, not "{text}".')
        return min(number, most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What goes out: a status, a value that becomes the body, further headers."""

    status: int = 200
    value: Any
    headers: Mapping[str, str] = field(default_factory=dict)


async def wait_for(
    clock: Clock, call: Call, look: Callable[[], Awaitable[T | None]], *, wait_s: float, first_s: float = POLL_FIRST_S
) -> T | None:
    """What ``look`` finds, looking again for up to ``wait_s`` seconds; None where it finds nothing by then.

    ``first_s`` is how long it pauses after the first look; the pauses double up to ``POLL_MAX_S``.
    """
    until_ms = min(clock.now() + wait_s * 1000, call.deadline_ms - ANSWER_MARGIN_MS)
    delay_s = first_s
    while True:
        found = await look()
        remaining_s = (until_ms - clock.now()) / 1000
        if found is not None or remaining_s <= 0:
            return found
        await sleep(clock, min(delay_s, remaining_s))
        delay_s = min(delay_s * 2, POLL_MAX_S)


def members(value: Any, allowed: frozenset[str]) -> dict[str, Any]:
    """``value`` as an object with no members but ``allowed``; an absent body is an empty one. Raises ``Problem``."""
    if value is bodies.ABSENT:
        return {}
    if not isinstance(value, dict):
        raise Problem(INVALID_BODY, f"Send an object with the members {', '.join(sorted(allowed))}.")
    unknown = sorted(str(key) for key in value.keys() - allowed)
    if unknown:
        raise Problem(INVALID_BODY, f"Unknown members: {', '.join(unknown)}. Known are {', '.join(sorted(allowed))}.")
    return value


def text(value: Any, name: str) -> str | None:
    """``value`` where it is a text or absent; raises ``Problem``."""
    if value is None or isinstance(value, str):
        return value
    raise Problem(INVALID_BODY, f'"{name}" must be a text.')


def truth(value: Any, name: str) -> bool:
    """``value`` where it is true or false, and False where it is absent; raises ``Problem``."""
    if value is None or isinstance(value, bool):
        return bool(value)
    raise Problem(INVALID_BODY, f'"{name}" must be true or false.')


def texts(value: Any, name: str) -> dict[str, str]:
    """``value`` as an object of texts; None is an empty one. Raises ``Problem``."""
    if value is None:
        return {}
    if isinstance(value, dict) and all(isinstance(part, str) for pair in value.items() for part in pair):
        return value
    raise Problem(INVALID_BODY, f'"{name}" must be an object whose values are texts.')


def instant_ms(value: Any, name: str) -> int | None:
    """An instant as milliseconds since the epoch: from RFC 3339 text, an aware datetime, or such milliseconds."""
    if value is None:
        return None
    at_ms = _milliseconds(value)
    # In UTC, too: the last hours of the last year there is are beyond it where they are west of Greenwich.
    if at_ms is None or abs(at_ms) > INSTANT_MS_MAX:
        detail = f'"{name}" must be an RFC 3339 instant with an offset, or milliseconds since 1970, by the year 9999.'
        raise Problem(INVALID_BODY, detail)
    return at_ms


def _milliseconds(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        return None
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        return None
    return int(moment.timestamp() * 1000)


def instant(value_ms: int | None) -> datetime | None:
    """Milliseconds since the epoch as an aware datetime in UTC."""
    return None if value_ms is None else datetime.fromtimestamp(value_ms / 1000, UTC)
