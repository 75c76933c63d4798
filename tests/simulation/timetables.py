"""Random schedules as data, by seed, and when they occur: worked out here a second time, without the product's code."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from tests.simulation.children import CHILD, FLEETING

START_MS = 1_767_225_600_000
"""When worlds begin: the first instant of 2026."""

PAST_MS = START_MS - 60_000
"""What is asked for again is from before this, and clocks that are late show no time before it."""

MINUTE_MS = 60_000
DAILY = "30 2 * * *"
BERLIN = "Europe/Berlin"
ZONES = ("UTC", "Asia/Kolkata", "America/St_Johns", BERLIN)
SUMMER = (date(2025, 3, 31), date(2025, 10, 26))
"""The first and the last day on which half past two in Berlin was first of all one of summer time, that year."""

CHANGES = (("2025-03-28T12:00", "2025-03-31T12:00"), ("2025-10-24T12:00", "2025-10-27T12:00"))
"""Times to make up for in which the clocks of Berlin change: once there is no half past two, once there are two."""

Timing = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a schedule is told, so many seconds after the order before: a command and its body."""

    after_s: float
    command: str
    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A schedule that somebody wants: what for, what it is told, and after how many seconds it is deleted."""

    name: str
    body: dict[str, Any]
    lifetime_s: float
    orders: list[Order] = field(default_factory=list)

    @property
    def life(self) -> str:
        """The life of its workflow."""
        return f"schedule:{self.name}.0"

    def forms(self) -> list[dict[str, Any]]:
        """Everything that it may be asked to be: at first, and by updates."""
        return [self.body, *(order.value for order in self.orders if order.command == "update")]

    def __str__(self) -> str:
        told = ", ".join(f"+{order.after_s:.1f} s {order.command} {order.value or ''}" for order in self.orders)
        return f"{self.body} for {self.lifetime_s:.1f} s: {told}"


# --- as data ---------------------------------------------------------------------------------------------------------


def generate_schedule(seed: str) -> Asked:
    """The schedule of ``seed``."""
    rng = random.Random(f"schedule {seed}")
    kind = rng.choice(("every", "every", "every", "every", "cron", "cron", "daily", "at"))
    timing, pace_s, window = _timing(rng, kind)
    body: dict[str, Any] = {
        "type": rng.choice((CHILD, CHILD, FLEETING)),
        "input": {
            "path": "run",
            "sleep_s": rng.choice((0.0, 7.0, 12.0)),
            "fails": rng.random() < 0.15,
            "generations": 0,
        },
        "overlap": rng.choice(("skip", "skip", "queue", "queue", "allow")),
    }
    if (catch_up := rng.choice((0, "30s", "1d", None))) is not None:
        body["catch_up"] = catch_up
    lifetime_s = pace_s * rng.uniform(2, 7)
    if body["overlap"] == "queue" and body["input"]["sleep_s"]:
        # Long enough, and for long enough, that several wait: only then is there an order among them.
        body["input"]["sleep_s"], lifetime_s = 12.0, max(lifetime_s, 5 * pace_s, 45.0)
    orders = _orders(rng, lifetime_s / 4, {**body, **_timing(rng, kind, timing)[0]}, window)
    return Asked(name="s0", body={**body, **timing, "name": "s0"}, lifetime_s=lifetime_s, orders=orders)


def _timing(rng: random.Random, kind: str, before: Timing | None = None) -> tuple[Timing, float, tuple[str, str]]:
    """When it occurs, about how often (seconds), and a time that can be made up for; ``before``: what is updated."""
    until_s = START_MS // 1000 - rng.randint(100, 130)
    match kind:
        case "every":
            interval_s = rng.choice((5, 10, 30))
            timing: Timing = {"every": rng.choice((interval_s, f"{interval_s}s"))}
            if before is None and rng.random() < 0.7:
                timing["start_at"] = _text(START_MS // 1000 - 300)
            elif before is not None and "start_at" in before:
                timing["start_at"] = before["start_at"]
            # An update may make the interval the longest there is.
            return timing, interval_s, (_text(until_s - max(interval_s * 3, 30)), _text(until_s))
        case "cron":
            zone = before["timezone"] if before else rng.choice(ZONES)
            minutes = rng.choice(("*", "*/2", "1,2,3,26,27,28,31,32,33,56,57,58"))
            return {"cron": f"{minutes} * * * *", "timezone": zone}, 60, (_text(until_s - 200), _text(until_s))
        case "daily":
            return {"cron": DAILY, "timezone": BERLIN}, 30, rng.choice(CHANGES)
    at_s = START_MS // 1000 + rng.randint(60, 300)
    return {"at": rng.choice((at_s * 1000, _text(at_s)))}, 80, ("", "")


def _orders(rng: random.Random, spread_s: float, update: dict[str, Any], window: tuple[str, str]) -> list[Order]:
    orders: list[Order] = []
    commands = ["trigger", "trigger", "pause", "pause"]
    if "at" not in update:
        commands.append("update")
    if "cron" in update or "start_at" in update:
        # An interval has no occurrence before what it is aligned to.
        commands.append("backfill")
    wanted = rng.sample(commands, rng.randint(1, 4))
    if update.get("cron") == DAILY:
        wanted = ["backfill", *(one for one in wanted if one not in ("backfill", "update"))]
    for command in wanted:
        value: Any = None
        match command:
            case "backfill":
                value = {"from": window[0], "to": window[1]}
                if rng.random() < 0.5:
                    value["overlap"] = rng.choice(("allow", "queue"))
            case "update":
                value = update
            case "pause":
                value = {"note": "not now"}
        orders.append(Order(after_s=rng.random() * spread_s, command=command, value=value))
        if command == "pause" and rng.random() < 0.8:
            orders.append(Order(after_s=rng.uniform(0.2, 1.5) * spread_s, command="resume"))
    return orders


def _text(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat().replace("+00:00", "Z")


# --- when they occur -------------------------------------------------------------------------------------------------


def occurrences(timing: Timing, after_ms: int, until_ms: int) -> list[int]:
    """When a stored timing occurs after one instant, up to and with another (milliseconds since the epoch)."""
    match timing["type"]:
        case "every":
            anchor_ms, step_ms = timing["anchor_ms"], timing["interval_s"] * 1000
            first = max(0, (after_ms - anchor_ms) // step_ms + 1)
            return list(range(anchor_ms + first * step_ms, until_ms + 1, step_ms))
        case "at":
            return [timing["at_ms"]] if after_ms < timing["at_ms"] <= until_ms else []
    if timing["expression"] == DAILY:
        return [at_ms for at_ms in _days(after_ms, until_ms) if after_ms < at_ms <= until_ms]
    return [at_ms for at_ms in _minutes(after_ms, until_ms) if _local(timing, at_ms) in _wanted(timing)]


def next_occurrence(timing: Timing, after_ms: int) -> int | None:
    """When it occurs next after an instant."""
    span_ms = 2 * 86_400_000 if timing.get("expression") == DAILY else 3_600_000
    if timing["type"] == "at":
        return timing["at_ms"] if timing["at_ms"] > after_ms else None
    if timing["type"] == "every":
        span_ms = max(timing["interval_s"] * 1000, timing["anchor_ms"] - after_ms)
    return occurrences(timing, after_ms, after_ms + span_ms)[0]


def _minutes(after_ms: int, until_ms: int) -> range:
    return range((after_ms // MINUTE_MS + 1) * MINUTE_MS, until_ms + 1, MINUTE_MS)


def _local(timing: Timing, at_ms: int) -> int:
    return datetime.fromtimestamp(at_ms // 1000, ZoneInfo(timing["zone"])).minute


def _wanted(timing: Timing) -> set[int]:
    minutes = timing["expression"].split()[0]
    if minutes.startswith("*"):
        return set(range(0, 60, int(minutes.removeprefix("*").removeprefix("/") or 1)))
    return {int(minute) for minute in minutes.split(",")}


def _days(after_ms: int, until_ms: int) -> list[int]:
    """Half past two in Berlin, each day: by hand, for 2025 and the winter after it."""
    day = datetime.fromtimestamp(after_ms // 1000, UTC).date() - timedelta(days=1)
    found = []
    while (at_ms := _half_past_two(day)) <= until_ms:
        found.append(at_ms)
        day += timedelta(days=1)
    return found


def _half_past_two(day: date) -> int:
    if day == SUMMER[0] - timedelta(days=1):
        # At two it was three.
        hour, minute = 1, 0
    else:
        hour, minute = (0 if SUMMER[0] <= day <= SUMMER[1] else 1), 30
    return int(datetime(day.year, day.month, day.day, hour, minute, tzinfo=UTC).timestamp()) * 1000
