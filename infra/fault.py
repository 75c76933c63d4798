"""What goes wrong at deploy time, in one error whose text tells the reader what to do about it."""

from __future__ import annotations

from engine.errors import OperatorError


class DeployError(OperatorError):
    """Packaging, starting the local AWS or deploying failed; the message is complete and meant for a terminal."""


class CalledWronglyError(DeployError):
    """A command was given arguments that do not go together; nothing was done."""
