"""What a schedule may hold, each bound with its source beside it."""

from __future__ import annotations

CATCH_UP_S = 86400
"""Seconds by which a missed occurrence may be late and is still made up for, unless the schedule says otherwise. Design
choice: a night's outage loses no daily report."""

ON_TIME_S = 10
"""Seconds by which an occurrence may be late and is never missed, whatever the schedule says. Design choice: a wake
comes a moment after its time, with a cold start some seconds."""

WAITING_MAX = 100
"""Occurrences that wait for the run before them. Design choice: with more, the schedule is faster than its runs."""

RUNNING_MAX = 100
"""Runs under way that hold up those after them; without overlap only triggers make more than one. Design choice: their
ids, some 120 bytes each, are written with each turn of the schedule, which looks whether each has ended.
With ``allow`` nobody keeps count of runs, and there is no bound."""

BACKFILLS_MAX = 10
"""Backfills that have been asked for and are not done. Design choice."""

BACKFILL_OCCURRENCES_MAX = 1000
"""Occurrences of one backfill. Design choice: each is a workflow, and a slip in a year is soon made."""

STARTS_A_TURN = 10
"""Runs started before the schedule looks for messages again. Design choice."""

OCCURRENCES_A_TURN = 100
"""Occurrences decided on before the schedule looks for messages again. Design choice."""

MISSED_COUNTED_MAX = 1000
"""Occurrences counted as missed at one time; of more it is told that there were so many. Design choice: a schedule of
each minute has half a million in a year, and nobody can use the figure."""

RECENT_KEPT = 10
"""Latest occurrences that a schedule remembers. Design choice."""

INPUT_BYTES_MAX = 32 * 1024
"""CBOR bytes of the input of a schedule's runs. Design choice: it is written with each turn of the schedule."""

NOTE_CHARACTERS_MAX = 200
"""Characters kept of a note or of an error. Design choice."""
