"""How hypothesis runs here: without a deadline for one example, since a shared machine may pause in any of them."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
