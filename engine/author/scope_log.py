"""A logger for workflow code: silent while its scope replays, and carrying where it logs from."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from engine.location import render

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from engine.scope import Scope

    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter

_LOGGER = logging.getLogger("torpor.workflow")


class ScopeLog(_Adapter):
    """A standard logger, ``torpor.workflow``.

    Its records have ``workflow_id``, ``ray_id`` and ``request_id`` where there are any, ``place`` and ``attempt``.

    ``place`` is where the scope is: not called a location, since Lambda's own records have one, the line of an error's
    code, and drop another. ``attempt`` counts the runs that died since the last commit, from 1.
    """

    def __init__(self, scope: Scope) -> None:
        super().__init__(_LOGGER, {})
        self._scope = scope

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name is logging's
        """Whether a record of ``level`` would be written now: never during a replay."""
        return not self._scope.is_replaying and not self._scope.turn.is_collecting and super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the fields to one record."""
        turn = self._scope.turn
        extra = {
            "workflow_id": turn.workflow_id,
            **turn.origin.known(),
            "place": render(self._scope.location, turn.storage.names),
            "attempt": turn.flusher.deaths + 1,
            **(kwargs.get("extra") or {}),
        }
        return msg, {**kwargs, "extra": extra}
