"""``python -m tests.simulation``: play many seeds, or one again with its trace, or the mutants."""

from __future__ import annotations

import argparse
import gc
import sys
import time

from tests.simulation.run import Case, play, shrink, told

PROGRESS_EVERY_S = 5.0


def main() -> int:
    """The command line; 1 where a law was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds to play")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="play this one, with its trace")
    parser.add_argument("--without", type=_numbers, default=frozenset(), help="numbers of faults that are left out")
    parser.add_argument("--mute", type=_numbers, default=frozenset(), help="numbers of stories that are left out")
    parser.add_argument("--mutants", action="store_true", help="break the product, and see each breach caught")
    given = parser.parse_args()
    if given.mutants:
        from tests.simulation.mutants import catch_all  # noqa: PLC0415 - it reaches into all of the product

        return 0 if catch_all() else 1
    if given.seed is not None:
        case = Case(seed=given.seed, without=given.without, mute=given.mute)
        _say(told(case))
        return 1 if play(case).breach else 0
    return _play_many(given.first, given.seeds)


def _numbers(text: str) -> frozenset[int]:
    return frozenset(int(number) for number in text.split(",") if number)


def _play_many(first: int, count: int) -> int:
    # A world makes much that outlives a young collection and ends with it.
    gc.set_threshold(200_000, 50, 50)
    began = shown = time.monotonic()  # noqa: TID251 - what a tool tells of its own speed
    failed = 0
    for number in range(count):
        seed = first + number
        world = play(Case(seed=seed))
        if world.breach is not None:
            failed += 1
            _say(f"seed {seed}: {world.breach}\nmaking it smaller ...")
            _say(told(shrink(Case(seed=seed), world.breach.law)))
        now = time.monotonic()  # noqa: TID251
        if now - shown > PROGRESS_EVERY_S or number == count - 1:
            shown = now
            rate = (number + 1) / (now - began)
            _say(f"{number + 1} of {count} seeds, {failed} failed, {rate:.1f} seeds/s")
    return 1 if failed else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
