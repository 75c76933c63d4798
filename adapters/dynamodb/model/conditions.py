"""Conditions that several rooms put to HEAD, INBOX and what remembers an id, so that each is said once. Pure."""

from __future__ import annotations

from adapters.dynamodb.model.expressions import Condition, number, text
from engine.lifecycle import ENDED, WorkflowState

_ENDED_VALUES = {f":{state}": text(state) for state in sorted(ENDED)}
_IS_ONE_OF_THEM = f"#state IN ({', '.join(_ENDED_VALUES)})"

HAS_ENDED = Condition(f"attribute_exists(#pk) AND {_IS_ONE_OF_THEM}", _ENDED_VALUES)
"""Of HEAD: the workflow is there and has ended."""

HAS_NOT_ENDED = Condition(f"attribute_exists(#pk) AND NOT {_IS_ONE_OF_THEM}", _ENDED_VALUES)
"""Of HEAD: the workflow is there and has not ended, whoever holds it."""

HAS_FAILED = Condition(
    "#state = :failed AND attribute_not_exists(#purging_at)", {":failed": text(WorkflowState.FAILED)}
)
"""Of HEAD: the workflow has failed, and nobody purges it."""

IS_NOT_UNDONE = Condition(
    f"{HAS_NOT_ENDED.expression} AND NOT #state = :undoing",
    {**_ENDED_VALUES, ":undoing": text(WorkflowState.ROLLING_BACK)},
)
"""Of HEAD: the workflow has not ended, and does not roll back."""

IS_FREE = Condition(f"{HAS_NOT_ENDED.expression} AND attribute_not_exists(#owner)", _ENDED_VALUES)
"""Of HEAD: it has not ended, and nobody holds it."""

NOBODY_LIVING_HOLDS_IT = "(attribute_not_exists(#owner) OR #lease_until <= :now)"
"""Of HEAD, as part of a condition with ``:now``: there is no lease, or it has run out."""

IS_OPEN = Condition("attribute_exists(#n) AND attribute_not_exists(#closed)")
"""Of INBOX: it is there, and its workflow has not ended."""

IS_NOT_CLOSED = Condition("attribute_not_exists(#closed)")
"""Of INBOX: its workflow has not ended, or there is none yet; whoever writes then makes it."""


def is_free_to_run(now: int) -> Condition:
    """Of HEAD: it has not ended, nobody holds it, and its start is not put off beyond ``now`` (milliseconds)."""
    has_begun = "(NOT #state = :waiting OR attribute_not_exists(#wake_at) OR #wake_at <= :now)"
    return Condition(
        f"{IS_FREE.expression} AND {has_begun}",
        {**IS_FREE.values, ":waiting": text(WorkflowState.PENDING), ":now": number(now)},
    )


def has_outlived(now: int) -> Condition:
    """Of HEAD: it has ended, was to be kept until ``now`` (milliseconds) at most, and nobody holds it."""
    is_over = f"#prune_at <= :now AND {NOBODY_LIVING_HOLDS_IT}"
    return Condition(f"{HAS_ENDED.expression} AND {is_over}", {**HAS_ENDED.values, ":now": number(now)})


def is_forgotten(now_s: int) -> Condition:
    """Of an item with a ``ttl``: it is not there, or counts no longer at ``now_s`` (seconds), deleted or not."""
    return Condition("attribute_not_exists(#pk) OR #ttl <= :now", {":now": number(now_s)})
