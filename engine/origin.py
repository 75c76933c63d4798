"""Where work comes from: the ids that it shares with all that comes of the same call, in logs, events and traces."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import asdict


class Origin(Struct, frozen=True, kw_only=True, gc=False):
    """Who began it, as far as anybody said; what a workflow starts, sends and publishes has the workflow's own.

    Attributes:
        ray_id: what a request has in common with everything that comes of it, in any service; empty where unknown.
        request_id: the one call, or the one event, that began it; empty where there was none.
    """

    ray_id: str = ""
    request_id: str = ""

    def known(self) -> dict[str, str]:
        """The ids that are not empty, by name: so that nothing is stored or told of one that nobody gave."""
        return {name: value for name, value in asdict(self).items() if value}


UNKNOWN = Origin()
"""Of what nobody said where it comes from: a test's, or what an older build has stored."""
