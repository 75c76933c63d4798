"""What goes wrong at deploy time, in one error whose text tells the reader what to do about it."""

from __future__ import annotations

from engine.errors import OperatorError


class DeployError(OperatorError):
    """Packaging, starting the local AWS or deploying failed; the message is complete and meant for a terminal."""
