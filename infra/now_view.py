"""What a workflow is doing now, in lines for whoever looks after it: since when, until when, and what went wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from engine.lifecycle import ENDED

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES_TOLD = 10
"""Names of messages, or ids of workflows, of a line; ``--json`` has them all. Design choice."""

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400


def lines(known: Mapping[str, Any], now_ms: int) -> list[str]:
    """What ``GET /workflows/{id}`` says of one that has not ended, as of ``now_ms`` (milliseconds); else nothing."""
    if known.get("state") in ENDED or known.get("updated_at") is None:
        return []
    told = [_at_work(known, now_ms)] if known.get("is_running") else _waits(known, now_ms)
    if known.get("state") == "rolling_back":
        told.insert(0, "undoes what it has done")
    if known.get("deaths"):
        times = "once" if known["deaths"] == 1 else f"{known['deaths']} times"
        told.append(f"its process has died, or stood still for longer than its lease, {times} since the last commit")
    return told


def _at_work(known: Mapping[str, Any], now_ms: int) -> str:
    since = _moment(known["updated_at"], now_ms)
    return f"at work; the last commit was at {since}, and a step that is tried for the first time shows when it ends"


def _waits(known: Mapping[str, Any], now_ms: int) -> list[str]:
    since = _moment(known["updated_at"], now_ms)
    steps: list[Mapping[str, Any]] = known.get("retrying") or []
    told = [*(_step(step, now_ms) for step in steps), *_alarm(known, steps, now_ms)]
    names = known.get("waiting_for")
    if names is not None:
        told.append(f"listens for {'messages named ' + _listed(names) if names else 'any message'}")
    if others := known.get("waiting_for_workflows"):
        told.append(f"waits for the end of {_listed(others)}")
    return [*told, f"has waited since {since}"] if told else [f"due: no worker has it; the last commit was at {since}"]


def _alarm(known: Mapping[str, Any], steps: list[Mapping[str, Any]], now_ms: int) -> list[str]:
    """When it goes on by itself, unless that is for the next attempt of a step alone."""
    at = known.get("wake_at")
    if at is None:
        return []
    if _milliseconds(at) <= now_ms:
        return [f"due since {_moment(at, now_ms)}, and no worker has taken it yet"]
    if at in [step["retry_at"] for step in steps]:
        return []
    return [f"{'begins' if known.get('state') == 'pending' else 'sleeps until'} {_moment(at, now_ms)}"]


def _step(step: Mapping[str, Any], now_ms: int) -> str:
    attempts = f"attempt {step['attempts']} of {step['attempts_max']}"
    return f"{step['location']}: {attempts} failed, {step['error']}; again at {_moment(step['retry_at'], now_ms)}"


def _listed(names: list[str]) -> str:
    more = len(names) - NAMES_TOLD
    return ", ".join([*names[:NAMES_TOLD], *([f"and {more} more"] if more > 0 else [])])


def _milliseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def _moment(text: str, now_ms: int) -> str:
    """An instant, and how far it is from now."""
    at_ms = _milliseconds(text)
    away = _span(abs(at_ms - now_ms) / 1000)
    moment = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC ({f'in {away}' if at_ms > now_ms else f'{away} ago'})"


def _span(seconds: float) -> str:
    if seconds < _MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < _HOUR_S:
        return f"{seconds / _MINUTE_S:.0f} min"
    return f"{seconds / _HOUR_S:.1f} h" if seconds < _DAY_S else f"{seconds / _DAY_S:.1f} d"
