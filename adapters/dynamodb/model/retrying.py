"""Steps that are tried again, as HEAD tells of them: for people to look at, so few of them and not whole. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adapters.dynamodb.model.expressions import number, text
from adapters.dynamodb.model.limits import RETRYING_ERROR_CHARACTERS, RETRYING_TOLD_MAX
from engine.commit import Retrying
from engine.limits import U32_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable


def told(steps: Iterable[Retrying]) -> tuple[Retrying, ...]:
    """Those that are tried again first, with the beginnings of their errors: what HEAD has room for."""
    first = sorted(steps, key=lambda step: step.retry_at)[:RETRYING_TOLD_MAX]
    return tuple(
        Retrying(
            entry_id=step.entry_id,
            location=step.location[-RETRYING_ERROR_CHARACTERS:],
            attempts=step.attempts,
            attempts_max=min(step.attempts_max, U32_MAX),
            error=step.error[:RETRYING_ERROR_CHARACTERS],
            retry_at=step.retry_at,
        )
        for step in first
    )


def encode_retrying(steps: Iterable[Retrying]) -> dict[str, Any]:
    """An attribute that says which steps these are."""
    return {"L": [{"M": _encoded(step)} for step in steps]}


def _encoded(step: Retrying) -> dict[str, Any]:
    return {
        "id": text(step.entry_id),
        "at": text(step.location.encode("utf-8", "replace").decode()),
        "n": number(step.attempts),
        "of": number(step.attempts_max),
        "error": text(step.error.encode("utf-8", "replace").decode()),
        "next": number(step.retry_at),
    }


def decode_retrying(attribute: dict[str, Any] | None) -> tuple[Retrying, ...]:
    """The steps that such an attribute tells of; none where there is none."""
    steps = [] if attribute is None else [step["M"] for step in attribute["L"]]
    return tuple(
        Retrying(
            entry_id=step["id"]["S"],
            location=step["at"]["S"],
            attempts=int(step["n"]["N"]),
            attempts_max=int(step["of"]["N"]),
            error=step["error"]["S"],
            retry_at=int(step["next"]["N"]),
        )
        for step in steps
    )
