"""Ray ids: what a workflow, who started it and whatever it starts and sends have in common in logs and events."""

from __future__ import annotations

import re

from adapters.dynamodb.limits import RAY_ID_CHARACTERS_MAX
from engine.errors import InvalidIdError

_RAY_ID = re.compile(rf"[A-Za-z0-9._:-]{{1,{RAY_ID_CHARACTERS_MAX}}}")


def is_ray_id(candidate: object) -> bool:
    """Whether something is a text that any log, header and event can hold as it is."""
    return isinstance(candidate, str) and _RAY_ID.fullmatch(candidate) is not None


def check_ray_id(ray_id: str) -> None:
    """Raise ``InvalidIdError`` unless a ray id is one."""
    if not is_ray_id(ray_id):
        raise InvalidIdError(
            f"a ray id has 1 to {RAY_ID_CHARACTERS_MAX} characters: ASCII letters, digits and . _ : - alone"
        )
