"""Takes the figures: ``python -m bench [--only PART] [--quick]`` prints a table and writes bench/results.json.

A figure beyond its limit is shown as such and changes nothing else; the exit code is 1 only where a part crashed.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback
from typing import TYPE_CHECKING

from bench.results import Results

if TYPE_CHECKING:
    from bench.figure import Figure

PARTS = ("engine_steps", "reference", "aws_durable", "cold_import", "units", "families", "latency")
"""Modules of this package, each with a ``measure``, in the order in which they run."""


def main() -> int:
    """Run the parts asked for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure torpor, and its peers beside it.")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part alone (may be repeated)")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: under 90 seconds, and noisier")
    parser.add_argument("--markdown", action="store_true", help="measure nothing; print the last results for the docs")
    arguments = parser.parse_args()
    results = Results.load()
    if arguments.markdown:
        print("\n".join(results.markdown()))
        return 0
    crashed = []
    for part in arguments.only or PARTS:
        _report(f"{part}")
        try:
            figures: list[Figure] = importlib.import_module(f"bench.{part}").measure(
                is_quick=arguments.quick, report=_report
            )
        except Exception:  # noqa: BLE001 - the other parts are worth having
            traceback.print_exc()
            crashed.append(part)
            continue
        results.replace(part, figures, is_quick=arguments.quick)
        results.save()
        print("\n".join(results.table(part)), flush=True)
    if crashed:
        print(f"crashed: {', '.join(crashed)}")
    return 1 if crashed else 0


def _report(line: str) -> None:
    print(f"  {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
