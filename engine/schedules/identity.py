"""The ids of schedules and of their runs: both say which schedule, and a run's says which occurrence it is."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from engine.author.reaching import SCHEDULE_PREFIX
from engine.errors import InvalidIdError

SCHEDULE_TYPE = "torpor.schedule"
"""The type of every schedule: a workflow of torpor's own."""

NAME_CHARACTERS_MAX = 100
"""Characters of a schedule's name. Design choice: with an instant behind it, it is the id of a run."""

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{NAME_CHARACTERS_MAX - 1}}}")


def schedule_id(name: str) -> str:
    """The workflow id of the schedule ``name``.

    Raises:
        InvalidIdError: it is no name of a schedule.
    """
    if not _NAME.fullmatch(name):
        raise InvalidIdError(
            f"{name[:NAME_CHARACTERS_MAX]!r} is no name of a schedule: up to {NAME_CHARACTERS_MAX} letters, digits, "
            "dots, dashes and underscores make one, a letter or digit first"
        )
    return SCHEDULE_PREFIX + name


def schedule_name(workflow_id: str) -> str:
    """The name of the schedule whose workflow id this is."""
    return workflow_id.removeprefix(SCHEDULE_PREFIX)


def run_id(name: str, at_ms: int) -> str:
    """The id of the run for the occurrence at ``at_ms`` (milliseconds since the epoch): one occurrence, one id."""
    return f"{name}/{instant_text(at_ms)}"


def instant_text(at_ms: int) -> str:
    """An instant as it stands in ids and tags: UTC, to the second, to the millisecond where it is between two."""
    moment = datetime.fromtimestamp(at_ms // 1000, UTC).replace(microsecond=at_ms % 1000 * 1000)
    text = moment.isoformat(timespec="milliseconds" if at_ms % 1000 else "seconds")
    return text.replace("+00:00", "Z")


def scheduled_at(workflow_id: str) -> datetime | None:
    """The occurrence (UTC) that a schedule started this workflow for, as ``ctx.workflow_id`` says; None: none did."""
    name, slash, text = workflow_id.partition("/")
    if not slash or not _NAME.fullmatch(name) or not text.endswith("Z"):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
