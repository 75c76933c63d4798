"""What goes wrong in a world and when, as data: a list that a seed gives, from which a shrunk run leaves things out.

Chance that is needed on the way (how long an answer takes) is a hash of the seed, what it is for, and a count, so that
leaving one fault out does not reshuffle the dice of everything else.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field

CALL_FAULTS = (
    "throttled",
    "conflict",
    "lost before",
    "lost after",
    "late",
    "internal",
    "in progress",
    "slow",
    "kill before",
    "kill after",
    "freeze before",
    "freeze after",
    "outage",
)
"""What may happen to one call to AWS; ``amount`` (0 to 1) says how much of it."""

MOMENT_FAULTS = ("kill", "freeze", "terminate")
"""What may happen to a process at any moment."""

_WEIGHTS = (6, 6, 5, 5, 5, 3, 3, 4, 3, 4, 3, 3, 1)
_CALLS_MAX = 700


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong: at the call with this ``ordinal``, or at ``at_s`` seconds where it is -1."""

    number: int
    kind: str
    ordinal: int = -1
    at_s: float = 0.0
    amount: float = 0.0

    def __str__(self) -> str:
        place = f"{self.at_s:.3f} s" if self.ordinal < 0 else f"call {self.ordinal}"
        return f"fault {self.number}: {self.kind} ({self.amount:.2f}) at {place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How the world is, faults aside; times in seconds, shares from 0 to 1."""

    latency_s: float
    page_items: int
    index_lag_s: float
    function_timeout_s: float
    lease_ms: int
    workers: int
    skew_ms: int
    sqs_loss: float
    sqs_twice: float
    sqs_late: float
    schedule_never: float
    schedule_twice: float
    calm_s: float


@dataclass(slots=True, kw_only=True)
class Plan:
    """What a seed's world has in store; ``without``: numbers of faults left out, ``mute``: of stories."""

    seed: int
    weather: Weather
    faults: list[Fault]
    without: frozenset[int] = frozenset()
    mute: frozenset[int] = frozenset()
    by_ordinal: dict[int, Fault] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def chance(self, what: str) -> float:
        """The next number from 0 to 1 of those that are for ``what``."""
        count = self._counts[what] = self._counts.get(what, -1) + 1
        digest = hashlib.blake2b(f"{self.seed}/{what}/{count}".encode(), digest_size=7).digest()
        return int.from_bytes(digest, "big") / (1 << 56)

    def fault_at(self, ordinal: int) -> Fault | None:
        """What goes wrong with the call of this ordinal."""
        return self.by_ordinal.get(ordinal)

    def moments(self) -> list[Fault]:
        """What goes wrong at a time."""
        return [fault for fault in self.faults if fault.ordinal < 0 and fault.number not in self.without]

    def active(self) -> list[Fault]:
        """Every fault that is not left out."""
        return [fault for fault in self.faults if fault.number not in self.without]


def make_plan(seed: int, *, without: frozenset[int] = frozenset(), mute: frozenset[int] = frozenset()) -> Plan:
    """The plan of ``seed``."""
    rng = random.Random(f"plan {seed}")
    faults = _faults(rng)
    plan = Plan(seed=seed, weather=_weather(rng), faults=faults, without=without, mute=mute)
    plan.by_ordinal = {fault.ordinal: fault for fault in plan.active() if fault.ordinal >= 0}
    return plan


def quiet_plan(faults: list[Fault] | None = None) -> Plan:
    """A plan in which nothing goes wrong but what ``faults`` says."""
    weather = Weather(
        latency_s=0.005,
        page_items=50,
        index_lag_s=0.01,
        function_timeout_s=60.0,
        lease_ms=10_000,
        workers=2,
        skew_ms=0,
        sqs_loss=0.0,
        sqs_twice=0.0,
        sqs_late=0.0,
        schedule_never=0.0,
        schedule_twice=0.0,
        calm_s=1e9,
    )
    plan = Plan(seed=0, weather=weather, faults=faults or [])
    plan.by_ordinal = {fault.ordinal: fault for fault in plan.faults if fault.ordinal >= 0}
    return plan


def _weather(rng: random.Random) -> Weather:
    is_stormy = rng.random() < 0.5
    return Weather(
        latency_s=rng.choice((0.001, 0.005, 0.03)),
        page_items=rng.choice((2, 5, 20)),
        index_lag_s=rng.choice((0.0, 0.2, 3.0)),
        function_timeout_s=rng.choice((24.0, 60.0, 60.0, 300.0)),
        lease_ms=rng.choice((10_000, 10_000, 60_000)),
        workers=rng.choice((1, 2, 4)),
        skew_ms=rng.choice((0, 0, 500, 3_000, 20_000)),
        sqs_loss=rng.choice((0.0, 0.2, 0.9)) if is_stormy else 0.0,
        sqs_twice=rng.choice((0.0, 0.3)),
        sqs_late=rng.choice((0.0, 0.3)),
        schedule_never=rng.choice((0.0, 0.3)),
        schedule_twice=rng.choice((0.0, 0.3)),
        calm_s=rng.choice((60.0, 600.0, 3_000.0)),
    )


def _faults(rng: random.Random) -> list[Fault]:
    faults: list[Fault] = []
    for _ in range(rng.choice((0, 3, 10, 25, 60))):
        kind = rng.choices(CALL_FAULTS, _WEIGHTS)[0]
        # Most of a run's calls are early ones.
        ordinal = int(rng.random() ** 1.5 * _CALLS_MAX)
        faults.append(Fault(number=len(faults), kind=kind, ordinal=ordinal, amount=rng.random()))
    for _ in range(rng.choice((0, 0, 1, 3, 6))):
        kind = rng.choice(MOMENT_FAULTS)
        at_s = 10 ** rng.uniform(-1.5, 3.0)
        faults.append(Fault(number=len(faults), kind=kind, at_s=at_s, amount=rng.random()))
    return faults
