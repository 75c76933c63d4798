"""The workflows that can be run: those of the author's modules, which are imported once a process, and torpor's own.

A module that cannot be imported is named, and kept from harming the others.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any, Protocol

from engine.errors import OperatorError, UnknownTypeError
from engine.schedules.identity import SCHEDULE_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.author.registry import Workflow
    from engine.driver import Clock

logger = logging.getLogger(__name__)

IMPORT_RETRY_MS = 30_000
"""Milliseconds before a module that could not be imported is tried again. Design choice: a broken import is seldom
transient, but a process may live for hours."""


class ApplicationBrokenError(OperatorError):
    """A module named by TORPOR_APP cannot be imported; whoever deploys it must look."""


class WorkflowSource(Protocol):
    """Where the workflow of a type comes from."""

    def get(self, workflow_type: str, /) -> Workflow[Any]:
        """The workflow registered under this type.

        Raises:
            UnknownTypeError: none is.
            ApplicationBrokenError: none is, and a module that may hold it cannot be imported.
        """


class Application:
    """The workflows that the modules named by TORPOR_APP register.

    Args:
        module_names: dotted names separated by commas.
        find: the registry's lookup; raises ``UnknownTypeError``.
        clock: says when a broken module is tried again.
    """

    def __init__(self, module_names: str, find: Callable[[str], Workflow[Any]], clock: Clock) -> None:
        self._waiting = [name.strip() for name in module_names.split(",") if name.strip()]
        self._broken: dict[str, str] = {}
        self._retry_at = 0
        self._find = find
        self._clock = clock

    def load(self) -> None:
        """Import what is not imported yet; never raises, so that one broken module stops no one else."""
        if not self._waiting or self._clock.now() < self._retry_at:
            return
        self._waiting = [name for name in self._waiting if not self._import(name)]
        self._retry_at = self._clock.now() + IMPORT_RETRY_MS

    def _import(self, name: str) -> bool:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:
            self._broken[name] = f"{type(error).__name__}: {error}"
            logger.exception("TORPOR_APP cannot be imported", extra={"app_module": name})
            return False
        self._broken.pop(name, None)
        return True

    def get(self, workflow_type: str, /) -> Workflow[Any]:
        """The workflow registered under this type; see ``WorkflowSource``."""
        if workflow_type == SCHEDULE_TYPE:
            return _built_in(workflow_type)
        self.load()
        try:
            return self._find(workflow_type)
        except UnknownTypeError as error:
            if not self._broken:
                raise
            reasons = "; ".join(f"{name} ({reason})" for name, reason in self._broken.items())
            raise ApplicationBrokenError(
                f'No workflow is registered under "{workflow_type}", and TORPOR_APP names modules that cannot be '
                f"imported: {reasons}. Deploy a build whose modules import.",
            ) from error


def _built_in(workflow_type: str) -> Workflow[Any]:
    # Not at the top: most processes never run one, and every import is somebody's cold start.
    from engine.schedules.workflow import BUILT_IN  # noqa: PLC0415

    return BUILT_IN.get(workflow_type)
