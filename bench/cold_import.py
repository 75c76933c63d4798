"""What a cold start pays before the first line of a handler: imports, beside importing ``aiobotocore.session`` alone.

Every sample is a fresh interpreter that times its own imports, from bytecode, with a warm disk; the modules alternate.
The package that is deployed has bytecode too.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from bench.figure import Figure, Peer, median
from bench.subject import BenchFailedError
from infra.place import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

PEER = "aiobotocore.session"

RATIOS_MAX = {"handlers.worker": 1.5, "handlers.api": 2.0}
"""Source: the limits for a cold start, against the AWS client that both cannot do without."""

SAMPLES, SAMPLES_QUICK = 9, 5

SCRIPT = """
import importlib, sys, time
began = time.perf_counter()
importlib.import_module(sys.argv[1])
print((time.perf_counter() - began) * 1000)
"""


def measure(*, is_quick: bool, report: Callable[[str], None]) -> list[Figure]:
    """The figures of imports; raises BenchFailedError where a module cannot be imported."""
    samples: dict[str, list[float]] = {module: [] for module in (PEER, *RATIOS_MAX)}
    for module in samples:
        _import_ms(module)  # compiles what has no bytecode yet
    count = SAMPLES_QUICK if is_quick else SAMPLES
    for number in range(count):
        report(f"cold imports: {number + 1} of {count}")
        for module, found in samples.items():
            found.append(_import_ms(module))
    return [
        Figure(
            name=f"cold_import_{module}",
            value=median(samples[module]),
            unit="ms",
            limit=limit,
            peer=Peer(name=f"import {PEER}", value=median(samples[PEER])),
        )
        for module, limit in RATIOS_MAX.items()
    ]


def _import_ms(module: str) -> float:
    command = [sys.executable, "-c", SCRIPT, module]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchFailedError(f"{module} cannot be imported:\n{done.stderr}")
    return float(done.stdout)
