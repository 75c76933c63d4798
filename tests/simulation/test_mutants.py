"""Each checker is proved: it catches products broken on purpose; ``make simulate MUTANTS=1`` plays all of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.run import first_breach
from tests.simulation.world import LAWS

if TYPE_CHECKING:
    from tests.simulation.mutant import Mutant

RELIABILITY = Path(__file__).parents[2] / "docs" / "RELIABILITY.md"

QUICK = 60
"""Seeds within which most mutants are caught; those that need more are left to ``make simulate MUTANTS=1``."""

SLOW = frozenset(
    {
        "a commit without the fence",
        "a fence that minds the commit's number alone",
        "a message is acknowledged too soon",
        "a yield without the inbox condition",
        "due is cleared in spite of an outstanding ticket",
        "a cancel is overwritten",
        "what has ended is cancelled",
        "what has ended stays in its group",
        "a cursor leaves some out",
        "an id is known until it is deleted",
        "an id is known for an hour",
        "of two writers the last one wins",
        "a day has 24 hours",
        "an end that is heard of late is none",
    }
)


def test_every_law_has_two_mutants_or_more() -> None:
    counted = Counter(mutant.law for mutant in MUTANTS)
    assert counted.keys() == {law.number for law in LAWS}
    assert min(counted.values()) >= 2
    assert {mutant.name for mutant in MUTANTS} >= SLOW


def test_the_docs_have_the_numbers() -> None:
    said = f"{len(LAWS)} laws are held against {len(MUTANTS)} broken products."
    assert said in RELIABILITY.read_text(encoding="utf-8")


@pytest.mark.parametrize("mutant", [one for one in MUTANTS if one.name not in SLOW], ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught_by_the_checker_meant_for_it(mutant: Mutant) -> None:
    with mutant.alive():
        assert first_breach(range(QUICK), mutant.law) is not None


def test_what_mutants_break_is_whole_again_afterwards() -> None:
    for mutant in MUTANTS:
        before = [vars(owner)[name] for owner, name, _ in mutant.patches()]
        with mutant.alive():
            pass
        assert [vars(owner)[name] for owner, name, _ in mutant.patches()] == before
