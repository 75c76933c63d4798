"""What workflow code may know: whom it works for, whether to stop, and time and chance that a replay repeats."""

from __future__ import annotations

import random
import uuid
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from engine import values
from engine.author.operating import Operating
from engine.durations import to_datetime
from engine.reading import must_be_readable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from engine.driver import AbortSignal


class Knowing(Operating):
    """What a context tells."""

    __slots__ = ()

    @property
    def workflow_id(self) -> str:
        """The workflow's id."""
        return self._scope.turn.workflow_id

    @property
    def ray_id(self) -> str:
        """What this workflow, who started it and whatever it starts and sends have in common, in logs and messages.

        Empty in a test that gave none.
        """
        return self._scope.turn.origin.ray_id

    @property
    def request_id(self) -> str:
        """The call or the event that began this workflow, or the one that started it; as the log of that call has it.

        Empty in a test that gave none.
        """
        return self._scope.turn.origin.request_id

    @property
    def abort_signal(self) -> AbortSignal:
        """Set when this run must stop, or when another branch of the race that this context lies in has won."""
        return self._scope.abort

    def is_evicted(self) -> bool:
        """Whether this run must stop."""
        return self._scope.turn.abort.is_set()

    @property
    def state(self) -> Mapping[str, Any]:
        """The workflow's document, as the activities that finished before this point left it; equal on replay.

        Empty where none has written it. To be read alone: activities write it. Branches that run side by side do not
        see what the others write until the join or race is over.
        """
        with must_be_readable(self._scope.turn):
            return MappingProxyType(values.decode(self._scope.document.data))

    def now(self) -> datetime:
        """The instant of the latest finished operation, else of the workflow's start (UTC); equal on replay."""
        with must_be_readable(self._scope.turn):
            return to_datetime(self._scope.now())

    def random(self) -> float:
        """A number in [0, 1), different at every call and equal on replay."""
        return random.Random(self._scope.chance()).random()  # noqa: S311 - seeded, and meant to be repeatable

    def uuid(self) -> uuid.UUID:
        """A UUID (version 4 in form), different at every call and equal on replay."""
        return uuid.UUID(bytes=self._scope.chance()[:16], version=4)
